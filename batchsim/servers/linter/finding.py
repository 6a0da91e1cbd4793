"""The linter's answer: findings with their numbers, and notes without."""

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from batchsim._format import counted, html_table, number
from batchsim.result.metrics import described
from batchsim.scenario import Scenario
from batchsim.servers.server import ServerConfig

if TYPE_CHECKING:
    import pandas


def measured(key: str, value: float) -> str:
    """Return a metric with its value.

    >>> measured("p99_ms", 12.34), measured("loss", 0.021), measured("load", math.inf)
    ('p99 12.3 ms', 'loss 2.1 %', 'load ∞')
    """
    each = described(key)
    if key == "loss":
        return f"loss {number(100 * value)} %"
    unit = {"per s": "/s", "": ""}.get(each.unit, f" {each.unit}")
    return f"{each.label} {number(value, 4 if key == 'load' else 3)}{unit}"


@dataclass(frozen=True)
class Finding:
    """A setting that costs something here, the number that proves it, and the change that helps.

    `code` is stable. `key` names the number, `value` is its value with the settings as they are, and
    `changed_value` with `change`, a dict of settings to replace, in the same traffic. If no setting of the
    server helps, `change` is empty and `remedy` describes another change. `effect` is the factor by which the
    p99 of all requests falls; inf if the queue had grown without bound, or more than 1 % had been lost.
    """

    code: str
    sentence: str
    key: str
    value: float
    changed_value: float
    effect: float
    change: Mapping[str, Any]
    remedy: str = ""

    @property
    def proof(self) -> str:
        """The number with the settings as they are."""
        return measured(self.key, self.value)

    @property
    def gain(self) -> str:
        """The same number with the change; "" without a change."""
        return "" if math.isnan(self.changed_value) else measured(self.key, self.changed_value)

    @property
    def advice(self) -> str:
        """The change in words."""
        return self.remedy or ", ".join(f"{name}={value!r}" for name, value in self.change.items())

    def __str__(self) -> str:
        gives = f" gives {self.gain}" if self.gain else ""
        return f"{self.code}: {self.sentence} Now {self.proof}; {self.advice}{gives}."

    @property
    def about(self) -> tuple[str, ...]:
        """The setting that the finding is about: the first that changes."""
        return tuple(self.change)[:1]


@dataclass(frozen=True)
class Note:
    """A fact about settings, by name, that no run confirms as a cost."""

    code: str
    sentence: str
    about: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Findings(Sequence[Finding]):
    """The findings about a server's settings, the greatest effect first; empty, and so false, if clean."""

    config: ServerConfig
    scenario: Scenario
    findings: tuple[Finding, ...]
    notes: tuple[Note, ...]
    runs: tuple[tuple[str, float, float, str], ...] = ()  # of the settings, then of each change

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(finding.code for finding in self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.findings[index]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def title(self) -> str:
        """The verdict on one line."""
        found = counted(len(self), "finding") if self else "nothing found"
        return f"{self.config.server}: {found}"

    def lines(self, each: Finding | Note) -> tuple[int, ...]:
        """Return the lines of the text that was read which hold what a finding or a note is about."""
        places = self.config.places
        return tuple(dict.fromkeys(places[name][0] for name in each.about if name in places))

    def _at(self, each: Finding | Note) -> str:
        lines = self.lines(each)
        return f"line {', '.join(map(str, lines))}: " if lines else ""

    def settings(self) -> "pandas.DataFrame":
        """Return a row for the settings as they are, and for each change; the p99 of an overload is inf."""
        import pandas

        return pandas.DataFrame(self.runs, columns=["settings", "p99_ms", "saturation_per_s", "outcome"])

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with one row per finding."""
        import pandas

        columns = ("code", "sentence", "key", "value", "changed_value", "effect", "advice")
        return pandas.DataFrame([[getattr(each, name) for name in columns] for each in self], columns=columns)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for instance for JSON."""
        names = ("code", "sentence", "key", "value", "changed_value", "effect", "change", "remedy")
        findings, notes = (
            [{name: getattr(each, name) for name in some} | {"lines": self.lines(each)} for each in every]
            for some, every in ((names, self.findings), (names[:2], self.notes))
        )
        return {"server": self.config.server, "findings": findings, "notes": notes}

    def __repr__(self) -> str:
        lines = [self.title]
        for place, each in enumerate(self, 1):
            gives = f" gives {each.gain}" if each.gain else ""
            lines += [
                f"{place}. {self._at(each)}{each.code}: {each.sentence}",
                f"     now     {each.proof}",
                f"     change  {each.advice}{gives}",
            ]
        return "\n".join([*lines, *(f"note: {self._at(note)}{note.sentence}" for note in self.notes)])

    def _repr_html_(self) -> str:
        heads = ("", "what is wrong", "now", "change", "gives") if self else ()
        rows = [(one.code, self._at(one) + one.sentence, one.proof, one.advice, one.gain) for one in self]
        notes = "".join(f"<p>Note: {html.escape(self._at(note) + note.sentence)}</p>" for note in self.notes)
        return html_table(self.title, heads, rows, "<" * len(heads)) + notes
