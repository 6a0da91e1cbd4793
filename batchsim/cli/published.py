"""`batchsim published`: the service times that others published."""

from dataclasses import dataclass

from batchsim import _check
from batchsim.cli import output
from batchsim.cli.flags import JsonFlag, argument
from batchsim.scenario import published_names, published_source

FEW = 10  # the sources of at most this many tables are printed


@dataclass
class Published(JsonFlag):
    """List the service times that others measured and published, each with its source."""

    match: str | None = argument("Words of the name, such as gpunet-175ms.")

    def run(self) -> None:
        names = published_names(self.match)
        if not names:
            words = {word for name in published_names() for word in name.split("/")}
            hint = _check.nearest(self.match, words, listed=True) or "; without a word, all are listed"
            raise ValueError(f"no published name has {self.match!r}{hint}")
        tables = [published_source(name) for name in names]
        if self.json_:
            listed = [{**vars(table), "service": dict(table.service.points_ms)} for table in tables]
            output.print_json({"tables": listed})
            return
        rows = []
        for table in tables:
            sizes, times_ms = zip(*table.service.points_ms, strict=True)
            ranges = f"{sizes[0]} to {sizes[-1]}", f"{times_ms[0]:g} to {times_ms[-1]:g}"
            rows.append((table.name, *ranges, table.backend))
        notes = [f"{table.name}: {table.source_url}, {table.licence}" for table in tables]
        if len(tables) > FEW:
            how = "name fewer, as `batchsim published nnunet` does, or use --json"
            notes = [f"{len(tables)} tables. To see their sources, {how}."]
        columns = {"name": "left", "batch sizes": "right", "ms": "right", "backend": "left"}
        stats = " or ".join(sorted({table.stat for table in tables}))
        output.print_table(f"Published service times: the {stats} latency of a batch", columns, rows, notes)
