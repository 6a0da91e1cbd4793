import dataclasses
import json
import math
import os
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.plans import scenarios_at_random
from places import DATA as ALL_DATA
from results import BUSY, assert_same, there_and_back

import batchsim as bs
from batchsim.result import Result, Run

DATA = ALL_DATA / "results"


# There and back.


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
@pytest.mark.parametrize("warmup", [0, 0.0, 0.3])
@pytest.mark.parametrize("replications", [1, 3])
def test_a_result_comes_back_as_it_was(tmp_path, engine, warmup, replications):
    result = bs.simulate(BUSY, 400, seed=7, engine=engine, warmup=warmup, replications=replications)
    assert len(np.unique(result.status)) == 3
    assert_same(result, there_and_back(result, tmp_path / "run.npz"))


@pytest.mark.parametrize("replications", [1, 3])
def test_a_summary_comes_back_as_it_was(tmp_path, replications):
    result = bs.simulate(BUSY, 2000, warmup=0.1, replications=replications, keep="summary")
    assert_same(result, there_and_back(result, tmp_path / "run.npz"))


@pytest.mark.filterwarnings("ignore:the metrics include a cold start", "ignore:requests must cover")
@settings(max_examples=40)
@given(scenario=scenarios_at_random(), seed=st.integers(0, 2**200), replications=st.integers(1, 2))
def test_a_result_of_every_scenario_comes_back_as_it_was(tmp_path_factory, scenario, seed, replications):
    result = bs.simulate(scenario, 40, seed=seed, replications=replications)
    assert_same(result, there_and_back(result, tmp_path_factory.mktemp("results") / "run"))


def test_a_result_of_a_trace_comes_back_as_it_was(tmp_path):
    times_s = np.cumsum(np.random.default_rng(0).exponential(1 / 900, size=500))
    result = bs.simulate(BUSY.replace(workload=bs.Trace(times_s)), 300)
    assert_same(result, there_and_back(result, tmp_path / "run.npz"))


def test_a_result_of_which_nothing_was_served_comes_back_as_it_was(tmp_path):
    rule = bs.SizeOrWait(32, 10)
    scenario = bs.Scenario(bs.Poisson(900), rule, bs.Affine(5, 0.5), timeout_ms=5)
    result = bs.simulate(scenario, 10)
    assert result.batches.start_s.size == 0
    assert_same(result, there_and_back(result, tmp_path / "run.npz"))


def test_intervals_and_frames_of_a_loaded_result_are_those_of_the_first(tmp_path):
    result = bs.simulate(BUSY, 3000, replications=3)
    back = there_and_back(result, tmp_path / "run.npz")
    assert back.to_frame().equals(result.to_frame())
    assert repr(back) == repr(result)
    assert back.story(100) == result.story(100)
    assert back.interval("p99") == result.interval("p99")


def test_a_simple_new_field_of_a_result_is_saved_too(tmp_path):
    @dataclasses.dataclass(frozen=True, eq=False, repr=False)
    class Noted(Result):
        note: str = ""

    result = Noted(bs.simulate(BUSY, 50).runs, 0, "live", note="by hand")
    result.save(tmp_path / "run.npz")
    assert Noted.load(tmp_path / "run.npz").note == "by hand"
    with pytest.raises(TypeError, match=re.escape("note must be text or a number to be saved, got (1, 2)")):
        dataclasses.replace(result, note=(1, 2)).save(tmp_path / "run.npz")


# The file.


def test_numpy_alone_can_read_the_file(small, tmp_path):
    small.save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz", allow_pickle=False) as arrays:
        about = json.loads(arrays["about"].tobytes())
        assert np.array_equal(arrays["0/Log/arrival_s"], small.replications[0].arrival_s)
        assert np.array_equal(arrays["1/Log/batch_size"], small.replications[1].batches.batch_size)
    assert about["format"] == "batchsim result"
    assert about["batchsim"] == bs.__version__
    assert about["scenario"]["rule"] == {"kind": "SizeOrWait", "max_batch_size": 8, "max_wait_ms": 5}
    assert about["result"] == {"seed": 0, "engine": "compiled", "warmup": 0.0}


