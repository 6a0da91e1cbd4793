"""What is right is right among all values and with every seed, and mistakes are told apart."""

import re
import sys
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from lesson_cells import LESSONS, code, define, read
from wrong_answers import WRONG, given

import batchsim as bs
from batchsim.teaching import EXERCISES, SERVICE
from batchsim.teaching.exercises import continuous_batching as tokens
from batchsim.teaching.exercises import exercise
from batchsim.teaching.exercises import one_long_sentence as sentence
from batchsim.teaching.exercises import same_knobs_different_servers as same
from batchsim.teaching.exercises import tune_to_an_objective as tuned
from batchsim.teaching.exercises.exercise import Limit, Number
from batchsim.teaching.exercises.program import Program

pytestmark = pytest.mark.usefixtures("right_once")
NUMBERS = {name: asked for name, asked in EXERCISES.items() if isinstance(asked, Number)}
LIMIT = re.compile(
    r"What\sis\sthe\s(?:smallest|largest|shortest|longest|highest)|Up\sto\show|,\sat\smost, for"
)
CHECKED = re.compile(r'^check\("([^"]+)", (\w+)\)', re.MULTILINE)
NUMBER = re.compile(r"\d[\d,.]*")


@cache
def solutions():
    """Return by exercise its question, the cells up to its solution, and the name of the answer."""
    found = {}
    for path in LESSONS:
        notebook = read(path)
        cells = code(notebook)
        for place, cell in enumerate(cells):
            if checked := CHECKED.search(cell.source):
                before = notebook.cells[notebook.cells.index(cell) - 1].source
                found[checked[1]] = before.partition("### Exercise")[2], cells[: place + 1], checked[2]
    return found


@cache
def solved(name, seed):
    """Return a student's answer, found as the solution finds it, with a seed."""
    _, cells, variable = solutions()[name]
    namespace = {"check": lambda *_: None, "__name__": "lesson", "SEED": seed}
    define(cells[:-1], namespace)
    exec(cells[-1].source, namespace)
    return namespace[variable]


@pytest.fixture
def with_seed(monkeypatch):
    """Return a function that makes the exercises anew, as if their seed were another one."""

    def change(seed):
        for module in [each for name, each in sys.modules.items() if name.startswith(exercise.__package__)]:
            if hasattr(module, "SEED"):
                monkeypatch.setattr(module, "SEED", seed)
            classes = [each for each in vars(module).values() if isinstance(each, type)]
            for each in [*vars(module).values(), *(part for kind in classes for part in vars(kind).values())]:
                getattr(getattr(each, "__func__", each), "cache_clear", lambda: None)()
        made = {name: type(asked)() for name, asked in EXERCISES.items()}
        for asked in made.values():
            if isinstance(asked, Number):
                asked.right = cache(asked.right)
        return made

    yield change
    change(exercise.SEED)


# A limit is the last of all values that keeps its condition.


def p99_ms(scenario, requests, column="latency_ms"):
    return bs.simulate(scenario, requests, seed=1).percentile(99, column=column)


def load_of(wait_ms):
    rule = bs.servers.ray_serve(same.MAX_BATCH_SIZE, wait_ms / 1000)
    return bs.Scenario(bs.Poisson(1500), rule, same.SERVICE).load


def kept_by(servers):
    scenario = bs.Scenario(bs.Poisson(3550), bs.SizeOrWait(), tuned.SERVICE, servers=int(servers))
    knobs = {"max_batch_size": tuned.SIZES, "max_wait_ms": tuned.WAITS_MS}
    table = bs.sweep(scenario, knobs, 20_000, seed=1, progress=False)
    return (table.p99_ms[table.stable] <= 30).any()


def seats_ms(seats):
    scenario = bs.Scenario(
        bs.ClosedLoop(128), bs.Continuous(int(seats)), bs.published(tokens.STEP), tokens=tokens.TOKENS
    )
    return p99_ms(scenario, 10_000, "tpot_ms")


def limited_ms(thousands):
    rule = bs.SizeOrWait(32, 10, max_batch_units=round(1000 * thousands))
    return p99_ms(bs.Scenario(bs.Poisson(1200).with_sizes(sentence.SIZES), rule, sentence.SERVICE), 100_000)


