"""What VALIDATION.md compares of token generation: formulas, and servers that others measured."""

import math

import numpy as np
from oracles import kubecon
from oracles import measured_tokens as measured
from oracles.golden_tokens import REAL

import batchsim as bs
from batchsim import theory

REAL = bs.StepTime(*REAL)


def row(what, ours, theirs, tolerance=math.nan):
    from validation.page import Row  # which imports this module

    return Row(what, float(ours), math.nan, math.nan, float(theirs), tolerance)


def formulas():
    yield from full_seats()
    yield from slotted()
    yield from others()


def full_seats():
    rule = bs.Continuous(32, 331, chunked=False)
    scenario = bs.Scenario(bs.ClosedLoop(40), rule, REAL, tokens=bs.Tokens(300, 100))
    found, result, turns = (
        theory.expected(scenario),
        bs.simulate(scenario, 32 * 40),
        slice(320, 320 + 32 * 20),
    )
    period_ms = 1000 * (result.finish_s[turns.stop] - result.finish_s[turns.start]) / 20
    what = "32 seats filled, 300 + 100 tokens"
    yield row(f"{what}: a turn of every seat (ms)", period_ms, 32000 / found.rate_per_s, 1e-9)
    for name, column in (("ttft", result.ttft_ms), ("tpot", result.tpot_ms), ("latency", result.latency_ms)):
        expected_ms = getattr(found, f"mean_{name}_ms")
        bound = 1e-7 if name == "tpot" else 1e-9  # TPOT is rounded to whole nanoseconds
        yield row(f"{what}, 40 clients: mean {name} (ms)", column[turns].mean(), expected_ms, bound)


def slotted():
    tokens = bs.Tokens(1, bs.Geometric(40))
    scenario = bs.Scenario(bs.Poisson(500), bs.Continuous(10**6, 10**6), bs.StepTime(10, 0, 0), tokens=tokens)
    found, result = theory.expected(scenario), bs.simulate(scenario, 1_000_000, seed=1)
    running, what = result.steps.running[1000:-1000], "steps of 10 ms, 500/s, 40 tokens"
    yield row(f"{what}: mean running", running.mean(), found.mean_running, 0.005)
    yield row(f"{what}: its variance", running.var(), found.running_variance, 0.1)
    yield row(f"{what}: mean ttft (ms)", result.ttft_ms.mean(), found.mean_ttft_ms, 0.005)
    yield row(f"{what}: mean tpot (ms)", np.nanmean(result.tpot_ms), found.mean_tpot_ms, 1e-9)


def others():
    tokens = bs.Tokens(bs.Lognormal(300, 1), bs.Geometric(80))
    busy = bs.Scenario(bs.Poisson(9), bs.Continuous(40, 512), REAL.with_noise(0.2), tokens=tokens)
    result = bs.simulate(busy, 20_000)
    steps = result.steps
    in_steps = ((steps.finish_s - steps.start_s) * steps.running).sum()
    served = (result.finish_s - result.start_s).sum()
    yield row("Little's law: time running, by steps and by requests (s)", in_steps, served, 1e-9)
    for size in (8, 32):
        at_once = bs.Scenario(bs.Trace([0.0] * 800 * size), bs.SizeOrWait(size, 0), REAL, tokens=tokens)
        result = bs.simulate(at_once)
        useful = result.output_tokens.sum() / result.steps.rows.sum()
        expected = theory.useful_share(bs.Geometric(80), size)
        yield row(f"useful share of whole batches of {size}, geometric outputs", useful, expected, 0.02)
    memory = bs.Scenario(
        bs.Trace([0.0] * 60), bs.Continuous(reserve="life", kv_blocks=500), REAL, tokens=bs.Tokens(300, 100)
    )
    most = bs.simulate(memory).steps.running.max()
    yield row("most running in 500 blocks, room for life", most, theory.seats_by_memory(500, 300, 100), 1e-9)
    light = bs.Scenario(bs.Poisson(0.005), bs.Continuous(), REAL, tokens=tokens)
    found, result = theory.expected(light), bs.simulate(light, 20_000)
    yield row("light load: mean ttft (ms)", result.ttft_ms.mean(), found.mean_ttft_ms, 0.01)
    yield row("light load: mean tpot (ms)", np.nanmean(result.tpot_ms), found.mean_tpot_ms, 0.01)


