"""The picture in words: every sentence is true of the setting that the controls have."""

import re

import numpy as np
import pytest
from pictures import names_of

import batchsim as bs
from batchsim._format import number
from batchsim.theory import expected
from batchsim.view.pictures.batches import label_of


def described(link, requests=300):
    return bs.explore(requests=requests, link=link).screen.alt


def assert_says(words, *parts):
    """The parts are in the words, in this order."""
    at = [words.index(part) for part in parts]
    assert at == sorted(at)


GROWS = (
    "Overloaded", "1,000 requests", "190.48", "810 per second", "no steady state",
    "Batches hold 1 request on average",
)  # fmt: skip
NONE, FEW = ("settings", "none keeps up"), ("settings", "none serves 99 of 100")
DRIFTS, NOBODY, TINY = "The run drifts", "No request of 300 is served", r"\de-\d|1 clients|e\+"
LONG = 20_000


@pytest.mark.parametrize(
    ("link", "requests", "said", "unsaid"),
    [
        # An overload has no p99, a map of overloads no best setting, and a batch of one no plural.
        ("max_batch_size=1", 300, GROWS, r"p99 \d+(\.\d+)? ms.*settings"),
        ("rate_per_s=100000", 300, ("Overloaded: 100,000 requests", "97,538 per second", *NONE), TINY),
        ("rule=at_least&rate_per_s=100000", 300, NONE, None),
        ("objective_ms=0.001", 300, ("; none meet the objective",), None),
        ("max_batch_size=32&rate_per_s=2461", 300, ("99.97% of the saturation rate",), None),  # of 2,461.5
        # None, some and nearly all are served.
        ("timeout_ms=0", 300, (NOBODY, *FEW), r"\bnan\b"),
        ("timeout_ms=0.1&rate_per_s=100", 300, (NOBODY,), r"\bnan\b"),
        ("timeout_ms=3&servers=2", 300, (NOBODY,), r"\bnan\b"),
        ("queue_limit=1&rate_per_s=50000", 300, ("p99", "99.66% are lost"), NOBODY),  # 299 of 300
        ("queue_limit=17", 300, ("p99", "0.67% are lost"), NOBODY),
        ("queue_limit=1", 300, ("p99", "91.0% are lost", *FEW), NOBODY),
        # Traffic that drifts.
        ("workload=diurnal&period_s=100", LONG, (DRIFTS,), None),
        ("workload=diurnal&period_s=100&objective_ms=none", LONG, (DRIFTS,), None),
        ("workload=diurnal&period_s=100&peak_to_mean=1", LONG, (), DRIFTS),
        ("workload=onoff", LONG, (), DRIFTS),
        ("", LONG, (), DRIFTS),
        # What differences of times leave is no waiting.
        ("servers=2", 2000, (), TINY),
        ("workload=constant", 2000, (), TINY),
        ("workload=closed&clients=1", 2000, (), TINY),
        ("workload=onoff&servers=2&burst_factor=1.05", 2000, (), TINY),
        ("", 3000, ("The timeline shows", "4 batches from the middle of the run"), None),
    ],
)
def test_the_words_tell_what_is_special_of_a_setting(link, requests, said, unsaid):
    words = described(link, requests)
    assert_says(words, *said)
    assert unsaid is None or not re.search(unsaid, words)


@pytest.mark.parametrize(
    "link",
    [
        "rule=full_only&rate_per_s=197",
        "max_batch_size=1&max_wait_ms=0&per_item_ms=0&rate_per_s=186",
        "rule=at_least&rate_per_s=40",
        "max_wait_ms=0&rate_per_s=2350",
        "max_batch_size=1&workload=gamma&rate_per_s=186",
    ],
)
def test_theory_is_of_the_very_rate(link):
    panel = bs.explore(requests=300, link=link)
    mean_ms = re.search(r"Theory .* expects .*?(\S+) ms", panel.screen.alt)[1]
    assert mean_ms == number(expected(panel.scenario).mean_latency_ms)


@pytest.mark.parametrize(
    "link", ["workload=gamma", "workload=constant", "workload=gamma&max_batch_size=1&servers=2"]
)
def test_the_reason_why_theory_says_nothing_names_the_present_rate(link):
    panel = bs.explore(requests=300, link=f"{link}&rate_per_s=90")
    assert expected(panel.scenario).why in panel.screen.alt


