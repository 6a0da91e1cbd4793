"""What others measured on servers of language models, as scenarios and numbers; see measured/README.md."""

import csv
import itertools
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import batchsim as bs

FOLDER = Path(__file__).with_name("measured")
COURSE = Path(__file__).parents[2] / "notebooks" / "data"  # which a lesson reads, too


def rows(name):
    """The rows of a file, as text."""
    (path,) = [*FOLDER.glob(f"{name}.csv"), *COURSE.glob(f"{name}.csv")]
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(name):
    """The columns of a file, numbers as arrays."""
    found = rows(name)
    return {column: _array([row[column] for row in found]) for column in found[0]}


def _array(texts):
    for kind in (int, float):
        try:
            return np.array([kind(text) for text in texts])
        except ValueError:
            pass
    return np.array(texts)


# The run of vLLM 0.19 on an RTX 4090.

RULES = {
    "vLLM's rule": {},
    "vLLM's rule and prefix reuse": {"prefix_reuse": True},
    "prompts first": {"first": "prefill", "chunked": False, "max_num_batched_tokens": 8192},
    "room for life": {"reserve": "life"},
    "whole batches": {"rule": bs.SizeOrWait(32, 500)},
}
BOUNDS = {
    "vLLM's rule": {"TTFT": 0.05, "TPOT": 0.03, "answer": 0.045},
    "vLLM's rule and prefix reuse": {"TTFT": 0.015, "TPOT": 0.02, "answer": 0.01, "p95 TTFT": 0.03},
}


def alike(run):
    """The hash ids of its prompts, by blocks of 16 tokens: of whose beginning each is a copy."""
    alike = SimpleNamespace(**table("vllm019_rtx4090_prompts"))
    of = {request: (like, tokens // 16) for request, like, tokens in zip(*vars(alike).values(), strict=True)}
    ids, number = [], itertools.count()
    for request, prompt in enumerate(run.prompt_tokens):
        like, same = of.get(request, (0, 0))
        ids.append([*(ids[like][:same] if same else ()), *itertools.islice(number, prompt // 16 - same)])
    return bs.HashIds(ids, 16)


def vllm_run():
    """The scenario of the measured run, and its measured TTFT, TPOT and answers in ms."""
    run = SimpleNamespace(**table("vllm019_rtx4090"))
    # The client's own way to the engine is not modelled: all but the shortest was waiting there.
    arrival_s = run.queued_s - (run.queued_s - run.arrival_s).min()
    order = np.argsort(arrival_s, kind="stable")
    assert (order == np.arange(order.size)).all()  # so the numbers in `like` are those of requests
    tokens = bs.Tokens.sample(np.column_stack([run.prompt_tokens, run.output_tokens]).tolist())
    tokens = replace(tokens, prefixes=alike(run))
    trace = bs.Trace((arrival_s[order] - arrival_s.min()).tolist())
    rule = bs.Continuous(max_num_seqs=256, max_num_batched_tokens=2048, kv_blocks=2587)
    scenario = bs.Scenario(trace, rule, bs.published("llama-3.1-8b/rtx-4090"), tokens=tokens)
    measured = {
        "TTFT": (run.first_token_s - arrival_s) * 1000,
        "TPOT": (run.last_token_s - run.first_token_s) * 1000 / (run.output_tokens - 1),
        "answer": (run.last_token_s - arrival_s) * 1000,
    }
    return scenario, measured


def simulated(scenario):
    result = bs.simulate(scenario)
    return {"TTFT": result.ttft_ms, "TPOT": result.tpot_ms, "answer": result.latency_ms}


# Whole batches.


def series():
    """The whole batches of each series: (size, prompt = output tokens, measured ms) each."""
    rows, found = table("whole_batches_vllm"), defaultdict(list)
    for gpu, gpus, model, length, size, latency_s in zip(*rows.values(), strict=True):
        found[f"{model.rpartition('/')[2]}, {gpus} x {gpu}"].append((size, length, 1000 * latency_s))
    return found


def at_once(size, length, service):
    """The run of equal requests that come at once, prompts as long as outputs."""
    tokens, rule = bs.Tokens(int(length), int(length)), bs.SizeOrWait(int(size), 0)
    scenario = bs.Scenario(bs.Trace([0.0] * int(size)), rule, service, tokens=tokens)
    return bs.simulate(scenario)


def fitted_to_short(batches, longest=512):
    """The step time fitted to the batches of at most so many tokens, and the others as simulated with it."""
    any_time = bs.StepTime(1, 1, 1)  # the steps of equal requests at once are the same whatever they take
    short = [each for each in batches if each[1] <= longest]
    steps = [at_once(size, length, any_time).steps for size, length, _ in short]
    service = bs.StepTime.fit(steps, [ms for *_, ms in short])
    others = [each for each in batches if each[1] > longest]
    found = [at_once(size, length, service).latency_ms.mean() for size, length, _ in others]
    return service, np.array(found), np.array([ms for *_, ms in others])


# Closed loops.

RULE = bs.Continuous(max_num_seqs=256, max_num_batched_tokens=8192)
GUESS = bs.StepTime.roofline("llama-3.1-8b", "h100", fixed_ms=2)
TURNS = 8  # requests of each client: of these the third to the sixth count
ROUNDS = 5


def loops():
    """The measured closed loops: (clients, prompt, output, TPOT in ms) each."""
    rows = table("closed_loops_h100")
    columns = (rows[name].tolist() for name in ("concurrency", "prompt_tokens", "output_tokens", "tpot_ms"))
    return list(zip(*columns, strict=True))


def closed_loop(clients, prompt, output, service):
    scenario = bs.Scenario(bs.ClosedLoop(clients), RULE, service, tokens=bs.Tokens(prompt, output))
    return bs.simulate(scenario, TURNS * clients)


def tpot_ms(clients, prompt, output, service):
    return float(closed_loop(clients, prompt, output, service).tpot_ms[2 * clients : 6 * clients].mean())


def calibrated(measured):
    """The step time with which closed loops have these TPOT: simulate, fit to the visited steps, again.

    Of each loop some requests: what was measured for their later tokens are all steps from the first to the
    last of these together.
    """
    service = GUESS
    for _ in range(ROUNDS):
        steps, ms = [], []
        for clients, prompt, output, tpot in measured:
            result = closed_loop(clients, prompt, output, service)
            for request in np.linspace(2 * clients, 6 * clients - 1, 8).astype(int):
                its = slice(result.log.token_step[request] + 1, result.log.last_step[request] + 1)
                steps.append(
                    {name: getattr(result.steps, name)[its] for name in ("tokens", "reads", "pairs")}
                )
                ms.append(tpot * (output - 1))
        service = bs.StepTime.fit(steps, ms)
    return service
