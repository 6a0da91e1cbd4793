"""The explorer's menu of servers: a choice is the preset's scenario, in the server's own words."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from places import ROOT

import batchsim as bs
from batchsim import servers
from batchsim.scenario import RULES
from batchsim.servers.registry import ALL
from batchsim.view.explorer import presets
from batchsim.view.explorer.state import DEFAULTS, State

BATCHES = [*servers.SERVERS, *servers.SIZE_SERVERS]
STEPS = [*servers.TOKEN_SERVERS]
KNOWN = {"gpu": "rtx-4090", "model": "llama-3.1-8b", "model_path": "llama-3.1-8b", "model_id": "llama-3.1-8b"}


def chosen(panel, name):
    """Choose a server by its menu, and return the scenario."""
    panel.controls[panel.state.kind.rule].value = name
    assert not panel.session.status[1], panel.session.status
    return panel.scenario


@pytest.fixture(scope="module")
def panels():
    return {
        mode: bs.explore(State(**vars(state)).scenario(), requests=300) for mode, state in DEFAULTS.items()
    }


@pytest.fixture
def panel(panels):
    panels["requests"].session.reset()
    return panels["requests"]


@pytest.mark.parametrize("name", BATCHES)
def test_a_server_of_the_menu_gives_the_scenario_of_its_preset(panel, name):
    before = panel.scenario
    found = chosen(panel, name)
    before = before.replace(workload=found.workload)  # some need sizes
    needed = {"max_batch_size": before.rule.max_batch_size} if name == "triton" else {}
    assert found == servers.config(name, **needed).apply(before, silent=True)
    assert (
        found.rule == getattr(servers, name)(**needed) or name == "ray_serve"
    )  # its limit is another decorator's
    assert panel.controls["rule"].value == panel.state.server == name


@pytest.mark.parametrize("name", STEPS)
def test_a_server_of_tokens_has_its_defaults_on_the_card_of_the_step_time(panels, name):
    panel = panels["tokens"]
    panel.session.reset()
    found = chosen(panel, name)
    known = {key: value for key, value in KNOWN.items() if key in servers.TOKEN_SERVERS[name].settings}
    assert found.rule == getattr(servers, name)(**known)
    assert (found.rule.kv_blocks is None) == (name == "orca")


@pytest.mark.parametrize("name", [*BATCHES, *STEPS])
def test_a_link_and_the_copied_python_recreate_the_choice(panels, name):
    panel = panels["requests" if name in BATCHES else "tokens"]
    panel.session.reset()
    found = chosen(panel, name)
    assert State.from_link(panel.state.to_link()) == panel.state
    panel.controls["max_num_seqs" if name in STEPS else "max_batch_size"].value = 24
    found = panel.scenario
    text = panel.session.python()
    if name != "clipper":  # it has no setting for the largest of learned sizes
        assert f"rule=bs.servers.{name}(" in text
    scope = {}
    exec(text.partition("result =")[0], scope)
    assert scope["scenario"] == found


def test_servers_come_first_in_the_menu_each_with_its_rule(panel):
    labels = [label for label, _ in panel.controls["rule"].options]
    assert labels[:4] == [
        "Textbook: size or wait", "Triton: size or wait", "TensorFlow Serving: size or wait",
        "TorchServe: pull, then wait",
    ]  # fmt: skip
    plain = [label.startswith("Rule: ") for label in labels]
    assert sorted(plain) == plain
    assert plain.count(False) == len(BATCHES)


def test_the_menu_is_sent_again_only_if_it_changes(panel):
    chosen(panel, "triton")
    changes = []
    panel.controls["rule"].observe(changes.append, names="options")
    panel.move_to(panel.state.replace(rate_per_s=700))
    assert changes == []
    panel.move_to(panel.state.replace(rule="preferred_until_late", preferred=(8, 32)))
    assert len(changes) == 1
    assert ("Triton: preferred batch sizes", "triton") in changes[0]["new"]
    panel.controls["rule"].unobserve(changes.append, names="options")


def test_a_plain_rule_leaves_the_server(panel):
    chosen(panel, "torchserve")
    panel.controls["rule"].value = "pull_then_wait"
    assert panel.state.server == ""
    assert panel.controls["max_wait_ms"].field.description.count("code") == 0


def test_sliders_speak_the_server_s_words_with_their_values(panel):
    chosen(panel, "triton")
    panel.controls["max_wait_ms"].value = 7.5
    assert "max_queue_delay_microseconds: 7500" in panel.controls["max_wait_ms"].field.description
    assert panel.state.server == "triton"
    assert "<code>" not in panel.controls["max_batch_size"].field.description  # it has the same name


@pytest.mark.parametrize("name", [*BATCHES, *STEPS])
def test_each_word_beside_a_control_is_a_setting_of_the_server_with_its_value(panels, name):
    panel = panels["requests" if name in BATCHES else "tokens"]
    panel.session.reset()
    found = chosen(panel, name)
    words = presets.aliases(name, found)
    for control, text in words.items():
        setting, _, value = text.partition(": ")
        assert setting in ALL[name].settings
        assert control in {each for other in DEFAULTS.values() for each in vars(other)}
        if value:
            assert str(presets.settings(name, found)[setting]) == value


def test_a_server_without_the_rule_is_refused_by_a_link():
    state = State.from_link("server=torchserve&rule=frozen_batches")
    with pytest.raises(ValueError, match="the rule must be one of TorchServe"):
        state.scenario()


def test_a_map_s_cell_beyond_the_server_leaves_it(panel):
    chosen(panel, "triton")
    assert presets.kept("triton", bs.SizeOrWait(8, 2)) == "triton"
    assert presets.kept("triton", bs.SizeOrWait(8, float("inf"))) == ""


@pytest.mark.parametrize(("name", "waits_ms"), [
    ("triton", [0, 0.002, 0.7, 1.4, 2]), ("torchserve", [0.7, 1, 2]), ("litserve", [0, 0.0015, 0.7, 1.4, 2]),
])  # fmt: skip
def test_a_search_over_a_map_takes_the_waits_that_the_server_can_have_and_the_present_one(name, waits_ms):
    map_ms = 0, 0.0015, 0.7, 1.4, 2, math.inf
    shown = SimpleNamespace(x="max_batch_size", x_values=(1, 8), y="max_wait_ms", y_values=map_ms)
    rule = presets.defaults(ALL[name], 8).rule
    scenario = bs.Scenario(bs.Poisson(9), replace(rule, max_wait_ms=0.7), bs.Affine(5, 1))
    found = presets.axes(ALL[name], scenario, shown)
    assert found == {"max_batch_size": [1, 8], "max_wait_ms": waits_ms}  # not 0.7000000000000001 as well


def test_a_default_beyond_the_service_time_is_cut_to_it():
    panel = bs.explore(
        bs.Scenario(bs.Poisson(50), bs.SizeOrWait(4, 5), bs.Table({1: 5, 16: 9})), requests=300
    )
    assert chosen(panel, "tf_serving").rule == bs.SizeOrWait(16, 0)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_names_the_servers_that_have_it(rule):
    users = []
    for name in BATCHES:
        server = ALL[name]
        found = [
            server.configure(presets.defaults(server).settings | {**variant}) for variant in server.variants
        ]
        found += [servers.config("triton", max_batch_size=8, preferred_batch_size=[4])] * (name == "triton")
        if any(type(each.rule) is rule for each in found):
            users.append(server.title)
    said = vars(rule).get("used_by", "").replace("textbook", "Textbook")
    assert sorted(filter(None, said.split(", "))) == sorted(users)


@pytest.mark.parametrize("name", ALL)
def test_the_docs_name_the_rule_of_each_server(name):
    rule = type(presets.defaults(ALL[name]).rule)
    row = f"| {ALL[name].title} | {rule.title[:1].lower()}{rule.title[1:]} | `{rule.__name__}` |\n"
    assert row in (ROOT / "docs" / "servers.md").read_text()


def test_every_server_has_a_title_of_its_own():
    titles = [server.title for server in ALL.values()]
    assert all(titles)
    assert len({*titles}) == len(titles)
