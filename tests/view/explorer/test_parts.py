"""The parts of scenarios: any scenario becomes values of controls, and what these cannot say stays."""

import contextlib
import dataclasses

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import pairwise

import batchsim as bs
from batchsim.view.explorer import runs
from batchsim.view.explorer.kinds import KINDS, relevant
from batchsim.view.explorer.parts import Given
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.session import Session
from batchsim.view.explorer.state import DEFAULTS, State


@st.composite
def scenarios(draw):
    """Scenarios of both kinds over all fields, rules, workloads and service times."""
    kind = draw(st.sampled_from([*pairwise.TABLES]))
    levels = {
        factor: st.sampled_from([0, 0, *range(len(each))]) for factor, each in pairwise.TABLES[kind].items()
    }
    made = None
    with contextlib.suppress(ValueError, TypeError):
        made = pairwise.scenario_of(kind, draw(st.fixed_dictionaries(levels)))
    assume(made is not None)
    return made


@given(scenarios())
def test_any_scenario_comes_back_from_controls_its_link_and_its_python(scenario):
    state = State.of(scenario, seed=5)
    assert state.scenario() == scenario
    link = state.to_link()
    assert State.from_link(link, state) == state
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario
    if not state.needs:
        alone = State.from_link(link)
        for name in CONTROLS:
            assert getattr(alone, name) == getattr(state, name)
        # What is given here but not needed has the same effect, as noise of 0.
        same = {path.partition(".")[0] for path in state.given}
        fields, again = [field.name for field in dataclasses.fields(scenario)], alone.scenario()
        assert {name for name in fields if getattr(again, name) != getattr(scenario, name)} <= same
    else:
        with pytest.raises(ValueError, match="must come with"):
            State.from_link(link).scenario()
    names = {"traffic": scenario.workload, "tokens": scenario.tokens}
    exec(state.python(50).partition("result =")[0], names)
    assert names["scenario"] == scenario


@pytest.mark.filterwarnings("ignore:requests must cover whole periods")  # these are a part of a day
@settings(max_examples=20)
@given(scenarios())
def test_any_scenario_is_shown_with_the_numbers_of_its_simulation(scenario):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "lacks_others", lambda _: True)  # no map and no curve
        session = Session(State.of(scenario, seed=5), requests=100)
        session.refresh()
    assert session.status[1] is False
    meant = bs.simulate(scenario, 100, seed=5)
    assert session.data.result.scenario == scenario
    assert session.data.summary == pytest.approx(meant.summary(), rel=0, abs=0, nan_ok=True)


@given(
    scenarios(),
    st.floats(0, 100).map(lambda price: round(price, 3)),
    st.dictionaries(st.integers(0, 4096), st.floats(0, 1e5), min_size=2, max_size=6),
)
def test_any_price_and_any_watts_survive_the_explorer_links_files_and_python(scenario, price, watts):
    paid = scenario.replace(price_per_hour=price, watts=watts)
    state = State.of(paid)
    moved = state.replace(servers=state.servers)
    assert not {"price_per_hour", "watts"} & {*state.needs}
    for again in (state, moved, State.from_link(state.to_link(), state)):
        assert (again.price_per_hour, dict(again.watts)) == (price, watts)
        assert again.scenario() == paid
    alone = State.from_link(state.replace(given={}).to_link())
    assert (alone.field("price_per_hour"), alone.field("watts")) == (price, watts)
    assert bs.Scenario.from_toml(paid.to_toml()) == paid
    names = {"traffic": paid.workload, "tokens": paid.tokens}
    exec(state.python(50).partition("result =")[0], names)
    assert names["scenario"] == paid


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        ("8:-1", "watts of a batch of 8 must be at least 0, got -1"),
        ("8:nan", "watts of a batch of 8 must be a number, got nan"),
        ("0:60", "watts must have those of a batch of 1 or more, got {0: 60}"),
        ("8:1,8:2", r"watts must have each batch size once, got \[\(8, 1\), \(8, 2\)\]"),
        ("-1:5", "a batch size in watts must be at least 0, got -1"),
        ("300", r"Watts must be like 0:60,8:300 \(batch size:watts\), got '300'"),
        ("8:many", "the part after a colon must be a number, got 'many'"),
    ],
)
def test_bad_watts_are_refused_with_the_rule_and_the_value(typed, error):
    with pytest.raises(ValueError, match=f"^{error}$"):
        CONTROLS["watts"].read("Power (W)", typed)
    with pytest.raises(ValueError, match=f"^{error}$"):
        State.from_link(f"watts={typed}")


