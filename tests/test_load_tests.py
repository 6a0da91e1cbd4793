"""Result files of load tests: what is read of each tool's, their known errors, and calibration."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from oracles import kubecon

import batchsim as bs
from batchsim.measured.load_tests import LoadTest, Stage
from batchsim.study.calibration import predicted

DATA = Path(__file__).parent / "data/load_tests"
HONEST = [["guidellm.json"], ["profile_export_aiperf.json"], ["vllm_30.json", "vllm_150.json"]]
VLLM = json.loads((DATA / "vllm_30.json").read_text())


@pytest.mark.parametrize(
    ("tool", "names", "loads", "latency_ms"),
    [
        ("GuideLLM", HONEST[0], ["10/s", "40/s", "80/s"], 478.394),
        ("AIPerf", HONEST[1], ["32 clients"], 682.721),
        ("vllm bench serve", HONEST[2], ["30/s", "150/s"], 547.439),
        ("perf_analyzer", ["perf_analyzer.csv"], [f"{n} clients" for n in (1, 4, 16, 32)], 2.5),
        ("inference-perf", [f"inference_perf/{path.name}" for path in kubecon.FILES], None, 480.482),
    ],
)
def test_a_result_file_of_each_tool_is_read(tool, names, loads, latency_ms):
    test = bs.load_test(*(DATA / name for name in names))
    assert test.tool == tool
    assert test.version
    assert loads is None or [stage.name for stage in test.stages] == loads
    assert test.stages[0].latency_ms["mean"] == pytest.approx(latency_ms, rel=1e-4)
    assert len(test.to_frame()) == len(test.stages)
    if tool != "perf_analyzer":
        assert test.stages[0].ttft_ms["p99"] > test.stages[0].ttft_ms["p50"] > 0
        assert test.stages[0].prompt_tokens > 200


def test_a_hidden_send_delay_is_found_at_every_overload_of_kubecons_generator():
    test = bs.load_test(*kubecon.FILES)
    assert [stage.is_late for stage in test.stages] == [False] * 4 + [True] * 3
    assert [round(stage.in_flight) for stage in test.stages[4:]] == [389, 422, 427]
    assert any("hidden send delay" in warning for warning in test.warnings)


def test_littles_law_finds_it_without_the_tools_own_delays():
    late = [json.loads(path.read_text()) for path in kubecon.FILES[4:]]
    for content in late:
        load, done = content["load_summary"], content["successes"]
        stage = Stage(
            load["count"], {"mean": 1000 * done["latency"]["request_latency"]["mean"]},
            asked_per_s=load["requested_rate"], served_per_s=done["throughput"]["requests_per_sec"],
        )  # fmt: skip
        assert stage.is_late
        assert stage.hidden_ms == pytest.approx(1000 * load["schedule_delay"]["mean"], rel=0.4)


@pytest.mark.parametrize("names", HONEST)
def test_none_is_found_in_honest_files_and_one_of_them_is_overloaded(names):
    test = bs.load_test(*(DATA / name for name in names))
    assert not test.warnings


def test_two_chunks_a_token_are_noticed():
    assert any("chunks" in warning for warning in bs.load_test(kubecon.FILES[2]).warnings)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", r"must have one of the keys load_summary, .*perf_analyzer are supported"),
        ("nothing", r"columns Concurrency and Inferences/Second"),
        ('{"benchmarks": [], "metadata": {"version": 9}}', "metadata.version 1 or 2.*version 9"),
        ('{"request_latency": {}, "schema_version": "7.1"}', r"schema_version 1\.x.*version 7\.1"),
        (
            json.dumps({k: v for k, v in VLLM.items() if k[:3] not in ("p99", "med")}),
            "percentiles.*median_e2el",
        ),
        (json.dumps({k: v for k, v in VLLM.items() if "throughput" not in k}), "one of the keys"),
        (json.dumps(VLLM | {"completed": None}), "must have completed"),
    ],
)
def test_a_file_that_is_none_names_what_is_missing_in_one_line(tmp_path, content, message):
    path = tmp_path / "result.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        bs.load_test(path)
    assert "\n" not in str(caught.value)


def test_rates_must_increase_and_one_stage_cannot_be_fitted():
    path = DATA / "vllm_30.json"
    with pytest.raises(ValueError, match=r"must increase .* supported\), got 30/s"):
        bs.load_test(path, path)
    with pytest.raises(ValueError, match=r"at least 2 stages .* got 1 of 1"):
        bs.calibrate(path, bs.Continuous(64))
    with pytest.raises(ValueError, match=r"hold_out must have loads of the test, 30 and 150, got 40"):
        bs.calibrate([path, DATA / "vllm_150.json"], bs.Continuous(64), hold_out=[40])
    with pytest.raises(ValueError, match="of one tool, got vllm bench serve and AIPerf"):
        bs.load_test(path, DATA / "profile_export_aiperf.json")


def test_a_client_with_few_requests_in_flight_hides_the_queue():
    stage = Stage(3000, {"mean": math.nan}, asked_per_s=2000.0)
    rule, service = bs.SizeOrWait(1, 0), bs.Affine(1, 0)
    whole = predicted(stage, rule, service)
    hidden = predicted(stage, rule, service, in_flight=10)
    assert hidden.latency_ms == pytest.approx(10, rel=0.01)
    assert hidden.latency_ms + hidden.hidden_ms == pytest.approx(whole.latency_ms)
    assert hidden.served_per_s == whole.served_per_s


def test_kubecon_is_predicted_at_rates_that_were_not_fitted():
    found = kubecon.calibration()
    frame = found.to_frame().set_index("load")
    held_out = frame[~frame.fitted]
    assert [*held_out.index] == ["61.79/s", "152.98/s"]
    for _, key, bound in kubecon.METRICS:
        assert (held_out[f"{key}_error"].abs() < bound).all(), key
    assert frame.hidden_ms_simulated["152.98/s"] == pytest.approx(12_300, rel=0.05)
    assert set(found.unidentified) == {"per_read_ms", "per_pair_ms"}
    value, low, high = found.parameters["fixed_ms + weights_ms"]
    assert low < value < high < 1.1 * value
    ours = [found.predict(stage, kubecon.rule(192)).tpot_ms for stage in found.test.stages]
    assert ours == pytest.approx([7.04, 8.04, 10.04, 15.57, 26.9, 26.84, 26.37], rel=1e-3)
    assert "held out" in repr(found)


def test_another_model_is_predicted_from_a_third_of_its_loops():
    found = kubecon.closed_loops()
    errors = [
        abs(ours.tpot_ms / stage.tpot_ms - 1)
        for stage, ours, fits in zip(found.test.stages, found.predictions, found.fitted, strict=True)
        if not fits
    ]  # fmt: skip
    assert len(errors) == 30
    assert np.median(errors) < 0.05


def test_a_batch_service_is_found_again():
    test, service = bs.load_test(DATA / "perf_analyzer.csv"), bs.Affine(2, 0.2)
    found = bs.calibrate(test, bs.SizeOrWait(16, 0))
    for size in (1, 16):
        assert found.service(size) == pytest.approx(service(size), rel=0.1)
    assert found.to_frame().latency_ms_error.abs().max() < 0.05
    assert bs.plot(found).axes


def test_what_is_calibrated_is_what_made_the_files():
    real = bs.StepTime(4, 3, 0.025, 5e-5, 1e-6)
    stages = []
    for rate in (5.0, 30.0, 60.0, 75.0):
        stage = Stage(2000, {}, asked_per_s=rate, prompt_tokens=200, output_tokens=50)
        made = predicted(stage, bs.Continuous(64), real, seed=9)
        stages.append(
            Stage(
                2000, {"mean": made.latency_ms + 12}, {"mean": made.ttft_ms + 12}, asked_per_s=rate,
                served_per_s=made.served_per_s, prompt_tokens=200, output_tokens=50,
            )
        )  # fmt: skip
    found = bs.calibrate(LoadTest("none", "1", tuple(stages)), bs.Continuous(64))
    assert found.client_ms == pytest.approx(12, rel=0.2)
    assert found.service.fixed_ms + found.service.weights_ms == pytest.approx(7, rel=0.05)
    assert found.service.per_token_ms == pytest.approx(0.025, rel=0.2)
