"""Comparisons of VALIDATION.md with published slow-downs of servers off their captured sizes."""

import math

import batchsim as bs
from batchsim import servers
from validation.questions import row

LONG = bs.Tokens(1, 2000)  # so that nearly all steps are of decodes
LAUNCHED_MS = 165.0


def per_s(clients, config, step, tokens=LONG):
    """Return the tokens per second of clients without thinking time."""
    scenario = config.scenario(bs.ClosedLoop(clients), step, tokens)
    return bs.simulate(scenario, clients).summary()["output_tokens_per_s"]


def slow_downs():
    graphed = servers.config("vllm", max_num_seqs=100).scenario(
        bs.ClosedLoop(100), bs.StepTime(1, 0, 0, beyond_ms=1), LONG
    )
    sizes = graphed.service.padded_decodes(range(95, 101), 100)
    yield row("vLLM 57355, 100 seats: sizes from 95 to 100 with a graph", (sizes > 0).sum(), 2.0, 0.0)
    step = bs.StepTime(12_000 / 557.2, 0, 0, beyond_ms=163.74)
    on = servers.config("vllm", max_num_seqs=12, cudagraph_capture_sizes=[1, 2, 4, 8, 12])
    off = servers.config("vllm", max_num_seqs=12, max_cudagraph_capture_size=12)
    yield row("vLLM Ascend 16049, 12 seats: tokens per s", per_s(12, off, step), 73.3)
    yield row("vLLM Ascend 16049, 12 seats: slower by", per_s(12, on, step) / per_s(12, off, step), 7.5)
    six, rates = bs.Continuous(6), []
    for ladder in (range(1, 6), range(1, 7)):  # of sequences with seven tokens each: 42 tokens are beyond 40
        step = bs.StepTime(6000 / 133.3, 0, 0, captured=ladder, beyond_ms=6000 / 25.3)
        scenario = bs.Scenario(bs.ClosedLoop(6), six, step, tokens=LONG)
        rates.append(bs.simulate(scenario, 6).summary()["output_tokens_per_s"])
    yield row("vLLM 37865, 6 seats with 6 drafted tokens: slower by", rates[1] / rates[0], 133.3 / 25.3)
    per_seat = (1000 / 84.9 - 1000 / 119.5) / 3
    step = bs.StepTime(1000 / 119.5 - per_seat, 0, per_seat, beyond_ms=1000 / 33.7)
    for seats, measured, sure in ((8, 65.3, 0.07), (6, 33.7, 0.03)):
        config = servers.config("vllm", max_num_seqs=seats)
        rate = per_s(5, config, step) / 5
        yield row(f"vLLM 46329, {seats} seats, 5 sessions: tokens per s of each", rate, measured, sure)
    for length, graph_ms, eager_ms, sure in (
        ("256k", 55.63, 171.0, 0.04), ("512k", 125.0, 165.0, 0.04), ("768k", 191.0, 165.0, math.nan),
        ("1M", 256.0, 250.0, 0.04),
    ):  # fmt: skip
        launched = bs.StepTime(graph_ms, 0, 0, beyond_ms=LAUNCHED_MS)
        took_ms = launched.ms(1, decodes=1)
        yield row(f"vLLM Ascend 7723, {length} tokens without graphs: TPOT (ms)", took_ms, eager_ms, sure)
    step, ladder = (
        bs.StepTime(320 * 0.01, 0, 0.01, beyond_ms=1),
        {"max_batch_size": 2048, "enable_padding": True},
    )
    dense = [1, 2, 4, *range(8, 129, 8), *range(192, 2049, 64)]
    coarse, fine = (
        per_s(520, servers.config("tensorrt_llm", **ladder, **more), step, bs.Tokens(1, 200))
        for more in ({"cuda_graph_max_batch_size": 2048}, {"batch_sizes": dense})
    )
    yield row("TensorRT-LLM 12895, 520 clients: faster by steps of 64", fine / coarse, 1.5)


GROUPS = [
    (
        "Captured sizes",
        """A step of decodes is padded to the next size with a CUDA graph, and any other step takes at
least the time of launching its kernels. Each slow-down follows from two published numbers, those of a
step with a graph and of one without, and from the sizes that the preset of the server says. In 16049
these are 557.2 tokens/s and 163.74 ms; in 37865, a comment of 2026-09-02, 133.3 and 25.3 tokens/s; 57355
publishes no time, so its row counts sizes. 46329 (a comment of 2026-09-04) is a prediction: from 1 and 4
sessions, 119.5 and 84.9 tokens/s each, follows a step of 8, to which 5 sessions are padded with 8 seats;
without padding 77 tokens/s would follow. With 6 seats, 5 sessions have no graph; the time of that is
their own. 7723 decides how a step is slower without a graph: from 256k to 768k tokens its TPOT stays at
165 to 171 ms, whatever the time with a graph (56 to 191 ms), so the longer of the two counts, not their
sum, which would miss by 46 to 86 %. At 768k the step with graphs was the slower one, so that row has no
verdict. In 12895, steps of 64 instead of powers of 2 above 128 are faster by up to 1.5 at about 500 to
600 clients; that follows if the fixed part of a step takes as long as 320 of its tokens, which was chosen
for it: a step without a fixed part would give 1.78. Sources: pull requests 57355, 37865 and 46329 of
<https://github.com/vllm-project/vllm>, issues 16049 and 7723 of
<https://github.com/vllm-project/vllm-ascend>, and pull request 12895 of
<https://github.com/NVIDIA/TensorRT-LLM>.""",
        slow_downs,
    ),
]
