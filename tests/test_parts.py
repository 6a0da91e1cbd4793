"""The core runs without the extras, and an import that needs one names it."""

import re
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from test_environment import EXTRAS as DECLARED
from test_environment import required
from test_house import imports

from batchsim._parts import EXTRAS, MissingPart

ROOT = Path(__file__).parent.parent


@cache
def closure(*extras):
    """Return the installed distributions that the core and these extras bring, directly or not."""
    found, todo = set(), [(name, frozenset()) for name in required(*extras)]
    while todo:
        name, asked = todo.pop()
        if (name, asked) in found:
            continue
        found.add((name, asked))
        try:
            needed = [Requirement(line) for line in requires(name) or []]
        except PackageNotFoundError:  # of another system or Python
            continue
        for need in needed:
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *asked)):
                todo.append((canonicalize_name(need.name), frozenset(need.extras)))
    return {name for name, _ in found}


INSTALLED = packages_distributions()
LIBRARIES = sorted({found.imported for found in imports()} - set(sys.stdlib_module_names) | {"voila"})


@pytest.mark.parametrize("library", [name for name in LIBRARIES if not name.startswith("batchsim")])
def test_a_library_that_the_core_lacks_is_brought_by_the_extra_that_its_error_names(library):
    packages = {canonicalize_name(name) for name in INSTALLED[library]}
    if not packages & closure():
        assert packages & closure(EXTRAS[library])


def test_every_extra_that_an_error_names_exists():
    assert set(EXTRAS.values()) <= set(DECLARED)


@pytest.fixture(scope="session")
def core(tmp_path_factory):
    """A folder with links to the core's packages alone, as `pip install batchsim` installs them."""
    folder = tmp_path_factory.mktemp("core")
    for name in closure():
        for file in distribution(name).files:
            top = Path(file).parts[0]
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(distribution(name).locate_file(top))
    (folder / "batchsim").symlink_to(ROOT / "batchsim")
    return folder


def run(core, *command):
    """Run a Python that sees the core's packages only."""
    given = f"import sys; sys.path.insert(0, {str(core)!r}); "
    code = given + (command[0] if len(command) == 1 else f"import runpy; sys.argv = {list(command)}; "
                    "runpy.run_module('batchsim', run_name='__main__')")  # fmt: skip
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )


README = """
import batchsim as bs
scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
result = bs.simulate(scenario, requests=2000, seed=1)
over = {"max_batch_size": [8, 32]}
table = bs.sweep(scenario, over, requests=2000, progress=False)
best = bs.tune(scenario, bs.SLO(p99_ms=50), over)
print(len(result.to_frame()), len(table), best.met, bs.plot(result), bs.heat_map)
extras = "jax", "ipywidgets", "typer", "psutil", "pyarrow", "yaml", "google.protobuf"
assert not set(extras) & set(sys.modules)
"""


def test_the_core_alone_simulates_sweeps_tunes_and_plots(core):
    done = run(core, README)
    assert done.returncode == 0, done.stderr  # a first run says there that it compiles
    assert re.match(r"2000 2 True Figure\(", done.stdout)


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("bs.explore()", "notebook"),
        ("bs.teaching", "notebook"),
        ("bs.device.load_model", "device"),
        ("bs.servers.parse('batchSize: 8')", "servers"),
        ("bs.servers.parse('dynamic_batching { }')", "servers"),
        ("bs.Scenario(bs.Poisson(1), bs.SizeOrWait(), bs.Affine(1, 1)).to_toml()", "shell"),
        ("import batchsim.study.store", "distributed"),
        ("import batchsim.app.access", "app"),
    ],
)
def test_a_missing_part_is_an_import_error_of_one_line_that_names_its_extra(core, code, extra):
    done = run(core, f"import batchsim as bs; {code}")
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(rf"[\w.]+MissingPart: \w+ must be installed: pip install 'batchsim\[{extra}\]'", last)


@pytest.mark.parametrize(
    ("command", "extra"), [("simulate", "shell"), ("page", "shell"), ("lab", "notebook"), ("app", "app")]
)
def test_a_command_without_the_shell_is_one_line_with_the_extra_that_it_needs(core, command, extra):
    done = run(core, "batchsim", command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"Error: typer must be installed: pip install 'batchsim[{extra}]'\n"


def test_imports_of_others_fail_as_python_lets_them():
    with pytest.raises(ModuleNotFoundError) as error:
        import voila_of_nobody  # noqa: F401
    assert not isinstance(error.value, MissingPart)
