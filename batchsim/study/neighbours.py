"""The neighbours of a setting: what a step of one knob to either side changes, in the same traffic."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from batchsim.study.candidate import Candidate
from batchsim.study.judgement import Estimate
from batchsim.study.kinds import kind_of
from batchsim.study.search import Search
from batchsim.study.slo import LEVEL

if TYPE_CHECKING:
    import pandas

NEXT, HALFWAY, TWICE, HALF, SOME = "next", "halfway", "twice", "half", "some"
SCALED = (TWICE, HALF, SOME)


def neighbours(
    search: Search, chosen: Candidate, over: Mapping[str, Any],
    make: Callable[[Any, dict[str, Any]], Candidate | ValueError],
) -> "pandas.DataFrame":  # fmt: skip
    """Return the table of a setting's neighbours; see `Recommendation.neighbours`.

    `make` returns the candidate of a scenario with other knobs, or an error if that is refused.
    """
    known = [(each.knobs, each) for each in search.candidates]
    steps = []
    for step, name, value in [*_in_grid(chosen, over), *_scaled(chosen)]:
        knobs = chosen.knobs | {name: value}
        each: Any = next((each for others, each in known if others == knobs), None)
        each = each or make(chosen.scenario, {name: value})
        if isinstance(each, Candidate) and each.scenario.stable:
            known.append((knobs, each))
            steps.append((step, name, value, each))
    search.run([*dict.fromkeys(each for *_, each in steps)])
    level, key = 1 - (1 - LEVEL) / (2 * max(len(steps), 1)), search.slo.latency.key
    return table(
        key,
        *(
            [name, step, value, *each.full.latency, *_difference(search, chosen, each, level),
             each.full.judgement.excess <= 1]
            for step, name, value, each in steps
        ),
    )  # fmt: skip


def table(key: str, *rows: list[Any]) -> "pandas.DataFrame":
    """Return the table of some rows, with a latency."""
    import pandas

    ends = [f"{name}{end}" for name in (key, "difference_ms") for end in ("", "_low", "_high")]
    frame = pandas.DataFrame(rows, columns=["knob", "step", "value", *ends, "meets"])
    # Whole numbers stay so among others.
    return frame.assign(value=pandas.Series([value for _, _, value, *_ in rows], dtype=object))


def _difference(search: Search, chosen: Candidate, other: Candidate, level: float) -> Estimate:
    """Return by how much another setting is slower, with its interval; NaN ends if that is unknown."""
    value = other.full.latency.value - chosen.full.latency.value
    low, high = -search.bound(chosen, other, level).most, search.bound(other, chosen, level).most
    if not search.steady(chosen, other) or not math.isfinite(low + high):
        low = high = math.nan
    return Estimate(value, low, high)


def _in_grid(chosen: Candidate, over: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the next values of each knob in its grid, and those halfway; not halfway to other servers."""
    for name, values in over.items():
        value = chosen.knobs[name]
        numbers = sorted(each for each in values if type(each) in (int, float) and math.isfinite(each))
        if value not in numbers or isinstance(values, Mapping):
            continue
        at, parameter = numbers.index(value), chosen.scenario.rule.parameters().get(name)
        whole = parameter.kind == "whole" if parameter else all(type(each) is int for each in numbers)
        for other in (*numbers[max(at - 1, 0) : at], *numbers[at + 1 : at + 2]):
            yield NEXT, name, other
            middle = (value + other) / 2 if 0 in (value, other) else math.sqrt(value * other)
            middle = round(middle) if whole else float(f"{middle:.2g}")
            if middle not in (value, other) and name != "servers":
                yield HALFWAY, name, middle


def _scaled(chosen: Candidate) -> Iterator[tuple[str, str, Any]]:
    """Yield twice and half the value of the knob on the y axis of the rule's heat map."""
    scenario, rule, kind = chosen.scenario, chosen.scenario.rule, kind_of(chosen.scenario)
    _, name = rule.map_knobs
    value, it = getattr(rule, name), rule.parameters()[name]
    if value is None:  # no limit
        return
    if kind.in_steps(rule):
        yield TWICE, name, value * 2
        yield HALF, name, max(value // 2, 1)
    elif it.kind == "whole":
        twice = value * 2 if it.of_sizes else min(value * 2, rule.max_batch_size)
        for step, other in ((TWICE, twice), (HALF, value // 2)):
            if 1 <= other != value:
                yield step, name, other
    elif rule.max_batch_size > 1 and value != math.inf:
        if value:
            yield TWICE, name, value * 2
            yield HALF, name, value / 2
        else:  # instead of no wait, the time of one request
            yield SOME, name, float(f"{kind.one_ms(scenario):.2g}")
