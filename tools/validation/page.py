"""Every comparison that VALIDATION.md prints: our number with its interval, theirs, and the error."""

import math
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from oracles import fleets, policy, priority
from scipy.special import ndtr

import batchsim as bs
from batchsim import theory
from batchsim.result.shares import students_t
from validation import captured_sizes, energy, preset_validation, published, questions, token_validation
from validation.coverage import TABLES
from validation.real_batchers.tables import TABLES as REAL_BATCHERS

SEED = 1
MS = bs.Affine(1, 0)  # a millisecond, whatever the batch
V100 = bs.Affine(1.8874, 0.1438)  # ResNet-50, mixed precision (Inoue 2021)
P4 = bs.Affine(1.4284, 0.5833)  # ResNet-50, INT8
NAMES = {
    "mean_latency_ms": "mean latency (ms)",
    "mean_forming_ms": "mean forming (ms)",
    "mean_computing_ms": "mean computing (ms)",
    "mean_batch_size": "mean batch size",
    "utilisation": "utilisation",
    "throughput_per_s": "throughput (1/s)",
}


@dataclass(frozen=True)
class Row:
    """One comparison; `tolerance` is the relative error allowed outside the interval, NaN for no verdict."""

    what: str
    ours: float
    low: float
    high: float
    theirs: float
    tolerance: float = 0.01

    @property
    def error(self) -> float:
        return (self.ours - self.theirs) / self.theirs

    @property
    def agrees(self) -> bool:
        return self.low <= self.theirs <= self.high or abs(self.error) <= self.tolerance

    def __str__(self) -> str:
        interval = "" if math.isnan(self.low) else f"{self.low:.5g} to {self.high:.5g}"
        verdict = "" if math.isnan(self.tolerance) else "agrees" if self.agrees else "**DISAGREES**"
        cells = (self.what, f"{self.ours:.5g}", interval, f"{self.theirs:.5g}", f"{self.error:+.2%}", verdict)
        return f"| {' | '.join(cells)} |"


@dataclass(frozen=True)
class Group:
    """Rows of one kind, with a title and an explanation."""

    title: str
    text: str
    rows: Callable[[], Iterator[Row]]


def interval(result, key):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the empty cell shows that there is none
        return result.interval(key)


def compared(what, result, key, theirs, tolerance=0.01, factor=1.0):
    """A number of a result beside theirs; `factor` turns it into their unit."""
    name = NAMES.get(key, key.replace("_ms", " (ms)"))
    low, high = interval(result, key)
    ours = result.metrics.number(key)
    return Row(f"{what}: {name}", ours * factor, low * factor, high * factor, theirs, tolerance)


def run(scenario, requests=200_000, replications=16):
    return bs.simulate(scenario, requests, seed=SEED, warmup=0.05, replications=replications, keep="summary")


def against_theory(what, scenario, *keys, requests=200_000):
    answer = theory.expected(scenario)
    assert answer, answer
    result, expected = run(scenario, requests), answer.summary()
    for key in keys:
        yield compared(f"{answer.model}, {what}", result, key, expected[key])


def at_load(load, rule, service, servers=1):
    scenario = bs.Scenario(bs.Poisson(1), rule, service, servers=servers)
    return scenario.replace(rate_per_s=load * scenario.saturation_per_s)


def one_at_a_time():
    one = bs.SizeOrWait(1, 0)
    for load in (0.5, 0.8, 0.9):
        exponential = at_load(load, one, MS.with_noise(1, "exponential"))
        yield from against_theory(f"load {load}", exponential, "mean_latency_ms", "p99_ms")
    for load in (0.5, 0.8, 0.9, 0.95):
        keys = ("mean_latency_ms", "p50_ms", "p99_ms") if load < 0.95 else ("mean_latency_ms",)
        yield from against_theory(f"load {load}", at_load(load, one, MS), *keys, requests=400_000)
    for load, cv in ((0.8, 0.5), (0.5, 2.0)):
        scenario = at_load(load, one, MS.with_noise(cv))
        yield from against_theory(f"load {load}, cv {cv}", scenario, "mean_latency_ms", "utilisation")
    for servers in (2, 4):
        scenario = at_load(0.8, one, MS.with_noise(1, "exponential"), servers)
        yield from against_theory("load 0.8", scenario, "mean_latency_ms", "p99_ms", "utilisation")
        yield from against_theory("load 0.8", at_load(0.8, one, MS, servers), "mean_latency_ms")