@pytest.mark.parametrize("start", ["", "workload=diurnal", "queue_limit=9"])
def test_theory_says_why_it_has_nothing_to_say_of_the_present_setting(start):
    panel = bs.explore(requests=300, link=start)
    for name, value in [
        ("workload", "diurnal"),
        ("rate_per_s", 500),
        ("workload", "onoff"),
        ("rate_per_s", 600),
        ("workload", "poisson"),
        ("queue_limit", 7),
        ("queue_limit", None),
        ("servers", 2),
    ]:
        panel.controls[name].value = value
        answer = expected(panel.scenario)
        if answer:
            assert_says(panel.screen.alt, "Theory", "expects", f"{number(answer.mean_latency_ms)} ms")
        else:
            assert answer.why in panel.screen.alt


def test_settings_that_make_no_sense_are_not_counted():
    panel = bs.explore(requests=300, link="rule=at_least")
    kept = int((~panel.data.surface.refused).sum())
    assert kept < panel.data.surface.refused.size
    assert f"{kept} settings" in panel.screen.alt


@pytest.mark.parametrize(("a", "b"), [(None, 0), (0, None)])
def test_the_words_say_why_who_serves_nobody_is_not_compared(panel, a, b):
    panel.controls["timeout_ms"].value = a
    panel.compare.pin.click()
    panel.controls["timeout_ms"].value = b
    assert "A and B cannot be compared" in panel.screen.alt


def test_a_run_that_sees_a_part_of_its_traffic_only_says_at_which_rate_it_came():
    panel = bs.explore(requests=300, link="workload=diurnal&rate_per_s=1000&period_s=20")
    arrival_s = panel.result.arrival_s
    observed = 299 / (arrival_s[-1] - arrival_s[0])
    assert observed < 500
    assert_says(panel.screen.alt, "Arrival rate 1,000/s", f"{number(observed)}/s in this run")
    assert "in this run" not in described("workload=poisson", requests=10_000)


@pytest.mark.parametrize("link", ["", "workload=closed&clients=20", "rate_per_s=4000"])
def test_the_ends_of_the_load_curve_are_described(link):
    panel = bs.explore(requests=2000, link=link)
    curve = panel.data.curve
    first, last = np.flatnonzero(~curve.overloaded)[[0, -1]]
    ends = (
        (number(curve.x_values[at]) for at in (first, last)),
        (number(curve.p99_ms[at]) for at in (first, last)),
    )
    assert_says(panel.screen.alt, *(" to ".join(pair) for pair in ends))


def test_what_is_pinned_is_said_too():
    panel = bs.explore(requests=20_000)
    a = panel.result
    panel.compare.pin.click()
    panel.controls["max_wait_ms"].value = 0
    assert_says(
        panel.screen.alt, "A has", f"p50 {number(a.percentile(50))} ms", f"p99 {number(a.percentile(99))} ms"
    )
    difference_ms = panel.result.percentile(99) - a.percentile(99)
    assert_says(panel.screen.alt, "p99 of B", f"{number(abs(difference_ms))} ms lower", "95% interval")


@pytest.mark.parametrize(
    "rule", [bs.SizeOrWait(16, 5), bs.SizeOrWait(16, 0), bs.AtLeast(2, 8), bs.PreferredSizes([2, 6], 6, 5)]
)
def test_why_batches_left_is_said_in_the_words_of_the_rule(rule):
    result = bs.simulate(bs.Scenario(bs.Poisson(900), rule, bs.Affine(3, 0.25)), 1000)
    picture = bs.plot(result)
    words, legend = picture.words, names_of(picture.views["batches"].ax)
    for step in rule.steps:
        left = bool((result.batches.trigger == step.trigger).any())
        assert (f"because {step.because}" in words) == left
        assert (step.label in legend) == left


def test_each_rule_names_its_own_triggers():
    rule = bs.PreferredSizes([4, 8], 8, 5)
    labels = {label_of(rule, step.trigger) for step in rule.steps}
    assert labels == {step.label for step in rule.steps}
    assert label_of(rule, bs.Trigger.ENOUGH) == "preferred size"
    assert label_of(rule, bs.Trigger.DRAIN) == "drain"  # by which no batch of this rule leaves
