"""The four numbers are the run's, and say what has changed and what is missed."""

import dataclasses
import math
import re

import pytest
from token_pictures import LIMITS, TOKENS

import batchsim as bs
from batchsim._format import duration, number, percent
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.headline import FIGURES, as_html, as_line, figures_of, token_figures_of
from batchsim.view.pictures.latency import describe_objective


def test_the_headline_has_four_figures_with_intervals_and_what_has_changed(cases):
    p50, p99, throughput, load = figures_of(cases["moved"])
    run, before = cases["moved"].result, cases["plain"].result
    assert p99.name == "p99 \N{CHECK MARK} \N{LESS-THAN OR EQUAL TO} 20 ms"
    assert float(p99.value) == pytest.approx(run.percentile(99), rel=0.005)
    sign, size = p99.change.split()
    assert float(size) == pytest.approx(abs(run.percentile(99) - before.percentile(99)), abs=0.06)
    assert sign == ("\N{BLACK UP-POINTING TRIANGLE}" if run.percentile(99) > before.percentile(99) else "▼")
    low, high = map(float, p50.interval.split(" to "))
    assert low <= run.percentile(50) <= high
    assert throughput.unit == "per s"
    assert load.value == percent(run.scenario.load)


def test_a_p99_that_is_exactly_the_objective_meets_it(cases):
    p99_ms = cases["plain"].percentile_of_all(99)
    for limit_ms, met in ((p99_ms, True), (math.nextafter(p99_ms, 0), False)):
        data = dataclasses.replace(cases["plain"], objective_ms=limit_ms)
        figure = figures_of(data)[1]
        assert (figure.alert, "\N{CHECK MARK}" in figure.name) == (not met, met)
        assert f"is {'met' if met else 'missed'}: " in describe_objective(limit_ms, p99_ms, 0.99)


def test_the_headline_of_an_overloaded_run_has_no_percentile(cases):
    p50, p99, _, load = figures_of(cases["overloaded"])
    assert p50.value == p99.value == "grows"
    assert p50.alert
    assert p99.alert
    assert load.alert
    assert "\N{BALLOT X}" in p99.name
    assert "overloaded" in load.name


@pytest.mark.parametrize("mode", FIGURES)
def test_the_page_and_a_still_have_the_same_numbers(cases, token_cases, mode):
    for data in (cases if mode == "requests" else token_cases).values():
        figures, html, line = FIGURES[mode](data), as_html(data), as_line(data)
        plain = re.sub(r"<[^>]+>", "\n", html).replace("&lt;", "<").replace("&gt;", ">")
        assert html.count("batchsim-missed") == sum(figure.alert for figure in figures)
        for figure in figures:
            assert {figure.name, figure.value} <= {each.strip() for each in plain.split("\n")}
            assert f"{figure.name} {figure.value}" in line


def test_the_figures_of_tokens_are_the_results_numbers(token_cases):
    run = token_cases["plain"].result
    *durations, tokens, goodput = token_figures_of(token_cases["plain"])
    for figure, column in zip(durations, ("ttft_ms", "tpot_ms"), strict=True):
        p99 = run.percentile(99, column=column)
        assert f"{figure.value} {figure.unit}" == duration(p99)
        assert ("✓" if p99 <= LIMITS[column] else "✗") in figure.name
        assert figure.beside == f"p50 {duration(run.percentile(50, column=column))}"
    assert float(tokens.value.replace(",", "")) == pytest.approx(
        run.summary()["output_tokens_per_s"], rel=0.01
    )
    within = {"ttft_ms": 300, "tpot_ms": 20}
    assert float(goodput.value) == pytest.approx(run.goodput_per_s(2000, **within), rel=0.01)
    assert goodput.interval == f"{percent(run.attainment(2000, **within))} in time"


def test_the_headline_says_what_has_changed_in_the_unit_that_is_shown(token_cases):
    ttft = token_figures_of(token_cases["moved"])[0]
    now, before = (token_cases[name].result.percentile(99, column="ttft_ms") for name in ("moved", "plain"))
    sign, size = ttft.change.split()
    assert sign == ("▲" if now > before else "▼")
    assert float(size) == pytest.approx(abs(now - before) / {"s": 1000, "ms": 1}[ttft.unit], rel=0.01)


@pytest.mark.parametrize(("before", "after", "change"), [
    (0.98, 0.985, "▲ 0.5 points"), (0.995, 0.9996, "▲ 0.46 points"), (0.934, 0.924, "▼ 1 point"),
    (0.7, 0.704, "unchanged"),
])  # fmt: skip
def test_a_load_is_unchanged_only_where_it_is_shown_as_the_same(before, after, change):
    one = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(1, 0), bs.Affine(1, 0))
    old, new = (ViewData(bs.simulate(one.replace(rate_per_s=1000 * load), 200)) for load in (before, after))
    figure = figures_of(dataclasses.replace(new, before=old))[-1]
    assert (figure.value, figure.change) == (percent(after), change)


def test_a_figure_has_its_interval_where_the_run_is_long_enough():
    data = ViewData(bs.simulate(TOKENS.replace(rate_per_s=4), 8000))
    ttft, _, tokens, load = token_figures_of(data)
    for figure, key in ((ttft, "ttft_p99_ms"), (tokens, "output_tokens_per_s")):
        low, high = map(float, figure.interval.replace(",", "").split(" to "))
        assert (low, high) == pytest.approx(data.result.interval(key), rel=0.01)
    assert load.name == "load"  # without an objective there is no goodput


def test_of_an_overloaded_run_the_ttft_grows_and_the_tpot_does_not(token_cases):
    ttft, tpot, _, load = token_figures_of(token_cases["overloaded"])
    assert (ttft.value, load.name, load.alert) == ("grows", "load ✗ overloaded", True)
    assert "✗" in ttft.name
    assert f"{tpot.value} {tpot.unit}" == duration(
        token_cases["overloaded"].result.percentile(99, column="tpot_ms")
    )


def test_the_headline_tells_preemptions_and_that_there_is_no_tpot(token_cases):
    share = token_cases["short"].summary["preempted_share"]
    assert share > 0
    assert token_figures_of(token_cases["short"])[3].beside == f"{percent(share)} preempted"
    assert token_figures_of(token_cases["single"])[1].value == "\N{EN DASH}"


def test_energy_stands_beside_the_throughput_where_watts_are_given_and_nowhere_else(cases, token_cases):
    for mode, plain in (("requests", cases["plain"]), ("tokens", token_cases["plain"])):
        assert " J" not in as_line(plain)
        scenario = plain.result.scenario.replace(watts={0: 50, 1: 100, 32: 300})
        data = ViewData(bs.simulate(scenario, 500))
        s = data.summary
        words = f"{number(s['joules_per_request'])} J a request"
        if mode == "tokens":  # the shorter one first: a phone cuts the rest
            words = f"{number(s['joules_per_token'])} J a token, {number(s['joules_per_request'])} a request"
        assert FIGURES[mode](data)[2].beside == words
        assert f"per s, {words}" in as_line(data)
        assert words in as_html(data)