def test_the_name_of_the_file_is_the_one_given(small, tmp_path):
    for path in (tmp_path / "run", str(tmp_path / "run.result")):
        small.save(path)
    assert sorted(os.listdir(tmp_path)) == ["run", "run.result"]


def test_saving_replaces_an_old_file(small, tmp_path):
    bs.simulate(BUSY, 30).save(tmp_path / "run.npz")
    assert_same(small, there_and_back(small, tmp_path / "run.npz"))


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_an_old_file_survives_a_save_that_fails(small, tmp_path, monkeypatch, step):
    small.save(tmp_path / "run.npz")

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="no space left"):
        bs.simulate(BUSY, 30).save(tmp_path / "run.npz")
    assert_same(small, Result.load(tmp_path / "run.npz"))
    assert os.listdir(tmp_path) == ["run.npz"]


def test_a_models_outputs_are_left_out_with_a_warning(tmp_path):
    scenario = bs.Scenario(bs.Poisson(900), bs.SizeOrWait(4, 5), bs.Affine(1, 0.5))
    result = bs.simulate(scenario, model_fn=lambda batch: batch * 2, inputs=np.arange(20.0))
    with pytest.warns(UserWarning, match="a model's outputs are not saved with its result"):
        result.save(tmp_path / "run.npz")
    back = Result.load(tmp_path / "run.npz")
    assert back.outputs is None
    assert_same(result, back)


def test_a_rule_of_ones_own_is_refused(small, tmp_path):
    class Mine(bs.SizeOrWait):
        pass

    result = Result((Run(BUSY.replace(rule=Mine(8, 5)), small.runs[0].log),), 0, "simpy")
    with pytest.raises(TypeError, match="rule must be one of SizeOrWait, AtLeast"):
        result.save(tmp_path / "run.npz")
    assert os.listdir(tmp_path) == []


def test_runs_that_are_no_replications_are_refused(small):
    other = bs.simulate(BUSY.replace(max_batch_size=4), 60)
    with pytest.raises(ValueError, match="replications must share their scenario"):
        Result((*small.runs, *other.runs), 0, "compiled")
    with pytest.raises(ValueError, match="replications must share their scenario and warmup"):
        Result((*small.runs, *bs.simulate(BUSY, 60, warmup=0.5).runs), 0, "compiled")
    with pytest.raises(ValueError, match="at least one run"):
        Result((), 0, "compiled")


@pytest.mark.parametrize("name", ["summary", "devices", "tokens-summary"])
def test_a_summary_of_an_earlier_version_loads(name):
    result = Result.load(DATA / f"{name}.npz")
    again = bs.simulate(result.scenario, int(result.summary()["requests"]), keep="summary").summary()
    unknown = {key: math.nan for key in again if "itl" in key or "stall" in key}  # it had no gaps
    # Its histograms had other bins: percentiles may be off by half a bin of each. Its TPOT was not rounded.
    coarse = {key: 1.5e-3 for key in again if re.search(r"p\d+_ms", key)} | {"mean_tpot_ms": 1e-7}
    expected = {
        key: pytest.approx(value, rel=coarse.get(key, 1e-12), abs=1e-12, nan_ok=True)
        for key, value in (again | unknown).items()
    }
    assert result.summary() == expected


def test_a_sum_that_a_file_lacks_has_its_default(tmp_path):
    result = bs.simulate(BUSY, 60, keep="summary")
    result.save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as arrays:
        kept = {name: arrays[name] for name in arrays.files if name != "0/Totals/delayed"}
    np.savez(tmp_path / "run.npz", **kept)
    assert_same(result, Result.load(tmp_path / "run.npz"))