def vllm():
    scenario, theirs = measured.vllm_run()
    for rule, changes in measured.RULES.items():
        ours = measured.simulated(scenario.replace(changes))
        for name, ms in theirs.items():
            bound = measured.BOUNDS.get(rule, {}).get(name, math.nan)
            yield row(f"{rule}: mean {name} (ms)", np.nanmean(ours[name]), ms.mean(), bound)
        p95 = (np.percentile(each["TTFT"], 95) for each in (ours, theirs))
        bound = measured.BOUNDS.get(rule, {}).get("p95 TTFT", math.nan)
        yield row(f"{rule}: p95 TTFT (ms)", *p95, bound)


def whole_batches():
    for name, batches in measured.series().items():
        _, ours_ms, theirs_ms = measured.fitted_to_short(batches)
        if len(theirs_ms):
            yield row(f"{name}: mean answer (s)", ours_ms.mean() / 1000, theirs_ms.mean() / 1000)


def closed_loops():
    loops = measured.loops()
    service = measured.calibrated(loops[::2])
    for clients, prompt, output, theirs_ms in loops[1::2]:
        ours_ms = measured.tpot_ms(clients, prompt, output, service)
        yield row(f"{clients} clients, {prompt} + {output}: mean TPOT (ms)", ours_ms, theirs_ms)


def load_test():
    for held_out in (kubecon.HELD_OUT, kubecon.LOW):
        frame = kubecon.calibration(held_out).to_frame()
        for stage in frame[~frame.fitted].to_dict("records"):
            where = f"128 seats, {stage['load']}"
            for name, key, bound in kubecon.METRICS:
                yield row(f"{where}: {name}", stage[f"{key}_simulated"], stage[key], bound)


def other_model():
    found = kubecon.closed_loops()
    for stage, ours, fits in zip(found.test.stages, found.predictions, found.fitted, strict=True):
        if not fits:
            lengths = f"{stage.prompt_tokens:g} + {stage.output_tokens:g}"
            yield row(f"{stage.name}, {lengths}: mean TPOT (ms)", ours.tpot_ms, stage.tpot_ms)


SOURCE = "https://github.com/casys-kaist/LLMServingSim/tree/5daddb21a545658d5150b535712d0494584b5278"

