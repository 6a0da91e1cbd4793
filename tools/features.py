"""List what a user can reach: names, options, controls, views, servers, lessons. `make features` prints it.

A refactoring leaves the list as it is: compare the lists of two revisions with `diff`. Features are found by
walking the package's modules, not by their paths, so that one copy of this file lists both revisions.
"""

import contextlib
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import typer.main
from tracked import notebooks

import batchsim as bs

ROOT = Path(bs.__file__).parent
PUBLIC = (bs, bs.servers, bs.theory, bs.device, bs.teaching)


def modules() -> list[ModuleType]:
    names = [each.name for each in pkgutil.walk_packages(bs.__path__, "batchsim.")]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


def table(loaded: list[ModuleType], name: str) -> dict:
    """Return the table of that name, wherever it is defined."""
    found = [getattr(each, name) for each in loaded if isinstance(getattr(each, name, None), dict)]
    return found[0]


def subclasses(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def named_class(loaded: list[ModuleType], name: str) -> type:
    return next(getattr(each, name) for each in loaded if inspect.isclass(getattr(each, name, None)))


def parameters(called: object) -> str:
    try:
        return f"({', '.join(inspect.signature(called).parameters)})"
    except (TypeError, ValueError):
        return ""


def public_names() -> Iterator[str]:
    for module in PUBLIC:
        for name in sorted(module.__all__):
            value = getattr(module, name)
            yield f"{module.__name__}.{name}{parameters(value) if callable(value) else ''}"
            if inspect.isclass(value):
                yield from (
                    f"{module.__name__}.{name}.{member}"
                    for member in sorted(dir(value))
                    if not member.startswith("_") and member not in dir(int) + dir(tuple)
                )


def commands(loaded: list[ModuleType]) -> Iterator[str]:
    app = typer.main.get_command(importlib.import_module("batchsim.cli").app)
    for name, command in sorted(app.commands.items()):
        for parameter in command.params:
            yield f"batchsim {name} {'/'.join(sorted(parameter.opts))}"


def metrics() -> Iterator[str]:
    requests = bs.Scenario(
        bs.Poisson(900).with_priorities({1: 0.5, 2: 0.5}), bs.SizeOrWait(8, 5), bs.Affine(2, 0.5),
        servers=2, devices=1, timeout_ms=50,
    )  # fmt: skip
    tokens = bs.Scenario(
        bs.Poisson(4), bs.Continuous(8, kv_blocks=100), bs.StepTime(5, 1, 0.1), tokens=bs.Tokens(50, 10)
    )
    sized = bs.Scenario(
        bs.Poisson(900).with_sizes(bs.Geometric(80)), bs.SizeOrWait(8, 5, max_batch_units=999),
        bs.PaddedTime(2, 0.5, 0.001),
    )  # fmt: skip
    for kind, scenario in (("requests", requests), ("sizes", sized), ("tokens", tokens)):
        result = bs.simulate(scenario, 200)
        yield from (f"summary of {kind}: {key}" for key in result.summary())
        yield from (f"frame of {kind}: {column}" for column in result.to_frame())
        swept = bs.sweep(scenario, {"servers": [2]}, requests=200, progress=False)
        yield from (f"sweep of {kind}: {column}" for column in swept)


def features() -> Iterator[str]:
    loaded = modules()
    yield from public_names()
    yield from commands(loaded)
    yield from metrics()
    for name, control in table(loaded, "CONTROLS").items():
        yield f"control {name}: {control.label}"
    for view in subclasses(named_class(loaded, "View")):
        if getattr(view, "KEY", "") and getattr(view, "NAME", ""):
            yield f"view {view.KEY}: {view.NAME}"
    for page in subclasses(named_class(loaded, "Page")):
        yield f"page {page.title}"
    for server in (*bs.servers.SERVERS, *bs.servers.SIZE_SERVERS, *bs.servers.TOKEN_SERVERS):
        yield f"server {server}{parameters(getattr(bs.servers, server.replace('-', '_'), None))}"
        with contextlib.suppress(ValueError):  # servers of which no file is written
            yield f"server {server} writes {bs.servers.file_name(server)}"
    yield from (f"format {name}" for name in table(loaded, "FORMATS"))
    yield from (f"published {name}" for name in bs.published_names())
    yield from (f"exercise {number}" for number in bs.teaching.EXERCISES)
    yield from (f"page of the course {path.name}" for path in notebooks("notebooks/**/*.ipynb"))


if __name__ == "__main__":
    sys.stdout.write("\n".join(sorted(set(features()))) + "\n")
