"""The commands about service times: `batchsim measure` and `batchsim published`."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from batchsim import _check
from batchsim.cli import output, values
from batchsim.cli.flags import OUTPUT, JsonFlag, Panel
from batchsim.measured.published import Published as PublishedTable
from batchsim.measured.published import PublishedSteps, published_names, published_source
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
    """List the service times that others measured and published, each with its source."""

    match: str | None = typer.Argument(None, help="Words of the name, such as gpunet-175ms.")

    def run(self) -> None:
        names, steps = (published_names(self.match, tokens=tokens) for tokens in (False, True))
        if not names and not steps:
            known = [*published_names(), *published_names(tokens=True)]
            words = {word for name in known for word in name.split("/")}
            hint = _check.nearest(self.match, words, listed=True) or "; without a word, all are listed"
            raise ValueError(f"no published name has {self.match!r}{hint}")
        sources = [published_source(name) for name in (*names, *steps)]
        tables = [source for source in sources if isinstance(source, PublishedTable)]
        of_steps = [source for source in sources if isinstance(source, PublishedSteps)]
        if self.json_:
            listed = [{**vars(table), "service": dict(table.service.points_ms)} for table in tables]
            costs = [{**vars(each), "service": each.service.cost._asdict()} for each in of_steps]
            output.print_json({"tables": listed, "steps": costs} if costs else {"tables": listed})
            return
        if tables:
            _print_tables(tables)
        if of_steps:
            _print_steps(of_steps)


def _print_tables(tables: list[PublishedTable]) -> None:
    rows = []
    for table in tables:
        sizes, times_ms = zip(*table.service.points_ms, strict=True)
        ranges = f"{sizes[0]} to {sizes[-1]}", f"{times_ms[0]:g} to {times_ms[-1]:g}"
        rows.append((table.name, *ranges, table.backend))
    columns = {"name": "left", "batch sizes": "right", "ms": "right", "backend": "left"}
    stats = " or ".join(sorted({table.stat for table in tables}))
    title = f"Published service times: the {stats} latency of a batch"
    output.print_table(title, columns, rows, _sources(tables))


def _print_steps(steps: list[PublishedSteps]) -> None:
    headings = [name.removesuffix("_ms").replace("_", " ") for name in StepCost._fields]
    columns = {"name": "left", **dict.fromkeys(headings, "right"), "error": "right", "backend": "left"}
    rows = [
        (each.name, *(f"{ms:g}" for ms in each.service.cost), f"{each.mean_error:.1%}", each.backend)
        for each in steps
    ]
    title = "Published times of a step of token generation, in ms: five numbers, fitted to measured times"
    output.print_table(title, columns, rows, _sources(steps))


def _sources(tables: Sequence[PublishedTable | PublishedSteps]) -> list[str]:
    if len(tables) <= FEW:
        return [f"{table.name}: {table.source_url}, {table.licence}" for table in tables]
    how = "name fewer, as `batchsim published nnunet` does, or use --json"
    return [f"{len(tables)} tables. To see their sources, {how}."]
