"""The inputs of public questions, one for each finding: the right value, a clear refusal, or a note."""

import collections
import re
import runpy

import numpy as np
import pytest

import batchsim as bs
from batchsim import servers

PREFERRED = servers.triton(256, 2_000_000, [8, 16])
VLLM = servers.vllm(max_num_seqs=64)
SGLANG = servers.sglang(max_running_requests=64, chunked_prefill_size=512, schedule_conservativeness=0.3)
# Each file: its rule, its servers times replicas, and words of a note; without a rule, of the refusal.
FILES = {
    "f01/config.pbtxt": (servers.triton(8), 1, "switches dynamic_batching on"),
    "f01/config-onnx-minimal.pbtxt": (servers.triton(8), 1, "switches dynamic_batching on"),
    "f02/config.pbtxt": (servers.triton(8), 2, ""),
    "f04/config.properties": (servers.torchserve(8, 20), 4, ""),
    "f05/model-config.yaml": (None, 0, "line 5, column 1: continuousBatching must be false"),
    "f07/serve.sh": (servers.vllm(max_num_seqs=64, max_num_batched_tokens=4096), 1, ""),
    "f08/run.sh": (VLLM, 1, ""),
    "f10/serve.sh": (VLLM, 1, ""),
    "f11/serve.sh": (VLLM, 1, ""),
    "f14/template.yaml": (None, 0, "must have one command vllm serve, got none; read the script or the ren"),
    "f16/service.py": (servers.bentoml(32, 500), 4, ""),
    "f17/batching_parameters.txt": (
        servers.tf_serving(65_536, 1000), 4, "max_batch_size is 20,000,000, which has no"),
    "f19/serve.sh": (SGLANG, 8, ""),
    "f20/run.sh": (servers.tei(max_batch_requests=8, padded_model=True), 1, "a CPU image forms batches of"),
    "f29/config.pbtxt": (None, 0, "got vllm, which batches inside"),
    "f31/config.properties": (None, 0, ""),  # below
    "f32/config.pbtxt": (PREFERRED, 1, ""),
    "f38/service.py": (servers.bentoml(1, 3_600_000), 1, "BentoML 1.4 stops at its first batch"),
}  # fmt: skip


@pytest.fixture
def cases(shared_data):
    if not (folder := shared_data / "public_cases").is_dir():
        pytest.skip("the public cases are not here")
    return folder


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("f31")])
def test_a_file_is_read_rightly_refused_clearly_or_noted(cases, name):
    rule, count, words = FILES[name]
    if rule is None:
        with pytest.raises(ValueError, match=words):
            servers.read(cases / name)
        return
    found = servers.read(cases / name)
    assert (found.rule, found.servers * found.replicas, found.unknown) == (rule, count, {})
    notes = [note for note in found.notes if not re.search("unlimited|on each GPU", note)]
    assert [words in note for note in notes] == [True] * bool(words)


def test_each_file_of_a_server_is_here(cases):
    ours = {path.relative_to(cases).as_posix() for path in cases.glob("f*/*") if path.suffix != ".json"}
    others = {"f13/config.pbtxt", "f25/trace.jsonl", "f26/trace.jsonl", "f28/perf_b8.csv"}
    assert ours - others - {"f28/perf_b8_rate.csv", "f35/show.py", "f37/n_policy.py"} == {*FILES}


def test_lint_finds_nothing_wrong_where_the_backend_switches_batching_on(cases):
    traffic = bs.Scenario(bs.Poisson(200), bs.SizeOrWait(), bs.Affine(2, 0.5))
    assert not servers.lint(servers.read(cases / "f01" / "config.pbtxt"), traffic).findings


def test_an_edit_adds_one_block(cases):
    path = cases / "f13" / "config.pbtxt"
    edited = servers.edit(path, bs.SizeOrWait(16, 2))
    added = "dynamic_batching { max_queue_delay_microseconds: 2000 }\n"
    assert (edited.text, edited.lost) == (path.read_text() + added, ())


def test_a_closed_loop_that_its_queue_limit_cannot_bind_runs(cases):
    config = servers.read(cases / "f31" / "config.properties")
    assert config.queue_limit == 100
    run = bs.simulate(config.scenario(bs.ClosedLoop(8), bs.Table({1: 10.6, 2: 12.4})), 500)
    assert len(run.latency_ms) == 500
    assert np.isfinite(run.latency_ms).all()
    assert run.mean_latency_ms == pytest.approx(12.4, rel=0.01)


def test_batches_under_load_close_one_above_the_largest_preferred_size(cases):
    config = servers.read(cases / "f32" / "config.pbtxt")
    run = bs.simulate(config.scenario(bs.Poisson(1000), bs.Affine(10, 0.2)), 20_000, seed=1)
    sizes = collections.Counter(run.batches.batch_size.tolist())
    assert max(sizes) == 17
    assert sizes[17] > sizes[16]


def test_lengths_that_a_load_test_lacks_are_asked_for(cases):
    files = [cases / "f23" / name for name in ("c16.json", "c64.json")]
    with pytest.raises(ValueError, match=r"mean length of its prompts, or tokens=Tokens\(prompt, output\)"):
        bs.calibrate(bs.load_test(*files), bs.Continuous(256))


@pytest.mark.dear("a calibration: hundreds of runs of tokens are fitted to two stages")
def test_the_names_of_the_frame_hold_out(cases):
    test = bs.load_test(*(cases / "f40" / f"{name}.json" for name in ("five", "ten", "fifteen")))
    frame = bs.calibrate(test, bs.Continuous(64), hold_out=[test.to_frame()["load"].iloc[1]]).to_frame()
    assert dict(zip(frame.load, frame.fitted, strict=True)) == {"5/s": True, "10/s": False, "15/s": True}


@pytest.mark.filterwarnings("ignore")
def test_errors_are_of_the_ttft_that_was_measured_with_the_client(shared_data):
    stages = [shared_data / "kubecon" / "vllm" / f"stage_{n}_lifecycle_metrics.json" for n in range(3)]
    found = bs.calibrate(bs.load_test(*stages), bs.Continuous(128, 8192), hold_out=[31.4])
    row = found.to_frame().iloc[1]
    assert row.ttft_ms == pytest.approx(29.837, rel=1e-4)
    assert row.ttft_ms_error == pytest.approx(row.ttft_ms_simulated / 29.837 - 1, abs=1e-4)
    assert 0.1 < row.ttft_ms_error < 0.3  # of the server's part alone, 10.1 ms, it would be twice as much


def test_a_textbooks_rule_with_plain_fields_runs(cases, monkeypatch):
    simulate = bs.simulate
    monkeypatch.setattr(
        bs, "simulate", lambda scenario, requests, seed: simulate(scenario, 60_000, seed=seed)
    )
    run = runpy.run_path(str(cases / "f37" / "n_policy.py"))["run"]
    assert np.isclose(run.mean_latency_ms - 10, 40, rtol=0.05)