@given(scenarios(), st.integers(1, 4))
def test_a_control_changes_its_own_part_alone(scenario, servers):
    assume(scenario.slowdown is None)
    with contextlib.suppress(ValueError):
        moved = scenario.replace(servers=servers)
        assert State.of(scenario).replace(servers=servers).scenario() == moved
    if "rate_per_s" in State.of(scenario).needs or not relevant("rate_per_s", vars(State.of(scenario))):
        return
    moved = State.of(scenario).replace(rate_per_s=77.0).scenario()
    assert moved.workload.offered_per_s == pytest.approx(77)
    assert dataclasses.replace(moved, workload=scenario.workload) == scenario


class Mine(bs.SizeOrWait):
    """A rule of a reader's own."""


class Slow(bs.Affine):
    """A service time of a reader's own."""


REQUESTS, TOKENS = (DEFAULTS[kind].scenario() for kind in ("requests", "tokens"))
UNSAID = {
    "slowdown": REQUESTS.replace(servers=3, slowdown={1: 1.0, 2: 1.8, 3: 1.9}),
    "queue_limit": REQUESTS.replace(workload=bs.Poisson(9).with_priorities({1: 1}), queue_limit={1: 5}),
    "service.compile_ms": REQUESTS.replace(service=bs.Affine(1, 1).compiling({1: 2, 8: 3})),
    "rule": dataclasses.replace(REQUESTS, rule=Mine(8, 5)),
    "service": dataclasses.replace(REQUESTS, service=Slow(5, 1).with_noise(0.3)),
    "workload": REQUESTS.replace(workload=bs.Trace([0.0] * 300)),
    "servers": REQUESTS.replace(servers=100),
    "routing": REQUESTS.replace(replicas=2, routing=bs.routing.ByKey([1, 2] * 150)),
    "autoscale": REQUESTS.replace(autoscale=bs.Autoscale("queue", most=3)),
    "rule.prefix_reuse": TOKENS.replace(prefix_reuse=True),
    "tokens.prefixes": TOKENS.replace({"tokens.prefixes": bs.PrefixGroups(3, 32)}),
    "service.ragged": TOKENS.replace(rule=bs.SizeOrWait(8, 50), ragged=True),
}  # fmt: skip


@pytest.mark.parametrize("path", UNSAID)
def test_what_controls_cannot_say_stays_is_named_and_needs_its_scenario(path):
    scenario = UNSAID[path]
    panel = bs.explore(scenario, requests=300)
    assert panel.result.scenario == scenario
    assert panel.state.needs == [path]
    part = KINDS[scenario.kind].parts[path]
    if part.chooser:
        assert panel.controls[part.chooser].value.startswith(("given", "Given"))
    else:
        assert panel.status.value.count(path) == 1
        assert not any(relevant(name, vars(panel.state)) for name in part.controls)
    panel.controls["queue_limit"].value = 90
    assert panel.result.scenario == scenario.replace({} if path == "queue_limit" else {"queue_limit": 90})
    link = panel.state.to_link()
    assert State.from_link(link, panel.state) == panel.state
    with pytest.raises(ValueError, match="must come with"):
        State.from_link(link).scenario()
    assert panel.session.explored(link).count("scenario" if path != "workload" else "traffic") == 1
    names = {"traffic": scenario.workload, "rule": scenario.rule, "service": scenario.service}
    exec(panel.session.python().partition("result =")[0], names)
    assert names["scenario"] == panel.result.scenario


def test_a_given_part_can_be_left_and_chosen_again():
    panel = bs.explore(UNSAID["rule"], requests=300)
    panel.screen._press("up")
    assert "the rule must be one of the list to be moved on the map" in panel.status.value
    panel.controls["rule"].value = "at_least"
    assert panel.result.scenario.rule == bs.AtLeast(8, 32)
    panel.controls["rule"].value = "given"
    assert panel.result.scenario == UNSAID["rule"]
    other = bs.explore(requests=300)
    assert "given" not in dict(other.controls["rule"].options).values()


def test_rounded_values_leave_a_scenario_as_it_is_until_they_move():
    traffic = bs.OnOff(700.1, 0, 0.3, 0.7)
    state = State.of(REQUESTS.replace(workload=traffic))
    assert state.needs == []
    assert state.scenario().workload == traffic
    assert state.replace(rate_per_s=5.0).scenario().workload.offered_per_s == pytest.approx(5)
    given_ = Given(traffic, {"workload": "onoff", "burst_factor": 2.0})
    assert state.replace(given={"workload": given_}).scenario().workload != traffic


def test_names_of_older_links_are_read():
    state = State.from_link("mode=tokens&token_replicas=3&token_routing=least_tokens")
    assert (state.replicas, state.routing) == (3, "least_tokens")
    assert state.to_link() == "mode=tokens&replicas=3&routing=least_tokens"
    with pytest.raises(ValueError, match=r"routing must be one of random, .* got 'least_tokens'"):
        State.from_link("replicas=2&routing=least_tokens").scenario()
