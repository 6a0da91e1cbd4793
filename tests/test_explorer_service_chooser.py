"""The choice of a service time in short lists."""

import pytest
import traitlets

import batchsim as bs
from batchsim.view.explorer.services import AFFINE, PUBLISHED, TABLES
from batchsim.view.explorer.widgets import is_hidden


@pytest.fixture
def panel():
    return bs.explore(requests=300)


def test_a_published_table_is_chosen_by_model_then_device_then_precision(panel):
    chooser = panel.controls["service"]
    model, device, precision = chooser.parts
    assert is_hidden(model)
    chooser.source.value = TABLES
    assert not is_hidden(model)
    model.value = "bert-large"
    device.value = "t4"
    precision.value = "fp16/trt"
    assert panel.result.scenario.service == bs.published("bert-large/t4/fp16/trt")
    model.value = "bert-dist6l"  # which has the same device
    assert (device.value, panel.state.published.split("/")[:2]) == ("t4", ["bert-dist6l", "t4"])
    chooser.source.value = AFFINE
    assert is_hidden(model)
    assert panel.state.service == "affine"


def test_the_lists_follow_a_state_from_elsewhere(panel):
    panel.share.link.value = "service=published&published=nnunet/t4/fp16&rate_per_s=100&max_batch_size=4"
    chooser = panel.controls["service"]
    assert chooser.value == PUBLISHED + "nnunet/t4/fp16"
    assert [part.value for part in chooser.parts] == ["nnunet", "t4", "fp16"]


def test_every_published_table_can_be_reached_by_the_lists(panel):
    chooser, reached = panel.controls["service"], set()
    panel.session.move = lambda continuous=False: None  # no run is needed for it
    chooser.source.value = TABLES
    for model in chooser.parts[0].options:
        chooser.parts[0].value = model[1]
        for device in chooser.parts[1].options:
            chooser.parts[1].value = device[1]
            for precision in chooser.parts[2].options:
                chooser.parts[2].value = precision[1]
                reached.add(panel.state.published)
    assert reached == set(bs.published_names())


def test_what_is_not_offered_is_refused(panel):
    with pytest.raises(traitlets.TraitError, match="on the list"):
        panel.controls["service"].value = PUBLISHED + "nothing"
