"""`batchsim measure`: the service time of a real model on this machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchsim.cli import output, values
from batchsim.cli.flags import OUTPUT, JsonFlag, Panel

MODEL = Panel("Model")


@dataclass
class Measure(JsonFlag):
    """Time a real JAX model on batches of each size, on this machine: on a GPU if JAX finds one.

    batchsim measure --model transformer --save transformer.json
    """

    model: str = MODEL.option("Which model.", "transformer", metavar="mlp|convnet|transformer")
    width: int | None = MODEL.whole("Width of its layers (default: the model's own).")
    layers: int | None = MODEL.whole("Number of layers (default: the model's own).")
    batch_sizes: Any = MODEL.option(
        "Batch sizes (default: 1,2,4,8,16,32).", metavar="SIZES", parser=values.sizes
    )
    repeats: int = MODEL.whole("Number of times each size is timed.", 30)
    save: Path | None = OUTPUT.file("Save it as JSON, for --measurement.")

    def run(self) -> None:
        from batchsim import device

        model = device.load_model(self.model, width=self.width, layers=self.layers)
        measured = device.measure(model, self.batch_sizes or [1, 2, 4, 8, 16, 32], repeats=self.repeats)
        if self.save is not None:
            measured.save(self.save)
        frame = measured.to_frame()
        if self.json_:
            about = {name: getattr(measured, name) for name in ("model", "device", "platform", "measured_at")}
            output.print_json({**about, "rows": frame})
        else:
            title = f"{measured.model} on {measured.device}, {measured.repeats} repeats"
            output.print_frame(title, frame)
