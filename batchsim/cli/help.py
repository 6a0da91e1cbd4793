"""The help of a command: examples, then its options in groups, at any width without a truncated name."""

import re
from collections.abc import Mapping
from itertools import zip_longest
from textwrap import wrap
from typing import Any

from typer.core import TyperCommand

from batchsim.cli.flags import COMMON, RARE

COLUMN = max(map(len, RARE))
_ALL = "batchsim help of all options"  # the key in Typer's context


class GroupedCommand(TyperCommand):
    """A command whose help shows the common options in groups, and names the others."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_ALL] = "--help-all" in args
        return super().parse_args(ctx, ["--help"] if ctx.meta[_ALL] else args)

    def get_short_help_str(self, limit: int = 45) -> str:
        return (self.help or "").partition("\n\n")[0]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[Any]] = {}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                title = "Options"
                if param.param_type_name == "argument":
                    title, record = "Arguments", (str(param.metavar), record[1])
                groups.setdefault(getattr(param, "rich_help_panel", None) or title, []).append(
                    (param, record)
                )
        rare = [] if ctx.meta.get(_ALL) else [title for title in RARE if title in groups]
        for title in sorted(groups.keys() - set(rare), key=[*COMMON, *RARE].index):
            with formatter.section(title):
                formatter.write_dl([record for _, record in groups[title]])
        if rare:
            with formatter.section("More options, which --help-all explains"):
                for title in rare:
                    names = ", ".join(param.opts[0] for param, _ in groups[title])
                    lines = wrap(names, formatter.width - COLUMN - 4, break_on_hyphens=False)
                    rows = zip_longest([f"{title:{COLUMN}}"], lines, fillvalue=" " * COLUMN)
                    formatter.write_dl([*rows])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (TypeError, ValueError) as error:
            text, params = str(error), [each for each in self.get_params(ctx) if each.opts[0][:2] == "--"]
            typed = " ".join([*(ctx.params.get("over") or ()), *(ctx.params.get("set_") or ())])
            names = {str(each.name): each.opts[0] for each in params if f"{each.name}=" not in typed}
            if any(name in text and ctx.params.get(name) is not None for name in names):
                text = _in_options(text, names)
            raise type(error)(text) from error


def _in_options(text: str, options: Mapping[str, str]) -> str:
    """Return an error with the names of options instead of their Python names."""
    knob = re.match(r"a knob must be one of the scenario's, got '(\w+)'", text)
    if knob and knob[1] in options:
        return f"{options[knob[1]]} has no effect on this scenario: its workload, rule or service lacks it"
    if knob or ".toml" in text:  # where these names are the right ones
        return text
    for name, option in options.items():
        own = rf"(?<![-\w.'=(\[]){name}(?![\w=.(])" if "_" in name else rf"^{name}(?= must )"
        text = re.sub(own, option, text)
    return text
