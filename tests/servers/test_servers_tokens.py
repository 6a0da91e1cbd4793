"""Language models' servers in their own words, and ten requests that tell each from its neighbours."""

from dataclasses import replace

import numpy as np
import pytest
from oracles.naive_servers import NaiveSglang, NaiveTgi
from refusals import refusals

import batchsim as bs
from batchsim import servers
from batchsim.scenario.rules.continuous import BatchWait, NewTokenRatio, WaitingServedRatio
from batchsim.servers.sglang import chunk_of
from batchsim.servers.vllm import defaults

STEP = bs.StepTime(10, 0, 0)  # every step takes 10 ms, so that a hand can follow
PROMPTS_FIRST = bs.Continuous(256, 2048, first="prefill", chunked=False)  # as vLLM did before V1


def run(rule, *groups, limit=None):
    """Run groups of (how many, arrival in ms, prompt, output); ten requests in all."""
    requests = [request for count, *request in groups for _ in range(count)]
    assert len(requests) == 10
    arrivals_ms, prompts, outputs = zip(*requests, strict=True)
    scenario = bs.Scenario(
        bs.Trace(np.array(arrivals_ms) / 1000), rule, STEP, tokens=bs.Tokens(prompts, outputs, limit)
    )
    return bs.simulate(scenario, 10, engine="simpy")


def tokens(result):
    return result.steps.tokens.tolist()


def near(values):
    return pytest.approx(values, rel=1e-9)


@pytest.mark.parametrize(
    ("preset", "limit", "model"),
    [(servers.sglang, "max_total_tokens", "model_path"), (servers.tensorrt_llm, "max_tokens", "model")],
)
def test_a_limit_of_memory_is_no_more_memory_than_the_card_has(preset, limit, model):
    card = {model: "llama-3.1-8b", "gpu": "rtx-4090"}
    room = preset(**card)
    tokens = room.kv_blocks * room.block_size
    assert preset(**card, **{limit: 10 * tokens}) == room
    assert preset(**card, **{limit: 4096}) == preset(**{limit: 4096}, gpu="rtx-4090")
    assert preset(**{limit: 10 * tokens}).kv_blocks == 10 * room.kv_blocks


def test_how_long_a_model_vllm_starts_without_cutting_prompts_is_written():
    text = servers.write("vllm", bs.Continuous(64, 4096, chunked=False))
    assert "max_model_len is at most 4,096" in text
    assert "max_model_len" not in servers.write("vllm", bs.Continuous(64, 4096))


# Who goes first, and whether a prompt may be cut.


def test_orca_fills_a_seat_at_once_where_a_whole_batch_keeps_it_to_the_end():
    requests = [(1, 0, 8, output) for output in range(1, 11)]
    orca = run(servers.orca(5), *requests)
    # The sixth takes the seat of the first in step 2, the seventh that of the second in step 3, and so on.
    assert orca.latency_ms == near([10, 20, 30, 40, 50, 70, 90, 110, 130, 150])
    whole = run(bs.SizeOrWait(5, 0), *requests)
    assert whole.latency_ms == near([50] * 5 + [150] * 5)


def test_vllm_cuts_prompts_to_its_budget_where_orca_has_none_and_trt_llm_waits_for_room():
    requests = (10, 0, 100, 2)
    assert tokens(run(servers.orca(10), requests)) == [1000, 10]
    vllm = run(servers.vllm(max_num_seqs=10, max_num_batched_tokens=250), requests)
    # 100 + 100 + 50; 1 + 1 + 50 + 100 + 98; 1 + 1 + 2 + 100 + 100 + 46; 1 + 1 + 1 + 54 + 100 + 93; ...
    assert tokens(vllm) == [250, 250, 250, 250, 9, 1]
    # Two whole prompts a step, beside the two tokens of those before.
    trt = run(servers.tensorrt_llm(max_num_tokens=250), requests)
    assert tokens(trt) == [200, 202, 202, 202, 202, 2]
    # Prompts alone until no more come, then everyone's last token.
    assert tokens(run(replace(PROMPTS_FIRST, max_num_batched_tokens=250), requests)) == [200] * 5 + [10]
    # Prompts alone, but cut, and one is cut at a time.
    sglang = run(servers.sglang(chunked_prefill_size=250), requests)
    assert tokens(sglang) == [250] * 4 + [10]


