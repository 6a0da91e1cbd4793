"""Token generation from the shell: every knob by its name."""

import pytest
from shell import refused, run, run_json
from typer.testing import CliRunner

import batchsim as bs
from batchsim.cli import app
from batchsim.cli.flags import SLOFlags
from batchsim.cli.scenario_flags import ScenarioFlags
from batchsim.result.metrics import OF_FLEETS, TOKENS
from batchsim.scenario.toml import from_tables
from batchsim.study.capacity import capacity
from batchsim.study.slo import SLO
from batchsim.study.sweep import sweep
from batchsim.study.tune import tune

TEXT = """
[workload]
kind = "Poisson"
rate_per_s = 12

[rule]
kind = "Continuous"
max_num_seqs = 32
max_num_batched_tokens = 512
kv_blocks = 300

[service]
kind = "StepTime"
fixed_ms = 7
weights_ms = 10
per_token_ms = 0.1

[tokens]
prompt = {kind = "Lognormal", mean = 200, cv = 1, at_most = 1000}
output = {kind = "Geometric", mean = 20}
"""
SCENARIO = bs.Scenario.from_toml(TEXT)
BASE = [
    "--rate-per-s", 12, "--rule", "continuous", "--max-num-seqs", 32, "--max-num-batched-tokens", 512,
    "--kv-blocks", 300, "--fixed-ms", 7, "--weights-ms", 10, "--per-token-ms", 0.1,
    "--prompt-tokens", "Lognormal(200, 1, at_most=1000)", "--output-tokens", "Geometric(20)",
]  # fmt: skip


def scenario_of(*arguments):
    """The scenario of a command, from its answer."""
    return from_tables(bs.Scenario, run_json("simulate", *arguments, "--requests", 50)["scenario"])


def test_a_scenario_from_options_is_that_of_its_file(tmp_path):
    (tmp_path / "s.toml").write_text(TEXT)
    assert scenario_of(*BASE) == scenario_of(tmp_path / "s.toml") == SCENARIO
    assert scenario_of(*BASE[:2], *BASE[4:]) == SCENARIO  # with tokens the rule is Continuous


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (["--first", "prefill", "--no-chunked", "--max-num-batched-tokens", 2048],
         {"first": "prefill", "chunked": False, "max_num_batched_tokens": 2048}),
        (["--reserve", "life", "--token-limit", 900], {"reserve": "life", "tokens.limit": 900}),
        (["--block-size", 8, "--watermark-blocks", 3], {"block_size": 8, "watermark_blocks": 3}),
        (["--long-prefill-token-threshold", 64, "--kv-blocks", 400],
         {"long_prefill_token_threshold": 64, "kv_blocks": 400}),
        (["--per-read-ms", 0.001, "--per-pair-ms", 1e-5, "--ragged", "--fixed-ms", 2],
         {"per_read_ms": 0.001, "per_pair_ms": 1e-5, "ragged": True, "fixed_ms": 2}),
        (["--output-tokens", 30], {"output": 30}),
        (["--tokens", "Tokens(9, Uniform(2, 5))"], {"tokens": bs.Tokens(9, bs.Uniform(2, 5))}),
        (["--rule", "Continuous(4, first='prefill')", "--max-num-batched-tokens", 99],
         {"rule": bs.Continuous(4, 99, first="prefill")}),
    ],
)  # fmt: skip
def test_a_knob_has_an_option_of_its_name(options, changes, tmp_path):
    (tmp_path / "s.toml").write_text(TEXT)
    expected = SCENARIO.replace(changes)
    assert scenario_of(tmp_path / "s.toml", *options) == expected
    if options[0] not in ("--rule", "--tokens", "--output-tokens"):
        assert scenario_of(*BASE, *options) == expected


def test_every_knob_of_the_rule_and_every_limit_is_an_option():
    options = {*ScenarioFlags.__dataclass_fields__}
    assert {name for name in bs.Continuous.__dataclass_fields__ if name != "_"} <= options
    assert {*bs.StepTime.__match_args__} <= options
    assert {*SLO.__dataclass_fields__} == {*SLOFlags.__dataclass_fields__}