# Of each question about a limit: the values that an answer may have, whether one keeps it, and which is best.
LIMITS = {
    "01.2": (range(1, 60), lambda size: size / SERVICE(size) > 3000, min),
    "04.2": (np.arange(0.01, 3, 0.01), lambda ms: ms + 2 * 2.15 <= 2 * 2 + max(2 - ms, 0) + 1e-9, max),
    "04.3": (np.arange(0, 6.6, 0.5), lambda ms: busy(ms) <= 0.5, min),
    "07.2": (range(50, 1549, 50), lambda rate: bs.theory.expected(one_card(rate)).percentile(99) <= 20, max),
    "07.3": (range(1, 5), kept_by, min),
    "09.2": (np.arange(0.1, 10, 0.01), lambda wait_ms: load_of(wait_ms) <= 1, min),
    "10.3": (range(8, 129, 8), lambda seats: seats_ms(seats) <= 48, max),
    "11.2": (range(1, 17), lambda thousands: limited_ms(thousands) <= 30, max),
}  # fmt: skip


def busy(wait_ms):
    scenario = bs.Scenario(bs.Poisson(1000), bs.SizeOrWait(32, wait_ms), SERVICE)
    return bs.simulate(scenario, 100_000, seed=1).utilisation


def one_card(rate_per_s):
    return bs.Scenario(bs.Poisson(rate_per_s), bs.SizeOrWait(16, 0), tuned.SERVICE)


def test_every_question_about_a_limit_is_tried_with_all_values():
    asking = {name for name, (asked, *_) in solutions().items() if LIMIT.search(asked)}
    assert {name for name, asked in EXERCISES.items() if isinstance(asked, Limit)} <= asking == set(LIMITS)


@pytest.mark.parametrize("name", LIMITS)
def test_an_answer_is_right_if_it_keeps_the_limit_and_no_value_that_does_is_beyond_it(name):
    values, keeps, best = LIMITS[name]
    asked = NUMBERS[name]
    kept = [value for value in values if keeps(value)]
    accepted = [value for value in values if asked.judge(value).right]
    assert best(kept) in accepted
    assert set(accepted) <= set(kept)
    assert accepted == [value for value in kept if asked.near(value, asked.right())]
    assert asked.judge(asked.right()).right


def test_the_largest_of_values_is_found_beyond_a_gap():
    class Gap(Limit):
        tried = range(1, 10)
        unit = "requests"

        def keeps(self, answer):
            return answer in (2, 3, 5)

        def because(self, right):
            return ""

    assert [answer for answer in Gap.tried if Gap().judge(answer).right] == [5]


# Whatever the seed is.


def seeds(*some):
    rare = pytest.mark.rare("eight seeds; one more than the lesson's sees most of it in `make test`")
    return pytest.mark.parametrize("seed", [*some, *(pytest.param(each, marks=rare) for each in range(3, 9))])


@seeds(1, 2)
@pytest.mark.parametrize("name", [name for name in EXERCISES if name != "01.4"])  # which is played
def test_what_the_solution_gives_is_right_with_any_seed(name, seed):
    assert EXERCISES[name].judge(solved(name, seed)).right


@pytest.mark.parametrize("name", [name for name in EXERCISES if name != "01.4"])
def test_the_verdict_that_a_lesson_stores_is_that_of_today(name):
    (stored,) = solutions()[name][1][-1].outputs
    told = stored.text.replace("\n    ", " ")
    assert told == f"Right: {EXERCISES[name].judge(solved(name, 1)).text}\n"


@seeds(2)
def test_a_known_answer_is_judged_alike_with_any_seed(with_seed, seed):
    known = {}
    for name, asked in EXERCISES.items():
        if isinstance(asked, Program):
            continue
        values = [given(asked, answer) for answer, _ in WRONG[name]]
        if isinstance(asked, Number):
            values += [asked.right(), *(value for value, _ in asked.mistakes(asked.right()))]
        known[name] = [(value, asked.judge(value)) for value in values]
    anew = with_seed(seed)
    for name, judged in known.items():
        for value, (right, text) in judged:
            again = anew[name].judge(value)
            assert (right, NUMBER.sub("#", text)) == (again.right, NUMBER.sub("#", again.text)), (name, value)


# Each known mistake has a value of its own.


@pytest.mark.parametrize("name", NUMBERS)
def test_right_and_mistaken_values_are_told_apart(name):
    asked = NUMBERS[name]
    right = asked.right()
    told = [(right, ""), *asked.mistakes(right)]
    near = [
        (one, other)
        for (one, text), (other, word) in combinations(told, 2)
        if text != word and abs(one - other) <= asked.within * (abs(one) + abs(other))
    ]
    assert near == []
    assert [(value, text) for value, text in told[1:] if asked.judge(value).text != text] == []


@pytest.mark.parametrize(
    "name", [name for name, asked in NUMBERS.items() if asked.unit.startswith("percent")]
)
def test_who_is_right_about_a_percentage_reads_it_again(name):
    right = NUMBERS[name].right()
    said = NUMBERS[name].because(right)
    assert any(f"{right:{digits}} %" in said for digits in (".0f", ".1f"))