def by_level():
    shares, one = {1: 0.2, 2: 0.3, 3: 0.5}, bs.SizeOrWait(1, 0)
    for rate, cv, shape in ((600, 1, "exponential"), (800, 1, "exponential"), (800, 0, "lognormal")):
        workload = bs.Poisson(rate).with_priorities(shares)
        scenario = bs.Scenario(workload, one, MS.with_noise(cv, shape))
        found = bs.simulate(scenario, 400_000, seed=SEED, warmup=0.05, replications=4).by_priority()
        theirs = priority.cobham_ms([rate * share for share in shares.values()], 1, cv)
        for (level, row), expected_ms in zip(found.iterrows(), theirs, strict=True):
            what = f"{'M/M/1' if cv else 'M/D/1'}, load {rate / 1000}, level {level}: mean latency (ms)"
            interval_ms = row.mean_latency_ms_low, row.mean_latency_ms_high
            yield Row(what, row.mean_latency_ms, *interval_ms, expected_ms)


def behind_a_router():
    keys = "mean_latency_ms", "p99_ms", "mean_batch_size", "utilisation"
    for rule, service in ((bs.SizeOrWait(32, 0), V100), (bs.SizeOrWait(32, 5), bs.Affine(5, 0.25))):
        one = at_load(0.5, rule, service)
        answer = theory.expected(one)
        many = one.replace(replicas=4, routing="random", rate_per_s=4 * one.workload.rate_per_s)
        result, expected = run(many, 400_000), answer.summary()
        for key in keys[: 1 if rule.max_wait_ms else None]:
            tolerance = 0.01 if key == "p99_ms" else 0.005
            yield compared(f"random, 4 replicas: {answer.model}", result, key, expected[key], tolerance)
    exponential = MS.with_noise(1, "exponential")
    for load, replicas, tolerance in (
        (0.5, 64, 0.02), (0.7, 64, 0.02), (0.8, 64, 0.02), (0.9, 64, math.nan), (0.9, 256, 0.02)
    ):  # fmt: skip
        scenario = at_load(load, bs.SizeOrWait(1, 0), exponential)
        fleet = scenario.replace(replicas=replicas, routing="two_choices", rate_per_s=replicas * 1000 * load)
        found, what = run(fleet, 6000 * replicas, 8), f"two choices of {replicas}, load {load}"
        many, few = fleets.two_choices_limit(load), fleets.two_choices(load, replicas)
        yield compared(f"{what}, the limit", found, "mean_latency_ms", many, tolerance)
        yield compared(f"{what}, corrected", found, "mean_latency_ms", few)
    for load in (0.5, 0.8):
        scenario = at_load(load, bs.SizeOrWait(1, 0), exponential)
        pair = scenario.replace(replicas=2, routing="least_loaded", rate_per_s=2 * 1000 * load)
        theirs = fleets.shortest_of_two(load)
        yield compared(
            f"the shorter of two queues, load {load}", run(pair, 100_000), "mean_latency_ms", theirs
        )


def what_waits():
    keys = ("mean_latency_ms", "p99_ms", "mean_batch_size", "utilisation")
    for size, load in ((8, 0.5), (8, 0.9), (32, 0.3), (32, 0.5), (64, 0.7)):
        scenario = at_load(load, bs.SizeOrWait(size, 0), V100)
        yield from against_theory(f"V100, load {load}", scenario, *keys)
    yield from against_theory("P4, load 0.5", at_load(0.5, bs.SizeOrWait(32, 0), P4), *keys)
    measured = bs.published("gpunet-175ms/v100-32gb/fp16")
    scenario = at_load(0.7, bs.SizeOrWait(16, 0), measured)
    yield from against_theory("a measured table (gpunet-175ms/v100-32gb/fp16), load 0.7", scenario, *keys)
    for noise in ((0.5, "lognormal"), (1, "exponential")):
        scenario = at_load(0.6, bs.SizeOrWait(16, 0), V100.with_noise(*noise))
        yield from against_theory(f"V100 with {noise[1]} noise, load 0.6", scenario, "mean_latency_ms")


def without_a_cap():
    for service, name, loads in ((V100, "V100", (0.1, 0.3, 0.5, 0.9)), (P4, "P4", (0.1, 0.5))):
        for load in loads:
            rate_per_s = 1000 * load / service.per_item_ms
            result = run(bs.Scenario(bs.Poisson(rate_per_s), bs.SizeOrWait(4096, 0), service), 100_000)
            expected_ms = theory.uncapped(rate_per_s, service).mean_latency_ms
            yield compared(f"{name}, rate x cost per item = {load}", result, "mean_latency_ms", expected_ms)


