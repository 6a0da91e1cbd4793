"""The commands about what was measured: published times, measurements, and load tests of a server."""

import json
import re
import shlex

import pytest
from shell import SCENARIO, refused, run, run_json

import batchsim as bs


def test_published_lists_names_with_sizes_times_and_source():
    text = run("published", "nnunet").stdout
    source = bs.published_source("nnunet/t4/fp16")
    assert re.search(r"nnunet/t4/fp16 +1 to 4 +109\.417 to 409\.599 +Triton, PyTorch", text)
    assert source.source_url in text
    assert source.licence in text
    tables = run_json("published", "nnunet")["tables"]
    assert {table["name"] for table in tables} == set(bs.published_names("nnunet"))
    assert tables[0]["service"]["1"] == 109.417


def test_published_lists_the_watts_of_servers_with_their_joules_and_source():
    text, llama = run("published", "llama-3.1-8b/h100").stdout, bs.published_watts("llama-3.1-8b/h100")
    sizes, watts, joules = zip(
        *((size, llama.watts[size], llama.joules[size]) for size in llama.watts), strict=True
    )
    row = [f"{column[0]:g} to {column[-1]:g}" for column in (sizes, watts, joules)]
    assert re.search(" +".join(["llama-3.1-8b/h100", *row, "token", llama.backend]), text)
    assert llama.source_url in text
    (found,) = [each for each in run_json("published", "llama-3.1-8b")["watts"] if each["name"] == llama.name]
    assert found["watts"] == {str(size): each for size, each in llama.watts.items()}
    assert found["joules"]["8"] == llama.joules[8]
    only = bs.published_names(watts=True)[-1]
    assert {*run_json("published", only)} == {"watts"}


def test_published_without_a_word_lists_all():
    lines = run("published").stdout
    assert all(f" {name} " in lines for watts in (False, True) for name in bs.published_names(watts=watts))
    assert refused("published", "resnet5").startswith(
        "no published name has 'resnet5'; did you mean 'resnet50/a100-80gb/mixed-fp16', 'resnet50/t4"
    )


def test_a_model_is_measured_at_the_powers_of_two_up_to_32():
    found = run_json("measure", "--model", "mlp", "--width", "8", "--repeats", "2")
    assert [row["batch_size"] for row in found["rows"]] == [1, 2, 4, 8, 16, 32]


TRUE = bs.Scenario(bs.Poisson(20), bs.Continuous(8, 512), bs.StepTime(5, 3, 0.05), tokens=bs.Tokens(100, 20))
GIVEN = ["--rate-per-s", "20", "--prompt-tokens", "100", "--output-tokens", "20"]


@pytest.fixture
def tested(tmp_path, monkeypatch):
    """Result files of `vllm bench serve`, as the loop would measure the true server; and its own file."""
    monkeypatch.chdir(tmp_path)
    for rate in (5, 20, 30):
        result = bs.simulate(TRUE.replace(rate_per_s=rate), 600, seed=rate)
        times = {"ttft": result.ttft_ms, "tpot": result.tpot_ms, "e2el": result.latency_ms}
        content = {
            f"{name}_{which}_ms": value
            for which, each in times.items()
            for name, value in (("mean", each.mean()), ("p99", sorted(each)[593]))
        }
        content |= {"median_ttft_ms": 1.0, "median_tpot_ms": 1.0, "median_e2el_ms": 1.0, "completed": 600}
        content |= {"request_rate": rate, "total_input_tokens": 60_000, "total_output_tokens": 12_000}
        content |= {"request_throughput": result.throughput_per_s, "num_prompts": 600}
        (tmp_path / f"{rate}.json").write_text(json.dumps(content))
    (tmp_path / "serve.sh").write_text(
        "vllm serve some/model --max-num-seqs 8 --max-num-batched-tokens 512\n"
    )
    return ["5.json", "20.json", "30.json"]


