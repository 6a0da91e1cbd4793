"""The pseudo-code is true of the engines: read literally, it makes the same batches, for the same reasons."""

import contextlib
import html
import math
import re
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from oracles.naive import Naive, after
from oracles.plans import SERVERS_RULES, in_naive_words, plans_with_ties, scenarios_at_random

import batchsim as bs
from batchsim.engines.draws import draw
from batchsim.engines.reference import engine
from batchsim.result import Result, Run
from batchsim.scenario import RULES as BUILT_IN
from batchsim.scenario.rules.continuous import BatchWait, NewTokenRatio
from batchsim.scenario.rules.rule import START, Waiting
from batchsim.view.film.film import RequestFilm
from batchsim.view.film.pseudocode import CodeLine, pseudocode, sentence, shares, to_html

ROW = r"<div([^>]*)><span>([^<]*)</span><span>([^<]*)</span></div>"
RULES = [
    bs.SizeOrWait(32, 10),
    bs.SizeOrWait(32, 0),
    bs.SizeOrWait(32, math.inf),
    bs.SizeOrWait(1, 10),
    bs.AtLeast(4, 8),
    bs.AtLeast(1, 8),
    bs.AtLeast(8, 8),
    bs.AtLeast(1, 1),
]


@dataclass
class Reader(Naive):
    """The naive simulator of everything but the rule, which it reads from the lines' own words."""

    lines: tuple[CodeLine, ...] = ()
    left_by: list[int] = field(default_factory=list)  # for each batch the line

    def look(self, now):
        assert self.lines[0].text == "while requests wait:"
        while self.waiting:
            number, size = self.first_that_acts(now)
            if size is None:
                return
            self.left_by.append(number)
            taken, self.waiting = self.waiting[:size], self.waiting[size:]
            self.take(now, taken, why=-1)

    def first_that_acts(self, now):
        arrivals_s = [self.arrival[request] for request in self.waiting]
        busy, ended = None not in self.computing, not self.someone_may_come()
        return first_that_acts(self.lines, now, arrivals_s, self.max_wait_ms, busy, ended)


def first_that_acts(lines, now, arrivals_s, max_wait_ms, busy, ended):
    """Return the first line whose condition holds, by its own words, and how many it sends (None: none)."""
    for number, line in enumerate(lines[1:], 1):
        condition, action = re.fullmatch(r"(.+?): +(.+)", line.text).groups()
        condition = condition.removeprefix("if ").removeprefix("elif ")
        if holds(condition, now, arrivals_s, max_wait_ms, busy, ended):
            return number, sent(action, condition, len(arrivals_s))
    raise AssertionError("no line acts, although requests wait")


def holds(condition, now, arrivals_s, max_wait_ms, busy, ended):
    if condition in ("else", "a request waits"):
        return True
    if condition == "every server is busy":
        return busy
    if condition == "no more will come":
        return ended
    if condition == "the oldest comes now":
        return arrivals_s[0] == now
    if condition.endswith(" and one is late"):
        enough = len(arrivals_s) >= min(sizes(condition.removesuffix(" and one is late")))
        return enough and now >= after(arrivals_s[0], max_wait_ms / 1000)
    if condition == "it has waited longer":
        return now > after(arrivals_s[0], max_wait_ms / 1000)
    if found := re.fullmatch(r"the oldest has waited (\S+) ms", condition):
        # To the digits that are shown, and then exactly.
        assert float(found[1]) == pytest.approx(max_wait_ms, rel=1e-11)
        return now == after(arrivals_s[0], max_wait_ms / 1000)
    if found := re.fullmatch(r"the ([\d,]+)(?:st|nd|rd|th) comes now", condition):
        number = whole(found[1])
        return len(arrivals_s) >= number and arrivals_s[number - 1] == now
    return len(arrivals_s) >= min(sizes(condition))


def sizes(condition):
    """The numbers of "4, 8 or 16 or more wait"."""
    (numbers,) = re.fullmatch(r"(.+) or more wait", condition).groups()
    return [whole(number) for number in re.split(", | or ", numbers)]