def test_where_prompts_go_first_those_who_run_stand_still_while_these_are_computed():
    requests = (5, 0, 20, 8), (5, 15, 30, 2)
    vllm, still = run(servers.vllm(), *requests), run(PROMPTS_FIRST, *requests)
    assert tokens(vllm) == [100, 5, 155, 10, 5, 5, 5, 5]
    assert tokens(still) == [100, 5, 150, 10, 5, 5, 5, 5, 5]
    assert vllm.latency_ms == near([80] * 5 + [25] * 5)
    assert still.latency_ms == near([90] * 5 + [25] * 5)


def test_long_prefill_token_threshold_lets_more_prompts_into_a_step():
    rule = servers.vllm(max_num_seqs=10, max_num_batched_tokens=100, long_prefill_token_threshold=20)
    # Five prompts of 60 by twenties; those who joined first go on first.
    assert tokens(run(rule, (10, 0, 60, 1))) == [100] * 6
    assert run(rule, (10, 0, 60, 1)).ttft_ms == near([30] * 5 + [60] * 5)
    whole = servers.vllm(max_num_seqs=10, max_num_batched_tokens=100)
    assert run(whole, (10, 0, 60, 1)).ttft_ms == near([10, 20, 20, 30, 30, 40, 50, 50, 60, 60])


# When those who wait may join.


def test_tgi_lets_nobody_stand_still_for_one():
    requests = (8, 0, 10, 30), (1, 15, 10, 5), (1, 55, 10, 5)
    settings = {"prefill_chunking": False, "max_batch_prefill_tokens": 512}
    patient = run(servers.tgi(**settings), *requests)
    # Eight run: two must wait, which is so at 60 ms; both have their first token at 70.
    assert patient.ttft_ms[8:] == near([55, 15])
    # One prefill and four more tokens are five: at 50 ms anyone may join.
    assert run(servers.tgi(max_waiting_tokens=5, **settings), *requests).ttft_ms[8] == near(45)
    assert run(servers.tgi(waiting_served_ratio=0.1, **settings), *requests).ttft_ms[8] == near(15)
    assert run(PROMPTS_FIRST, *requests).ttft_ms[8:] == near([15, 15])


def test_a_turn_of_tgi_with_chunking_is_two_steps_where_vllm_lets_join_at_each():
    requests = (8, 0, 10, 30), (1, 15, 10, 5), (1, 25, 10, 5)
    tgi, vllm = run(servers.tgi(), *requests), run(servers.vllm(), *requests)
    assert tokens(tgi)[:5] == [80, 8, 18, 9, 19]
    assert tokens(vllm)[:5] == [80, 8, 18, 19, 10]
    assert tgi.ttft_ms[8:] == near([15, 25])
    assert vllm.ttft_ms[8:] == near([15, 15])


# What memory is promised.


def test_one_block_of_vllm_is_a_placeholder():
    requests = (10, 0, 320, 1)  # twenty blocks each
    small = {"max_num_batched_tokens": 4096}
    assert tokens(run(servers.vllm(num_gpu_blocks_override=201, **small), requests)) == [3200]
    assert tokens(run(servers.vllm(num_gpu_blocks_override=200, **small), requests)) == [2880, 320]


