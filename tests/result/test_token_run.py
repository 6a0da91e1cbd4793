"""What a run of token generation returns: columns, steps, metrics, files."""

import dataclasses
import json
import math
import pickle

import numpy as np
import pytest

import batchsim as bs
from batchsim._clock import between_ms
from batchsim.engines.token_log import PREEMPTIONS, TokenLog
from batchsim.result.metrics import COMPUTING, OF_FLEETS, TOKENS
from batchsim.result.seats import seats

REAL = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)
LENGTHS = bs.Tokens(bs.Lognormal(200, 1, at_most=1000), bs.Geometric(20))
SCENARIO = bs.Scenario(
    bs.Poisson(15), bs.Continuous(32, 512, kv_blocks=150), REAL.with_noise(0.1), tokens=LENGTHS
)
WHOLE = SCENARIO.replace(rule=bs.SizeOrWait(8, 100))
SMALL = bs.Scenario(
    bs.Trace([0.0, 0.015]), bs.Continuous(), bs.StepTime(2, 8, 0.1, 0.001, 1e-5),
    tokens=bs.Tokens([40, 100], [6, 1]),
)  # fmt: skip


@pytest.fixture(scope="module")
def run():
    return bs.simulate(SCENARIO, 3000, seed=1)


@pytest.fixture(scope="module")
def whole():
    return bs.simulate(WHOLE.replace(timeout_ms=3000), 500, seed=1)


def test_columns_of_a_run_that_can_be_followed_by_hand():
    result = bs.simulate(SMALL)
    assert result.first_token_s == pytest.approx([0.0100082, 0.0322417 + 0.0])
    assert math.isnan(result.tpot_ms[1])
    assert result.tpot_ms[0] == pytest.approx((result.finish_s[0] - result.first_token_s[0]) * 1000 / 5)
    assert result.start_s[1] == result.steps.start_s[2]  # it came in the course of the second step
    assert result.steps.tokens.tolist() == [40, 1, 101, 1, 1, 1]
    assert result.steps.rows.tolist() == [1, 1, 2, 1, 1, 1]
    assert result.steps.reads.tolist() == [0, 41, 42, 43, 44, 45]
    assert result.steps.pairs.tolist() == [820, 0, 5050, 0, 0, 0]
    assert result.steps.kv_blocks.tolist() == [3, 3, 10, 3, 3, 3]


def test_latency_is_forming_and_queueing_and_computing(run, whole):
    for result in (run, whole):
        served = result.status == bs.Status.SERVED
        parts = result.forming_ms + result.queueing_ms + result.computing_ms
        assert parts[served] == pytest.approx(result.latency_ms[served], rel=1e-9)
        assert (result.ttft_ms[served] <= result.latency_ms[served]).all()
    assert (run.forming_ms < 1e-6).all()  # nobody waits for company
    assert whole.forming_ms[whole.status == bs.Status.SERVED].max() > 1


def test_computing_is_prefill_and_decode_and_preempted(run, whole):
    for result in (run, whole):
        served = result.status == bs.Status.SERVED
        parts = result.prefill_ms, result.decode_ms, result.preempted_ms
        assert sum(parts)[served] == pytest.approx(result.computing_ms[served], rel=1e-9)
        assert all((part[served] > -1e-9).all() and np.isnan(part[~served]).all() for part in parts)
        assert ((result.preempted_ms > 0) <= (result.preemptions > 0)).all()
        summary = result.summary()
        for name, part in zip(COMPUTING, parts, strict=True):
            assert summary[f"mean_{name}_ms"] == pytest.approx(part[served].mean(), rel=1e-9, abs=1e-12)
    assert (run.preempted_ms > 0).any()
    assert not (whole.preempted_ms > 0).any()


def test_waiting_for_memory_again_is_preempted_time():
    # G6: the third is put back when the others need its block, and runs again once they have left.
    scenario = bs.Scenario(
        bs.Trace([0.0] * 3), bs.Continuous(kv_blocks=9, block_size=8),
        bs.StepTime(2, 8, 0.1, 0.001, 1e-5), tokens=bs.Tokens(20, 12),
    )  # fmt: skip
    result = bs.simulate(scenario)
    starts_s, back = result.steps.start_s, result.steps.preempted.argmax()
    again = np.flatnonzero(result.steps.tokens > 3)[-1]
    expected_ms = (starts_s[again] - starts_s[back]) * 1000
    assert result.preempted_ms == pytest.approx([0, 0, expected_ms])
    assert expected_ms > 50
    assert result.prefill_ms == pytest.approx([10.0063] * 3)
    assert result.decode_ms[2] == pytest.approx(190.84255 - 10.0063 - expected_ms)


def test_metrics_that_make_no_sense_are_refused_with_the_reason(run, whole):
    assert whole.intervals(["full_share"])
    with pytest.raises(ValueError, match="under Continuous no batch leaves"):
        run.interval("full_share")


