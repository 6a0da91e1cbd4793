"""The live figure without a page: its controls, its scenario and its run agree, and what it cannot show."""

import math

import numpy as np
import pytest

import batchsim as bs
from batchsim._clock import on_grid
from batchsim.web import wasm
from batchsim.web.descriptions import SHOWN
from batchsim.web.notebook import VIEWS, style

SCENARIO = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))


@pytest.fixture(autouse=True)
def loops(monkeypatch):
    """No module is built: what is in it, the tests of a browser and of Node try."""
    monkeypatch.setattr("batchsim.web.notebook.loops", lambda rules: b"loops of " + " ".join(rules).encode())


@pytest.mark.parametrize("traffic", [bs.Poisson(800), bs.Constant(700), bs.Gamma(300, cv=3)], ids=str)
def test_the_page_stretches_the_requests_of_simulate(traffic):
    figure = bs.figure(SCENARIO.replace(workload=traffic), seed=5)
    points_s = np.frombuffer(figure.points_s)
    assert np.array_equal(on_grid(points_s / figure.rate_per_s), figure.result.arrival_s)
    figure.rate_per_s = 1234.5
    assert np.array_equal(on_grid(np.frombuffer(figure.points_s) / 1234.5), figure.result.arrival_s)


def test_its_result_is_the_run_of_its_scenario():
    figure = bs.figure(SCENARIO, seed=3)
    figure.max_wait_ms, figure.servers = 2, 2
    expected = bs.simulate(SCENARIO.replace(max_wait_ms=2, servers=2), 20_000, seed=3)
    assert np.array_equal(figure.result.latency_ms, expected.latency_ms)


def test_a_scenario_moves_the_controls_and_controls_move_the_scenario():
    figure = bs.figure(SCENARIO)
    other = bs.Scenario(bs.Gamma(100, cv=2), bs.SizeOrWait(8, math.inf), bs.Affine(0, 1.5), servers=3)
    figure.scenario = other
    assert figure.scenario == other
    assert (figure.rate_per_s, figure.fixed_ms, figure.max_wait_ms) == (100, 0, math.inf)
    figure.set_state({"max_wait_ms": 4.5, "max_batch_size": 16})  # as a page sends it
    assert figure.scenario == other.replace(max_wait_ms=4.5, max_batch_size=16)


def test_an_endless_wait_travels_without_infinity():
    figure = bs.figure(SCENARIO)
    figure.max_wait_ms = math.inf
    assert figure.get_state("max_wait_ms") == {"max_wait_ms": None}
    figure.max_wait_ms = 1
    figure.set_state({"max_wait_ms": None})
    assert figure.max_wait_ms == math.inf


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("max_wait_ms", -1, "max_wait_ms must be at least 0, got -1"),
        ("max_batch_size", 2.5, "max_batch_size must be a whole number, got 2.5"),
        ("servers", 65, "servers must be at most 64, got 65"),
        ("rate_per_s", 1e-9, "arrivals must be before"),
        ("objective_ms", 0, "objective_ms must be greater than 0, got 0"),
        ("fixed_ms", math.nan, "fixed_ms must be a number, got nan"),
    ],
)
def test_a_wrong_value_is_refused_and_the_old_one_stays(name, value, rule):
    figure = bs.figure(SCENARIO, objective_ms=30)
    before = getattr(figure, name)
    with pytest.raises((TypeError, ValueError), match=f"^{rule}"):
        setattr(figure, name, value)
    assert getattr(figure, name) == before


@pytest.mark.parametrize(
    "scenario",
    [
        SCENARIO.replace(queue_limit=4),
        bs.Scenario(bs.Poisson(800), bs.AtLeast(3, 32), bs.Affine(5, 0.25)),
        bs.Scenario(bs.Trace([0, 1, 2]), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25)),
        bs.Scenario(bs.Poisson(800).with_priorities({1: 0.5, 2: 0.5}), bs.SizeOrWait(8, 1), bs.Affine(5, 1)),
        bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25).with_noise(1)),
        bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25).padded_to([8, 32])),
    ],
    ids=["limit", "rule", "trace", "priorities", "noise", "padding"],
)
def test_a_scenario_that_the_page_cannot_run_is_refused_with_what_to_use_instead(scenario):
    figure = bs.figure(SCENARIO)
    for act in (bs.figure, lambda given: setattr(figure, "scenario", given)):
        with pytest.raises(ValueError, match=r"^a figure shows Poisson.*bs\.explore\(scenario\).*, got Sc"):
            act(scenario)
    assert figure.scenario == SCENARIO


def test_unknown_views_and_controls_are_refused_with_the_known_names():
    for name, known in (("views", VIEWS), ("controls", SHOWN)):
        with pytest.raises(ValueError, match=f"^{name} must be one of {', '.join(known)}, got 'latncy'"):
            bs.figure(SCENARIO, **{name: ["latncy"]})


def test_every_control_of_the_page_is_an_attribute():
    figure = bs.figure(SCENARIO, views="map", controls=SHOWN)
    assert figure.controls == list(SHOWN)
    assert all(getattr(figure, name) is not None for name in SHOWN)


def test_a_notebook_keeps_a_still_with_a_description():
    found, about = bs.figure(SCENARIO)._repr_mimebundle_()
    assert {"image/png", "text/plain", "application/vnd.jupyter.widget-view+json"} <= found.keys()
    assert "p99 18.5 ms" in about["image/png"]["alt"]
    assert len(found["image/png"]) < 200_000


def test_its_style_reaches_no_other_element():
    assert style().startswith(".batchsim-figure {")
    assert style().count("{") == style().count("}")


# Where the loops come from.


def test_the_loops_of_a_wheel_are_used_as_they_are_and_else_built_once(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(wasm, "build", lambda *rules, **how: built.append((rules, how)) or b"built")
    monkeypatch.setattr(wasm, "cache_folder", lambda loop: tmp_path / "cache")
    monkeypatch.setattr(wasm, "__file__", str(tmp_path / "wasm.py"))
    monkeypatch.setattr(wasm, "name_of", lambda rules: "code.wasm")
    assert [wasm.kept(wasm.FIGURE), wasm.kept(wasm.FIGURE)] == [b"built", b"built"]
    assert built == [(("SizeOrWait",), {"quietly": True, "folder": None})]
    (tmp_path / "code.wasm").write_bytes(b"packed")
    assert wasm.kept(wasm.FIGURE) == b"packed"


def test_a_numba_that_cannot_build_them_is_refused_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(wasm, "name_of", lambda rules: "code.wasm")
    monkeypatch.setattr(wasm, "cache_folder", lambda loop: None)
    monkeypatch.setattr(wasm.importlib.metadata, "version", lambda name: "0.61.2")
    with pytest.raises(
        ImportError, match=r"^numba must be at least 0\.68 to build the figure, got 0\.61\.2$"
    ):
        wasm.kept(wasm.FIGURE)
