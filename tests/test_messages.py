"""What every function says of a wrong call: the rule and the value, in the words of who called it."""

import re
from functools import partial

import numpy as np
import pytest

import batchsim as bs
from batchsim.study.surface import surface

ONE = bs.Scenario(bs.Poisson(100), bs.SizeOrWait(4, 5), bs.Affine(5, 0.25))
CLOSED = ONE.replace(workload=bs.ClosedLoop(4))
BURST = ONE.replace(workload=bs.Trace(np.zeros(50)))
SLO = bs.SLO(p99_ms=20)
RATE = bs.SLO(min_throughput_per_s=10)
OVER = {"max_batch_size": [2]}
MOST = 10**12  # requests: more than any memory has room for
ROUTED = ONE.replace(replicas=2)
NAMES = (
    "simulate", "sweep", "tune", "capacity", "surface", "explore", "film", "lanes", "compare",
    "compare_routing", "compare_servers", "calibrate", "plot",
)  # fmt: skip
# Wrong calls of each function: of scenarios that it cannot take, and of arguments that it hands on.
WRONG = {
    "simulate": [
        partial(bs.simulate, None),
        partial(bs.simulate, ONE, 0),
        partial(bs.simulate, BURST, 51),
        partial(bs.simulate, ONE, 9, keep="summary", engine="simpy"),
    ],
    "sweep": [
        partial(bs.sweep, ONE, {}),
        partial(bs.sweep, ONE, OVER, 0),
        partial(bs.sweep, ONE, OVER, MOST, progress=False),
        partial(bs.sweep, CLOSED, {"rate_per_s": [1]}, 9),
    ],
    "tune": [
        partial(bs.tune, ONE, SLO, {}),
        partial(bs.tune, ONE, SLO, {"rate_per_s": [1]}),
        partial(bs.tune, ONE, SLO, OVER, MOST),
        partial(bs.tune, BURST, SLO, OVER),
        partial(bs.tune, ONE, bs.SLO(min_throughput_per_s=1e6), OVER),
        partial(bs.tune, ONE, bs.SLO(ttft_p99_ms=3), OVER),
    ],
    "capacity": [
        partial(bs.capacity, CLOSED, SLO),
        partial(bs.capacity, BURST, SLO),
        partial(bs.capacity, ONE, RATE),
        partial(bs.capacity, ONE, SLO, requests=MOST),
    ],
    "surface": [
        partial(surface, ONE, [], [1], 9),
        partial(surface, ONE, [1], [1], 0),
        partial(surface, ONE, [1], [1], 9, knobs=("servers", "servers")),
    ],
    "explore": [
        partial(bs.explore, ONE, requests=0),
        partial(bs.explore, ONE, link="x=1"),
        partial(bs.explore, link="workload=given"),
    ],
    "film": [
        partial(bs.film, None),
        partial(bs.film, CLOSED, rules={"mine": bs.SizeOrWait()}),
        partial(bs.film, BURST, 51),
        partial(bs.film, ONE, rules={}),
        partial(bs.film, ONE, rules="triton"),
        partial(bs.film, ONE, rules={"mine": 3}),
    ],
    "lanes": [
        partial(bs.lanes, None),
        partial(bs.lanes, CLOSED, {"mine": bs.SizeOrWait()}),
        partial(bs.lanes, ONE, "triton"),
        partial(bs.lanes, ONE, {"mine": 3}),
    ],
    "compare": [
        lambda: bs.compare(ONE, ONE),
        lambda: bs.compare(bs.simulate(ONE, 200), bs.simulate(ONE, 300)),
        lambda: bs.compare(bs.simulate(ONE, 200), bs.simulate(ONE, 200), ["load"]),
    ],
    "compare_routing": [
        partial(bs.compare_routing, CLOSED),
        partial(bs.compare_routing, ONE),
        partial(bs.compare_routing, ROUTED, requests=0),
        partial(bs.compare_routing, ROUTED, requests=MOST),
        partial(bs.compare_routing, ROUTED, ["least_tokens"]),
    ],
    "compare_servers": [
        partial(bs.compare_servers, CLOSED),
        partial(bs.compare_servers, ONE, "triton"),
        partial(bs.compare_servers, ONE, ["x"]),
    ],
    "calibrate": [partial(bs.calibrate, [], bs.Continuous()), partial(bs.calibrate, [], bs.SizeOrWait())],
    "plot": [
        partial(bs.plot, ONE),
        lambda: bs.plot(bs.simulate(ONE, 2000, keep="summary")),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_message_names_no_function_but_the_one_that_was_called(name):
    others = "|".join(each for each in NAMES if each != name)
    for call in WRONG[name]:
        with pytest.raises((ValueError, TypeError, MemoryError)) as caught:
            call()
        said = str(caught.value)
        assert ", got " in said, said
        rule = said.partition(", got ")[0]
        assert not re.search(rf"^({others})\b|\b({others})(\(| (must|needs|takes)\b)", rule), said
        # `keep` is an argument of `simulate`, and of no other function.
        assert name == "simulate" or "keep='summary' runs" not in said, said