def sent(action, condition, waiting):
    """Return how many are sent, at most; None for none."""
    if action in ("wait for a server", "wait for company"):
        return None
    if action == "send all":
        return waiting
    if action == "send it":
        return 1
    if action == "send the most of these":
        return max(size for size in sizes(condition) if size <= waiting)
    (numbers,) = re.fullmatch(r"send the oldest(?: (.+))?", action).groups()
    choices = [whole(number) for number in (numbers or "1").split(", else ")]
    return max(size for size in choices if size <= waiting)


def whole(text):
    return int(text.replace(",", ""))


def read(plan, lines=None):
    scenario = plan.scenario
    rule = scenario.rule
    largest = max(rule.max_batch_size, 3 if lines else 1)
    return Reader(
        requests=plan.requests,
        service_s=[math.nan] + [scenario.service(size) for size in range(1, largest + 1)],
        max_batch_size=0,
        # When it is woken. Other lines do not act then, and time would stand still.
        max_wait_ms=math.inf if lines else rule.max_wait_ms,
        **in_naive_words(plan),
        lines=lines or pseudocode(rule),
    ).run()


def assert_read_literally_it_is_the_engine(plan):
    result, reader = Result((Run(plan.scenario, engine.run(plan)),), 0, "simpy"), read(plan)
    assert np.array_equal(result.arrival_s, reader.arrival)
    assert np.array_equal(result.batch_index, reader.batch)
    assert np.array_equal(result.status, reader.status)
    assert np.array_equal(result.batches.start_s, reader.batch_start)
    assert np.array_equal(result.batches.server, reader.server)
    for trigger, number in zip(result.batches.trigger, reader.left_by, strict=True):
        event(f"{bs.Trigger(trigger).name} by {reader.lines[number].text}")
        assert trigger == reader.lines[number].trigger


@settings(max_examples=200)
@given(plans_with_ties())
def test_read_literally_it_decides_as_the_engine_when_everything_is_tied(plan):
    assert_read_literally_it_is_the_engine(plan)


@settings(max_examples=40)
@given(scenarios_at_random(), st.integers(0, 99))
def test_read_literally_it_decides_as_the_engine_on_random_traffic(scenario, seed):
    assert_read_literally_it_is_the_engine(draw(scenario, 150, seed))


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_the_words_of_another_rule_do_not_decide_as_the_engine(rule):
    plan = draw(bs.Scenario(bs.Poisson(2000), rule, bs.Affine(5, 0.25)), 100, 0)
    reader = read(plan, pseudocode(bs.AtLeast(2, 3)))
    assert not np.array_equal(engine.run(plan).batch_index, reader.batch)


PREFERRED = [
    bs.PreferredSizes([4, 8], 8, 5),
    bs.PreferredSizes([2, 3, 7], 7, 0),
    bs.PreferredSizes([8], 8, math.inf),
    bs.PreferredSizes([1, 4], 4, 0),
    bs.PreferredUntilLate([4, 8], 8, 5),
    bs.PreferredUntilLate([2, 3], 7, 5),
    bs.PreferredUntilLate([2, 3, 7], 7, 0),
    bs.PreferredUntilLate([8], 8, math.inf),
    bs.PreferredUntilLate([1, 4], 4, 5),
]


@settings(max_examples=300)
@given(
    st.sampled_from([*RULES, *PREFERRED]),
    st.lists(st.sampled_from([0.0, 0.001, 0.005, 0.01]), min_size=1, max_size=12),
    st.sampled_from([0.01, 0.015, 0.02]),
    st.booleans(),
)
def test_read_literally_it_decides_as_the_rule_itself(rule, arrivals_s, now, ended):
    arrivals_s.sort()
    waiting = Waiting(np.array(arrivals_s), np.arange(len(arrivals_s)), 0, len(arrivals_s), 0, ended, ())
    action, size, trigger = rule.decide(now, waiting, 1, np.zeros(rule.state_size), rule.params)
    lines = pseudocode(rule)
    number, most = first_that_acts(lines, now, arrivals_s, rule.max_wait_ms, False, ended)
    event(f"{type(rule).__name__}: {lines[number].text}")
    assert (most, lines[number].trigger) == ((size, trigger) if action == START else (None, None))


# Shares.


