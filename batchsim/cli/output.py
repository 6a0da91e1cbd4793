"""Printing: tables for people, one JSON object for programs."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from batchsim import _format
from batchsim._files import replacing
from batchsim.scenario import Scenario
from batchsim.scenario.toml import brief_tables

if TYPE_CHECKING:
    import pandas
    from rich.console import Console

    from batchsim.study.slo import SLO

TEXT = 12  # the least width of a column of text
_ARGUMENT = re.compile(r"\b(requests|unit)='?(\w+)'?")  # as messages name what Python and the shell have
UNLIMITED = 100_000  # the width without a terminal, so that `grep` finds whole lines


def cell(value: Any) -> str:
    """Return a number with four significant digits, whole ones in full, and nothing for NaN.

    >>> cell(17.5), cell(12345.6), cell(0.25), cell(10.0), cell(math.nan)
    ('17.50', '12,346', '0.2500', '10', '')
    """
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if not isinstance(value, (int, float, np.number)):
        return _format.printable(str(value))
    number = float(value)
    if math.isnan(number):
        return ""
    return f"{number:,.0f}" if math.isinf(number) or number == int(number) else _format.fixed(number, 4)


def echo(text: str, err: bool = False, nl: bool = True) -> None:
    """Print text as it is, but for what a terminal would obey: files and names come from anywhere."""
    typer.echo(_format.printable(text), err=err, nl=nl)


def in_shell(text: str) -> str:
    """Return text for people whose advice names options.

    >>> in_shell("run longer: requests=8000, or pass unit='s'")
    'run longer: --requests 8000, or pass --unit s'
    """
    return _ARGUMENT.sub(r"--\1 \2", _format.printable(text))


def print_text(text: str) -> None:
    """Print text, wrapped to the terminal if there is one."""
    _console().print(in_shell(text))


def _console() -> "Console":
    """Return a console as wide as the terminal, if there is one; it prints text as given."""
    from rich.console import Console

    console = Console(markup=False, emoji=False, highlight=False)
    console.width = console.width if console.is_terminal else UNLIMITED
    return console


def print_table(
    title: str, columns: Mapping[str, str], rows: Iterable[Sequence[Any]], notes: Sequence[str] = ()
) -> None:
    """Print a title, a table, and notes below it; `columns` maps headings to "left" or "right"."""
    from rich import box
    from rich.table import Table

    console = _console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name, justify in columns.items():
        heading = name.replace("_", "\n")  # narrow, to leave room for the numbers
        if justify == "right":
            table.add_column(heading, justify="right", no_wrap=True)
        else:
            table.add_column(heading, min_width=TEXT, overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row))
    # A table wider than the terminal is better than truncated numbers.
    least = console.measure(table, options=console.options.update(width=UNLIMITED)).minimum
    console.width = max(console.width, least)
    heading, *below = map(in_shell, (title, *notes))
    console.print(heading, table, *below, sep="\n")


def print_frame(title: str, frame: "pandas.DataFrame", notes: Sequence[str] = ()) -> None:
    """Print a DataFrame as a table, without its empty columns, and notes below it; nothing without rows."""
    if frame.empty:
        return
    names = [name for name in frame if any(map(cell, frame[name]))]
    columns = {name: "left" if frame[name].dtype.kind not in "biuf" else "right" for name in names}
    print_table(title, columns, frame[names].itertuples(index=False), notes)


# For programs.


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object: NaN as null, infinity as "inf"."""
    echo(json.dumps(jsonable(content), allow_nan=False, indent=1))


def jsonable(value: Any) -> Any:
    """Return a value in JSON's types; a DataFrame as a list of its rows.

    >>> jsonable({"a": np.float64("nan"), "b": (math.inf, np.int64(2))})
    {'a': None, 'b': ['inf', 2]}
    """
    if hasattr(value, "to_dict"):
        value = value.to_dict(orient="records")
    if isinstance(value, Mapping):
        return {str(key): jsonable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def objective_tables(scenario: Scenario, slo: "SLO") -> dict[str, Any]:
    """Return an objective's limits that are set, and the scenario."""
    limits = {name: limit for name, limit in vars(slo).items() if limit is not None}
    return {"objective": limits, "scenario": brief_tables(scenario)}


def save_picture(path: Path, figure: Any) -> None:
    """Write a picture in the format of the path's suffix."""
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower())
