"""The command lines of load generators: what they send is the scenario's traffic."""

import shlex
from itertools import pairwise

import pytest

import batchsim as bs
from batchsim.measured.load_commands import TOOLS

BATCHES = bs.Scenario(bs.Poisson(20), bs.SizeOrWait(8, 5), bs.Affine(5, 1))
STEPS = bs.Scenario(bs.Poisson(2), bs.Continuous(8), bs.StepTime(5, 3, 0.05), tokens=bs.Tokens(100, 20))
OPEN = (bs.Poisson(2.5), bs.Constant(2.5), bs.Gamma(2.5, cv=2))
WORKLOADS = {type(each).__name__: each for each in (*OPEN, bs.ClosedLoop(6))}


def options(command):
    words = shlex.split(command)
    return {name: value for name, value in pairwise(words) if name.startswith("-")}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("kind", WORKLOADS)
def test_each_tool_sends_the_traffic_of_a_scenario_or_refuses_it(tool, kind):
    scenario = (STEPS if TOOLS[tool].of_tokens else BATCHES).replace(workload=WORKLOADS[kind])
    if kind not in TOOLS[tool].loads:
        with pytest.raises(ValueError, match=rf"traffic of {tool} must be .*, got {kind}"):
            bs.load_command(scenario, tool)
        return
    command = bs.load_command(scenario, tool, requests=50)
    assert command.startswith(f"{tool} ")
    assert "{" not in command
    found = options(command)
    values = set(found.values())
    assert "50" in values
    assert ("6" if kind == "ClosedLoop" else "2.5") in values
    if kind == "Gamma":  # a gamma's shape is cv ** -2
        assert "0.25" in values
    assert {"100", "20"} <= values or not TOOLS[tool].of_tokens


def test_a_rate_is_kept_for_five_minutes_and_clients_send_a_thousand():
    assert options(bs.load_command(STEPS))["--num-prompts"] == "600"
    assert options(bs.load_command(STEPS.replace(workload=bs.ClosedLoop(4))))["--num-prompts"] == "1000"


def test_words_are_quoted_for_a_shell():
    command = bs.load_command(BATCHES, model="a b; rm -rf", url="http://[::1]:8000")
    assert options(command)["-m"] == "a b; rm -rf"
    assert options(command)["-u"] == "[::1]:8000"


def test_clients_that_think_and_bursts_are_refused():
    for workload in (bs.ClosedLoop(4, think_s=1), bs.OnOff(9, 1, 1, 1), bs.Trace([0, 1, 2])):
        with pytest.raises(
            ValueError, match="traffic of perf_analyzer must be Poisson or Constant or ClosedLoop"
        ):
            bs.load_command(BATCHES.replace(workload=workload))
    with pytest.raises(TypeError, match="scenario must be a Scenario"):
        bs.load_command(3)
    with pytest.raises(ValueError, match="requests must be at least 1, got 0"):
        bs.load_command(BATCHES, requests=0)


def test_lengths_that_vary_are_sent_at_their_mean_with_a_warning():
    varied = STEPS.replace(tokens=bs.Tokens(bs.Lognormal(400, 1), 150))
    with pytest.warns(UserWarning, match="vllm bench serve sends each prompt with 400 tokens, the mean"):
        command = bs.load_command(varied)
    assert options(command)["--random-input-len"] == "400"