def test_with_room_for_life_nobody_is_preempted_where_vllm_takes_all_and_preempts():
    requests, memory = (10, 0, 10, 20), 200
    # A life is 29 tokens: six fit, and four when these are done.
    no_evict = servers.tensorrt_llm(max_tokens=memory, tokens_per_block=1)
    tgi = servers.tgi(max_batch_total_tokens=memory + 1)
    # 30 < 200, 170, 140, 110, 80, 50, but not 20: six, too.
    sglang = servers.sglang(max_total_tokens=memory)
    for rule in (no_evict, tgi, sglang):
        result = run(rule, requests)
        assert tokens(result) == [60, *[6] * 19, 40, *[4] * 19]
        assert result.latency_ms == near([200] * 6 + [400] * 4)
        assert not result.preemptions.any()
    # All ten join; after ten more tokens each memory is full, and the last goes back.
    one_block = {"block_size": 1, "num_gpu_blocks_override": memory + 1}
    utilised = servers.tensorrt_llm(
        max_tokens=memory, tokens_per_block=1, capacity_scheduler_policy="MAX_UTILIZATION"
    )
    for rule in (servers.vllm(**one_block), utilised):
        result = run(rule, requests)
        assert tokens(result)[:13] == [100, *[10] * 10, 9, 9]
        assert result.preemptions.sum() == 4
        # Six go on to their end as above; the four have made ten or more of their twenty.
        assert result.latency_ms[:6] == near([200] * 6)
        assert result.latency_ms[6:].max() < 400


def test_sglang_promises_a_share_where_tgi_promises_all():
    # Five run and have said one of twenty; five more want to join. Memory: 200 tokens, 150 free.
    requests, memory = [(5, 0, 10, 20), (5, 5, 10, 20)], 200
    # 150 - 0.7 * 5 * 19 = 83.5: two of 30 fit.
    assert tokens(run(servers.sglang(max_total_tokens=memory), *requests))[:2] == [50, 20]
    # With no care at all 150: four (30 < 150, 120, 90, 60, but not 30); with all 55, as for life: one.
    for careful, joining in ((0, 4), (2, 1)):
        rule = servers.sglang(max_total_tokens=memory, schedule_conservativeness=careful)
        assert tokens(run(rule, *requests))[1] == 10 * joining
    # 200 - 5 * 29 = 55: one of 29.
    tgi = servers.tgi(prefill_chunking=False, max_batch_total_tokens=memory + 1)
    assert tokens(run(tgi, *requests))[:2] == [50, 10]
    nothing = replace(PROMPTS_FIRST, block_size=1, kv_blocks=memory)
    assert tokens(run(nothing, *requests))[:2] == [50, 50]


# Who goes back, and where to.


def test_sglang_sends_the_longest_prompt_of_equals_to_the_tail_where_others_send_the_last_to_the_head():
    requests, memory = [(1, 0, 30, 20), (1, 5, 20, 9), (8, 65, 1, 1)], 60
    sglang = run(servers.sglang(max_total_tokens=memory, schedule_conservativeness=0), *requests)
    # At 70 ms memory is full and both have made six: the first, whose prompt is longer, goes back. The eight
    # overtake it, and the second ends; then it computes its 36 tokens again.
    assert tokens(sglang) == [30, 20, *[2] * 5, 1, 8, 1, 1, 36, *[1] * 13]
    assert sglang.preemptions.tolist() == [1, *[0] * 9]
    assert sglang.latency_ms == near([250, 105, *[25] * 8])
    other = run(replace(PROMPTS_FIRST, block_size=1, kv_blocks=memory), *requests)
    # The second goes back, and stands before the eight.
    assert other.preemptions.tolist() == [0, 1, *[0] * 8]
    assert other.ttft_ms[2:].min() > 25
    assert other.latency_ms[0] < 250


# The plain loops say the same.


