"""One trace through all servers: their table, their picture, their lanes and their film."""

import math

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import PathPatch
from pictures import assert_all_within
from PIL import Image
from refusals import refusals

import batchsim as bs
from batchsim import servers
from batchsim._format import duration
from batchsim.servers.comparison import in_words, rule_of
from batchsim.view.film.film import RequestFilm
from batchsim.view.theme import fill_style

V100 = bs.Affine(1.8874, 0.1438)
CLOSED = bs.Scenario(bs.ClosedLoop(4), bs.SizeOrWait(), V100)
SCENARIO = bs.Scenario(bs.Poisson(2000), bs.SizeOrWait(), V100)


@pytest.fixture(scope="module")
def compared():
    return bs.compare_servers(SCENARIO, requests=20_000)


# The table.


def test_the_table_is_that_of_the_servers_own_rules(compared):
    frame = compared.to_frame()
    assert list(frame.index) == list(servers.SERVERS)
    for server in ("triton", "torchserve", "batched"):
        rule = rule_of(servers.SERVERS[server], 32, 2)
        result = bs.simulate(SCENARIO.replace(rule=rule), 20_000)
        for key in ("mean_latency_ms", "p50_ms", "p99_ms", "throughput_per_s", "mean_batch_size"):
            assert frame.loc[server, key] == result.summary()[key]
    assert frame["p99_ms"]["triton"] == pytest.approx(6.3, rel=0.02)
    assert frame["p99_ms"]["torchserve"] == pytest.approx(10.1, rel=0.02)


def test_a_queue_that_grows_without_bound_has_no_latency(compared):
    frame = compared.to_frame()
    assert frame.index[~frame["stable"]].tolist() == ["ray_serve"]
    assert math.isinf(frame["p99_ms"]["ray_serve"])
    assert "1,91" in frame["why"]["ray_serve"]  # per s are carried


def test_every_server_has_the_same_arrivals_and_those_of_one_rule_one_run(compared):
    arrivals = [result.arrival_s for result in compared.results.values()]
    assert all(np.array_equal(each, arrivals[0]) for each in arrivals)
    assert compared.results["triton"] is compared.results["textbook"]
    assert compared.groups[0].names == ("textbook", "triton", "tf_serving")


@pytest.mark.parametrize(
    ("server", "settings"),
    [
        ("textbook", bs.SizeOrWait(8, 2.5)), ("triton", bs.SizeOrWait(8, 2.5)),
        ("torchserve", bs.PullThenWait(8, 3)), ("mosec", bs.CompetingWindows(8, 3, math.inf)),  # whole ms
        ("ray_serve", bs.FrozenBatches(8, 2.5)), ("litserve", bs.CompetingWindows(8, 2.5, 1)),
        ("bentoml", bs.LearnedCork(8, max_latency_ms=60_000)),
        ("clipper", bs.SizeOrWait(8, 0)),
    ],
)  # fmt: skip
def test_a_size_and_a_wait_are_said_in_each_servers_own_words(server, settings):
    assert rule_of(servers.SERVERS[server], 8, 2.5) == settings


@pytest.mark.parametrize("server", servers.SERVERS)
def test_each_server_says_what_its_knobs_are_called(server):
    words = servers.SERVERS[server].words
    named = [name for name in (words.size, words.wait, words.servers, words.queue, words.sizes) if name]
    assert set(named) <= set(servers.SERVERS[server].settings)
    assert words.size


def test_zero_is_five_seconds_for_kserve():
    assert servers.kserve(32, 0) == servers.kserve(32) == bs.PullThenWait(32, 5000)
    assert rule_of(servers.SERVERS["kserve"], 32, 0) == bs.PullThenWait(32, 1)


def test_why_it_differs_tells_the_clock_and_where_the_time_goes(compared):
    why = compared.to_frame()["why"]
    forming = [compared.results[name].metrics.numbers["mean_forming_ms"] for name in ("triton", "kserve")]
    assert f"forming +{forming[1] - forming[0]:.2g} ms" in why["kserve"]
    assert "ms" not in why["triton"]
    assert all(rule.clock for rule in compared.rules.values())


