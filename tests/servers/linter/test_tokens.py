"""What settings of language models' servers cost: each finding with two runs of the same traffic."""

import pytest
from typer.testing import CliRunner

import batchsim as bs
from batchsim import servers
from batchsim.cli import app

MEASURED = bs.StepTime(6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)  # Llama-3.1-8B on an RTX 4090
CHAT = bs.Tokens(bs.Lognormal(800, 0.6, at_most=4000), bs.Geometric(300))


def scenario(rate_per_s=1.2, tokens=CHAT):
    return bs.Scenario(bs.Poisson(rate_per_s), bs.Continuous(), MEASURED, tokens=tokens)


def lint(server, rate_per_s=1.2, tokens=CHAT, requests=600, **settings):
    return servers.lint(servers.config(server, **settings), scenario(rate_per_s, tokens), requests)


def test_a_threshold_that_thrashes_is_found_with_the_requests_that_go_back():
    found = lint("vllm", num_gpu_blocks_override=601, long_prefill_token_threshold=64, gpu="rtx-4090")
    first = found[found.codes.index("limit-thrashes")]
    assert first.change == {"long_prefill_token_threshold": 0}
    assert first.key == "preempted_share"
    assert first.value > 0.8 > 0.4 > first.changed_value
    run = bs.simulate(found.scenario, 600)
    assert first.value == run.summary()["preempted_share"]
    assert f"{run.preemptions.sum() / 600:.3g} preemptions" in first.sentence
    without = bs.simulate(found.scenario.replace(long_prefill_token_threshold=0), 600)
    assert first.changed_value == without.summary()["preempted_share"]
    assert first.effect == pytest.approx(run.percentile(99) / without.percentile(99))


def test_seats_that_memory_cannot_hold_are_found_where_they_cost_and_noted_where_they_do_not():
    thrash = {"num_gpu_blocks_override": 601, "long_prefill_token_threshold": 64, "gpu": "rtx-4090"}
    found = lint("vllm", **thrash)
    seats = found[found.codes.index("seats-beyond-memory")]
    # 9,600 tokens; a request holds prompt + output / 2 in the mean of its steps: some 800 + 300.
    (fewer,) = seats.change.values()
    assert 5 <= fewer <= 1.5 * 9.6
    assert seats.changed_value < 0.5 * seats.value
    calm = lint("vllm", rate_per_s=0.2, **thrash | {"long_prefill_token_threshold": 0})
    assert "seats-beyond-memory" not in calm.codes
    note = next(note for note in calm.notes if note.code == "memory-below-seats")
    assert "max_num_seqs is 256" in note.sentence


def test_somewhat_more_seats_than_memory_holds_in_the_mean_may_be_the_best():
    tokens = bs.Tokens(bs.Lognormal(300, 0.5, at_most=2000), bs.Lognormal(600, 0.8, at_most=3000))
    limits = {"max_num_seqs": 256, "max_num_batched_tokens": 2048}
    found = lint("vllm", 1.3, tokens, 3000, num_gpu_blocks_override=800, **limits)
    first = found[found.codes.index("seats-beyond-memory")]
    (seats,) = first.change.values()
    assert 16 < seats <= 24
    assert first.changed_value < 0.9 * first.value


def test_an_overload_is_told_beside_what_does_not_cure_it():
    tokens = bs.Tokens(bs.Lognormal(1500, 0.8, at_most=6000), bs.Lognormal(100, 0.8, at_most=1000))
    assert lint("vllm", 6.0, tokens, num_gpu_blocks_override=20_000).codes == ("overload", "default-by-card")


def test_a_budget_below_the_mean_prompt_is_found_by_the_time_to_the_first_token():
    found = lint("vllm", 0.5, max_num_seqs=64, max_num_batched_tokens=128)
    assert found.codes == ("budget-below-prompt",)
    assert found[0].key == "mean_ttft_ms"
    assert found[0].change["max_num_batched_tokens"] >= 800
    assert found[0].changed_value < 0.95 * found[0].value
    assert "7 steps" in found[0].sentence
    assert lint("vllm", 0.5, max_num_seqs=64, max_num_batched_tokens=2048).codes == ()


def test_a_default_that_the_cards_memory_changes_is_found_where_it_makes_a_difference():
    long = bs.Tokens(6000, 20)
    found = lint("vllm", 0.9, long, model="m")
    assert found.codes == ("default-by-card",)
    # Prompts in three steps, and in one, beside which a decode waits three times as long.
    assert found[0].key == "tpot_p99_ms"
    assert found[0].changed_value > 1.5 * found[0].value
    assert found[0].change == {"max_num_seqs": 1024, "max_num_batched_tokens": 8192}
    assert "96 GiB" in found[0].sentence
    assert lint("vllm", 0.9, long, gpu="rtx-4090").codes == ()
    assert lint("vllm", 0.9, long, max_num_seqs=256, max_num_batched_tokens=2048).codes == ()
    assert lint("vllm", 0.2, bs.Tokens(100, 20)).codes == ()  # all fits into either


def test_servers_of_the_simpy_engine_are_judged_too():
    found = lint("sglang", 1.0, requests=80, max_total_tokens=9600, schedule_conservativeness=0, gpu="4090")
    assert found.scenario.rule == servers.sglang(
        max_total_tokens=9600, schedule_conservativeness=0, gpu="rtx-4090"
    )
    assert set(found.codes) <= {"limit-thrashes", "seats-beyond-memory"}
    assert lint("tgi", 0.3, requests=60, max_batch_total_tokens=40_000).codes == ()


def test_a_command_line_is_linted_from_the_shell(tmp_path):
    path, toml = tmp_path / "serve.sh", tmp_path / "chat.toml"
    path.write_text("vllm serve m --max-num-seqs 64 \\\n  --max-num-batched-tokens 128\n")
    scenario(0.5).to_toml(toml)
    done = CliRunner().invoke(app, ["lint", str(path), "--scenario", str(toml), "--requests", "300"])
    assert (done.exit_code, "budget-below-prompt" in done.output) == (1, True)


def test_a_scenario_without_tokens_is_refused():
    plain = bs.Scenario(bs.Poisson(1), bs.SizeOrWait(), bs.Affine(1, 0))
    with pytest.raises(ValueError, match="needs tokens"):
        servers.lint(servers.config("vllm"), plain)