@pytest.mark.parametrize(
    ("rule", "loop", "words"),
    [
        (
            servers.sglang(max_total_tokens=100, chunked_prefill_size=64), NaiveSglang,
            {"budget": 64, "seats": 2048, "ratio": 0.7, "least": 0.7 * 0.14, "decay": 600, "entry": 16_384,
             "mixed": False},
        ),
        (
            servers.tgi(max_batch_total_tokens=101, max_batch_prefill_tokens=64), NaiveTgi,
            {"budget": 64, "seats": 2**31, "chunked": True, "ratio": 0.3, "patience": 20},
        ),
        (
            servers.tgi(max_batch_total_tokens=101, max_batch_prefill_tokens=64, prefill_chunking=False),
            NaiveTgi, {"budget": 64, "seats": 2**31, "chunked": False, "ratio": 0.3, "patience": 20},
        ),
    ],
)  # fmt: skip
def test_a_plain_loop_of_the_server_gives_the_same(rule, loop, words):
    requests = [(0, 30, 12), (0, 10, 12), (0, 10, 12), (0, 10, 12), (15, 40, 10), (15, 10, 8), (25, 20, 9),
                (35, 10, 6), (45, 10, 4), (55, 30, 5)]  # fmt: skip
    result = run(rule, *((1, *request) for request in requests))
    cost = dict.fromkeys(("weights", "per_token", "per_read", "per_pair"), 0) | {"fixed": 10}
    lengths = [(prompt, output, output) for _, prompt, output in requests]
    arrivals_s = [ms / 1000 for ms, *_ in requests]
    oracle = loop(lengths, cost, words | {"kv_blocks": 100, "block_size": 1}, arrivals_s)
    assert [step[4] for step in oracle.steps] == tokens(result)
    assert result.finish_s.tolist() == [request.finish for request in oracle.all]


# What their words mean.


@pytest.mark.parametrize(
    ("rule", "meant"),
    [
        (servers.vllm(), bs.Continuous(256, 2048)),
        (servers.vllm(gpu="h100"), bs.Continuous(1024, 8192)),
        (servers.vllm(gpu="a100-80gb"), bs.Continuous(256, 2048)),
        (servers.vllm(gpu=96.0), bs.Continuous(1024, 8192)),
        (servers.vllm(performance_mode="throughput"), bs.Continuous(512, 4096)),
        (servers.vllm(max_num_batched_tokens=100), bs.Continuous(100, 100)),
        (servers.vllm(max_num_seqs=4, max_model_len=300), bs.Continuous(4, 1200, max_model_len=300)),
        (
            servers.vllm(enable_chunked_prefill=False, max_model_len=4096),
            bs.Continuous(256, 4096, chunked=False, max_model_len=4096),
        ),
        (
            servers.vllm(num_gpu_blocks_override=2588, long_prefill_token_threshold=9, block_size=32),
            bs.Continuous(256, 2048, kv_blocks=2587, long_prefill_token_threshold=9, block_size=32),
        ),
        (servers.vllm(model="llama-3.1-8b", gpu="rtx-4090"), bs.Continuous(256, 2048, kv_blocks=2598)),
        (servers.sglang(), NewTokenRatio(2048, 4096)),
        (servers.sglang(chunked_prefill_size=-1), NewTokenRatio(2048, 2**31)),
        (
            servers.sglang(gpu="h100", max_total_tokens=100_000, context_length=8192, page_size=16),
            NewTokenRatio(4096, 8192, kv_blocks=6250, block_size=16, max_model_len=8192),
        ),
        (
            servers.sglang(schedule_conservativeness=2),
            NewTokenRatio(2048, 4096, init_new_token_ratio=1.0, min_new_token_ratio=0.14),
        ),
        (
            servers.sglang(
                enable_prefill_delayer=True, prefill_delayer_queue_min_ratio=0.3, max_total_tokens=6000,
                prefill_delayer_max_delay_ms=800, prefill_delayer_token_usage_low_watermark=0.2,
            ),
            NewTokenRatio(
                2048, 4096, kv_blocks=6000, prefill_delayer=True, queue_min_ratio=0.3, max_delay_ms=800,
                token_usage_low_watermark=0.2,
            ),
        ),
        (servers.tgi(), WaitingServedRatio(2**31, 4096, chunked=True, block_size=1)),
        (
            servers.tgi(
                prefill_chunking=False, attention="paged", max_batch_total_tokens=1600, max_batch_size=8
            ),
            WaitingServedRatio(8, 4096, kv_blocks=99),
        ),
        (
            servers.tensorrt_llm(),
            bs.Continuous(2048, 8192, chunked=False, reserve="life", block_size=32),
        ),
        (
            servers.tensorrt_llm(capacity_scheduler_policy="MAX_UTILIZATION", enable_chunked_prefill=True,
                                 max_tokens=6400),
            bs.Continuous(2048, 8192, block_size=32, kv_blocks=200),
        ),
        (
            servers.tensorrt_llm(capacity_scheduler_policy="STATIC_BATCH", max_batch_size=8),
            bs.SizeOrWait(8, 0),
        ),
        (
            servers.tensorrt_llm(
                batch_wait_timeout_iters=8, batch_wait_max_tokens_ratio=0.5, batch_wait_timeout_ms=4,
                disable_overlap_scheduler=True,
            ),
            BatchWait(
                2048, 8192, chunked=False, reserve="life", block_size=32, batch_wait_timeout_iters=8,
                batch_wait_max_tokens_ratio=0.5, batch_wait_timeout_ms=4, overlap=False,
            ),
        ),
        # Each of the two has an effect only with the other.
        (servers.tensorrt_llm(batch_wait_timeout_iters=8), servers.tensorrt_llm()),
        (servers.tensorrt_llm(batch_wait_max_tokens_ratio=0.5), servers.tensorrt_llm()),
        (servers.orca(8), bs.Continuous(8, 2**31, chunked=False, reserve="life")),
    ],
)  # fmt: skip
def test_a_preset_is_the_rule_that_it_says(rule, meant):
    assert rule == meant


