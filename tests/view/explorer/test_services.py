"""The service times on offer: given, measured here, published; their lists, and the state's scale."""

from functools import partial

import pytest
from hands import is_shown, looked_at

import batchsim as bs
from batchsim import device
from batchsim.view.explorer.options import SERVICES
from batchsim.view.explorer.services import MEASURE_HERE, PUBLISHED, TABLES
from batchsim.view.explorer.state import DEFAULT

AFFINE = SERVICES["affine"].label

TABLE = bs.Table({1: 2.0, 8: 4.0, 16: 7.0})


def test_a_service_time_that_is_given_is_offered_first_and_bounds_the_batch():
    panel = bs.explore(TABLE, requests=300)
    assert panel.result.scenario.service == TABLE
    assert panel.controls["max_batch_size"].range.high == 16
    assert not is_shown(panel, "fixed_ms")
    panel.controls["service"].value = AFFINE
    assert panel.controls["max_batch_size"].range.high == 64
    assert is_shown(panel, "fixed_ms")


def test_the_other_controls_follow_a_service_time_of_another_scale():
    panel = bs.explore(bs.Table({1: 0.01, 64: 0.02}), requests=300)
    assert 0.1 < panel.scenario.load < 1
    assert panel.state.max_wait_ms < 1
    assert panel.controls["max_wait_ms"].range.high < 1
    panel.controls["service"].value = AFFINE
    assert 0.1 < panel.scenario.load < 1
    assert panel.state.max_wait_ms > 1


@pytest.mark.parametrize("name", bs.published_names()[::12])
def test_published_tables_are_offered_and_say_their_source(panel_again, name):
    panel = panel_again
    panel.controls["service"].value = PUBLISHED + name
    assert panel.status.value == ""
    assert panel.result.scenario.service == bs.published(name)
    assert "Not measured on this machine" in panel.origin.value


def test_every_published_table_can_be_chosen(panel):
    offered = {value.removeprefix(PUBLISHED) for _, value in panel.controls["service"].options}
    assert set(bs.published_names()) <= offered


def test_a_model_measured_from_the_panel_gives_its_service_time(panel, monkeypatch):
    monkeypatch.setattr(device, "load_model", partial(device.load_model, width=64))  # measured sooner
    panel.controls["service"].value = next(name for name in MEASURE_HERE if "mlp" in name)
    assert panel.status.value == ""
    assert isinstance(panel.result.scenario.service, bs.Table)
    assert "this machine" in panel.origin.value


def test_a_curve_of_another_machine_says_whose_it_is():
    state = DEFAULT.replace(service="curve", curve=((1, 2.0), (32, 5.0)), curve_of="mlp on NVIDIA H100")
    panel = bs.explore(requests=300, link=state.to_link())
    assert "mlp on NVIDIA H100" in panel.controls["service"].value
    assert "This machine has" in panel.origin.value


def test_a_service_time_that_cannot_be_had_leaves_the_choice_and_the_picture_as_they_were(panel, monkeypatch):
    looked_at(panel)

    def fail(model):
        raise RuntimeError("there is no <compiler> here")

    monkeypatch.setattr("batchsim.view.explorer.services.measure", fail)
    state, frame, number = panel.state, panel.screen.frame, panel.screen.number
    panel.controls["service"].value = next(iter(MEASURE_HERE))
    assert panel.controls["service"].value == AFFINE
    assert (panel.state, panel.screen.frame, panel.screen.number) == (state, frame, number)
    assert "RuntimeError: there is no &lt;compiler&gt; here" in panel.status.value
    assert 'role="alert"' in panel.status.value
    panel.controls["max_wait_ms"].value = 3
    assert panel.status.value == ""
    assert panel.result.scenario.service == bs.Affine(5, 0.25)


def test_another_formula_is_not_offered_as_the_one_that_was_given():
    panel = bs.explore(bs.Affine(3, 1), requests=300)
    given = panel.controls["service"].value
    assert "Affine(fixed_ms=3, per_item_ms=1)" in given
    panel.move_to(panel.state.replace(fixed_ms=9))
    assert panel.controls["service"].value == AFFINE
    panel.move_to(panel.state.replace(fixed_ms=3))
    assert panel.controls["service"].value == given
    panel.share.link.value = "fixed_ms=3&per_item_ms=0.5"
    assert panel.controls["service"].value == AFFINE
    panel.controls["per_item_ms"].value = 1
    assert panel.controls["service"].value == given
    panel.controls["fixed_ms"].value = 9
    assert panel.controls["service"].value == AFFINE


@pytest.mark.parametrize("service", [bs.Affine(5, 0.25), bs.Table({1: 0.01, 64: 0.02})], ids=repr)
@pytest.mark.parametrize("traffic", [bs.Poisson(100), bs.Trace([0.0, 0.1, 0.2, 0.5, 0.6])], ids=repr)
def test_given_traffic_keeps_its_rate_beside_a_given_service_time(service, traffic):
    panel = bs.explore(service, traffic, requests=300)
    assert panel.scenario.workload == traffic.with_rate(traffic.offered_per_s)
    assert panel.scenario.service == service


@pytest.mark.parametrize("scale", [0.01, 1, 100])
def test_without_traffic_the_rate_is_brought_to_the_scale_of_the_service_time(scale):
    panel = bs.explore(bs.Affine(5 * scale, 0.25 * scale), requests=300)
    assert 0.25 < panel.scenario.load < 1


def test_a_published_table_is_chosen_by_model_then_device_then_precision(panel):
    chooser = panel.controls["service"]
    source, model, device, precision = chooser.lists
    assert model not in chooser.widgets
    source.value = TABLES
    assert model in chooser.widgets
    model.value = "bert-large"
    device.value = "t4"
    precision.value = "fp16/trt"
    assert panel.result.scenario.service == bs.published("bert-large/t4/fp16/trt")
    model.value = "bert-dist6l"  # which has the same device
    assert (device.value, panel.state.published.split("/")[:2]) == ("t4", ["bert-dist6l", "t4"])
    source.value = AFFINE
    assert model not in chooser.widgets
    assert panel.state.service == "affine"


def test_the_lists_follow_a_state_from_elsewhere(panel):
    panel.share.link.value = "service=published&published=nnunet/t4/fp16&rate_per_s=100&max_batch_size=4"
    chooser = panel.controls["service"]
    assert chooser.value == PUBLISHED + "nnunet/t4/fp16"
    assert [part.value for part in chooser.lists[1:]] == ["nnunet", "t4", "fp16"]


def test_every_published_table_can_be_reached_by_the_lists(panel):
    chooser, reached = panel.controls["service"], set()
    panel.session.move = lambda continuous=False: None  # no run is needed for it
    source, models, devices, precisions = chooser.lists
    source.value = TABLES
    for _, model in models.options:
        models.value = model
        for _, each in devices.options:
            devices.value = each
            for _, precision in precisions.options:
                precisions.value = precision
                reached.add(panel.state.published)
    assert reached == set(bs.published_names())


def test_what_is_not_offered_is_refused(panel):
    with pytest.raises(ValueError, match="on the list"):
        panel.controls["service"].value = PUBLISHED + "nothing"
