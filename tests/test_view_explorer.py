"""The explorer works without a browser: move a control, read the text."""

import re

import pytest

import batchsim as bs
from batchsim.view.explorer import AFFINE, MEASURE_HERE, describe, load_curve

TABLE = bs.Table({1: 2.0, 8: 4.0, 16: 7.0})


@pytest.fixture
def panel():
    return bs.explore(requests=300)


def test_it_opens_with_a_picture_and_a_line_of_text_that_says_its_numbers(panel):
    assert bytes(panel.image.value).startswith(b"\x89PNG")
    assert describe(panel.result) in panel.readout.value
    assert f"p99 {panel.result.percentile(99):.1f} ms" in panel.readout.value
    assert panel.status.value == ""


@pytest.mark.parametrize(
    ("control", "value"),
    [
        ("max_batch_size", 4),
        ("max_wait_ms", 35.0),
        ("rate_per_s", 77.0),
        ("servers", 3),
        ("fixed_ms", 20.0),
        ("per_item_ms", 1.0),
        ("workload", "gamma, CV 3: in bursts"),
    ],
)
def test_every_control_moves_the_picture_and_the_text(panel, control, value):
    picture, text = panel.image.value, panel.readout.value
    panel.controls[control].value = value
    assert panel.status.value == ""
    assert panel.image.value != picture
    assert panel.readout.value != text


def test_the_picture_is_of_the_scenario_that_the_controls_say(panel):
    panel.controls["max_batch_size"].value = 4
    panel.controls["max_wait_ms"].value = 7
    panel.controls["servers"].value = 2
    panel.controls["rate_per_s"].value = 321
    assert panel.result.scenario == bs.Scenario(
        bs.Poisson(321), bs.SizeOrWait(4, 7.0), bs.Affine(5.0, 0.25), servers=2
    )


def test_the_same_controls_give_the_same_text(panel):
    text = panel.readout.value
    panel.controls["max_wait_ms"].value = 50
    panel.controls["max_wait_ms"].value = 10
    assert panel.readout.value == text


def test_a_service_time_that_is_given_is_offered_first_and_bounds_the_batch():
    panel = bs.explore(TABLE, requests=300)
    assert panel.result.scenario.service == TABLE
    assert panel.controls["max_batch_size"].max == 16
    assert panel.controls["fixed_ms"].disabled
    panel.controls["service"].value = AFFINE
    assert panel.controls["max_batch_size"].max == 64
    assert not panel.controls["fixed_ms"].disabled


def test_the_arrival_rate_follows_a_service_time_of_another_scale():
    panel = bs.explore(bs.Table({1: 0.01, 64: 0.02}), requests=300)
    assert 0.1 < panel.result.scenario.load < 1
    panel.controls["service"].value = AFFINE
    assert 0.1 < panel.result.scenario.load < 1


def test_a_model_measured_from_the_panel_gives_its_service_time(panel):
    panel.controls["service"].value = next(name for name in MEASURE_HERE if "mlp" in name)
    assert panel.status.value == ""
    assert isinstance(panel.result.scenario.service, bs.Table)


def test_a_trace_can_be_explored_at_any_rate():
    panel = bs.explore(workload=bs.Trace([0.0, 0.1, 0.2, 0.5, 0.6]), requests=300)
    assert panel.status.value == ""
    assert panel.result.arrival_s.size == 5
    assert panel.result.scenario.workload.offered_per_s == pytest.approx(panel.controls["rate_per_s"].value)


def test_when_a_run_fails_the_last_picture_stays_and_the_reason_stands_below(panel, monkeypatch):
    picture, text, result = panel.image.value, panel.readout.value, panel.result

    def fail(*_, **__):
        raise ValueError("the moon must be full, got <half>")

    monkeypatch.setattr("batchsim.view.explorer.simulate", fail)
    panel.controls["max_wait_ms"].value = 33
    assert "ValueError: the moon must be full, got &lt;half&gt;" in panel.status.value
    assert 'role="alert"' in panel.status.value
    assert (panel.image.value, panel.readout.value, panel.result) == (picture, text, result)
    monkeypatch.undo()
    panel.controls["max_wait_ms"].value = 34
    assert panel.status.value == ""


def test_an_overloaded_setting_says_so(panel):
    panel.controls["max_batch_size"].value = 1
    assert "Overloaded" in panel.readout.value


def test_moves_that_come_while_one_is_drawn_are_drawn_once_at_the_end(panel, monkeypatch):
    drawn = []
    draw = panel._move

    def slow():
        drawn.append(panel.controls["max_wait_ms"].value)
        if len(drawn) == 1:  # two more moves arrive on other threads while this one is drawn
            import threading

            threads = []
            for wait_ms in (21.0, 22.0):
                thread = threading.Thread(
                    target=setattr, args=(panel.controls["max_wait_ms"], "value", wait_ms)
                )
                thread.start()
                while panel.moves < 2 + len(threads):
                    pass
                threads.append(thread)
            waiting.extend(threads)
        draw()

    waiting = []
    monkeypatch.setattr(panel, "_move", slow)
    panel.controls["max_wait_ms"].value = 20.0
    for thread in waiting:
        thread.join()
    assert drawn == [20.0, 22.0]
    assert panel.result.scenario.rule.max_wait_ms == 22.0


def test_moving_does_not_pile_up_figures_or_curves(panel):
    artists = len(panel.picture.findobj())
    for step in range(120):
        panel.curves[step] = None
    panel.controls["max_wait_ms"].value = 11
    assert len(panel.curves) <= 100
    for wait_ms in (12, 13, 14):
        panel.controls["max_wait_ms"].value = wait_ms
    assert abs(len(panel.picture.findobj()) - artists) < 40  # ticks and legend entries come and go


def test_today_lies_on_the_load_curve():
    scenario = bs.Scenario(bs.Poisson(500), bs.SizeOrWait(8, 5), bs.Affine(5, 0.25))
    curve = load_curve(scenario, 500, seed=0)
    at = 4
    run = bs.simulate(scenario.replace(rate_per_s=float(curve.rate_per_s[at])), 500, seed=0)
    assert curve.p99_ms[at] == run.percentile(99)


def test_it_prints_as_one_short_line(panel):
    assert repr(panel) == (
        "Explorer(service, fixed_ms, per_item_ms, max_batch_size, max_wait_ms, servers, workload, rate_per_s)"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"service": 3}, "service must be a Measurement or a service time, got 3"),
        (
            {"workload": bs.ClosedLoop(2)},
            "workload must be an open-loop workload, got ClosedLoop(clients=2, think_s=0.0)",
        ),
        ({"requests": 0}, "requests must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        bs.explore(**arguments)