def test_the_loop_from_a_servers_file_to_the_proof(tested):
    command = run("loadtest", "serve.sh", *GIVEN, "--requests", "600").stdout
    words = shlex.split(command)
    assert words[:3] == ["vllm", "bench", "serve"]
    for name, value in (("--model", "some/model"), ("--request-rate", "20"), ("--num-prompts", "600"),
                        ("--random-input-len", "100"), ("--random-output-len", "20")):  # fmt: skip
        assert words[words.index(name) + 1] == value
    found = run_json(
        "calibrate", *tested, "--server-config", "serve.sh", "--hold-out", "20", "--save", "mine.toml"
    )
    assert [row["fitted"] for row in found["stages"]] == [True, False, True]
    (held,) = (row for row in found["stages"] if not row["fitted"])
    assert held["latency_ms_low"] <= held["latency_ms"] <= held["latency_ms_high"]
    assert abs(held["tpot_ms_error"]) < 0.05
    saved = bs.Scenario.from_toml("mine.toml")
    assert (saved.workload, saved.rule.max_num_seqs) == (bs.Poisson(30), 8)
    proof = run_json("compare", "20.json", "--scenario", "mine.toml", "--client-ms", found["client_ms"])
    (row,) = proof["stages"]
    assert row["latency_ms_simulated"] == pytest.approx(held["latency_ms_simulated"])
    assert run("tune", "mine.toml", "--ttft-p99-ms", "500", "--kv-blocks", "none", "--requests", "8000",
               "--over", "max_num_seqs=4,8").exit_code == 0  # fmt: skip


def test_what_is_compared_is_what_the_true_server_measures(tested):
    true = ["--rule", "Continuous(8, 512)", "--service", "StepTime(5, 3, 0.05)"]
    names = ("tpot_ms", "ttft_ms", "latency_ms", "ttft_p99_ms", "latency_p99_ms")
    rows = [(row, name) for row in run_json("compare", *tested, *true)["stages"] for name in names]
    assert sum(row[f"{name}_low"] <= row[name] <= row[f"{name}_high"] for row, name in rows) >= 13
    printed = run("compare", *tested, *true).stdout
    assert re.search(r"^ *5/s +TTFT p99 \(ms\)(?: +[\d.,]+){4} +[+-][\d.]+% *$", printed, re.M)
    assert "held out" not in printed
    slower = ["--rule", "Continuous(8, 512)", "--service", "StepTime(9, 3, 0.05)"]
    for row in run_json("compare", *tested, *slower)["stages"]:
        assert row["tpot_ms"] < row["tpot_ms_low"]


def test_two_saved_runs_are_compared(tmp_path):
    for name, wait in (("a", 10), ("b", 0)):
        bs.simulate(SCENARIO.replace(max_wait_ms=wait), 3000).save(tmp_path / f"{name}.npz")
    found = run_json("compare", tmp_path / "a.npz", tmp_path / "b.npz")
    (row,) = (each for each in found["metrics"] if each["metric"] == "mean_latency_ms")
    assert row["high"] < 0
    assert "mean_latency_ms" in run("compare", tmp_path / "a.npz", tmp_path / "b.npz").stdout
    assert "two saved runs must be given, got 1" in refused("compare", tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare"], "result files of a load test must be given, as result.json, got none"),
        (["calibrate"], "result files of a load test must be given, as result.json, got none"),
        (["compare", "5.json"], "a service time by --fixed-ms"),
        (["calibrate", "5.json", "--rule", "Continuous(8)"], "at least 2 stages"),
        (["calibrate", "5.json", "20.json", "30.json", "--hold-out", "7"], "must have loads of the test"),
        (["compare", "5.json", "--fixed-ms", "5", "--client-ms", "-1"], "--client-ms must be at"),
        (["loadtest", "serve.sh"], "a workload by --rate-per-s"),
        (["loadtest", "--workload", "OnOff(9, 1, 1, 1)"], "traffic of perf_analyzer must be Poisson or"),
        (["loadtest", "--rate-per-s", "9", "--tool", "vllm"], "must be one of perf_analyzer, got 'vllm'"),
    ],
)  # fmt: skip
def test_what_cannot_be_sent_or_compared_is_refused(tested, arguments, message):
    assert message in refused(*arguments)


def test_gaps_that_a_file_does_not_tell_are_constant_or_those_of_the_scenario(tmp_path):
    heads = "Request Rate,Inferences/Second,Avg latency,p50 latency,p90 latency,p95 latency,p99 latency"
    (tmp_path / "result.csv").write_text(f"{heads}\n100,100,9000,8000,20000,30000,40000\n")
    given = [
        "compare",
        tmp_path / "result.csv",
        "--fixed-ms",
        "8",
        "--max-batch-size",
        "1",
        "--max-wait-ms",
        "0",
    ]
    (constant,) = run_json(*given)["stages"]
    (poisson,) = run_json(*given, "--workload", "Poisson(1)")["stages"]
    assert constant["latency_ms_simulated"] == pytest.approx(8)
    assert poisson["latency_ms_simulated"] == pytest.approx(8 + 0.8 * 8 / (2 * 0.2), rel=0.1)  # M/D/1
