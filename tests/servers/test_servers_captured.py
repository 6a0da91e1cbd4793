"""The batch sizes for which servers of language models record CUDA graphs, as their settings say."""

import pytest
from refusals import refusals

import batchsim as bs
from batchsim import servers
from batchsim.servers import files, registry
from batchsim.servers.linter.finding import Trial
from batchsim.servers.linter.tokens import off_ladder

EIGHTS = (1, 2, 4, *range(8, 257, 8))
LAUNCHED = bs.StepTime(2, 8, 0.1, beyond_ms=60)


def steps_of(text, sizes, step=LAUNCHED):
    """The sizes to which decode steps of a config are padded, 0 where kernels are launched."""
    config = servers.parse(text)
    scenario = config.scenario(bs.Poisson(1), step, bs.Tokens(20, 20))
    return scenario.service.padded_decodes(sizes, scenario.rule.largest_batch).tolist()


@pytest.mark.parametrize(
    ("flags", "captured"),
    [
        # The table of vLLM's pull request 57355, and the sizes of the comment of 2026-09-02 on 37865.
        ("--max-num-seqs 100", {95: 96, 96: 96, 97: 0, 98: 0, 99: 0, 100: 0}),
        ("--max-num-seqs 104", {97: 104, 100: 104}),
        ("--max-num-seqs 42 --max-cudagraph-capture-size 42", {40: 40, 41: 0, 42: 0}),
        ("--max-num-seqs 1024 --max-num-batched-tokens 8192", {257: 272, 512: 512, 513: 0}),
        ("--max-num-seqs 12 --cudagraph-capture-sizes 1 2 4 8 12", {9: 12, 12: 12}),
        ("--max-num-seqs 12 --enforce-eager", {1: 0, 12: 0}),
        ("--max-num-seqs 12 -O0", {1: 0, 12: 0}),
        ("--max-num-seqs 12 -O1", {9: 16, 12: 16}),  # in pieces, by tokens
        ("--max-num-seqs 9 --compilation-config '{\"cudagraph_capture_sizes\": [9, 3]}'", {3: 3, 4: 9, 9: 9}),
        ('--max-num-seqs 9 --compilation-config \'{"cudagraph_mode": "NONE"}\'', {1: 0}),
        ("--max-num-seqs 9 --compilation-config 3", {3: 4, 9: 0}),
        ("--max-num-seqs 9 --compilation-config $C", {3: 4, 9: 0}),
    ],
)
def test_sizes_of_vllm(flags, captured):
    assert steps_of(f"vllm serve m {flags}", [*captured]) == [*captured.values()]


@pytest.mark.parametrize(
    ("flags", "captured"),
    [
        ("--max-running-requests 100", {11: 12, 13: 16, 97: 100}),  # of all seats, too
        ("--max-running-requests 300", {160: 160, 161: 0}),
        ("--max-running-requests 300 --cuda-graph-max-bs-decode 256", {161: 168, 257: 0}),
        ("--max-running-requests 9 --cuda-graph-bs-decode 1 2 4", {3: 4, 5: 0}),
        (
            "--max-running-requests 9 --cuda-graph-max-bs-decode 5 --disable-cuda-graph-padding",
            {3: 3, 5: 5, 6: 0},
        ),
        ("--max-running-requests 9 --disable-cuda-graph", {1: 0}),
        ("--max-running-requests 9 --disable-decode-cuda-graph", {1: 0}),
    ],
)
def test_sizes_of_sglang(flags, captured):
    assert steps_of(f"sglang serve --model-path m {flags}", [*captured]) == [*captured.values()]


@pytest.mark.parametrize(
    ("keys", "captured"),
    [
        ("", {31: 31, 33: 0, 64: 64, 96: 0}),  # not padded
        ("cuda_graph_config: {enable_padding: true}", {33: 40, 95: 96}),
        ("cuda_graph_config: {enable_padding: true, max_batch_size: 64}", {63: 64, 65: 0}),
        ("cuda_graph_config: {batch_sizes: [1, 64, 128], enable_padding: true}", {2: 64, 65: 96}),
        ("cuda_graph_config: {batch_sizes: [1, 64, 128]}", {2: 0, 64: 64, 96: 0}),
        ("cuda_graph_config: null", {1: 0, 64: 0}),
    ],
)
def test_sizes_of_tensorrt_llm(keys, captured):
    assert steps_of(f"kv_cache_config: {{}}\nmax_batch_size: 96\n{keys}\n", [*captured]) == [
        *captured.values()
    ]


def test_a_step_time_that_does_not_say_what_a_launched_step_takes_stays_as_it_is():
    plain = bs.StepTime(2, 8, 0.1)
    config = servers.parse("vllm serve m --max-num-seqs 100")
    assert config.scenario(bs.Poisson(1), plain, bs.Tokens(20, 20)).service == plain


@pytest.mark.parametrize("server", ["vllm", "sglang", "tensorrt_llm"])
def test_captured_sizes_are_written_and_read_again(server):
    step = bs.StepTime(2, 8, 0.1, captured=(1, 5, 12), beyond_ms=60)
    scenario = bs.Scenario(bs.Poisson(3), bs.Continuous(12), step, tokens=bs.Tokens(9, 9))
    found = servers.parse(servers.write(server, scenario), server)
    assert found.captured["captured"] == (1, 5, 12)
    # Without sizes, or with those of another server's defaults, the server has its own.
    other, names = servers.config("vllm" if server != "vllm" else "sglang"), registry.ALL[server].graphs
    for each in (scenario.replace(service=LAUNCHED), other):
        text = servers.write(server, each).replace("-", "_")
        assert not any(name in text for name in names)