@settings(max_examples=80)
@given(plans_with_ties())
def test_the_shares_are_those_of_the_batches_that_left_by_a_line(plan):
    result, reader = Result((Run(plan.scenario, engine.run(plan)),), 0, ""), read(plan)
    for number, (line, share) in enumerate(zip(reader.lines, shares(result), strict=True)):
        if line.trigger is None:
            assert share is None
        elif not reader.left_by:
            assert math.isnan(share)
        else:
            assert share == pytest.approx(reader.left_by.count(number) / len(reader.left_by))


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("keep", ["all", "summary"])
def test_the_shares_sum_to_1(rule, keep):
    scenario = bs.Scenario(bs.Poisson(2000), rule, bs.Affine(1, 0.1))
    result = bs.simulate(scenario, 2000, warmup=0.2, keep=keep)
    assert sum(share for share in shares(result) if share is not None) == pytest.approx(1)


def test_each_batch_of_preferred_sizes_leaves_by_its_own_line():
    rule = PREFERRED[0]
    result = bs.simulate(bs.Scenario(bs.Poisson(900), rule, bs.Affine(3, 0.25)), 1000)
    film, lines, left_by = RequestFilm(result), pseudocode(rule), []
    sizes = result.batches.batch_size.tolist()
    for size, start_s in zip(sizes, result.batches.start_s.tolist(), strict=True):
        left_by.append(film.line(start_s))
        condition, action = re.fullmatch(r"el\w+ (.+?): +(.+)", lines[left_by[-1]].text).groups()
        assert sent(action, condition, film.waiting(start_s).size + size) == size
    assert len(set(left_by)) == len(rule.steps)
    counts = [left_by.count(number) / len(left_by) for number in range(len(lines))]
    assert [share or 0 for share in shares(result)] == pytest.approx(counts)


# Words and HTML.


@pytest.mark.parametrize("rule", [*RULES, *PREFERRED], ids=repr)
def test_a_rule_is_short_and_each_of_its_numbers_is_in_it(rule):
    text = "\n".join(line.text for line in pseudocode(rule))
    assert 3 <= len(pseudocode(rule)) <= 7
    assert max(map(len, text.splitlines())) <= 56
    if rule.max_batch_size > 1:
        assert f"{rule.max_batch_size} or more wait" in text
        assert rule.max_wait_ms in (0, math.inf) or f"waited {rule.max_wait_ms:g} ms" in text
        assert rule.enough in (1, rule.max_batch_size) or re.search(rf"\b{rule.enough} or .*more wait", text)
    triggers = [line.trigger for line in pseudocode(rule) if line.trigger is not None]
    assert len(triggers) == len(set(triggers))  # or a share would stand beside two lines
    assert all((line.trigger is not None) == bool(line.because) for line in pseudocode(rule))


@pytest.mark.parametrize("rule", SERVERS_RULES, ids=repr)
def test_the_rules_of_servers_are_short_and_each_batch_leaves_by_a_line(rule):
    assert max(len(line.text) for line in pseudocode(rule)) <= 56
    result = bs.simulate(
        bs.Scenario(bs.Poisson(1500), rule, bs.Affine(2, 0.3), servers=2), 300, engine="simpy"
    )
    assert sum(share for share in shares(result) if share is not None) == pytest.approx(1)


def test_batches_that_form_while_all_servers_compute_have_their_lines_first():
    texts = [line.text for line in pseudocode(bs.FrozenBatches(8, 5))]
    assert texts[1].startswith("if 8 or more wait: freeze")
    assert texts.index("elif every server is busy: wait for a server") == 3


def boundaries():
    """Every rule with the least and the most that its parameters may be, and something between."""
    for rule in BUILT_IN:
        choices = []
        for name, it in rule.parameters().items():
            if it.of_sizes:
                choices.append([it.usual])
            elif it.type == "sizes":
                choices.append([(1,), (8,), (1, 2), (2, 8)])
            elif it.type == "whole":
                choices.append([1, 2, 8])
            else:
                choices.append([it.at_least, 5, *[math.inf] * it.may_be_inf])
            choices[-1] = [{name: value} for value in choices[-1]]
        for values in product(*choices):
            with contextlib.suppress(ValueError):  # they contradict each other
                yield rule(**{name: value for each in values for name, value in each.items()})


