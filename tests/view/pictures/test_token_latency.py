"""TTFT, TPOT and the whole answer, in pictures."""

import numpy as np
import pytest
from pictures import drawn, group

from batchsim._format import duration, percent
from batchsim.view.pictures.data import NAMED
from batchsim.view.pictures.token_latency import TokenLatencyView


@pytest.mark.parametrize("name", ["plain", "single", "losing", "whole"])
def test_each_curve_is_the_attainment_of_every_limit(token_cases, name):
    view, result = drawn(TokenLatencyView, token_cases[name]), token_cases[name].result
    if token_cases[name].overloaded:
        return
    for column, curve in group(view, "now").items():
        for limit_ms, share in list(zip(*curve.get_data(), strict=True))[5::10]:
            if column == "itl_ms":
                gaps = result.metrics.columns[column]
                below, most = (
                    gaps.within(limit_ms * near) / gaps.within(np.inf) for near in (1 - 1e-9, 1 + 1e-9)
                )
                assert below - 0.01 <= share / 100 <= most + 0.01  # many gaps are alike
                continue
            argument = "objective_ms" if column == "latency_ms" else column
            below, most = (result.attainment(**{argument: limit_ms * near}) for near in (1 - 1e-6, 1))
            assert below - 0.01 <= share / 100 <= most + 0.01, column  # answers of one step are alike


def test_the_objectives_are_lines_with_a_dot_at_the_share_that_keeps_each(token_cases):
    view, result = drawn(TokenLatencyView, token_cases["plain"]), token_cases["plain"].result
    shares = [result.attainment(ttft_ms=300), result.attainment(tpot_ms=20), result.attainment(2000)]
    limits_ms, columns = (300, 20, 2000), [column for column in NAMED if column != "itl_ms"]
    for column, limit_ms, share in zip(columns, limits_ms, shares, strict=True):
        assert view.shown["objective", column].get_xdata() == [limit_ms] * 2
        assert view.shown["dot", column].get_data() == ([limit_ms], [100 * share])
    words = view.shown["note"].get_text().split("\n")
    for text in (f"TTFT {percent(shares[0])} in 300 ms", f"answer {percent(shares[2])} in 2 s"):
        assert text in words
    assert f"all {percent(result.attainment(2000, ttft_ms=300, tpot_ms=20))}" in words


def test_without_an_objective_no_line_is_seen_and_the_p99_is_told(token_cases):
    view = drawn(TokenLatencyView, token_cases["free"])
    assert not group(view, "objective") | group(view, "dot")
    p99 = duration(token_cases["free"].result.percentile(99, column="ttft_ms"))
    assert view.shown["note"].get_text().startswith(f"TTFT p99 {p99}\n")


@pytest.mark.parametrize("name", ["plain", "losing", "whole"])
def test_each_name_stands_above_the_end_of_its_curve(token_cases, name):
    view = drawn(TokenLatencyView, token_cases[name])
    if token_cases[name].overloaded:
        return
    low, high = np.log(view.ax.get_xlim())
    for column, text in group(view, "name").items():
        (*_, end_ms), (*_, end) = view.shown["now", column].get_data()
        assert text.get_text() == NAMED[column]
        assert text.xy[1] == end
        assert text.get_position()[1] > 0  # above it
        assert abs(np.log(text.xy[0] / end_ms)) < 0.2 * (high - low)  # no farther than another name needs


def test_the_pointer_reads_the_share_of_each_duration_that_there_is(token_cases):
    for name, tpot in (("plain", True), ("single", False)):
        view, data = drawn(TokenLatencyView, token_cases[name]), token_cases[name]
        said = view.spot(view.ax, 300.0, 50.0, data).text
        assert said.startswith("Within 300 ms: TTFT ")
        share = float(said.split("TTFT ")[1].split("%")[0])
        assert share == pytest.approx(100 * data.result.attainment(ttft_ms=300), abs=2)
        assert ("TPOT" in said) == tpot


def test_what_is_pinned_or_was_before_has_its_curves_beside(token_cases):
    for name in ("pinned", "moved"):
        other = drawn(TokenLatencyView, token_cases[name]).shown["other", "ttft_ms"]
        assert other.get_visible()
        np.testing.assert_array_equal(other.get_xdata(), token_cases["plain"].curves["ttft_ms"][0])
    assert not group(drawn(TokenLatencyView, token_cases["plain"]), "other")