def test_an_edit_replaces_a_list_of_sizes_and_leaves_the_rest():
    text = "vllm serve m --cudagraph-capture-sizes 1 2 4 \\\n  --max-num-seqs 12 --port 8\n"
    document = files.document(text, None, None)
    changed = files.with_settings(document, {"cudagraph_capture_sizes": [1, 12]}).text
    assert changed == text.replace("1 2 4", "1 12")
    assert files.with_settings(document, {"max_num_seqs": 4}).text == text.replace("12", "4")


@refusals
def test_sizes_that_a_server_refuses():
    """
    servers.parse("vllm serve m --cudagraph-capture-sizes 0 2") -> must be at least 1, got 0
    servers.config("vllm", cudagraph_capture_sizes=[]) -> cudagraph_capture_sizes must not be empty, got []
    servers.config("vllm", cudagraph_capture_sizes=[1, 2], max_cudagraph_capture_size=4) -> 2, got 4
    servers.config("vllm", compilation_config={"cudagraph_mode": "SOME"}) -> one of NONE, PIECEWISE, FULL,
    servers.config("sglang", cuda_graph_max_bs_decode=0) -> cuda_graph_max_bs_decode must be at least 1, got 0
    servers.config("sglang", cuda_graph_bs_decode=[1.5]) -> TypeError: must be a whole number, got 1.5
    servers.config("tensorrt_llm", batch_sizes=[-1]) -> must be at least 1, got -1
    """


# The finding.

DENSE = bs.Tokens(bs.Lognormal(50, 0.5, at_most=300), bs.Lognormal(300, 0.3, at_most=900))


def linted(text, step):
    scenario = bs.Scenario(bs.ClosedLoop(120), bs.Continuous(), step, tokens=DENSE)
    return servers.lint(servers.parse(text), scenario, requests=400)


def test_a_limit_off_the_ladder_is_found_and_the_best_one_named():
    step = bs.StepTime(4, 8, 0.05, 0.0005, beyond_ms=110)
    found = linted("vllm serve m --max-num-seqs 100", step)
    assert found.codes == ("limit-off-ladder",)
    explained = "CUDA graphs are recorded up to 96 sequences, so steps of 97 to 100 launch each kernel"
    assert found[0].sentence == f"max_num_seqs=100 is not a captured size: {explained}."
    assert found[0].change == {"max_num_seqs": 104}
    assert found[0].value > 1.5 * found[0].changed_value
    assert linted("vllm serve m --max-num-seqs 104", step).codes == ()
    assert linted("vllm serve m --max-num-seqs 100 --enforce-eager", step).codes == ()
    text = "kv_cache_config: {}\nmax_batch_size: 72\ncuda_graph_config: {batch_sizes: [1, 2, 72, 160]}\n"
    assert linted(text, step).codes == ()


@pytest.mark.parametrize(
    ("server", "settings", "above"),
    [
        ("vllm", {"max_num_seqs": 100}, 104),
        ("vllm", {"max_num_seqs": 100, "max_num_batched_tokens": 150}, 104),  # not twice as many seats
        ("vllm", {"max_num_seqs": 510}, 512),
        ("tensorrt_llm", {"max_batch_size": 100}, 128),
        ("tensorrt_llm", {"max_batch_size": 60}, 64),
    ],
)
def test_the_next_captured_size_is_found_without_a_try_of_each_size_up_to_it(server, settings, above):
    step = bs.StepTime(1, 14, 0.08, beyond_ms=90)
    scenario = bs.Scenario(bs.Poisson(1e5), bs.Continuous(), step, tokens=bs.Tokens(100, 200))
    trial = Trial(registry.ALL[server], servers.config(server, **settings), scenario, 10, 0)
    (found,) = off_ladder(trial)  # overloaded, so nothing runs
    tried = [each.change for each in trial._outcomes.values() if each is not None]
    assert dict.fromkeys(found.change, above) in tried
    assert len(trial._outcomes) <= 5


def test_a_limit_off_the_ladder_that_full_steps_cannot_afford_is_the_cause_of_an_overload():
    step, tokens = bs.StepTime(1, 14, 0.08, beyond_ms=90), bs.Tokens(100, 200)
    for rate_per_s, codes in ((7, {"limit-off-ladder"}), (25, {"overload", "limit-off-ladder"})):
        scenario = bs.Scenario(bs.Poisson(rate_per_s), bs.Continuous(), step, tokens=tokens)
        found, of_104 = (
            servers.lint(servers.parse(f"vllm serve m --max-num-seqs {seats}"), scenario, requests=400)
            for seats in (100, 104)
        )
        (ladder,) = (each for each in found if each.code == "limit-off-ladder")
        assert (set(found.codes), ladder.key, ladder.change) == (codes, "load", {"max_num_seqs": 104})
        loads = [rate_per_s / each.scenario.full_batches_per_s for each in (found, of_104)]
        assert [ladder.value, ladder.changed_value] == loads
        assert loads[1] < loads[0] / 2


def test_without_the_time_of_launches_the_limit_is_noted():
    step = bs.StepTime(4, 8, 0.05, 0.0005)
    (note,) = linted("vllm serve m --max-num-seqs 100", step).notes
    assert note.code == "launches-unknown"
    assert "max_num_seqs=100 is not a captured size" in note.sentence
    assert linted("vllm serve m --max-num-seqs 104", step).notes == ()
    assert linted("vllm serve m", step).notes == ()
