"""Stages of result files as engineers have them: what is no measurement, and what the figures count."""

import json
import math

import numpy as np
import pytest
from places import DATA as ALL_DATA

import batchsim as bs
from batchsim.measured.load_stages import Stage
from batchsim.measured.load_tests import LoadTest
from batchsim.study.calibration import predicted

DATA = ALL_DATA / "load_tests"
VLLM = json.loads((DATA / "vllm_10.json").read_text())
AIPERF = json.loads((DATA / "aiperf_12_clients.json").read_text())
PARTS = "Client Send,Network+Server Send/Recv,Server Queue,Server Compute Infer,Client Recv"
# Without streaming, as SGLang 0.5 writes it: a line a load.
SGLANG = {
    "backend": "sglang", "request_rate": math.inf, "max_concurrency": 4, "duration": 100.0, "completed": 400,
    "total_input_tokens": 120_000, "total_output_tokens": 20_000, "request_throughput": 4.0,
    "mean_e2e_latency_ms": 990.0, "median_e2e_latency_ms": 980.0, "p99_e2e_latency_ms": 1200.0,
    **{f"{stat}_{name}_ms": 0.0 for stat in ("mean", "median", "p99") for name in ("ttft", "itl")},
    "mean_tpot_ms": 20.2, "median_tpot_ms": 20.0, "p99_tpot_ms": 24.0,
}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    def write(content, name="result.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return bs.load_test(path)

    return write


@pytest.mark.parametrize(("batch", "samples"), [(1, 1), (2, 2), (6, 6), (8, 8), (256, 256)])
@pytest.mark.parametrize("lost", [0.0, 0.04])  # of the time, in which a client does not wait
def test_a_perf_analyzer_with_samples_counts_requests(read, batch, samples, lost):
    rows = [(clients, (10 + 2 * clients) * 1000) for clients in (1, 4)]
    lines = [
        f"{n},{n * batch * 1e6 / us * (1 - lost)},100,900,{us - 9100},8000,100,{us},{us}" for n, us in rows
    ]
    test = read("\n".join([f"Concurrency,Inferences/Second,{PARTS},p50 latency,p99 latency", *lines]))
    assert [stage.samples for stage in test.stages] == [samples] * 2
    assert [stage.in_flight for stage in test.stages] == pytest.approx([1, 4], rel=0.05)
    assert [warning.partition(":")[0] for warning in test.warnings] == ["several samples a request"] * (
        batch > 1
    )
    rates = "\n".join(
        ["Request Rate,Inferences/Second,Avg latency,p50 latency", f"50,{50 * batch},9000,9000"]
    )
    (stage,) = read(rates).stages
    assert (stage.samples, stage.served_per_s, stage.name) == (samples, 50, "50/s")
    assert "rate other than asked" not in stage.faults


def test_a_perf_analyzers_file_without_a_mean_says_so(read):
    with pytest.raises(ValueError, match=r"a mean: 'Avg latency', or its parts.* got .*Inferences/Second"):
        read("Concurrency,Inferences/Second,p50 latency\n1,90,1000\n")


def test_a_benchmark_without_streaming_has_measured_no_first_token(read):
    test = read("\n".join(json.dumps(SGLANG | {"max_concurrency": n}) for n in (4, 8)), "result.jsonl")
    assert repr(test) == "LoadTest: SGLang, 2 stages"
    stage = test.stages[0]
    assert (stage.latency_ms["mean"], stage.ttft_ms, stage.itl_ms) == (990.0, {}, {})
    assert math.isnan(stage.tpot_ms)  # it would have the whole prompt in it
    assert test.warnings == []
    with pytest.raises(
        ValueError, match="time per output token, measured with streaming, got none at 4 clients"
    ):
        bs.calibrate(test, bs.Continuous(64))
    zeros = {name: 0.0 if "_ttft_" in name else each for name, each in VLLM.items() if "e2el" not in name}
    with pytest.raises(ValueError, match="mean_e2el_ms"):  # the other figures make no latency
        read(zeros)


@pytest.mark.parametrize(
    ("content", "title"),
    [
        (VLLM, "LoadTest: vllm bench serve, 1 stage"),
        (AIPERF, "LoadTest: AIPerf 0.13.0, 1 stage"),
        (
            {k: v for k, v in AIPERF.items() if "version" not in k} | {"input_config": {}},
            "LoadTest: genai-perf, 1",
        ),
    ],
)
def test_a_tools_name_and_version_are_those_in_the_file(read, content, title):
    assert repr(read(content)).startswith(title)


def test_two_requests_are_too_few_to_tell_and_no_loop_has_no_client():
    few = Stage(2, {"mean": 900.0}, asked_per_s=5.0, served_per_s=0.5, delay_ms={"mean": 992.0})
    assert list(few.faults) == ["too few requests"]
    one_token = Stage(99, {"mean": 9.0}, {"mean": 9.0}, {"mean": 0.0}, {"mean": 0.0}, output_tokens=1)
    assert (one_token.itl_ms, one_token.reported_tpot_ms, one_token.faults) == ({}, {}, {})
    assert Stage(99, {"mean": 9.0}, {"mean": 9.0}, {"mean": 1.0}, output_tokens=2).faults == {}
    slow = Stage(300, {"mean": 900.0}, asked_per_s=5.0, served_per_s=0.1, delay_ms={"mean": 992.0})
    assert "a closed loop of 1 client" in slow.faults["hidden send delay"]


def test_missing_lengths_are_named_and_given(tmp_path):
    files = []
    for clients in (4, 12):
        content = {k: v for k, v in AIPERF.items() if k != "input_sequence_length"}
        files.append(tmp_path / f"{clients}.json")
        files[-1].write_text(json.dumps(content | {"input_config": {"loadgen": {"concurrency": clients}}}))
    with pytest.raises(ValueError, match=r"mean length of its prompts, or tokens=.* at 4 clients \(.*4.json"):
        bs.calibrate(files, bs.Continuous(64))
    assert bs.calibrate(files, bs.Continuous(64), tokens=bs.Tokens(100, 50)).service.fixed_ms > 0


def test_errors_and_predictions_are_of_what_the_client_measures():
    rule, service, client_ms, stages = bs.SizeOrWait(8, 0), bs.Affine(2, 0.3), 15.0, []
    for rate in (100.0, 300.0, 600.0, 900.0):
        made = predicted(Stage(1000, {}, asked_per_s=rate), rule, service, seed=3)
        latency_ms = {"mean": made.latency_ms + client_ms}
        stages.append(Stage(1000, latency_ms, asked_per_s=rate, served_per_s=rate))
    found = bs.calibrate(LoadTest("mine", "", tuple(stages)), rule)
    frame = found.to_frame()
    assert frame.latency_ms.tolist() == [stage.latency_ms["mean"] for stage in stages]
    assert frame.latency_ms_simulated.tolist() == [found.predict(stage).latency_ms for stage in stages]
    errors = frame.latency_ms_simulated / frame.latency_ms - 1
    assert np.allclose(frame.latency_ms_error, errors)
    assert errors.abs().max() < 0.03
    assert all(
        low <= stage.latency_ms["mean"] <= high
        for stage in stages
        for low, high in [found.predict(stage).interval("latency_ms")]
    )


def test_files_of_public_questions_give_what_is_right(shared_data):
    folder = shared_data / "public_cases"
    if not folder.is_dir():
        pytest.skip("the public cases are not here")
    for name, clients in (("perf_b8.csv", [1, 4]), ("perf_b8_rate.csv", [0.5])):
        stages = bs.load_test(folder / "f28" / name).stages
        assert [stage.in_flight for stage in stages] == pytest.approx(clients)
    assert bs.load_test(folder / "f34" / "sglang_not_streamed.json").stages[0].latency_ms["mean"] == 4700
    assert bs.Trace.from_file(folder / "f25" / "trace.jsonl").offered_per_s == pytest.approx(2.7, rel=0.01)
    assert bs.Tokens.from_jsonl(folder / "f26" / "trace.jsonl").prefixes.piece_tokens == 16