@pytest.mark.parametrize(("of", "gib", "below", "at"), [
    (defaults, 70, (2048, 256), (8192, 1024)),
    (chunk_of, 20, 2048, 4096),
    (chunk_of, 60, 4096, 8192),
    (chunk_of, 160, 8192, 16_384),
])  # fmt: skip
def test_a_card_with_the_memory_of_a_limit_has_the_larger_defaults(of, gib, below, at):
    assert (of(gib - 0.1), of(float(gib))) == (below, at)


@refusals
def test_what_a_server_does_not_accept_is_refused_with_its_range():
    """
    servers.vllm(max_num_seqs=256, max_num_batched_tokens=128)
        -> max_num_batched_tokens must be at least max_num_seqs, 256, got 128
    servers.vllm(max_num_seqs=4096) -> at least max_num_seqs, 4096, got 2048
    servers.vllm(enable_chunked_prefill=False, max_model_len=4096, max_num_batched_tokens=2048)
        -> at least max_model_len, 4096, without chunked prefill, got 2048
    servers.vllm(gpu="h1000") -> did you mean 'h100'
    servers.vllm(gpu="h100", model="lama-3.1-8b") -> did you mean 'llama-3.1-8b'
    servers.vllm(num_gpu_blocks_override=1) -> must be at least 2, got 1
    servers.vllm(performance_mode="fast") -> performance_mode must be one of
    servers.sglang(chunked_prefill_size=-2) -> must be at least -1, got -2
    servers.sglang(max_total_tokens=3, page_size=16) -> page_size, 16, got 3
    servers.tgi(attention="flash") -> attention must be one of
    servers.tgi(max_batch_total_tokens=1) -> must be at least 2, got 1
    servers.tensorrt_llm(capacity_scheduler_policy="NO_EVICT") -> must be one of
    servers.tensorrt_llm(max_tokens=31) -> at least tokens_per_block, 32, got 31
    servers.tensorrt_llm(batch_wait_max_tokens_ratio=2) -> tokens_ratio must be at most 1, got 2
    servers.tensorrt_llm(capacity_scheduler_policy="STATIC_BATCH", batch_wait_timeout_ms=5)
        -> must be 0 with STATIC_BATCH, got
    servers.sglang(prefill_delayer_max_delay_ms=-1) -> max_delay_ms must be at least 0, got -1
    servers.sglang(prefill_delayer_token_usage_low_watermark=0.3)
        -> memory must be limited with token_usage_low_watermark, got
    servers.orca(0) -> Orca's max_batch_size must be at least 1, got 0
    servers.config("vlm") -> did you mean 'vllm'
    servers.config("vllm", max_num_seq=8) -> did you mean 'max_num_seqs'
    """