GROUPS = [
    (
        "Token generation: formulas",
        """Sums over steps, exact where nothing is random; the slotted M/G/∞ queue with a million
requests: its number running is Poisson distributed, so its variance is its mean. A row **agrees** within a
relative error of 1e-9 (1e-7 for TPOT, in whole nanoseconds), of 0.5 % for the queue's means, 10 % for
its variance, 2 % for useful shares, and 1 % at light load.""",
        formulas,
    ),
    (
        "A measured run: vLLM 0.19 on an RTX 4090",
        f"""300 requests of Llama-3.1-8B, all within 29 s, to a server that needs three minutes for them: it
is short of memory (2,587 blocks) most of the time. The step time is
`bs.published("llama-3.1-8b/rtx-4090")`, from a profile of the same card, not from this run. Under vLLM's
own rule a row **agrees** within 5 % (TTFT), 3 % (TPOT) and 4.5 % (answer). vLLM's prefix cache was on: a
preempted request finds some of its own blocks again, and 32 of the prompts begin as an earlier one of the
same conversation does. With `prefix_reuse=True` a row agrees within 1.5 %, 2 % and 1 %, and the p95 of TTFT
within 3 %. That percentile is the edge of a jump: requests start in waves, and the 284th of 300 is the last
of a wave or the first of the next, ten seconds later. Without the common prompts, 64 blocks are missing in
the second wave, two requests start a wave too late, and the p95 is 7.7 % off. Each of three other
rules on the same machine is outside all three of the wider bounds: prompts first, uncut, with a budget of
8,192 tokens; memory reserved for a request's whole life; whole batches of up to 32, after 500 ms at the
latest. So the comparison tells rules apart.

Missing still: vLLM schedules a step while the last one runs (less than 0.5 %), and five numbers stand for the
time of a step (4.8 % off on average, on likely steps). There is one run, and its means of TTFT are those of a
backlog. Source: <{SOURCE}/bench/examples/RTX4090/Llama-3.1-8B>; the prompts are those of
`workloads/sharegpt-llama-3.1-8b-300-sps10.jsonl` there.""",
        vllm,
    ),
    (
        "Whole batches: vLLM on A100, H100 and GH200",
        """Equal requests at once, prompts as long as outputs, 1 to 64 of them. `StepTime.fit` to the answers
of 128, 256 and 512 tokens predicts those of 1,024 and 2,048, each simulated. The rows are means over a
series; the mean absolute error of all single answers is 4.8 %. Where it misses most, the measured batches of
Mistral on H100s are on no one curve, or 64 of the longest requests do not fit into the memory at once: how
much there was is not published. Source:
<https://github.com/argonne-lcf/LLM-Inference-Bench/blob/4211f5d/Plots/All_results.csv>.""",
        whole_batches,
    ),
    (
        "Closed loops: Llama-3.1-8B on one H100",
        """TensorRT-LLM 1.0.0rc3, clients without thinking time, budget 8,192 tokens (its default; the source
does not say). `StepTime.fit` to the TPOT of every other measured loop, through the simulator (simulate, fit
to the visited steps, five times), predicts the others: the mean absolute error is 3.0 %. Their TTFT are not
predicted: lockstep clients and a warm-up decide them. Source:
<https://github.com/ai-dynamo/aiconfigurator> at 095f58a, `silicon_sample.csv`.""",
        closed_loops,
    ),
    (
        "A load test: vLLM 0.11 on one H100, KubeCon NA 2025",
        """`calibrate` fits five of seven rates and predicts the two others, then six and predicts 31.4/s. The
TTFT has the client's overhead in it, some 14 ms. Above 106/s the generator sent late, by
up to 20 s on average, in no latency; the simulated client has as many requests in flight as Little's law
gives.

The overhead is not the same at all rates. At 1/s the least TTFT is 24.6 ms, at 31.4/s 19.8 ms, though no
queue makes a request faster. With 44 workers, each sends every 44 s at 1/s and every 1.4 s at 31.4/s, and
aiohttp, with which the tool sends, closes a connection that was idle for 15 s: probably each request at 1/s
opened a new one. The fit leaves 6 ms more overhead at 1/s. So the fit ends with a loss under which a stage
far outside the others' spread counts next to nothing; without that, the TTFT at 31.4/s missed by 19 %, or,
with 1/s held out too, by 4 %.

With 192 seats a TPOT of 7.26, 8.29, 10.36, 16.10, 27.74, 27.66 and 27.16 ms is predicted at the seven rates;
no measurement was compared. The same server with EAGLE saturated at 73/s instead of 106/s. No row compares
it: how many tokens were drafted and how many accepted is not known here. With the fitted step and 2 ms for a
draft of four tokens, the saturation is 0.69 of that without at an acceptance of 0.24, 0.79 at 0.4, and 0.94
at 0.6. Source: <https://github.com/kubernetes-sigs/inference-perf> at 7de5ef2,
`demos/kubecon-na-2025`.""",
        load_test,
    ),
    (
        "Closed loops: Qwen3-32B on four H100s",
        """TensorRT-LLM 1.0.0rc3 in fp8. `calibrate` fits every third measured loop and predicts the others,
from TPOT alone: the median absolute error is 2.9 %. Source:
<https://github.com/ai-dynamo/aiconfigurator> at 095f58a, `silicon_sample.csv`.""",
        other_model,
    ),
]