@pytest.mark.parametrize("rule", BUILT_IN, ids=lambda rule: rule.__name__)
def test_only_the_last_line_is_an_else_and_no_line_is_there_twice_at_any_boundary(rule):
    found = [each for each in boundaries() if type(each) is rule]
    assert len(found) >= 4
    for each in found:
        texts = [line.text for line in pseudocode(each)]
        assert not any(text.startswith("else") for text in texts[:-1]), each
        assert len(set(texts)) == len(texts), each
        assert not any("1 or more" in text or "oldest 1" in text for text in texts), each
        assert len(texts) <= 7


@pytest.mark.parametrize("servers", [1, 2])
def test_every_moment_has_a_line_at_any_boundary(servers):
    for rule in boundaries():
        scenario = bs.Scenario(bs.Poisson(600), rule, bs.Affine(2, 0.3), servers=servers)
        film = RequestFilm(bs.simulate(scenario, 30, engine="simpy"))
        triggers = dict(zip(film.batches.start_s.tolist(), film.batches.trigger.tolist(), strict=True))
        for time_s in film.instants.tolist():
            line = film.lines[film.line(time_s)]
            assert line.trigger == triggers.get(time_s)
            if time_s not in triggers:
                assert line.activity == film.state(time_s)[0]
                written = line.text.replace("wait for", "waiting for")
                assert written.endswith(line.activity if line.indent else "while requests wait:")


def test_large_numbers_and_small_waits_are_legible():
    text = "\n".join(line.text for line in pseudocode(bs.SizeOrWait(65_536, 0.25)))
    assert "send the oldest 65,536" in text
    assert "waited 0.25 ms" in text
    assert "the 1,011th comes now" in "".join(line.text for line in pseudocode(bs.AtLeast(1011, 2000)))


def test_the_sentence_names_the_line_of_most_batches():
    lines = pseudocode(bs.SizeOrWait(32, 10))
    assert sentence(lines, (None, None, 0.1, 0.5, 0.4, None)) == (
        "Batches leave most often (50%) because the oldest has waited 10 ms."
    )
    assert sentence(lines, (None, None, 0.0, 1.0, 0.0, None)) == (
        "All batches leave because the oldest has waited 10 ms."
    )
    assert sentence(lines, (None, None, 0.001, 0.999, 0.0, None)).startswith("Most batches (99.90%)")
    assert sentence(lines) == sentence(lines, (None, None, *[math.nan] * 3, None)) == ""


@pytest.mark.parametrize("rule", [*RULES, *PREFERRED], ids=repr)
def test_the_block_has_a_row_a_line(rule):
    rows = re.findall(ROW, to_html(pseudocode(rule)))
    assert [html.unescape(text).strip() for _, _, text in rows] == [line.text for line in pseudocode(rule)]


def test_the_acting_line_is_the_current_step():
    lines = pseudocode(bs.SizeOrWait(32, 10))
    marked = [
        number for number, row in enumerate(re.findall(ROW, to_html(lines, acting=3))) if "step" in row[0]
    ]
    assert marked == [3]
    assert "aria-current" not in to_html(lines)


def test_shares_stand_beside_their_lines():
    lines = pseudocode(bs.SizeOrWait(32, 10))
    page = to_html(lines, shares=(None, None, 0.62, 0.3, 0.08, None))
    found = [left for _, left, _ in re.findall(ROW, page)]
    assert found == ["", "", "62%", "30%", "8.0%", ""]
    assert "Most batches (62%) leave because 32 requests have gathered, a full batch." in page


def test_what_is_in_a_line_is_escaped():
    page = to_html([CodeLine("if a < b & c:", because='"quoted" <i>')])
    assert "if a &lt; b &amp; c:" in page
    assert "<i>" not in page
    assert 'because "quoted"' not in page


STEP = bs.StepTime(10, 0, 0)
HELD = BatchWait(9, 300, batch_wait_timeout_iters=3, batch_wait_max_tokens_ratio=0.5)
CONTINUOUS = (
    bs.Continuous(),
    bs.Continuous(8, 300, kv_blocks=90),
    bs.Continuous(8, 300, kv_blocks=90, reserve="life"),
    bs.Continuous(8, 300, first="prefill", chunked=False),
    bs.Continuous(8, 300, chunked=False, kv_blocks=90),
    HELD,
    replace(HELD, kv_blocks=90),
    replace(HELD, chunked=False, kv_blocks=90, reserve="life"),
    NewTokenRatio(8, 300, kv_blocks=900, prefill_delayer=True, queue_min_ratio=0.5),
)


