import functools
import gc
import importlib
import os
import pkgutil
import signal
import sys
from pathlib import Path

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before anything imports jax
# Before anything imports NumPy: its matrices are small here, and threads that wait for each other on cores
# that the other workers use take six times as long. One thread also adds up in the same order everywhere.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

# What tests import: helpers, oracles and tools.
sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
sys.path.insert(0, str(Path(__file__).parent / "helpers"))
sys.path.insert(0, str(Path(__file__).parent))

import cpu_seconds
import examples

# What is collected, half a million objects, lives until the end: Python need not look through it again and
# again for what nothing refers to, which took some 0.4 s each time, hundreds of times.
gc.disable()
# The library that checks notebooks would build 38 grammars as it is imported, for formats that none has: 2 s.
sys.modules.setdefault("rfc3987_syntax", None)

# Servers' files, some of them in Python.
collect_ignore_glob = ["data/*"]

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_addoption(parser):
    parser.addoption(
        "--examples", type=int, default=1, help="multiply the number of examples of each property test"
    )


def pytest_configure(config):
    if hasattr(config, "workerinput"):  # one of several of pytest-xdist
        from one_compiles import take_turns

        take_turns()
    config.pluginmanager.register(cpu_seconds.CpuSeconds(config))


@pytest.fixture
def heard():
    """Ctrl-C is heard, also in a background job, which inherits that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_collection_modifyitems(config, items):
    examples.multiply({getattr(item, "obj", None) for item in items}, config.getoption("--examples"))
    if config.getoption("--hypothesis-profile") == "fuzz":
        # Hypothesis draws constants of the modules that are loaded, see examples.py: load all of them, so
        # that a test alone draws again what it drew in the whole suite.
        import batchsim

        for module in pkgutil.walk_packages(batchsim.__path__, "batchsim."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def pytest_collection_finish():
    gc.freeze()
    gc.set_threshold(700, 10, 40)  # the default's last, 10, looked through all of a panel seventy times
    gc.enable()


KEPT: set[str] = set()  # widgets of a panel that many tests share


def pytest_runtest_setup():
    if kept := sys.modules.get("batchsim.teaching.progress_store"):
        kept.forget()  # what was tried at exercises; no test's is in a file but in one that it names


def pytest_runtest_teardown():
    # ipywidgets refers to every widget, hundreds a panel, until it is closed.
    if widgets := sys.modules.get("ipywidgets.widgets.widget"):
        for key in widgets._instances.keys() - KEPT:
            widgets._instances[key].close()


@pytest.fixture(autouse=True)
def own_settings():
    """What a test sets of matplotlib, such as a lesson's first cell, ends with the test."""
    import matplotlib

    with matplotlib.rc_context():
        yield


@pytest.fixture(scope="session")
def one_panel():
    from hands import all_made
    from ipywidgets.widgets.widget import _instances

    import batchsim as bs

    panel = all_made(bs.explore(requests=300))
    KEPT.update(_instances)
    return panel


@pytest.fixture
def panel_again(one_panel):
    """The panel of earlier tests, back at the beginning, and nobody looks at it."""
    one_panel.screen.has_appeared = False
    one_panel.session.reset()
    return one_panel


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of data measured by others, which is not part of the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the shared data folder is not here")
    return SHARED_DATA


@pytest.fixture(scope="session")
def compiled_before():
    """The loops are compiled and on disk, so that no process announces it on a stderr that a test reads."""
    import batchsim as bs

    plain = bs.Scenario(bs.Poisson(100), bs.SizeOrWait(4, 10), bs.Affine(5, 1))
    for scenario in (plain, plain.replace(timeout_ms=50)):
        for keep in ("all", "summary"):
            bs.simulate(scenario, 100, keep=keep).summary()


@pytest.fixture(scope="module")
def right_once():
    """What is right in an exercise, often a search with simulations, is found once for a file."""
    from batchsim.teaching import EXERCISES
    from batchsim.teaching.exercises.exercise import Number

    with pytest.MonkeyPatch.context() as patch:
        for exercise in EXERCISES.values():
            if isinstance(exercise, Number):
                patch.setattr(exercise, "right", functools.cache(exercise.right))
        yield


@pytest.fixture
def compilations():
    """The compilations of XLA since the test began, one event each."""
    import jax

    events = []

    def listen(event, duration, **_):
        if "backend_compile" in event:
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.clear_event_listeners()