def test_lengths_are_read_from_a_csv_beside_the_file(tmp_path):
    (tmp_path / "azure.csv").write_text("ContextTokens,GeneratedTokens\n100,5\n20,12\n")
    head = TEXT.partition("[tokens]")[0]
    (tmp_path / "s.toml").write_text(f'{head}[tokens]\npath = "azure.csv"\nagain = true\n')
    lengths = bs.Tokens.sample([(100, 5), (20, 12)], again=True)
    assert scenario_of(tmp_path / "s.toml") == SCENARIO.replace(tokens=lengths)
    (tmp_path / "s.toml").write_text(f'{head}[tokens]\npath = "azure.csv"\nprompt = "Prompt"\n')
    assert "must have a column 'Prompt'" in refused("simulate", tmp_path / "s.toml")
    given = f"Tokens.from_csv({str(tmp_path / 'azure.csv')!r}, again=True)"
    assert scenario_of(*BASE[:-4], "--tokens", given) == SCENARIO.replace(tokens=lengths)


def test_simulate_prints_ttft_and_tpot(tmp_path):
    answer = run_json("simulate", *BASE, "--requests", 3000, "--keep", "summary")
    result = bs.simulate(SCENARIO, 3000, keep="summary")
    assert answer["summary"] == pytest.approx(result.summary())
    assert {*TOKENS} - {*OF_FLEETS} <= {*answer["intervals"]}
    printed = run("simulate", *BASE, "--requests", 500).stdout
    assert all(
        words in printed for words in ("TTFT p99 (ms)", "mean TPOT (ms)", "mean preempted time", "tokens:")
    )