def at_least():
    for rate, a, b in ((1.5, 1, 2), (3, 1, 4), (6, 4, 8)):
        scenario = bs.Scenario(bs.Poisson(1000 * rate), bs.AtLeast(a, b), MS.with_noise(1, "exponential"))
        expected = theory.neuts(1000 * rate, 1, a, b)
        result = run(scenario)
        for key in ("mean_latency_ms", "mean_batch_size"):
            yield compared(
                f"Neuts' closed form, rate {rate}, ({a}, {b})", result, key, expected.summary()[key]
            )
    for a, b, load in ((8, 32, 0.3), (4, 16, 0.7)):
        scenario = at_load(load, bs.AtLeast(a, b), V100)
        yield from against_theory(f"load {load}", scenario, "mean_latency_ms", "mean_batch_size")
    for size, load in ((8, 0.5), (32, 0.8)):
        scenario = at_load(load, bs.SizeOrWait(size, math.inf), V100)
        yield from against_theory(
            f"full batches only, load {load}", scenario, "mean_latency_ms", "utilisation"
        )


def with_a_wait():
    service = bs.Affine(5, 0.25)
    for rate, wait_ms in ((50, 10), (200, 10), (800, 10), (800, 2), (1600, 5), (2300, 13)):
        scenario = bs.Scenario(bs.Poisson(rate), bs.SizeOrWait(32, wait_ms), service)
        yield from against_theory(f"{rate}/s", scenario, "mean_latency_ms", "mean_batch_size", "utilisation")


def different_sizes():
    sizes = bs.Lognormal(80, cv=1, at_most=512)
    for name, service in {
        "padded": bs.PaddedTime(2, 0.5, 0.05),
        "attention": bs.PackedTime(1, 0, 0.02, 2e-4),
    }.items():
        for load in (0.5, 0.8):
            workload = bs.Poisson(1).with_sizes(sizes)
            scenario = bs.Scenario(workload, bs.SizeOrWait(1, 0), service)
            scenario = scenario.replace(rate_per_s=load * scenario.saturation_per_s)
            yield from against_theory(
                f"{name}, load {load}", scenario, "mean_latency_ms", "utilisation", requests=400_000
            )
    # The chance that a size is at most x, from the distribution itself.
    variance, x = math.log(2), np.arange(512)
    lognormal = ndtr(
        (np.log(x + 0.5, where=x > 0, out=np.full(512, -np.inf)) - math.log(80) + variance / 2)
        / math.sqrt(variance)
    )
    uniform = x / 512
    for name, lengths, below in (("lognormal", sizes, lognormal), ("uniform", bs.Uniform(1, 512), uniform)):
        mean = (1 - below).sum()
        for count in (2, 8, 32):
            longest = (1 - below**count).sum()
            rule, service = bs.SizeOrWait(count, math.inf), bs.PaddedTime(2, 0.05, 0.002)
            result = run(bs.Scenario(bs.Poisson(300).with_sizes(lengths), rule, service))
            computing_ms = 2 + 0.05 * count + 0.002 * count * longest
            what = f"{name} sizes, full batches of {count}"
            yield compared(what, result, "mean_computing_ms", computing_ms)
            yield compared(what, result, "padding", 1 - mean / longest)


def identities():
    rare, service = bs.Poisson(0.01), bs.Affine(5, 0.25)
    for wait_ms in (0, 10, 40):
        rule = bs.SizeOrWait(32, wait_ms)
        expected_ms = theory.light_traffic_latency_ms(rule, service)
        result = run(bs.Scenario(rare, rule, service), 5_000)
        yield compared(f"light traffic, wait {wait_ms} ms", result, "mean_latency_ms", expected_ms)
    for size, rate in ((8, 100), (32, 400)):
        result = run(bs.Scenario(bs.Poisson(rate), bs.SizeOrWait(size, math.inf), MS))
        expected_ms = theory.full_batch_forming_ms(rate, size)
        yield compared(f"full batches of {size}, {rate}/s", result, "mean_forming_ms", expected_ms)
    for wait_ms in (0, 7):
        result = run(bs.Scenario(bs.Poisson(700), bs.SizeOrWait(1, wait_ms), MS))
        expected_ms = theory.md1(700, 1).mean_latency_ms
        yield compared(f"one at a time is M/D/1, wait {wait_ms} ms", result, "mean_latency_ms", expected_ms)
    result = bs.simulate(
        bs.Scenario(bs.Poisson(800), bs.SizeOrWait(16, 5), service, servers=2), 200_000, seed=SEED
    )
    held = number_in_system(result)
    span_s = float(result.finish_s.max())
    little = result.arrival_s.size / span_s * result.mean_latency_ms / 1000
    yield Row("Little's law: mean number in system = rate x latency", held, math.nan, math.nan, little, 1e-9)


