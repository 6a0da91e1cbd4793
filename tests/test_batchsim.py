"""What `import batchsim` offers and loads, and what every function says of a wrong call."""

import importlib
import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import batchsim
import batchsim as bs
from batchsim.study.surface import surface

HEAVY = ["jax", "numba", "matplotlib", "pandas", "ipywidgets"]


def loaded_by(code):
    """The heavy modules in sys.modules of a fresh interpreter that has run the code."""
    program = f"{code}\nimport sys\nprint([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_loads_nothing_heavy():
    assert loaded_by("import batchsim") == "[]"


RUN = (
    "import batchsim as bs\n"
    "r = bs.simulate(bs.Scenario(bs.Poisson(9), bs.SizeOrWait(), bs.Affine(1, 1)), 50, engine='simpy')\n"
)


def test_a_reference_run_loads_nothing_heavy_either():
    assert loaded_by(RUN + "r.latency_ms, r.forming_ms, r.batches") == "[]"


def test_its_summary_loads_numba_whose_loop_adds_up_alike_for_both_engines():
    assert loaded_by(RUN + "r.summary(), repr(r)") == "['numba']"


def test_how_servers_share_a_device_is_found_without_jax():
    code = "import batchsim as bs\nbs.device.sharing(8, 10, bs.Affine(2, 1), 8)"
    assert loaded_by(code + "\nassert 'measure' in dir(bs.device)") == "[]"
    assert loaded_by("import batchsim as bs\nbs.device.measure") == "['jax']"


def test_parsers_of_servers_files_are_loaded_as_a_file_needs_them():
    code = "import sys, batchsim as bs\nbs.servers.parse('@serve.batch(max_batch_size=8)')\n"
    later = "{'yaml', 'google.protobuf', 'tree_sitter', 'batchsim.study'} & {*sys.modules}"
    assert loaded_by(f"{code}assert not {later}") == "[]"
    assert loaded_by(code + "bs.servers.parse('batchSize: 8')\nassert 'yaml' in sys.modules") == "[]"


def test_the_explorer_draws_without_pandas_which_a_browser_takes_long_to_load():
    assert (
        loaded_by("import batchsim as bs\nbs.explore(requests=500)")
        == "['numba', 'matplotlib', 'ipywidgets']"
    )


def test_looking_around_loads_nothing_heavy():
    assert loaded_by("import batchsim\nassert 'plot' in dir(batchsim)") == "[]"


def test_the_public_names_are_sorted_and_differ():
    assert batchsim.__all__ == sorted(set(batchsim.__all__))
    assert dir(batchsim) == batchsim.__all__


@pytest.mark.parametrize("name", batchsim.__all__)
def test_every_public_name_is_there(name):
    assert getattr(batchsim, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'batchsim' has no attribute 'Poison'"):
        batchsim.Poison  # noqa: B018


@pytest.mark.parametrize(
    ("name", "instead"),
    [("study.Problem", "docs/tuning.md"), ("WaitSinceLast", "FrozenBatches"), ("servers.vllm_v0", "vllm")],
)
def test_a_removed_name_tells_what_to_use_instead(name, instead):
    package, _, last = f"batchsim.{name}".rpartition(".")
    told = rf"'{last}'.*; it was removed: .*{instead}"
    with pytest.raises(AttributeError, match=f"^module '{package}' has no attribute {told}"):
        getattr(importlib.import_module(package), last)
    with pytest.raises(ImportError, match=f"^cannot import name {told}"):
        exec(f"from {package} import {last}")


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (
            lambda: batchsim.tune(None, None, {}, indifference="5%"),
            r"tune\(\) .*'indifference'; .*`requests`",
        ),
        (
            lambda: batchsim.servers.ray_serve(before_mid_2023=True),
            r"ray_serve\(\) .*'before_mid_2023'; .* rule",
        ),
    ],
)
def test_a_removed_argument_tells_what_to_use_instead(call, instead):
    with pytest.raises(TypeError, match=f"^{instead}"):
        call()


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [("scenario", "all_devices", "device_count"), ("rule", "filling", "count_")],
)
def test_a_removed_attribute_tells_what_to_use_instead(owner, name, instead):
    part = {"scenario": ONE, "rule": ONE.rule}[owner]
    told = f"'{type(part).__name__}' object has no attribute '{name}'; it was removed: .*{instead}"
    with pytest.raises(AttributeError, match=told):
        getattr(part, name)


def test_an_error_within_a_property_of_an_own_rule_is_not_hidden():
    class Mine(bs.SizeOrWait):
        @property
        def threshold(self):
            return self.max_bach_size

    with pytest.raises(AttributeError, match="'Mine' object has no attribute 'max_bach_size'"):
        _ = Mine(4, 5).threshold


def test_the_version_is_a_string_of_numbers():
    assert all(part.isdigit() for part in batchsim.__version__.split("."))


# What every function says of a wrong call: the rule and the value, in the words of who called it.


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
