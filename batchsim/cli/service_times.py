"""The commands about service times: `batchsim measure` and `batchsim published`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from batchsim.cli import output, values
from batchsim.cli.flags import OUTPUT, JsonFlag, Panel
from batchsim.measured.published import alike, published_names, published_source, published_watts
from batchsim.scenario.step_time import StepCost

MODEL = Panel("Model")
FEW = 10  # with more tables, their sources are not printed


@dataclass
class Measure(JsonFlag):
    """Time a real JAX model on batches of each size, on this machine: on a GPU if JAX finds one.

    batchsim measure --model transformer --save transformer.json
    """

    model: str = MODEL("Which model.", "transformer", metavar="mlp|convnet|transformer")
    width: int | None = MODEL("Width of its layers (default: the model's own).")
    layers: int | None = MODEL("Number of layers (default: the model's own).")
    batch_sizes: Any = MODEL("Batch sizes (default: 1,2,4,8,16,32).", metavar="SIZES", parser=values.sizes)
    target: float = MODEL("Stop when each median's half-interval is below this.", 0.02, metavar="FRACTION")
    limit_s: float = MODEL("Stop after this time, whether or not the target is met.", 5.0)
    repeats: int | None = MODEL("Time each size this many times instead, however long it takes.")
    copy: bool = MODEL("Include the copy of the inputs to the device.", True, "--copy/--no-copy")
    served: bool = MODEL("Time a whole server, with its batcher and a sending thread.", False, "--served")
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
            about = {name: getattr(measured, name) for name in (*names, "knee")}
            notes = [note._asdict() for note in measured.notes]
            output.print_json(about | {"rows": frame, "notes": notes})
        else:
            copy = f"{'with' if measured.copy else 'without'} the copy to the device"
            title = (
                f"{measured.model} on {measured.device}, {'as a server gives it' if self.served else copy}"
            )
            output.print_frame(title, frame, [*measured.remarks, f"knee: {measured.knee}"])


@dataclass
class Published(JsonFlag):
    """List the service times and the power that others measured and published, each with its source."""

    match: str | None = typer.Argument(None, metavar="WORD", help="Words of the name, such as gpunet-175ms.")

    def run(self) -> None:
        tables: list[Any] = [published_source(name) for name in published_names(self.match)]
        steps: list[Any] = [published_source(name) for name in published_names(self.match, tokens=True)]
        power: list[Any] = [published_watts(name) for name in published_names(self.match, watts=True)]
        if not tables and not steps and not power:
            known = [*published_names(), *published_names(tokens=True)]
            hint = alike(self.match or "", known) or "; without a word, all are listed"
            raise ValueError(f"no published name has {self.match!r}{hint}")
        if self.json_:
            listed = [{**vars(table), "service": dict(table.service.points_ms)} for table in tables]
            costs = [{**vars(each), "service": each.service.cost._asdict()} for each in steps]
            every = {"tables": listed, "steps": costs, "watts": [vars(each) for each in power]}
            output.print_json({kind: found for kind, found in every.items() if found})
            return
        if tables:
            stats = " or ".join(sorted({table.stat for table in tables}))
            title = f"Published service times: the {stats} latency of a batch"
            rows = [_ends(table.service.points_ms) for table in tables]
            _print(title, ["batch sizes", "ms"], tables, rows)
        if steps:
            title = "Published times of a step of token generation, in ms: five fitted numbers"
            headings = [name.removesuffix("_ms").replace("_", " ") for name in StepCost._fields]
            rows = [[*(f"{ms:g}" for ms in each.service.cost), f"{each.mean_error:.1%}"] for each in steps]
            _print(title, [*headings, "error"], steps, rows)
        if power:
            title = "Published power of a server while it computes, and the energy of a token or an image"
            rows = [
                [*_ends([(n, each.watts[n], each.joules[n]) for n in each.watts]), each.per] for each in power
            ]
            _print(title, ["batch sizes", "W", "J", "per"], power, rows)


def _ends(points: Sequence[tuple[float, ...]]) -> list[str]:
    """Return the first and the last of each column."""
    return [f"{column[0]:g} to {column[-1]:g}" for column in zip(*points, strict=True)]


def _print(title: str, headings: list[str], sources: list[Any], rows: list[list[str]]) -> None:
    """Print a table, a row for each source, and below it where the numbers are from."""
    columns = {"name": "left", **dict.fromkeys(headings, "right"), "backend": "left"}
    how = "name fewer, as `batchsim published nnunet` does, or use --json"
    notes = [f"{len(sources)} tables. To see their sources, {how}."]
    if len(sources) <= FEW:
        notes = [f"{each.name}: {each.source_url}, {each.licence}" for each in sources]
    cells = [[each.name, *row, each.backend] for each, row in zip(sources, rows, strict=True)]
    output.print_table(title, columns, cells, notes)