def number_in_system(result):
    """The time average of the requests that have arrived and not finished, by counting."""
    events_s = np.concatenate([result.arrival_s, result.finish_s])
    steps = np.repeat([1, -1], result.arrival_s.size)
    order = np.argsort(events_s, kind="stable")
    area = np.cumsum(steps[order])[:-1] * np.diff(events_s[order])
    return float(area.sum() / events_s.max())


def optimum():
    five = bs.Affine(5, 0.25)
    for rate, service, size, name in (
        (900, V100, 8, "V100"),
        (400, five, 16, "5 ms"),
        (2500, V100, 32, "V100"),
    ):
        best, seconds = theory.optimum(rate, service, size), service.table(size)
        runs = [policy.simulate(best.policy, rate, seconds, 100_000, seed)[0] * 1000 for seed in range(8)]
        what = f"the best policy simulated, {name}, {rate}/s, batches up to {size}: mean latency (ms)"
        yield Row(what, float(np.mean(runs)), *student(runs), best.mean_latency_ms)
    for wait_ms in (0, 0.5, 1, 2):
        result = run(bs.Scenario(bs.Poisson(rate), bs.SizeOrWait(size, wait_ms), service))
        yield compared(
            f"a wait of {wait_ms} ms, against that best",
            result,
            "mean_latency_ms",
            best.mean_latency_ms,
            math.nan,
        )