def test_rules_of_ones_own_can_be_compared():
    rules = {"wait": bs.SizeOrWait(8, 5), "none": bs.SizeOrWait(8, 0), "pairs": bs.AtLeast(2, 8)}
    frame = bs.compare_servers(SCENARIO, rules, requests=2000).to_frame()
    assert frame.index.tolist() == ["wait", "none", "pairs"]
    assert "do not wait" in frame["why"]["none"]
    assert all(frame["rule"] == [in_words(rule) for rule in rules.values()])


def test_the_answer_prints_a_line_for_each_rule(compared):
    for text in (repr(compared), compared._repr_html_()):
        assert text.count("textbook, triton, tf_serving") == 1
        assert "∞" in text


def test_a_comparison_of_routings_prints_a_line_for_each_in_text_and_in_a_notebook():
    found = bs.compare_routing(SCENARIO.replace(rate_per_s=3000, replicas=2), ["random", "fill_first"], 2000)
    title, heads, *lines = repr(found).splitlines()
    assert title.startswith("2 replicas, Poisson(rate_per_s=3000)")
    assert heads.split() == ["mean", "p50", "p99", "batch", "imbalance", "replicas", "busy"]
    page = found._repr_html_()
    for line, (name, row) in zip(lines, found.to_frame().iterrows(), strict=True):
        for shown in (name, duration(row["p99_ms"]), f"{row['least_busy']:.0%} to {row['most_busy']:.0%}"):
            assert shown in line
            assert shown in page


@refusals
def test_what_cannot_be_compared_is_refused():
    """
    bs.compare_servers(SCENARIO, ["tritn"]) -> did you mean 'triton'
    bs.compare_servers(SCENARIO, "triton") -> TypeError: list of names
    bs.compare_servers(SCENARIO, []) -> at least one
    bs.compare_servers(SCENARIO, {"a": 3}) -> TypeError: the rule of 'a'
    bs.compare_servers(3) -> TypeError: must be a Scenario
    bs.compare_servers(SCENARIO.replace(workload=bs.ClosedLoop(4))) -> workload must be open
    bs.compare_servers(SCENARIO, max_wait_ms=-1) -> max_wait_ms must be at least 0
    bs.lanes(SCENARIO) -> rules must be given
    bs.lanes(3) -> TypeError: lanes takes
    bs.lanes(SCENARIO, {"a": bs.SizeOrWait()}, length_s=0) -> length_s must be
    bs.lanes(SCENARIO, {"a": bs.SizeOrWait()}, width_px=10) -> width_px must be
    """


# The pictures.


def test_the_curves_have_a_line_for_each_stable_rule_and_a_name_for_each(compared):
    chart = bs.plot(compared)
    (ax,) = chart.axes
    stable = [group for group in compared.groups if group.stable]
    assert len(stable) == len(compared.groups) - 1
    different = {tuple(group.result.metrics.percentiles(np.arange(0, 100, 0.5))) for group in stable}
    drawn = [line for line in ax.lines if len(line.get_xdata()) > 1]
    names = [text.get_text() for text in ax.texts]
    assert len(drawn) == len(names) - 1 == len(different)
    p99 = np.interp(2, *drawn[0].get_data())  # at -log10(1 - 0.99)
    assert p99 == pytest.approx(compared.groups[0].result.percentile(99), rel=1e-3)
    assert any("without bound" in name for name in names)
    assert chart.words.count("its queue grows without bound.") == 1


def test_lines_that_lie_on_each_other_are_one_with_both_names():
    night, names = SCENARIO.replace(rate_per_s=20), ["litserve", "batched", "torchserve"]
    (ax,) = bs.plot(bs.compare_servers(night, names, max_wait_ms=10, requests=2000)).axes
    assert {text.get_text().split("\n")[0] for text in ax.texts} == {"litserve, batched", "torchserve"}
    assert len(ax.lines) == 2


def test_the_names_of_the_curves_neither_overlap_nor_are_cut(compared):
    short = bs.compare_servers(SCENARIO, {"a": bs.SizeOrWait(8, 2), "b": bs.SizeOrWait(16, 4)}, requests=2000)
    for comparison in (compared, short):
        assert_all_within(bs.plot(comparison))


