"""The wheel in fresh environments, without the repository: `make package` builds it and runs these."""

import os
import re
import resource
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from functools import cache
from pathlib import Path

import pytest
from places import ROOT

from batchsim._compat import EXTRAS
from batchsim.web import wasm

WHEELS, SDISTS = sorted(ROOT.glob("dist/*.whl")), sorted(ROOT.glob("dist/*.tar.gz"))
pytestmark = pytest.mark.skipif(not WHEELS, reason="`make package` builds the wheel")
# Packages of those who work on batchsim, and a CUDA of several GB, are not installed here.
PARTS = ["servers", "shell", "device", "distributed", "notebook", "app", "all"]


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}


def busy_s():
    """Return the seconds that cores worked for processes which have ended, without what they waited."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="session")
def fresh(tmp_path_factory):
    """Return a function that installs the wheel with an extra into an environment of its own."""

    @cache
    def installed(extra=""):
        place = tmp_path_factory.mktemp(extra or "core")
        begin_s = busy_s()
        subprocess.run([sys.executable, "-m", "venv", place / "venv"], check=True, env=environment())
        wheel = f"{WHEELS[-1]}[{extra}]" if extra else str(WHEELS[-1])
        pip = [place / "venv" / "bin" / "pip", "install", "--quiet", "--no-compile", wheel]
        subprocess.run(pip, check=True, cwd=place, env=environment(), capture_output=True)
        passed_s = busy_s() - begin_s
        size = sum(path.lstat().st_size for path in (place / "venv").rglob("*") if path.is_file())
        print(f"| `{extra or '-'}` | {size / 1e6:,.0f} MB | {passed_s:.0f} s |")  # for docs/install.md
        return place

    return installed


def run(place, *command, code=0):
    """Run a command of an environment in its folder, and return what it prints."""
    name, *others = map(str, command)
    done = subprocess.run(
        [place / "venv" / "bin" / name, *others],
        cwd=place,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def contents(wheel):
    with zipfile.ZipFile(wheel) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def test_the_sdist_and_the_repository_build_the_same_wheel(tmp_path):
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*wheel, tmp_path / "sdist", SDISTS[-1]], check=True, cwd=tmp_path, env=environment())
    subprocess.run([*wheel, tmp_path / "clone", ROOT], check=True, cwd=tmp_path, env=environment())
    from_sdist, from_clone = (contents(*(tmp_path / name).glob("*.whl")) for name in ("sdist", "clone"))
    assert from_sdist == from_clone == contents(WHEELS[-1])
    assert "batchsim/course/build/book/html/index.html" in from_sdist
    assert "batchsim/web/batchsim.html" in from_sdist
    assert f"batchsim/web/{wasm.name_of(wasm.FIGURE)}" in from_sdist


README = """
import batchsim as bs
scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
result = bs.simulate(scenario, requests=20_000, seed=1)
over = {"max_batch_size": [8, 32]}
table = bs.sweep(scenario, over, requests=2000, progress=False)
best = bs.tune(scenario, bs.SLO(p99_ms=50), over)
print(round(result.percentile(99), 2), len(table), best.met, bs.plot(result))
"""


def test_the_core_alone_simulates_sweeps_tunes_and_plots(fresh):
    assert re.fullmatch(r"18\.5 2 True Figure\(.*\)\n", run(fresh(), "python", "-c", README).stdout)
    refused = run(fresh(), "batchsim", "simulate", code=2)
    assert refused.stderr == "Error: typer must be installed: pip install 'batchsim[shell]'\n"


@pytest.mark.parametrize("extra", PARTS)
def test_an_extra_alone_imports(fresh, extra):
    libraries = [library for library, named in EXTRAS.items() if named == extra and library != "google"]
    code = f"import batchsim, {', '.join(['batchsim', *libraries])}"
    run(fresh(extra), "python", "-c", code)


def answer(url):
    """Return the status of an address, as soon as something listens there."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(url, timeout=10) as told:
                return told.status
        except urllib.error.HTTPError as refused:
            return refused.code
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(url)


@pytest.mark.parametrize(("command", "extra", "port"), [("lab", "notebook", 28881), ("app", "app", 28882)])
def test_a_server_of_the_course_answers(fresh, command, extra, port):
    place = fresh(extra)
    server = [place / "venv" / "bin" / "batchsim", command, f"--port={port}", "--", "--no-browser"]
    env = environment() | {"BATCHSIM_TOKEN": "of-the-tests-alone"}
    page = "api" if command == "lab" else "?token=of-the-tests-alone"
    with subprocess.Popen(server, cwd=place, env=env, stderr=subprocess.DEVNULL) as running:
        assert answer(f"http://127.0.0.1:{port}/{page}") == 200
        running.terminate()
    if command == "lab":
        lessons = sorted((place / "batchsim-course" / "notebooks").glob("[0-9]*.ipynb"))
        run(place, "jupyter", "execute", "--inplace", *lessons)
        assert min(path.read_text().count('"execution_count": 1') for path in lessons) > 0


@pytest.mark.parametrize("command", ["page", "book"])
def test_what_needs_no_server_is_in_the_wheel(fresh, command):
    assert Path(run(fresh("shell"), "batchsim", command, "--no-open").stdout.strip()).exists()
