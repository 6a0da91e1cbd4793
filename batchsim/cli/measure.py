"""`batchsim measure`: the service time of a real model on this machine."""

import sys
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
    target: float = MODEL.number("FRACTION", "How well each median is to be known: half its interval.", 0.02)
    limit_s: float = MODEL.number("S", "When to stop, known or not.", 5.0)
    repeats: int | None = MODEL.whole("Time each size so many times instead, however long it takes.")
    copy: bool = MODEL.option(
        "Include the copy of the inputs to the device, or not.", True, "--copy/--no-copy"
    )
    served: bool = MODEL.option(
        "Time a whole server instead: through its batcher, beside the thread that sends.", False, "--served"
    )
    save: Path | None = OUTPUT.file("Save it as JSON, for --measurement.")

    def run(self) -> None:
        from batchsim import device

        model = device.load_model(self.model, width=self.width, layers=self.layers)
        measured = device.measure(
            model, self.batch_sizes or [1, 2, 4, 8, 16, 32], target=self.target, limit_s=self.limit_s,
            repeats=self.repeats, copy=self.copy, served=self.served, progress=sys.stderr.isatty(),
        )  # fmt: skip
        if self.save is not None:
            measured.save(self.save)
        frame = measured.to_frame()
        if self.json_:
            names = ("model", "device", "platform", "measured_at", "copy", "served", "target", "not_fitting")
            about = {name: getattr(measured, name) for name in names}
            notes = [note._asdict() for note in measured.notes]
            output.print_json({**about, "knee": measured.knee, "rows": frame, "notes": notes})
        else:
            how = f"{'with' if measured.copy else 'without'} the copy to the device"
            title = f"{measured.model} on {measured.device}, {'as a server gives it' if self.served else how}"
            output.print_frame(title, frame, [*measured.remarks, f"knee: {measured.knee}"])