def areas(picture, name):
    """Return the areas of a fill, shape (areas, 4): left, top, right, bottom."""
    style = fill_style(picture.theme, name)
    found = [
        patch.get_path().vertices.reshape(-1, 5, 2)
        for patch in [patch for ax in picture.axes for patch in ax.patches]
        if isinstance(patch, PathPatch)
        and patch.get_facecolor() == to_rgba(style["facecolor"])
        and (patch.get_hatch() or "") == style["hatch"]
    ]
    vertices = np.concatenate(found)
    return np.concatenate([vertices[:, 0], vertices[:, 2]], axis=1)


def test_a_lane_shows_the_batches_of_its_rule_and_how_many_wait(compared):
    picture = bs.lanes(compared)
    begin_s, until_s = picture.stretch
    found = areas(picture, "computing")
    seen = 0
    for group, lane in zip(compared.groups, picture.lanes, strict=True):
        batches, film = group.result.batches, RequestFilm.of(group.result)
        seen += ((batches.start_s < until_s) & (batches.finish_s > begin_s)).sum()
        times_s, waiting, fills = picture.kind.waiting(lane)
        for time_s in np.linspace(begin_s, until_s, 40, endpoint=False):
            at = np.searchsorted(times_s, time_s, side="right") - 1
            assert waiting[at] == film.waiting(time_s).size
            assert fills[at] == ("forming" if film.forming(time_s) else "queueing")
    assert len(found) == seen


def test_names_beyond_the_height_of_a_lane_are_counted():
    picture = bs.lanes(SCENARIO, {f"server {number}": bs.SizeOrWait(8, 5) for number in range(30)})
    texts = [text.get_text() for text in picture.axes[0].texts]
    *written, last = next(text for text in texts if text.startswith("server 0")).split("\n")
    assert written == [f"server {number}" for number in range(len(written))]
    assert last == f"+ {30 - len(written)} more"


@pytest.mark.parametrize("width_px", [400, 800, 1280])
def test_no_word_of_the_lanes_is_cut_or_lies_on_another(compared, width_px):
    picture = bs.lanes(compared, width_px=width_px)
    boxes = assert_all_within(picture)
    names = [box.x1 for text, box in boxes if text.get_text().split("\n")[0] in servers.SERVERS]
    assert names
    assert max(names) < picture.axes[0].bbox.x0


def test_the_lanes_of_a_stretch_have_its_length_and_its_arrivals():
    slow = bs.Scenario(bs.Poisson(80), bs.SizeOrWait(), bs.Affine(47, 3.6))
    picture = bs.lanes(
        bs.compare_servers(slow, ["triton", "kserve"], max_wait_ms=50, requests=2000), begin_s=5, length_s=1
    )
    assert picture.stretch == (5, 6)
    assert "The same 1 s of" in picture.get_suptitle()
    assert picture.axes[0].get_xlim() == (0, 1000)


def test_the_film_describes_each_rule_at_its_time(compared):
    film = bs.film(compared)
    begin_s, until_s = film.stretch
    assert film.time_s == min(at_s for at_s in film.clip.instants if at_s >= begin_s)
    film.time_ms = 1000 * (begin_s + until_s) / 2
    for group in compared.groups:
        waiting = RequestFilm.of(group.result).waiting(film.time_s)
        assert f"{', '.join(group.names)}: {waiting.size:,} waiting" in film.words
    before = film.time_s
    film.next()
    assert film.time_s in film.clip.instants
    assert film.time_s > before


def test_several_servers_have_a_row_each_in_a_lane():
    picture = bs.lanes(SCENARIO.replace(servers=2), {"two": bs.SizeOrWait(8, 2)})
    assert np.unique(areas(picture, "computing")[:, 1].round(6)).size == 2


def test_the_lanes_are_written_as_files(compared, tmp_path):
    bs.lanes(compared).savefig(tmp_path / "lanes.png", dpi=100)
    with Image.open(tmp_path / "lanes.png") as image:
        assert image.size[0] > 900


def test_the_rule_of_continuous_batching_is_said_too():
    said = "others wait when the budget is used or 4 run; all that wait join"
    assert in_words(bs.Continuous(4)) == said
