"""Fixtures of several files."""

import pytest
from shell import SCENARIO, run

from batchsim.measured.measurement import Measurement


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "scenario.toml"
    SCENARIO.to_toml(path)
    return path


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("init")
    (tmp_path / "arrivals.csv").write_text("timestamp\n0\n0.5\n2\n")
    sizes, samples_ms = (1, 64), ((5.0,), (9.0,))
    measured = Measurement("mlp", "CPU", "cpu", "0.6", sizes, 1, samples_ms, (1.0, 1.0), "2026-01-01")
    measured.save(tmp_path / "transformer.json")
    return (tmp_path / "scenario.toml").read_text()
