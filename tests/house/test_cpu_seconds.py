"""The report of what tests cost: seconds of the processor, with those of workers and of other processes."""

import os
import subprocess
import sys
from pathlib import Path

import cpu_seconds

TESTS = """
import subprocess, sys, time
import pytest

def busy(seconds):
    begin = time.process_time()
    while time.process_time() < begin + seconds:
        pass

@pytest.mark.dear("it computes in another process")
def test_of_a_process():
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 1.5: pass"], check=True)

def test_that_sleeps():
    time.sleep(2)

def test_that_computes():
    busy(1.2)
"""
CONFTEST = """
import cpu_seconds

def pytest_configure(config):
    config.addinivalue_line("markers", "dear(why): a reason")
    config.pluginmanager.register(cpu_seconds.CpuSeconds(config))
"""


def test_seconds_of_the_processor_are_shown_and_added_up(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-n", "2", "test_some.py"],
        cwd=tmp_path, capture_output=True, text=True,
        env=os.environ
        | {"PYTHONPATH": str(Path(cpu_seconds.__file__).parent), "CPU_SECONDS": str(tmp_path / "sum")}
        | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert found.returncode == 0, found.stdout
    _, _, report = found.stdout.partition("CPU seconds")
    assert "test_of_a_process  (it computes in another process)" in report
    assert "test_that_computes\n" in report
    assert "test_that_sleeps" not in report
    seconds, tests = (tmp_path / "sum").read_text().split()
    assert float(seconds) > 2.7
    assert int(tests) == 3
