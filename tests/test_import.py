import importlib
import subprocess
import sys

import pytest

import batchsim

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
    assert (
        loaded_by(code + "assert not {'yaml', 'google.protobuf', 'batchsim.study'} & {*sys.modules}") == "[]"
    )
    assert loaded_by(code + "bs.servers.parse('batchSize: 8')\nassert 'yaml' in sys.modules") == "[]"


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


def test_the_version_is_a_string_of_numbers():
    assert all(part.isdigit() for part in batchsim.__version__.split("."))
