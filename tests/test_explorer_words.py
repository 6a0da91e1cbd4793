"""The explorer's words: every sentence is true of the setting that the controls say."""

import re

import numpy as np
import pytest

import batchsim as bs
from batchsim._format import number
from batchsim.theory import expected


@pytest.fixture
def panel():
    return bs.explore(requests=300)


def said(link, requests=300):
    return bs.explore(requests=requests, link=link).screen.alt


def test_an_overloaded_setting_says_so_instead_of_a_p99(panel):
    panel.controls["max_batch_size"].value = 1
    assert "Overloaded: 1,000 arrive per s and 190.48 can be computed" in panel.readout.value
    assert "grows by 810 requests a second" in panel.readout.value
    assert "p99 " not in panel.readout.value.split("Along the load")[0]


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
    mean_ms = re.search(r"expects a mean of (\S+) ms", panel.screen.alt)[1]
    assert mean_ms == f"{expected(panel.scenario).mean_latency_ms:.4g}"


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
        wanted = f"expects a mean of {answer.mean_latency_ms:.4g} ms" if answer else answer.why
        assert wanted in panel.screen.alt


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("queue_limit=1", "none serves 99 of 100 requests."),
        ("timeout_ms=0", "none serves 99 of 100 requests."),
        ("rate_per_s=100000", "none keeps up."),
        ("rule=at_least&rate_per_s=100000", "none keeps up."),
    ],
)
def test_a_map_without_a_best_setting_says_why(link, reason):
    assert f"requests of this traffic {reason}" in said(link)


def test_settings_that_make_no_sense_are_not_counted():
    panel = bs.explore(requests=300, link="rule=at_least")
    kept = int((~panel.data.surface.refused).sum())
    assert kept < panel.data.surface.refused.size
    assert f"Of {kept} settings under" in panel.screen.alt


@pytest.mark.parametrize("link", ["timeout_ms=0", "timeout_ms=0.1&rate_per_s=100", "timeout_ms=3&servers=2"])
def test_a_setting_that_serves_nobody_says_so_and_no_nan(link):
    words = said(link)
    assert words.startswith("None of 300 requests is served.")
    assert not re.search(r"\bnan\b", words)


@pytest.mark.parametrize(("a", "b"), [(None, 0), (0, None), (0, 0.1)])
def test_who_serves_nobody_is_not_compared_in_nan(panel, a, b):
    panel.controls["timeout_ms"].value = a
    panel.compare.pin.click()
    panel.controls["timeout_ms"].value = b
    assert panel.status.value == ""
    assert "A setting that serves nobody has no latency to compare." in panel.compare.table.value
    assert not re.search(r"\bnan\b", panel.screen.alt + panel.compare.table.value)


@pytest.mark.parametrize(
    ("link", "share"),
    [
        ("queue_limit=1&rate_per_s=50000", ">99 %"),  # 299 of 300
        ("queue_limit=17", "<1 %"),
        ("queue_limit=1", "91 %"),
    ],
)
def test_some_or_nearly_all_lost_does_not_read_as_none_or_all(link, share):
    result = bs.explore(requests=300, link=link).result
    assert 0 < result.metrics.served < 300
    assert f"of those served; {share} are not" in said(link)


def test_of_the_first_requests_only_those_that_are_served_ride():
    panel = bs.explore(requests=300, link="queue_limit=1")
    served = int((panel.result.batch_index[:30] >= 0).sum())
    assert 0 < served < 30
    assert f"{served} of the first 30 requests ride in" in panel.screen.alt


@pytest.mark.parametrize(
    ("link", "drifts"),
    [
        ("workload=diurnal&period_s=100", True),
        ("workload=diurnal&period_s=100&objective_ms=none", True),
        ("workload=diurnal&period_s=100&peak_to_mean=1", False),
        ("workload=onoff", False),
        ("", False),
    ],
)
def test_traffic_that_drifts_is_said_to(link, drifts):
    words = said(link, requests=20_000)
    assert ("The arrival rate drifts: these numbers are of this run" in words) == drifts


@pytest.mark.parametrize(("a", "b"), [(None, 0), (0, None)])
def test_the_words_say_why_who_serves_nobody_is_not_compared(panel, a, b):
    panel.controls["timeout_ms"].value = a
    panel.compare.pin.click()
    panel.controls["timeout_ms"].value = b
    assert panel.screen.alt.endswith("A and B cannot be compared: one serves nobody.")


def test_a_great_rate_reads_as_a_number(panel):
    panel.controls["rate_per_s"].value = 100_000
    assert "Overloaded: 100,000 arrive per s" in panel.screen.alt
    assert "the queue grows by 97,538 requests a second" in panel.screen.alt
    assert "e+" not in panel.screen.alt


def test_a_run_that_sees_a_part_of_its_traffic_only_says_at_which_rate_it_came():
    panel = bs.explore(requests=300, link="workload=diurnal&rate_per_s=1000&period_s=20")
    arrival_s = panel.result.arrival_s
    came = f"{299 / (arrival_s[-1] - arrival_s[0]):.4g}"
    assert float(came) < 500
    assert f"1,000 arrive per s on average and {came} in this run" in panel.screen.alt
    assert "in this run" not in said("workload=poisson", requests=10_000)


@pytest.mark.parametrize(
    "link",
    [
        "servers=2",
        "workload=constant",
        "workload=closed&clients=1",
        "workload=onoff&servers=2&burst_factor=1.05",
    ],
)
def test_what_differences_of_times_leave_is_no_waiting(link):
    words = said(link, requests=2000)
    assert not re.search(r"\de-\d", words)
    assert "1 clients" not in words


@pytest.mark.parametrize("link", ["", "workload=closed&clients=20", "rate_per_s=4000"])
def test_the_ends_of_the_load_curve_are_said(link):
    panel = bs.explore(requests=2000, link=link)
    curve = panel.data.curve
    first, last = np.flatnonzero(~curve.overloaded)[[0, -1]]
    assert f"p99 {number(curve.p99_ms[first])} to {number(curve.p99_ms[last])} ms." in panel.screen.alt
    assert f"from {number(curve.x_values[first])} to {number(curve.x_values[last])} " in panel.screen.alt


def test_what_is_pinned_is_said_too():
    panel = bs.explore(requests=20_000)
    a = panel.result
    panel.compare.pin.click()
    panel.controls["max_wait_ms"].value = 0
    assert f"A has p50 {number(a.percentile(50))} ms, p99 {number(a.percentile(99))} ms" in panel.screen.alt