def student(values):
    half = students_t(0.95, len(values)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(np.mean(values)) - half, float(np.mean(values)) + half


def nnunet():
    for device, static_ms in published.NNUNET_STATIC_MS.items():
        for clients, theirs_ms in enumerate(published.NNUNET_MEAN_LATENCY_MS[device], start=1):
            scenario = bs.Scenario(bs.ClosedLoop(clients), bs.SizeOrWait(4, 0), bs.Table(static_ms))
            simpy, compiled = (
                bs.simulate(scenario, 2_000, seed=SEED, warmup=0.1, engine=engine)
                for engine in ("simpy", "compiled")
            )
            assert np.array_equal(simpy.finish_s, compiled.finish_s), "the engines must agree"
            what = f"{device}, {clients} client{'s' * (clients > 1)}"
            yield compared(what, compiled, "mean_latency_ms", theirs_ms, 0.03)
            yield compared(what, compiled, "throughput_per_s", 1000 * clients / theirs_ms, 0.03)


def guide():
    alone_ms = 2000 / published.GUIDE_NO_BATCHING[-1][0]
    full_ms = 8000 / published.GUIDE_BATCHING[-1][0]
    alone, batched = bs.Table({1: alone_ms}), bs.Table({1: alone_ms, 4: full_ms})
    two = shared(batched, 4, published.GUIDE_CLIENTS[-1], published.GUIDE_TWO_INSTANCES[-1][0] / 2)
    settings = (
        ("no batching", published.GUIDE_NO_BATCHING, 1, alone, {}),
        ("batching", published.GUIDE_BATCHING, 4, batched, {}),
        ("two instances", published.GUIDE_TWO_INSTANCES, 4, batched, two),
    )
    for name, theirs, size, service, knobs in settings:
        for clients, (items_per_s, p95_us) in zip(published.GUIDE_CLIENTS, theirs, strict=True):
            result = closed_loop(clients, size, service, knobs)
            what = f"{name}, {clients} client{'s' * (clients > 1)}"
            yield compared(what, result, "throughput_per_s", items_per_s / 2, math.nan)
            yield compared(what, result, "p95_ms", p95_us / 1000, math.nan)


def closed_loop(clients, size, service, knobs):
    scenario = bs.Scenario(bs.ClosedLoop(clients), bs.SizeOrWait(size, 0), service, **knobs)
    return bs.simulate(scenario, 4_000, seed=SEED, warmup=0.1)


def shared(service, largest, clients, two_per_s):
    """Two servers on one device, from the throughput of the most clients, and of one in such batches."""
    size = min(largest, clients / 3)  # two batches are computed while a third one gathers
    one_ms = np.interp(size, range(1, largest + 1), 1000 * service.table(largest)[1:])
    return {"servers": 2, "devices": 1, **bs.device.sharing(1000 * size / one_ms, two_per_s, service, size)}


def fastpitch():
    for name, per_s in published.FASTPITCH_PER_S.items():
        service = bs.Table(published.FASTPITCH_STATIC_MS[name])
        knobs = shared(service, 8, len(per_s), per_s[-1])
        for clients, theirs in enumerate(per_s, start=1):
            what = f"{name}, {clients} client{'s' * (clients > 1)}"
            result = closed_loop(clients, 8, service, knobs)
            yield compared(what, result, "throughput_per_s", theirs, math.nan)


def tft():
    for name, per_s in published.TFT_PER_S.items():
        static_ms = published.TFT_STATIC_MS[name]
        service = bs.Table({items // 16: ms for items, ms in static_ms.items() if items >= 16})
        knobs = shared(service, 64, 8 * len(per_s), per_s[-1] / 16)
        for clients, theirs in zip(range(8, 8 * len(per_s) + 1, 8), per_s, strict=True):
            result = closed_loop(clients, 64, service, knobs)
            yield compared(f"{name}, {clients} clients", result, "throughput_per_s", theirs / 16, math.nan)


def mlperf():
    for name, measured in published.MLPERF.items():
        size = measured.max_batch_size
        each_ms = (measured.multi_8_ms - measured.single_ms) / 7
        sizes = range(1, max(size, 8) + 1)
        service = bs.Table({k: measured.single_ms + each_ms * (k - 1) for k in sizes})
        knobs = {}
        if measured.streams == 2:
            one_per_s = size / service(size)
            sharing = bs.device.sharing(one_per_s, measured.offline_per_s, service, size)
            knobs = {"servers": 2, "devices": 1, **sharing}
        rule = bs.SizeOrWait(size, measured.window_ms)
        result = run(bs.Scenario(bs.Poisson(measured.rate_per_s), rule, service, **knobs), 400_000)
        for key, theirs_ms in zip(published.MLPERF_KEYS, measured.latency_ms, strict=True):
            yield compared(name, result, key, theirs_ms, math.nan)


GROUPS = [
    Group(
        "One at a time",
        "Closed forms (Pollaczek-Khinchine, Erlang) and, for M/D/c, an embedded chain.",
        one_at_a_time,
    ),
    Group(
        "Priorities",
        """Three levels with 20 %, 30 % and 50 % of the requests, one at a time: Cobham's formula (1954) for
priorities that do not interrupt what is computed.""",
        by_level,
    ),
    Group(
        "Replicas behind a router",
        """Random splitting gives each replica the traffic of a queue of its own, with the theory of one queue
(0.5 %, of a percentile 1 %). Two choices, batches of one: Mitzenmacher's limit for many replicas (2001),
within 2 %, and the mean for this number of them: the limit with its correction of the order of
1 / replicas (Gast and Van Houdt, 2017), within 1 %. At a load of 0.9 this correction is 1.8 % of the limit
for 64 replicas and 0.5 % for 256: there, 64 are not yet many. The shorter of two queues: its Markov
chain.""",
        behind_a_router,
    ),
    Group(
        "Batches of all that waits",
        """`SizeOrWait(B, 0)` on one server: Bailey's bulk queue, with a service time that depends on the
size. The means come from its exact embedded chain, the percentiles from the exact
distribution. V100 and P4 are the affine service times of ResNet-50 in Inoue (2021, arXiv
1912.06322).""",
        what_waits,
    ),
    Group(
        "Batches without a cap",
        "Inoue's chain (arXiv 1912.06322), simulated with a max batch size of 4,096 that is never reached.",
        without_a_cap,
    ),
    Group(
        "A minimum batch size",
        "`AtLeast(a, b)`, Neuts' rule, and full batches only.",
        at_least,
    ),
    Group(
        "The textbook rule with a wait",
        """`SizeOrWait(32, T)`, service time 5 ms + 0.25 ms a request. For a wait no longer than a full
batch computes, a chain derived in `batchsim/theory/chain.py` is exact.""",
        with_a_wait,
    ),
    Group(
        "Requests of different sizes",
        """Batches of one: M/G/1 with the moments of the sizes. Full batches are padded to the expected
longest of as many sizes, the sum of 1 - F(x)^k, which gives their time and their padding.""",
        different_sizes,
    ),
    Group("Identities", "What must hold without any theory.", identities),
    Group(
        "The optimum",
        """The policy that no rule can beat: the semi-Markov decision process of Xu, Zhou and Niu
(arXiv 2501.02181), solved by policy iteration (in the tests by relative value iteration too), and run by
a naive simulator written for it. The last rows show how close a max batch size and a max wait come.""",
        optimum,
    ),
    Group(
        "A real server: nnU-Net on Triton",
        f"""The simulator gets only the static table of the page (1, 2 and 4 items; 3 is interpolated). It
must come within 3 % of the measured mean latency, and of clients / measured latency as
throughput. Both engines run, and must agree bit for bit. Source: <{published.NNUNET_SOURCE}>.""",
        nnunet,
    ),
    Group(
        "For plausibility: Triton's guide",
        f"""The guide has no static table. Two service times are taken from its own measurements, the
saturated rows without batching and with it, so those rows agree by construction; the others
are predictions. The clients' own overhead is left out. Two instances share the one GPU: how is
calibrated by one number, the throughput of 16 clients (`bs.device.sharing`). The mean absolute
error of their throughputs is 5.4 %. A request is 2 items. Source: <{published.GUIDE_SOURCE}>.""",
        guide,
    ),
    Group(
        "For plausibility: FastPitch on Triton, two instances on one GPU",
        f"""Service times from the page's static tables, of one client. For each pair of a GPU and a
precision, how the instances share the GPU is calibrated by one number: the throughput of 16 clients, in
batches of 16 / 3, as two are computed while a third one gathers. The mean absolute error is
4.0 %. Two more pairs of the page are left out (A40/FP32, T4/FP16): there one online client is 24 %
slower or faster than the static table, and no model can be right. Source: <{published.FASTPITCH_SOURCE}>.""",
        fastpitch,
    ),
    Group(
        "For plausibility: TFT on Triton, two instances on one GPU",
        f"""The same with 8 to 256 clients, requests of 16 items, batches of up to 64 requests, and the
throughput of 256 clients as the one number. The mean absolute error is 10.3 %, most of it with
few clients. Source: <{published.TFT_SOURCE}>.""",
        tft,
    ),
    Group(
        "For plausibility: MLPerf, open loop",
        f"""Poisson arrivals, and percentiles up to the 99.9th. The service time is a line through the
single-stream (1) and multi-stream (8) latencies. One A30 computes retinanet on one stream. The L4 has two
streams: how they share it is calibrated by the offline throughput. NVIDIA's harness lets a batch gather from
the moment at which its loop turns to it, and then freezes it; `SizeOrWait`, which counts
from the oldest request's arrival, stands in for that here.

Retinanet's mean and median are predicted within 5 % (A30) and 14 % (L4). ResNet-50 on the L4 is not: its
mean is three times the longest service time, although full batches carry 8 % more than arrive. Nor are the
other Server results with two streams a GPU, retinanet on four or eight A30s (H3C R5300G6, Nettrix X620 G50
and xFusion G5500V7: calibrated in the same way, the mean is 26 % too short, 20 % too short and 32 % too
long). There, what the harness does with copy streams and several GPUs counts, which no simple model has. Two
rounds of one benchmark differ by 10 % in the mean and 25 % in p99. Derived from <{published.MLPERF_SOURCE}>
({", ".join(each.where for each in published.MLPERF.values())});
not verified by MLCommons.""",
        mlperf,
    ),
]

GROUPS += [Group(*each) for each in token_validation.GROUPS]
OTHERS = preset_validation, captured_sizes, questions, energy
GROUPS += [Group(*each) for module in OTHERS for each in module.GROUPS]

HEAD = """# Is it true?

`make validate` writes this page and those that it links to, and a test holds them against the code. Simulated
numbers come with their 95 % intervals. A row **agrees** if the expected value is inside the interval or the
error is within 1 % (3 % for the measured server); about 1 in 20 intervals misses by chance. The rows of a
group share the traffic of one seed, so their errors go together. Rows without a verdict are plausibility
checks: too little is known about those servers for a claim.
"""

SERVERS = """
## The servers' own code

The batchers of servers that are written in Python run beside their presets (`make fidelity-servers`):
LitServe's batched loop, batched's processors, BentoML's dispatcher and Ray Serve's batch queue (and its
router, whose random choices differ from the simulation's), each with the arrivals that the simulation gets
and a model that sleeps for the service time of its batch: that of the V100 above, Poisson arrivals. The
textbook's is `bs.InferenceBatcher`, polled. Each row has the mean latency / p99 in ms / mean batch size,
and the simulation's errors in these three; then the largest difference between the two distributions of
batch sizes. A row **agrees** if the mean and the size are within 5 % and p99 within 10 %.

On a clock that jumps to whatever is due next, the servers' code is undisturbed, and the last number is the
share of requests that start at the same time in both, to 0.1 ms. Polling (LitServe's and BentoML's every
ms) stays as it is; the textbook's is every 0.02 ms.

On the machine's clock requests come from a thread, and nothing but the scale of time is chosen. The last
numbers are by how much the machine's own mean lateness, with arrivals and calls, changes the mean of a long
simulation, and the lateness that one in a thousand exceeds, of the mean latency. Above 2 %, or 10 %, a case
runs again, twice at most; then the row is **disturbed**, and says nothing. BentoML's milliseconds and its 5
s between two times at which it learns do not scale. Near and above saturation every lateness is multiplied:
such loads are in the first table alone.

Where they differ, the preset's docstring says so. On Python 3.12 the rows of Ray Serve that are marked
start every batch at the same time, too. Ray Serve's requests wait at a semaphore where
`max_ongoing_requests` holds them back, in place of its router. Several workers of LitServe are threads at
one queue; on the clock that jumps they go on one at a time. Not compared here: mosec, whose batcher is a
process in Rust, and the servers in C++ and Java. `tests/scenario/rules/test_rules_of_servers.py` holds
three workers of mosec and of LitServe's whole server against runs of their own.

"""

INTERVALS = """
## The intervals themselves

A 95 % interval should contain the truth in 95 of 100 runs. A run that is too short for its scenario's load,
bursts or noise has no interval, and the warning names a length that would do. `make coverage` counts on
scenarios that make it hard: bursts, days, rare events, clients, shared devices and token generation. Until
each metric had a run length of its own, 38 % of the runs of the first table had an interval.

"""

SELECTION = """
## The choice of a setting

`make selection` tunes random problems: five kinds of traffic (independent, regular, bursty, on and off,
clients) and tokens, loads of .3 to .97, one to three servers, 12 to 24 settings, and an objective 2 to 400 %
above the best. A run a hundred times as long is the truth of a setting. A statement of `tune` holds if the
chosen setting is no further above the best of the settings in it than stated; where a search states no bound,
nothing is counted. An objective is truly missed if the truth of the chosen setting is above it. That truth
has an error of its own, which is largest near saturation.

KN++ and OCBA-m are those of `sim-tools`; each observation is the p99 of 2,000 requests, which start with an
empty queue. The mean of such a p99 is what KN++ guarantees, and near saturation that is not the p99 of a long
run. KN++ has an indifference zone of 5 % of the true best, at 95 %, and ends after 4 million requests. OCBA-m
gets the requests that `tune` spent, and at least six observations of each setting; it has no guarantee.
Neither confirms the objective. Their rows are of 200 problems, which begin with those of `tune`, and of a
`tune` that spent 0.3 of the grid's requests; now every setting runs in full. "At least" and "at most" are
one-sided 95 % bounds of the true shares: so few problems do not show that `tune` states a bound that holds in
95 % of the cases, or that an objective is missed in 1 % at most.

"""

TAIL = """
## What this model leaves out

- **How servers share a device**, in detail: one number says it (`host_ms` or `contention`), and is taken to
  be the same for every batch size. More than two instances on a device, or different models, were not
  compared with anything measured.
- **Copies** between host and device, **the network**, and (de)serialisation: only as far as they are part
  of a measured service time.
- **The clients' own time**, unless it is the think time of a closed loop.
- **Garbage collection**, other processes, throttled clocks: noise is one factor for each batch, independent
  of the others.
- **Models whose time depends on the input** in other ways than by its length, such as an early exit.
- **Of token generation**: which drafted tokens are accepted (`StepTime.speculative` has their mean),
  engines that hand requests on, mixtures of experts, and the network and the tokeniser before the engine
  (8 to 15 ms of a measured TTFT).
- **Failures** and retries. A request that times out does not come back, unless the client of a closed loop
  sends again.
- **Compilation** at the first batch of a size, and loading models.
"""

CHOICES = TABLES.with_name("selection.md")  # what `make selection` wrote
# What `make fidelity` wrote, on whatever machine that was.
REAL = TABLES.with_name("fidelity.md"), TABLES.with_name("fidelity_lengths.md")
TABLE = "| what | simulated | 95 % interval | expected | error | |\n|---|---|---|---|---|---|\n"


# The first screen: the sections of each family, and what they do not cover.
FAMILIES = {
    "Queueing theory": (
        (
            "One at a time", "Priorities", "Replicas behind a router", "Batches of all that waits",
            "Batches without a cap", "A minimum batch size", "The textbook rule with a wait",
            "Requests of different sizes", "Identities", "The optimum",
        ),
        "loads above 0.95",
    ),
    "A measured server, one instance": (
        ("A real server: nnU-Net on Triton",), "open loops: its clients wait for their answers",
    ),
    "Measured servers, for plausibility": (
        (
            *(group.title for group in GROUPS if group.title.startswith("For plausibility")),
        ),
        "a claim: how these servers shared a GPU is not published",
    ),
    "Token generation, formulas": (("Token generation: formulas",), "memory, preemption, chunked prompts"),
    "Token generation, measured": (
        (
            "A measured run: vLLM 0.19 on an RTX 4090", "Whole batches: vLLM on A100, H100 and GH200",
            "Closed loops: Llama-3.1-8B on one H100", "A load test: vLLM 0.11 on one H100, KubeCon NA 2025",
            "Closed loops: Qwen3-32B on four H100s", "The measured run under five servers' rules",
        ),
        "speculative decoding, mixtures of experts",
    ),
    "Captured sizes": (("Captured sizes",), "a profile of launches by batch size"),
    "Questions that engineers asked": (
        ("Questions that engineers asked",), "percentiles of closed loops, whose noise is not known",
    ),
    "Energy by batch size": (
        tuple(title for title, _, _ in energy.GROUPS), "idle power, the length of prompts, capped clocks",
    ),
    "The servers' own code": (("The servers' own code",), "servers in C++, Java and Rust"),
    "Real runs": (("A real run on this machine",), "GPUs"),
}  # fmt: skip
REPEATS = re.compile(r"\(((?:[+-][\d.]+%(?:, )?){2,})\)")  # the errors of several real runs, in brackets
VERDICTS = re.compile(r"\| (agrees|within|\*\*\w+\*\*) \|$")
BESIDE = """
The table counts the rows with a verdict; their sections explain the others. The spread is that of the errors
of several real runs of the same row, where they are known: an error within it may be chance. The coverage of
the intervals has [a page of its own](docs/validation/the-intervals-themselves.md), as has
[the choice of a setting](docs/validation/the-choice-of-a-setting.md).
"""


def place(family):
    """Return the file of a family's sections."""
    return f"docs/validation/{re.sub(r'[^a-z0-9 -]', '', family.lower()).replace(' ', '-')}.md"


def summary(sections):
    """Return the table of families: how many rows have a verdict, how many agree, and their largest error."""
    bodies = dict(part.split("\n", 1) for part in re.split(r"^## ", sections, flags=re.MULTILINE)[1:])
    heads = "family", "rows", "agree", "their largest error", "spread of the real runs", "not covered"
    lines = ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for family, (titles, lacks) in FAMILIES.items():
        every = [line for title in titles for line in bodies[title].splitlines() if line.startswith("| ")]
        judged = [(line, found[1]) for line in every if (found := VERDICTS.search(line))]
        agree = [re.sub(r"\(.*?\)", "", line) for line, verdict in judged if "*" not in verdict]
        errors = [abs(float(error)) for line in agree for error in re.findall(r"([+-][\d.]+)%", line)]
        worst = f"{max(errors):.1f} %" if errors else ""
        link = f"[{family}]({place(family)})"
        lines.append(f"| {link} | {len(judged)} | {len(agree)} | {worst} | {spread(every)} | {lacks} |")
    return "\n".join(lines) + "\n" + BESIDE


def spread(lines):
    """Return by how much the errors of real runs of the same row differ, "" where each row has one run."""
    runs = [re.findall(r"[+-][\d.]+(?=%)", found[1]) for line in lines if (found := REPEATS.search(line))]
    spreads = [np.ptp([float(error) for error in errors]) for errors in runs]
    each = f"{len(runs[0])} runs a row: " if runs else ""
    return f"{each}{np.median(spreads):.1f} points in the median, {max(spreads):.1f} at most" if runs else ""


def markdown():
    """Return the whole text of VALIDATION.md and its pages."""
    parts = []
    for group in GROUPS:
        parts.append(f"\n## {group.title}\n\n{group.text}\n\n{TABLE}")
        parts.extend(f"{row}\n" for row in group.rows())
    measured = [SERVERS, REAL_BATCHERS.read_text(), real_runs()]
    parts += [*measured, INTERVALS, TABLES.read_text(), SELECTION, CHOICES.read_text(), TAIL]
    return HEAD + summary("".join(parts)) + "".join(parts)


def real_runs():
    """Return the section of real runs beside their simulation, of what there has been."""
    return "".join(path.read_text() for path in REAL if path.exists())
