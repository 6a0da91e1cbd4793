"""The two tables of VALIDATION.md: on the machine's clock, and on the one that jumps."""

import datetime
import multiprocessing
import platform
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from validation.real_batchers.cases import CASES, MANY, SCALE
from validation.real_batchers.clocks import Jumping, Machine

TABLES = Path(__file__).with_name("tables.md")
HEAD = "| server | requests/s | real | simulated | error | sizes | {} | |\n" + 8 * "|---" + "|\n"
PACKAGES = ("litserve", "batched", "bentoml", "ray_serve")


def on_the_machine(case, seconds):
    slow = case.times(SCALE)
    return slow.compare(Machine, max(50, round(slow.rate_per_s * seconds)))


def undisturbed(cases, seconds, at_once, say, tries=3):
    """What was found of each case; those that the machine disturbed ran again, fewer at a time."""
    found, left = {}, list(cases)
    for number in range(tries):
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(max(1, at_once // (number + 1)), mp_context=context) as pool:
            for case, what in zip(left, pool.map(on_the_machine, left, [seconds] * len(left)), strict=True):
                say(line(case, what, f"{what.shift:.1%}, {what.late:.1%}"))
                found[str(case), case.rate_per_s] = what
        left = [case for case in left if found[str(case), case.rate_per_s].verdict == "disturbed"]
        if not left:
            break
    return [found[str(case), case.rate_per_s] for case in cases]


def verdict(case, found):
    if found.verdict == "differs" and case.known:
        return f"differs: {case.known}"
    return found.verdict if found.verdict != "differs" else "**DIFFERS**"


def line(case, found, last):
    errors = " ".join(f"{error:+.1%}" for error in found.errors)
    numbers = f"{found.real} | {found.simulated} | {errors} | {found.apart:.2f} | {last}"
    return f"| {case} | {case.rate_per_s:g} | {numbers} | {verdict(case, found)} |\n"


def versions():
    modules = {case.server: case.module for case in CASES}
    return ", ".join(f"{name} {modules[name].VERSION}" for name in PACKAGES)


def tables(seconds, at_once, say=lambda row: None):
    """Return the tables; on the machine's clock a case takes `seconds`, `at_once` of them at a time."""
    names = versions()  # which loads the packages, once for all processes that are forked from here
    slow, fast = ([case for case in CASES if case.on in (on, "both")] for on in ("machine", "jumping"))
    exact = [line(case, found := case.compare(Jumping, MANY), f"{found.same:.1%}") for case in fast]
    rows = [
        line(case, found, f"{found.shift:.1%}, {found.late:.1%}")
        for case, found in zip(slow, undisturbed(slow, seconds, at_once, say), strict=True)
    ]
    today, python = datetime.date.today(), platform.python_version()
    return (
        f"On a clock that jumps, {MANY:,} requests each. {names}; Python {python}; {today}.\n\n"
        f"{HEAD.format('same starts')}{''.join(exact)}\n"
        f"On the machine's clock, {seconds:g} s each, times {SCALE} times as long as the settings say.\n\n"
        f"{HEAD.format('shift, late')}{''.join(rows)}"
    )
