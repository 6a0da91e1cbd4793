"""`batchsim init`, `measure`, `published` and `lab`."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

import batchsim as bs
from batchsim import _check
from batchsim.cli import output as show
from batchsim.cli import values
from batchsim.cli.flags import OUTPUT, Json, check_output, parsed, whole

FEW = 10  # published tables, whose sources are printed in full
MODEL = "Model"  # a panel of the help


def init(
    path: Annotated[Path, Argument(help="The file to write.")] = Path("scenario.toml"),
    force: Annotated[bool, Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a scenario as TOML to start from: every knob with a comment, and it runs as it is."""
    from importlib.resources import files

    from batchsim._files import replacing

    check_output("The file", path)
    if path.exists() and not force:
        raise ValueError(f"{path} is there already: give another name, or --force")
    with replacing(path) as file:
        text = files("batchsim.cli").joinpath("scenario.toml").read_text(encoding="utf-8")
        file.write(text.replace("THIS_FILE", os.fspath(path)).encode())
    typer.echo(f"Wrote {path}. Next: batchsim simulate {path}")


def measure(
    model: Annotated[
        str, Option(metavar="mlp|convnet|transformer", help="Which model.", rich_help_panel=MODEL)
    ] = "transformer",
    width: Annotated[int | None, whole("--width", "Of its layers; else the model's own.", MODEL)] = None,
    layers: Annotated[int | None, whole("--layers", "How many; else the model's own.", MODEL)] = None,
    batch_sizes: Annotated[
        Any,
        parsed("--batch-sizes", "SIZES", values.sizes, "As 1,2,4; else 1,2,4,8,16,32.", MODEL),
    ] = None,
    repeats: Annotated[int, whole("--repeats", "How often each size is timed.", MODEL)] = 30,
    save: Annotated[
        Path | None, Option(help="Keep it as JSON, for --measurement.", rich_help_panel=OUTPUT)
    ] = None,
    json_: Json = False,
) -> None:
    """Time a real JAX model on batches of each size, on this machine: on a GPU if JAX finds one.

    batchsim measure --model transformer --save transformer.json
    """
    check_output("--save", save)
    from batchsim import device

    loaded = device.load_model(model, width=width, layers=layers)
    found = device.measure(loaded, batch_sizes or [1, 2, 4, 8, 16, 32], repeats=repeats)
    if save is not None:
        found.save(save)
    frame = found.to_frame()
    if json_:
        about = {name: getattr(found, name) for name in ("model", "device", "platform", "measured_at")}
        show.print_json({**about, "rows": show.records(frame)})
    else:
        show.print_frame(f"{found.model} on {found.device}, {found.repeats} repeats", frame)


def published(
    match: Annotated[str | None, Argument(help="Words of the name, as resnet50/t4.")] = None,
    json_: Json = False,
) -> None:
    """List the service times that others measured and published, each with its source."""
    names = bs.published_names(match)
    if not names:
        words = {word for name in bs.published_names() for word in name.split("/")}
        hint = _check.nearest(match, words, listed=True) or "; without a word, all are listed"
        raise ValueError(f"no published name has {match!r}{hint}")
    found = [bs.published_source(name) for name in names]
    if json_:
        show.print_json(
            {"tables": [{**vars(table), "service": dict(table.service.points_ms)} for table in found]}
        )
        return
    rows = []
    for table in found:
        sizes, times_ms = zip(*table.service.points_ms, strict=True)
        ranges = f"{sizes[0]} to {sizes[-1]}", f"{times_ms[0]:g} to {times_ms[-1]:g}"
        rows.append((table.name, *ranges, table.backend))
    notes = [f"{table.name}: {table.source_url}, {table.licence}" for table in found]
    if len(found) > FEW:
        fewer = "name fewer, as `batchsim published nnunet`, or take --json"
        notes = [f"{len(found)} tables. For their sources {fewer}."]
    columns = {"name": "left", "batch sizes": "right", "ms": "right", "on": "left"}
    stats = " or ".join(sorted({table.stat for table in found}))
    show.print_table(f"Published service times: the {stats} latency of a batch", columns, rows, notes)


def lab(
    port: Annotated[int, whole("--port", "Where it listens, on this machine only.", OUTPUT)] = 8888,
    notebooks: Annotated[
        Path | None, Option(help="The folder of the notebooks; else that of the course.")
    ] = None,
) -> None:
    """Open the course in JupyterLab."""
    _check.whole("--port", port, at_most=65_535)
    places = [Path(bs.__file__).parents[1] / "notebooks", Path("notebooks")]
    folder = next((place for place in ([notebooks] if notebooks else places) if place.is_dir()), None)
    if folder is None:
        where = f"got {notebooks}" if notebooks else "which a copy of the project has"
        raise ValueError(f"the notebooks must be in a folder, {where}; --notebooks names one")
    if importlib.util.find_spec("jupyterlab") is None:
        raise ValueError("JupyterLab must be installed, as `make lab` or `pip install jupyterlab` does")
    front = folder / "00-explorer.ipynb"
    start = f"/lab/tree/{folder.name}/{front.name}" if front.exists() else f"/lab/tree/{folder.name}"
    command = [sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1", f"--port={port}"]
    command += ["--LanguageServerManager.autodetect=False", f"--LabApp.default_url={start}"]
    if hasattr(os, "getuid") and os.getuid() == 0:
        command.append("--allow-root")  # which JupyterLab refuses else; it listens on loopback, with a token
    running = subprocess.Popen(command, cwd=folder.resolve().parent)
    while True:
        try:
            raise typer.Exit(running.wait())
        except KeyboardInterrupt:
            continue  # JupyterLab hears it too, and asks