def run(rule, arrivals_s, tokens, **more):
    return bs.simulate(bs.Scenario(bs.Trace(arrivals_s), rule, STEP, tokens=tokens, **more))


def words(result):
    """Return the condition of the line at which each step ended."""
    steps = result.scenario.rule.steps
    return [steps[i].condition for i in result.scenario.rule.ended(result.steps)]


@pytest.mark.parametrize("rule", [*RULES, *SERVERS_RULES, bs.PreferredSizes([4, 8], 8, 10)], ids=repr)
def test_a_batch_left_because_of_what_was_so_before_it_left(rule):
    """A film says the reason above a queue that the batch has emptied."""
    reasons = [line.because for line in pseudocode(rule) if line.trigger is not None]
    assert reasons
    assert [each for each in reasons if re.search(r"requests wait\b", each)] == []


@pytest.mark.parametrize("rule", CONTINUOUS, ids=repr)
def test_every_rule_has_few_lines_and_each_step_ends_at_one_of_them(rule):
    tokens = bs.Tokens(bs.Uniform(20, 200), bs.Uniform(1, 60))
    result = bs.simulate(bs.Scenario(bs.Poisson(9), rule, STEP, tokens=tokens), 400)
    lines, left = pseudocode(rule), shares(result)
    assert len(lines) <= 7
    assert max(len(line.text) for line in lines) <= 56
    assert sum(share for share in left if share is not None) == pytest.approx(1)
    assert all((share is None) is (line.trigger is None) for share, line in zip(left, lines, strict=True))
    assert "steps" in sentence(lines, left)
    assert "In such a step" in to_html(lines, left)


@pytest.mark.parametrize(
    ("rule", "tokens", "ends"),
    [
        (bs.Continuous(1), (5, 2), ["1 run", "1 run", "", ""]),
        (bs.Continuous(4, 5, kv_blocks=99), (5, 1), ["the budget is used", ""]),
        (bs.Continuous(4, 99, kv_blocks=3, block_size=4), (8, 2), ["no blocks for the next"] * 2 + [""] * 2),
    ],
    ids=["seats", "budget", "memory"],
)
def test_a_step_ends_where_others_wait_for_what_is_used_up(rule, tokens, ends):
    assert words(run(rule, [0.0, 0.0], bs.Tokens(*tokens))) == ends


def test_a_step_from_which_prompts_are_held_back_ends_there():
    found = words(run(HELD, [0.0, 0.005], bs.Tokens(4, [9, 1])))
    assert found == ["", *["the next is held back"] * 3, *[""] * 5]


def test_a_step_that_preempts_ends_there():
    result = run(bs.Continuous(4, 99, kv_blocks=4, block_size=4), [0.0, 0.0], bs.Tokens(7, 5))
    assert result.steps.preempted.sum() > 0
    preempting = np.array(words(result)) == "blocks run out"
    assert (preempting == (result.steps.preempted > 0)).all()


def test_the_pseudocode_says_who_goes_first():
    workload = bs.Poisson(1900).with_priorities({1: 0.2, 2: 0.8})
    shared = bs.Scenario(workload, bs.SizeOrWait(8, 5), bs.Affine(3, 0.1))
    late = {"timeout_ms": 6, "timeout_action": "delay"}
    two, delays, alone = (
        [line.text for line in pseudocode(shared.replace(changes))]
        for changes in ({}, late, late | {"priorities": None})
    )
    assert two[0] == "while requests wait, level 1 first:"
    assert two[2].endswith("send the first 8")
    assert "the oldest has waited 5 ms" in two[3]  # the timer is of the oldest of any level
    assert delays[0] == "while requests wait, level 1 first, in a level the delayed last:"
    assert alone[0] == "while requests wait, the delayed last:"
    assert pseudocode(shared.replace(priorities={1: 1.0})) == pseudocode(shared.rule)
