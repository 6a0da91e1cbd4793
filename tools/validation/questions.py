"""Comparisons of VALIDATION.md with what engineers measured who asked about it in public."""

import math

import numpy as np

import batchsim as bs
from batchsim import servers

ALONE = bs.SizeOrWait(1, 0)
SURE = 0.03  # relative: the error with which a row agrees


def row(what, ours, theirs, tolerance=SURE):
    from validation.page import Row  # which imports this module

    return Row(what, float(ours), math.nan, math.nan, theirs, tolerance)


def loop(clients, rule, service, requests=5000, think_s=0.0, **more):
    workload = bs.ClosedLoop(clients, think_s)
    return bs.simulate(bs.Scenario(workload, rule, service, **more), requests, seed=1, warmup=0.05)


def asked():
    yield from triton()
    yield from others()


def triton():
    found = loop(1000, servers.triton(max_batch_size=16), bs.Affine(3.95, 0), 4518 * 16)
    for name, ours, theirs in (
        ("throughput (1/s)", found.throughput_per_s, 4006.0),
        ("mean latency (ms)", found.mean_latency_ms, 247.6),
        ("median latency (ms)", found.percentile(50), 245.4),
        ("mean queue (ms)", found.mean_latency_ms - 3.95, 242.7),
    ):
        yield row(f"7986, 1,000 clients, batches of 16: {name}", ours, theirs)
    alone_per_s, both_per_s = 129.6, 151.8
    for instances, clients, per_s, latency_ms in (
        (2, 3, 152.4, 19.69),
        (2, 4, 149.6, 26.75),
        (3, 3, 154.6, None),
    ):
        slowdown = {n: max(1.0, n * alone_per_s / both_per_s) for n in range(1, instances + 1)}
        found = loop(clients, ALONE, bs.Affine(1000 / alone_per_s, 0), servers=instances, slowdown=slowdown)
        what = f"3066, {instances} instances, {clients} clients"
        yield row(f"{what}: throughput (1/s)", found.throughput_per_s, per_s)
        if latency_ms:
            yield row(f"{what}: mean latency (ms)", found.mean_latency_ms, latency_ms)
    delayed = servers.triton(max_batch_size=32, max_queue_delay_microseconds=100_000)
    for clients, per_s, sure in ((10, 30.0, SURE), (14, 42.0, SURE), (16, 44.8, math.nan)):
        found = loop(clients, delayed, bs.Affine(237, 0))
        yield row(f"3321, {clients} clients: throughput (1/s)", found.throughput_per_s, per_s, sure)
    found = loop(2, ALONE, bs.Affine(1000 / 170.414, 0), think_s=1 / 144.078 - 1 / 170.414)
    yield row("6210, 2 clients: throughput (1/s)", found.throughput_per_s, 171.16)
    preferred = servers.triton(256, 2_000_000, preferred_batch_size=[8, 16])
    found = loop(64, preferred, bs.Affine(1.8874, 0.1438))
    usual = np.bincount(found.batches.batch_size).argmax()
    yield row("8141, 8 and 16 preferred, under load: usual batch size", usual, 17.0, 0.0)


def others():
    found = loop(1, servers.kserve(), bs.Affine(8, 0), 100)
    yield row("KServe 1666, 1 client: latency (ms)", found.mean_latency_ms, 5008.0)
    for at_once in (1, 5):
        rule, second = servers.ray_serve(max_batch_size=8), bs.Affine(1000, 0)
        ends_s = bs.simulate(bs.Scenario(bs.Trace(np.zeros(24)), rule, second, servers=at_once)).finish_s
        what = f"Ray Serve 53071, 24 requests, {at_once} batches at once"
        yield row(f"{what}: last answer (s)", ends_s.max(), 3.0 if at_once == 1 else 1.0)
    # The time of a prompt's token from the median TTFT, that of a step from the mean TPOT.
    step = bs.StepTime(42.24, 0, 0.25228)
    scenario = bs.Scenario(bs.ClosedLoop(16), bs.Continuous(256, 16_384), step, tokens=bs.Tokens(1023, 350))
    found = bs.simulate(scenario, 16)
    for name, ours, theirs in (
        ("mean TTFT (ms)", found.ttft_ms.mean(), 3975.0),
        ("p99 TTFT (ms)", np.percentile(found.ttft_ms, 99), 4219.0),
        ("p99 TPOT (ms)", np.percentile(found.tpot_ms, 99), 55.5),
        ("last answer (s)", found.finish_s.max(), 20.38),
    ):
        yield row(f"vLLM 33743, 16 prompts at once: {name}", ours, theirs)
    # Of the engine V0, which cuts no prompt: any budget of five of them, and not six.
    whole, tokens = bs.Continuous(256, 20_500, chunked=False), bs.Tokens(4096, 128)
    scenario = bs.Scenario(bs.ClosedLoop(16), whole, bs.StepTime(1, 0, 13_240 / 65_536), tokens=tokens)
    ttft_s = bs.simulate(scenario, 16).ttft_ms / 1000
    yield row("vLLM 15322, 16 prompts of 4,096: mean TTFT (s)", ttft_s.mean(), 8.75)
    yield row("vLLM 15322, 16 prompts of 4,096: median TTFT (s)", np.median(ttft_s), 9.01)


GROUPS = [
    (
        "Questions that engineers asked",
        """The measurements are the askers' own, beside the scenario that they describe; a row **agrees**
within 3 %. The numbers stand in issues 7986, 3066, 3321, 6210 and 8141 of
<https://github.com/triton-inference-server/server/issues>, 1666 of KServe, 53071 of Ray, and vLLM's pull
requests 33743 and 15322. As little as possible is fitted: in 7986 the time of a batch (3.95 ms); in 3066, how
two instances share a GPU, from one and two instances (129.6 and 151.8/s); in 6210 the time of the client and
of the model, from one and three clients; in KServe's the time of the model (8 ms), as the rest of 5 s is the
default wait; in 33743 the time of a prompt's token from the median TTFT, and that of a step from the mean
TPOT; in 15322 the time of a prompt's token from the p99 of TTFT, 13.24 s. In 3321 nothing is: a delay of
100 ms and a model of 237 ms at any size, so the latency that puzzled the asker is constant until the largest
batch. With 16 clients theirs was slower, so that row has no verdict. The p99 of 7986, 345 ms, has no row:
without noise a closed loop has none. 8141 counts batches of one more than the largest preferred size under
any load that is too high; here 64 clients make it.""",
        asked,
    ),
]