def test_whole_batches_are_still_batches(whole):
    batches = whole.batches
    assert batches.batch_size.sum() == np.count_nonzero(whole.status == bs.Status.SERVED)
    assert {*np.unique(batches.trigger)} <= {bs.Trigger.FULL, bs.Trigger.WAIT, bs.Trigger.BACKLOG}
    assert (batches.start_s[1:] >= batches.finish_s[:-1]).all()
    shares = [value for key, value in whole.summary().items() if key.endswith("_share") and key not in TOKENS]
    assert sum(shares) == pytest.approx(1)
    assert whole.summary()["mean_batch_size"] == batches.batch_size.mean()
    assert (whole.status == bs.Status.TIMED_OUT).any()
    assert np.isnan(whole.ttft_ms[whole.status != bs.Status.SERVED]).all()


def test_the_summary_is_of_the_columns(run):
    summary = run.summary()
    assert {*TOKENS} - {*OF_FLEETS} <= {*summary}
    for name, column in (("ttft", run.ttft_ms), ("tpot", run.tpot_ms)):
        known = column[~np.isnan(column)]
        assert summary[f"mean_{name}_ms"] == pytest.approx(known.mean(), rel=1e-12)
        for q in (50, 95, 99):
            assert summary[f"{name}_p{q}_ms"] == np.percentile(known, q)
    assert np.isnan(run.tpot_ms).any()  # a geometric output is now and then one token
    assert summary["preempted_share"] == (run.preemptions > 0).mean() > 0
    assert summary["output_tokens_per_s"] == pytest.approx(run.output_tokens.sum() / run.finish_s.max())
    assert summary["mean_batch_size"] == run.steps.rows.mean()
    assert summary["batches"] == len(run.steps)
    assert all(key in repr(run) for key in ("TTFT", "TPOT", "preempted", "prefill", "rows on average"))
    assert "batches" not in repr(run)


def test_metrics_of_tokens_have_intervals():
    run = bs.simulate(SCENARIO, 12_000, seed=1)
    for key in ("mean_ttft_ms", "tpot_p50", "mean_tpot_ms", "output_tokens_per_s", "preempted_share"):
        low, high = run.interval(key)
        assert low < run.metrics.number(bs.result.metrics.metric(key).key) < high
    again = bs.simulate(SCENARIO, 4000, replications=3)
    assert again.interval("mean_ttft_ms")[0] < again.summary()["mean_ttft_ms"]
    assert again.steps.rows.size == sum(each.steps.rows.size for each in again.replications)
    parts = [each.ttft_ms for each in again.replications]
    assert np.array_equal(again.ttft_ms, np.concatenate(parts))
    assert np.array_equal(
        again.ttft_ms, between_ms(again.arrival_s, again.steps.finish_s[again.log.token_step])
    )


def test_a_warmup_is_left_out(run):
    late = run.with_warmup(0.5)
    assert late.summary()["mean_ttft_ms"] == pytest.approx(run.ttft_ms[1500:].mean(), rel=1e-12)
    assert late.summary()["ttft_p99_ms"] == np.percentile(run.ttft_ms[1500:], 99)


def test_both_engines_give_one_summary():
    ones = [bs.simulate(SCENARIO, 400, engine=engine) for engine in ("compiled", "simpy")]
    assert repr(ones[0].summary()) == repr(ones[1].summary())


def test_frames_have_a_row_a_request_and_a_row_a_step(run):
    frame, steps = run.to_frame(), run.steps.to_frame()
    assert (len(frame), len(steps)) == (3000, len(run.steps))
    assert {"ttft_ms", "tpot_ms", "prompt_tokens", "output_tokens", "preemptions", "status"} <= {
        *frame.columns
    }
    assert frame.ttft_ms.equals(type(frame.ttft_ms)(run.ttft_ms))


@pytest.mark.parametrize("name", ["ttft_ms", "first_token_s", "steps", "prompt_tokens", "preemptions"])
def test_a_run_without_tokens_has_none_of_their_columns(name):
    plain = bs.simulate(bs.Scenario(bs.Poisson(9), bs.SizeOrWait(), bs.Affine(1, 1)), 20)
    with pytest.raises(ValueError, match="tokens are needed"):
        getattr(plain, name)
    with pytest.raises(ValueError, match="one of the summary's, got 'mean_ttft_ms': tokens are needed"):
        plain.interval("mean_ttft_ms")
    with pytest.raises(ValueError, match="one of the summary's, got 'ttft_p99'"):
        plain.interval("ttft_p99")
    assert not {*TOKENS} & {*plain.summary()}


def columns(result):
    return {f.name: getattr(result.log, f.name) for f in dataclasses.fields(TokenLog) if f.name != "outputs"}


