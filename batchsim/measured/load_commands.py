"""Command lines of load generators, which send the traffic of a scenario to a real server.

The options were read in the tools' documentation: vLLM 0.33.0 (`vllm bench serve`), AIPerf 0.13.0, and
perf_analyzer at 263c5f6. Each writes a file that `load_test` reads.
"""

import math
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from batchsim import _check
from batchsim._format import typed
from batchsim.scenario import ClosedLoop, Scenario
from batchsim.scenario.lengths import points

MINUTES, FEWEST = 5, 1000  # how long a rate is kept, and the requests of a closed loop
MODEL, URL = "MODEL", "http://localhost:8000"


class Tool(NamedTuple):
    """A load generator: its command line, and how it says each kind of load; without a kind it lacks that."""

    command: str
    of_tokens: bool
    loads: Mapping[str, str]


TOOLS = {
    "vllm bench serve": Tool(
        "--backend openai --base-url {url} --model {model} --dataset-name random --random-input-len {prompt} "
        "--random-output-len {output} --ignore-eos --num-prompts {requests} {load} "
        "--percentile-metrics ttft,tpot,itl,e2el --save-result --result-filename result.json",
        True,
        {
            "Poisson": "--request-rate {rate}", "Gamma": "--request-rate {rate} --burstiness {shape}",
            "ClosedLoop": "--request-rate inf --max-concurrency {clients}",
        },
    ),
    "aiperf profile": Tool(
        "--url {url} --model {model} --endpoint-type completions --streaming --extra-inputs ignore_eos:true "
        "--synthetic-input-tokens-mean {prompt} --synthetic-input-tokens-stddev 0 "
        "--output-tokens-mean {output} --output-tokens-stddev 0 --request-count {requests} {load}",
        True,
        {
            "Poisson": "--request-rate {rate} --arrival-pattern poisson",
            "Constant": "--request-rate {rate} --arrival-pattern constant",
            "Gamma": "--request-rate {rate} --arrival-pattern gamma --arrival-smoothness {shape}",
            "ClosedLoop": "--concurrency {clients}",
        },
    ),
    "perf_analyzer": Tool(
        "-m {model} -u {host} --request-count {requests} {load} -f result.csv",
        False,
        {
            "Poisson": "--request-rate-range {rate} --request-distribution poisson",
            "Constant": "--request-rate-range {rate} --request-distribution constant",
            "ClosedLoop": "--concurrency-range {clients}",
        },
    ),
}  # fmt: skip


def load_command(
    scenario: Scenario, tool: str | None = None, requests: int | None = None, url: str = URL,
    model: str = MODEL,
) -> str:  # fmt: skip
    """Return the command line of a load generator that sends a scenario's traffic to the server at `url`.

    `tool` is "vllm bench serve" (the default for tokens), "aiperf profile" or "perf_analyzer" (else), or how
    one of these begins. `requests`: by default 5 minutes at the rate, or 1,000 in a closed loop. Prompts and
    outputs have the mean lengths of the scenario's; warns if these vary. ValueError for traffic that the tool
    does not send.

    >>> from batchsim import Affine, Poisson, SizeOrWait
    >>> load_command(Scenario(Poisson(20), SizeOrWait(32, 5), Affine(5, 1)), model="resnet")[:70]
    'perf_analyzer -m resnet -u localhost:8000 --request-count 6000 --reque'
    """
    _check.instance("scenario", scenario, Scenario, "a Scenario")
    of_tokens = scenario.tokens is not None
    known = [name for name, each in TOOLS.items() if each.of_tokens == of_tokens]
    found = known[0] if tool is None else next((each for each in known if each.startswith(tool)), tool)
    name = _check.one_of("the tool", found, known)
    kind, workload, values = (
        "ClosedLoop",
        scenario.workload,
        {"url": url, "host": url.partition("//")[2] or url},
    )
    if isinstance(workload, ClosedLoop) and not workload.think_s:
        values["clients"] = str(workload.clients)
        usual = max(FEWEST, workload.clients)
    else:
        cv = None if isinstance(workload, ClosedLoop) else workload.gamma_cv
        kind = {None: "", 1.0: "Poisson", 0.0: "Constant"}.get(cv, "Gamma")
        rate = 0.0 if isinstance(workload, ClosedLoop) else workload.offered_per_s
        values |= {"rate": typed(rate), "shape": typed(cv**-2) if cv else ""}
        usual = math.ceil(rate * 60 * MINUTES)
    if kind not in TOOLS[name].loads:
        rule = f"traffic of {name} must be {' or '.join(TOOLS[name].loads)}"
        raise ValueError(f"{rule}, got {workload!r}")
    for part in ("prompt", "output") if scenario.tokens is not None else ():
        values[part] = str(max(round(float(points(length := getattr(scenario.tokens, part)).mean())), 1))
        if not isinstance(length, int):
            _check.warn(f"{name} sends each {part} with {values[part]} tokens, the mean: predict such a test")
    count = usual if requests is None else _check.whole("requests", requests)
    values |= {"requests": str(count), "model": model}
    values = {key: shlex.quote(each) for key, each in values.items()}
    load = TOOLS[name].loads[kind].format(**values)
    return f"{name} {TOOLS[name].command.format(**values, load=load)}"