@pytest.mark.parametrize("server", servers.TOKEN_SERVERS)
def test_each_server_runs_with_its_defaults_and_says_what_it_ignores(server):
    ignored = dict.fromkeys(servers.TOKEN_SERVERS[server].ignored, 1)
    found = servers.config(server, **ignored)
    assert (found.server, found.unused, found.settings) == (server, ignored, ignored)
    scenario = found.scenario(bs.Poisson(20), bs.StepTime(2, 8, 0.1), bs.Tokens(50, bs.Geometric(9)))
    assert scenario.rule == found.rule
    assert bs.simulate(scenario, 60, engine="simpy").metrics.served == 60


def test_the_waits_in_a_file_are_read_and_edited():
    options = (
        "max_num_tokens: 4096\nbatch_wait_timeout_iters: 20\nbatch_wait_max_tokens_ratio: 0.5  # tried\n"
    )
    found = servers.parse(options, "tensorrt_llm")
    waits = found.rule.batch_wait_timeout_iters, found.rule.batch_wait_max_tokens_ratio
    assert (type(found.rule), waits, found.rule.overlap) == (BatchWait, (20, 0.5), True)
    edited = servers.edited(options, replace(found.rule, batch_wait_max_tokens_ratio=0.25))
    assert edited.text == options.replace("0.5", "0.25")
    ranks = "enable_attention_dp: true\ntensor_parallel_size: 4\n"
    assert not servers.parse(options + ranks, "tensorrt_llm").rule.holds  # they have another wait
    line = (
        "sglang serve --model-path a/b --enable-prefill-delayer --prefill-delayer-queue-min-ratio 0.25 \\\n"
    )
    line += "  --prefill-delayer-max-delay-passes 30\n"
    found = servers.parse(line)
    assert (found.rule.prefill_delayer, found.rule.queue_min_ratio, found.rule.max_delay_ms) == (
        True,
        0.25,
        5000,
    )
    edited = servers.edited(line, replace(found.rule, queue_min_ratio=0.5))
    assert edited.text == line.replace("0.25", "0.5")


def test_engines_are_replicas_and_each_has_the_length_of_the_line():
    found = servers.config("sglang", dp_size=2, max_queued_requests=9)
    assert (found.servers, found.replicas, found.routing, found.queue_limit) == (1, 2, "round_robin", 9)
    found = servers.config("vllm", data_parallel_size=4)
    assert (found.servers, found.replicas, found.routing) == (1, 4, "shortest_queue")
    scenario = found.scenario(bs.Poisson(20), bs.StepTime(2, 8, 0.1), bs.Tokens(50, bs.Geometric(9)))
    assert set(bs.simulate(scenario, 60, engine="simpy").replica) == {0, 1, 2, 3}
    text = servers.write("vllm", scenario)
    assert "--data-parallel-size 4" in text
    assert "Not as requested" not in text
    text = servers.write("vllm", scenario.replace(replicas=1, servers=3))
    assert "--data-parallel-size 3" in text
    assert "Not as requested: 3 engines have a queue each, behind shortest_queue, not one" in text


def test_where_memory_is_not_said_that_is_noted():
    assert servers.config("vllm").notes
    assert not servers.config("vllm", model="llama-3.1-8b", gpu="h100").notes
    assert not servers.config("orca").notes