@pytest.mark.parametrize(
    "scenario", [SCENARIO, WHOLE.replace(servers=2), SMALL], ids=["plain", "whole", "listed"]
)
def test_a_result_is_saved_and_loaded(scenario, tmp_path):
    result = bs.simulate(scenario, 2 if scenario is SMALL else 200)
    result.save(tmp_path / "run.npz")
    for loaded in (bs.Result.load(tmp_path / "run.npz"), pickle.loads(pickle.dumps(result))):
        assert loaded.scenario == scenario
        assert repr(loaded.summary()) == repr(result.summary())
        assert all(np.array_equal(column, columns(loaded)[name]) for name, column in columns(result).items())
    assert bs.Scenario.from_toml(scenario.to_toml()) == scenario


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("last_step", -1, "must be in order"),
        ("batch_trigger", 77, "must be a Trigger"),
        ("step_tokens", 0, "at least 1"),
        ("step_waiting", -1, "at least 0"),
        ("batch_server", 5, "must be a server"),
        ("output_tokens", None, "must have 2 rows, got 1"),
        ("resumed_step", None, "resumed_step must have .* rows, got 1"),
        ("preempted_request", 4, "preempted_request must have each request as often"),
        ("preempted_step", -1, "of a preemption must be in order"),
        ("resumed_step", 3, "of a preemption must be in order"),
    ],
)
def test_an_edited_file_is_refused(name, value, words, tmp_path):
    path, result = tmp_path / "run.npz", bs.simulate(SMALL) if name not in PREEMPTIONS else crowded()
    result.save(path)
    arrays = dict(np.load(path))
    column = arrays[f"0/TokenLog/{name}"]
    if value is None:
        arrays[f"0/TokenLog/{name}"] = column[:1]
    else:
        column[0] = value
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=words):
        bs.Result.load(path)


def crowded():
    return bs.simulate(SCENARIO.replace(rule=bs.Continuous(32, 512, kv_blocks=70)), 200)


def test_a_file_of_version_3_has_no_rows_of_preemptions(tmp_path):
    path = tmp_path / "run.npz"
    for result in (crowded(), bs.simulate(SMALL)):
        result.save(path)
        arrays = {name: array for name, array in np.load(path).items() if name[11:] not in PREEMPTIONS}
        about = json.loads(arrays["about"].tobytes()) | {"version": 3}
        np.savez(path, **arrays | {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)})
        old = bs.Result.load(path)
        assert old.log.preempted_request is None
        assert repr(old.summary()) == repr(result.summary())
        if not result.preemptions.any():
            assert seats(old).seat.tolist() == seats(result).seat.tolist()
        else:
            with pytest.raises(ValueError, match="simulate it again"):
                seats(old)


def test_replications_have_their_preemptions_numbered_through():
    result = bs.simulate(crowded().scenario, 200, replications=2)
    log, (one, other) = result.log, (run.log for run in result.replications)
    size, steps = one.preempted_request.size, one.steps
    assert np.array_equal(log.preempted_request, [*one.preempted_request, *(other.preempted_request + 200)])
    assert np.array_equal(log.resumed_step[size:], other.resumed_step + steps)
    assert np.array_equal(log.regained_step < 0, [*(one.regained_step < 0), *(other.regained_step < 0)])


def test_goodput_is_of_those_within_all_limits(run, whole):
    for result in (run, whole):
        served = result.status == bs.Status.SERVED
        one = result.output_tokens == 1
        met = served & (result.ttft_ms <= 400) & ((result.tpot_ms <= 22) | one)
        assert 0 < met.sum() < served.sum()
        assert result.attainment(ttft_ms=400, tpot_ms=22) == met.mean()
        window_s = result.steps.finish_s.max()
        assert result.goodput_per_s(ttft_ms=400, tpot_ms=22) == pytest.approx(met.sum() / window_s)
        late = (result.latency_ms <= 900) & met
        assert result.attainment(900, ttft_ms=400, tpot_ms=22) == late.mean()
        assert result.attainment(900) == (result.latency_ms <= 900).mean()
        assert result.attainment(tpot_ms=22) == (served & ((result.tpot_ms <= 22) | one)).mean()
    assert run.with_warmup(0.5).attainment(ttft_ms=400, tpot_ms=1e9) == (run.ttft_ms[1500:] <= 400).mean()
    assert run.percentile(90, column="ttft_ms") == np.percentile(run.ttft_ms, 90)
    assert whole.percentile(90, column="ttft_ms", unserved="inf") == math.inf


def test_goodput_of_a_summary_is_of_one_limit_at_a_time(run):
    summary = bs.simulate(SCENARIO, 3000, seed=1, keep="summary")
    for limit in ({"ttft_ms": 400}, {"tpot_ms": 22}):
        assert summary.attainment(**limit) == pytest.approx(run.attainment(**limit), abs=2e-3)
    with pytest.raises(ValueError, match="need columns, got a run with keep='summary'"):
        summary.attainment(ttft_ms=400, tpot_ms=22)


def test_bad_limits_are_refused(run):
    plain = bs.simulate(bs.Scenario(bs.Poisson(9), bs.SizeOrWait(), bs.Affine(1, 1)), 20)
    for result, limits, words in (
        (run, {}, "a limit must be given"),
        (run, {"ttft_ms": -1}, "ttft_ms must be at least 0, got -1"),
        (run, {"tpot_ms": math.nan}, "tpot_ms must be a number, got nan"),
        (plain, {"ttft_ms": 5}, "tokens are needed"),
    ):
        with pytest.raises(ValueError, match=words):
            result.attainment(**limits)
    with pytest.raises(ValueError, match="column must be one of latency_ms, got 'ttft_ms'"):
        plain.percentile(99, column="ttft_ms")