def test_sweep_capacity_and_tune_are_those_of_python():
    over, slo = {"max_num_seqs": [4, 32], "kv_blocks": [100, 300]}, SLO(ttft_p99_ms=900, tpot_p99_ms=50)
    axes = ["--over", "max_num_seqs=4,32", "--over", "kv_blocks=100,300"]
    limits = ["--ttft-p99-ms", 900, "--tpot-p99-ms", 50]
    points = run_json("sweep", *BASE, *axes, "--requests", 500)["points"]
    table = sweep(SCENARIO, over, 500, progress=False)
    assert [point["ttft_p99_ms"] for point in points] == table.ttft_p99_ms.tolist()
    assert "ttft" in run("sweep", *BASE, *axes, "--requests", 500, "--value", "tpot_p99_ms").stdout
    found = run_json("capacity", *BASE, *limits, "--requests", 1000, "--tolerance", 0.2)
    expected = capacity(SCENARIO, slo, requests=1000, tolerance=0.2)
    assert found["rate_per_s"] == expected.rate_per_s
    best = run_json("tune", *BASE, *limits, *axes, "--requests", 3000)
    expected = tune(SCENARIO, slo, over, requests=3000)
    assert (best["knobs"], best["objective"]) == (expected.knobs, {"ttft_p99_ms": 900, "tpot_p99_ms": 50})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate", *BASE[:-2]], "--output-tokens must be given too"),
        (["simulate", *BASE, "--tokens", "Tokens(5, 5)"], "a length of tokens must be given once"),
        (["simulate", *BASE, "--per-item-ms", 1], "a service must be given once"),
        (["simulate", *BASE, "--block-size", 0], "--block-size must be at least 1, got 0"),
        (["simulate", *BASE, "--first", "prompt"], "first must be one of decode, prefill, got 'prompt'"),
        (["simulate", *BASE, "--output-tokens", 0], "output must be at least 1, got 0"),
        (["simulate", "--rate-per-s", 9, "--fixed-ms", 5, "--kv-blocks", 9], "--kv-blocks has no effect"),
        (["simulate", *BASE, "--rule", "continuos"], "a value must be a number, quoted text, or a part"),
        (["capacity", "--rate-per-s", 9, "--fixed-ms", 5, "--ttft-p99-ms", 9],
         "--ttft-p99-ms needs a scenario with tokens"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_one_line(arguments, words):
    assert words in refused(*arguments)


@pytest.mark.parametrize("server", ["vllm", "sglang", "tgi"])
def test_one_command_tunes_and_writes_a_servers_own_settings_which_are_read_back_equal(server, tmp_path):
    (tmp_path / "s.toml").write_text(TEXT)
    grid = ["--over", "max_num_seqs=8,32", "--over", "max_num_batched_tokens=512,1024", "--requests", 400]
    options = ["tune", tmp_path / "s.toml", "--ttft-p99-ms", 5000, *grid, "--set", "kv_blocks=none"]
    best = run_json(*options)["scenario"]["rule"]
    written = run(*options, "--write", server).stdout
    config = bs.servers.parse(written[written.index("# Written by batchsim") :])
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        assert getattr(config.rule, name) == best[name]
    again = bs.servers.parse(bs.servers.write(server, config))
    assert (again.rule, config.unused) == (config.rule, {})


LLAMA = [
    "--published", "llama-3.1-8b/rtx-4090", "--rate-per-s", 3, "--prompt-tokens", 2000,
    "--output-tokens", 200, "--requests", 400,
]  # fmt: skip


def test_a_published_model_has_the_memory_that_it_leaves_on_its_card(tmp_path):
    (tmp_path / "serve.sh").write_text("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64\n")
    served = ["--server-config", tmp_path / "serve.sh", *LLAMA]
    for arguments, blocks in (
        (served, 2598),  # vLLM has one of them for itself
        (LLAMA, 2599),
        ([*LLAMA, "--kv-blocks", 300], 300),
        ([*LLAMA, "--kv-blocks", "unlimited"], None),
        ([*LLAMA, "--set", "rule.kv_blocks=none"], None),
    ):
        assert scenario_of(*arguments).rule.kv_blocks == blocks


def test_tune_recommends_no_seats_for_memory_that_nobody_has_given(tmp_path):
    unknown = ["tune", *LLAMA[2:], "--published", "llama-2-7b/gh200/vllm", "--ttft-p99-ms", 5000]
    grid = ["--over", "max_num_seqs=8,32"]
    assert "memory must be given" in refused(*unknown, *grid)
    assert "kv_blocks=4000" in run(*unknown, "--over", "kv_blocks=2000,4000", code=1).stdout  # a short run
    assert "Memory is unlimited here" in run(*unknown, *grid, "--kv-blocks", "unlimited", code=1).stdout


def test_a_server_s_file_keeps_what_does_not_help_and_nothing_is_written_that_misses(tmp_path):
    (tmp_path / "serve.sh").write_text("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 100\n")
    options = ["tune", "--server-config", tmp_path / "serve.sh", *LLAMA, "--rate-per-s", 0.3]
    kept = run(*options, "--ttft-p99-ms", 5000, "--write", "vllm")
    assert (kept.stdout.startswith("Take max_num_seqs=100"), "+++" in kept.stdout) == (True, False)
    missed = [*options, "--ttft-p99-ms", 9, "--write", "vllm"]
    refusal = run(*missed, code=1)
    assert "does not meet the objective" in refusal.stderr
    assert "+++" not in refusal.stdout
    assert "does not meet" not in run(*missed, "--force", code=1).stderr


def test_a_tuned_command_of_vllm_keeps_the_memory_that_it_leaves_out(tmp_path):
    (tmp_path / "serve.sh").write_text("vllm serve acme --max-num-seqs 8 --max-num-batched-tokens 512\n")
    given = ["--server-config", tmp_path / "serve.sh", *BASE[:2], "--kv-blocks", 2841, *BASE[10:]]
    grid = ["--over", "max_num_seqs=16,32", "--ttft-p99-ms", 5000, "--requests", 400]
    done = run("tune", *given, *grid, "--write", "vllm")
    assert "memory is unlimited" not in done.stderr
    changed = [line for line in done.stdout.splitlines() if line.startswith("+vllm")]
    assert len(changed) == 1
    assert "--num-gpu-blocks-override" not in changed[0]
    unlimited = [*given[:4], *given[6:]]
    assert "memory is unlimited" in run("simulate", *unlimited, "--requests", 50).stderr


def test_steps_without_lengths_name_the_options():
    assert "lengths by --prompt-tokens and --output-tokens or --tokens must be given" in refused(
        "simulate", *BASE[:2], *BASE[10:16]
    )


def test_simulate_says_how_far_off_theory_can_be():
    light = ["simulate", "--rate-per-s", 0.1, *BASE[2:], "--kv-blocks", 600, "--requests", 500]
    theory = run_json(*light)["theory"]
    for metric, (low, high) in theory["bounds"].items():
        assert low <= theory["summary"].get(metric, low) * (1 + 1e-9) <= high * (1 + 1e-9)
    assert {"mean_ttft_ms", "mean_tpot_ms"} <= theory["summary"].keys()
    assert "theory: light load, an approximation, at most" in run(*light).stdout


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ["--service", "StepTime(7, 10, 0.1)", "--kv-blocks", "300"],
            "memory holds 10 requests of 475 tokens",
        ),
        (["--published", "llama-3.1-8b/rtx-4090"], "memory holds 87 requests of 475 tokens"),
    ],
)
def test_lint_judges_with_the_memory_that_options_tell(options, text, tmp_path):
    (tmp_path / "serve.sh").write_text("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 128\n")
    traffic = ["--rate-per-s", "9", "--prompt-tokens", "400", "--output-tokens", "150", "--requests", "300"]
    done = CliRunner().invoke(app, ["lint", str(tmp_path / "serve.sh"), *traffic, *options])
    assert text in done.stdout
    assert "memory is unlimited" not in done.output
    assert ("overload" in done.stdout) == ("--kv-blocks" in options)
