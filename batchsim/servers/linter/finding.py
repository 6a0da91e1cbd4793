"""The linter's answer, and the runs of settings as they are and with changes that prove each finding."""

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from batchsim._compat import kept
from batchsim._format import counted, html_table, number
from batchsim.result import Result
from batchsim.result.comparison import compare
from batchsim.result.metrics import described
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.servers.server import Server, ServerConfig
from batchsim.simulate import available, simulate

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
        runs = self.settings().to_dict("records")
        return {"server": self.config.server, "findings": findings, "notes": notes, "settings": runs}

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


P99 = "p99_ms"
PARTS, LEAST = 4, 500  # the parts of a run without an interval, and the requests in each


@dataclass(frozen=True, eq=False)
class Outcome:
    """A scenario with some settings, and its run."""

    change: Mapping[str, Any]
    scenario: Scenario
    run: Callable[[Scenario], Result]

    @property
    def overloaded(self) -> bool:
        """Whether more arrives than full batches carry, so that limits and timeouts only lose requests."""
        return self.load >= 1

    @property
    def load(self) -> float:
        """The arrival rate over the rate that full batches carry."""
        workload = self.scenario.workload
        if isinstance(workload, ClosedLoop):
            return math.nan
        full = self.scenario.full_batches_per_s
        return workload.offered_per_s / full if full else 0.0  # all rejected for their size: none computes

    @kept
    def result(self) -> Result:
        return self.run(self.scenario)

    @kept
    def loss(self) -> float:
        totals = self.result.metrics
        return 1 - totals.served / int(totals.totals.requests)

    @kept
    def p99_ms(self) -> float:
        """The p99 of all requests, with infinity for a lost one; inf if overloaded."""
        return math.inf if self.overloaded else self.result.percentile(99, unserved="inf")

    @property
    def mean_ms(self) -> float:
        return math.inf if self.overloaded else self.result.mean_latency_ms

    def beats(self, other: "Outcome", part: float) -> bool:
        """Return whether the p99 is significantly lower, by this part of the other's, and nothing is worse.

        "Worse": a higher mean or loss.
        """
        if math.inf in (self.p99_ms, other.p99_ms):
            return self.p99_ms < math.inf
        if self.p99_ms > (1 - part) * other.p99_ms:
            return False
        if self.loss > other.loss + 1e-3 or self.mean_ms > 1.02 * other.mean_ms:
            return False
        high = compare(other.result, self.result, [P99], silent=True)[P99].high
        return self._in_each_part(other, part) if math.isnan(high) else high < 0

    def _in_each_part(self, other: "Outcome", part: float) -> bool:
        """Return whether the p99 is lower in each part of the run.

        Near its limit a queue moves too slowly for an interval, however large the difference.
        """
        mine, others = (np.array_split(each.result.latency_ms, PARTS) for each in (self, other))
        if len(mine[0]) < LEAST:
            return False
        p99s = np.array([[np.nanpercentile(each, 99) for each in parts] for parts in (mine, others)])
        return bool((p99s[0] <= (1 - part) * p99s[1]).all())

    def effect_over(self, other: "Outcome") -> float:
        """Return the factor by which the other's p99 exceeds this one's."""
        return math.inf if other.p99_ms == math.inf else other.p99_ms / self.p99_ms


@dataclass
class Trial:
    """A server's settings under a scenario; `outcome(name=value)` runs changed ones."""

    server: Server
    config: ServerConfig
    base: Scenario
    requests: int
    seed: int
    _outcomes: dict[str, Outcome | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        meant = self.config.apply(self.base, silent=True)
        try:
            same = self.server.configure(self.settings).apply(self.base, silent=True) == meant
        except (TypeError, ValueError):
            same = False
        if not same:
            must = "a config must have the settings of its rule, as from servers.config"
            raise ValueError(f"{must}, got {self.config.rule!r} and settings={dict(self.settings)!r}")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, without unknown ones."""
        known = self.server.settings
        return {name: value for name, value in self.config.settings.items() if name in known}

    def setting(self, name: str) -> Any:
        """Return the value of a setting, given or default."""
        return self.settings.get(name, self.server.default(name))

    def said(self, name: str) -> str:
        """Return a setting as it is written: `name=value`."""
        return f"{name}={self.setting(name)!r}"

    @kept
    def now(self) -> Outcome:
        """The outcome of the settings as they are."""
        return Outcome({}, self.config.apply(self.base, silent=True), self._run)

    @kept
    def alone(self) -> Outcome:
        """The outcome with a device for each server."""
        return self.other(replace(self.now.scenario, devices=None))

    def outcome(self, **change: Any) -> Outcome | None:
        """Return the outcome of changed settings; None if the server or the scenario refuses them."""
        key = repr(sorted(change.items()))
        if key not in self._outcomes:
            try:
                config = self.server.configure({**self.settings, **change})
                self._outcomes[key] = Outcome(change, config.apply(self.base, silent=True), self._run)
            except ValueError:
                self._outcomes[key] = None
        return self._outcomes[key]

    def other(self, scenario: Scenario) -> Outcome:
        """Return the outcome of a change outside the settings."""
        return Outcome({}, scenario, self._run)

    def resized(self, size: int, wait_ms: float | None = None) -> Outcome | None:
        """Return the outcome of another largest batch, without larger sizes, and of another wait if given."""
        words = self.server.words
        change: dict[str, Any] = {words.size: size}
        if wait_ms is not None and words.wait:
            change[words.wait] = words.wait_of(wait_ms)
        for name in (words.sizes, "preferred_batch_size"):
            if sizes := self.settings.get(name):
                smaller = [each for each in sizes if each < size]
                change[name] = [*smaller, size] if name == words.sizes else [*smaller, *{size} & {*sizes}]
        return self.outcome(**change)

    def waited(self, wait_ms: float) -> Outcome | None:
        """Return the outcome of another wait."""
        words = self.server.words
        return self.outcome(**{words.wait: words.wait_of(wait_ms)})

    def _run(self, scenario: Scenario) -> Result:
        return simulate(scenario, available(scenario, self.requests), self.seed, keep="requests")
