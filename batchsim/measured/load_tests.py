"""Result files of the load tests of seven tools.

The formats were read in the tools' sources:

- GuideLLM 0.8.1, report version 1 and 2: `guidellm/benchmark/schemas/report.py`, `metrics.py`;
- inference-perf 0.5.0 and 0.7.0: `inference_perf/reportgen/base.py` (a file a stage, without a version);
- AIPerf 0.13.0, export schema 1.x, and genai-perf 0.0.16: `aiperf/common/models/export_models.py`;
- vLLM 0.33.0: `vllm/benchmarks/serve.py` (without a version);
- SGLang 0.5: `sglang/bench_serving.py` (an object a line, without a version);
- perf_analyzer at 263c5f6 and 2.45.0, the CSV of `-f`: `src/report_writer.cc` (without a version).
"""

import io
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchsim import _check
from batchsim._files import TABLE_BYTES, csv_rows, json_lines, json_of, text_of
from batchsim._format import brief, counted
from batchsim.measured.load_stages import Stage
from batchsim.measured.measurement_files import number_of

if TYPE_CHECKING:
    import pandas

TOOLS = "GuideLLM, inference-perf, AIPerf, vllm bench serve, SGLang, perf_analyzer"
LINES = re.compile(r"\}[ \t\r]*\n\s*\{")  # between two objects that make no JSON together
WRONG = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError  # in a file
NEAR = 0.1  # relative: a number of samples this near to a power of two is one


@dataclass(frozen=True, repr=False)
class LoadTest:
    """The stages of a load test, in order of their load; `warnings` has known errors of such files."""

    tool: str
    version: str
    stages: tuple[Stage, ...]

    @property
    def warnings(self) -> list[str]:
        """Known errors of such files, a line each, with the stages that have it."""
        found: dict[str, list[str]] = {}
        for stage in self.stages:
            for name, how in stage.faults.items():
                found.setdefault(name, []).append(f"at {stage.name} {how}")
        each = {
            name: "" if len(at) == 1 else f", and {counted(len(at) - 1, 'more stage')}"
            for name, at in found.items()
        }
        return [f"{name}: {found[name][-1]}{others}" for name, others in each.items()]

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row a stage."""
        import pandas

        rows = []
        for stage in self.stages:
            row: dict[str, Any] = {"load": stage.name}
            names = ("requests", "asked_per_s", "sent_per_s", "served_per_s", "in_flight", "prompt_tokens")
            row |= {name: getattr(stage, name) for name in (*names, "output_tokens", "tpot_ms", "hidden_ms")}
            for name in ("latency", "ttft", "itl"):
                stats = getattr(stage, f"{name}_ms")
                row |= {f"{name}_{which}_ms": stats.get(which, math.nan) for which in ("mean", "p50", "p99")}
            rows.append(row)
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        tool = f"{self.tool} {self.version}".rstrip()
        title = f"LoadTest: {tool}, {counted(len(self.stages), 'stage')}"
        return "\n".join([title, *(f"  {warning}" for warning in self.warnings)])


def load_test(*paths: str | os.PathLike[str]) -> LoadTest:
    """Return the load test in result files of one tool, a file or a stage after the other, or in a folder.

    It reads the JSON of GuideLLM, inference-perf (stage_*_lifecycle_metrics.json), AIPerf or genai-perf
    (profile_export_*.json), `vllm bench serve --save-result` and SGLang's bench_serving, and the CSV of
    perf_analyzer (`-f`). ValueError for any other file, with the missing part. Of a folder it reads the
    stages that inference-perf wrote, if there are any, else each .json, .jsonl and .csv.
    """
    if not paths:
        raise ValueError(f"result files must be given, of {TOOLS}, got none")
    found = [_read(file) for path in paths for file in _files(path)]
    tools = {tool: version for tool, version, _ in found}
    if len(tools) > 1:
        raise ValueError(f"files of one load test must be of one tool, got {' and '.join(tools)}")
    ((tool, version),) = tools.items()
    stages = [stage for _, _, each in found for stage in each]
    if not stages:
        raise ValueError(f"a load test must have at least one stage ({TOOLS} are supported), got none")
    for stage in stages:
        values = {name: getattr(stage, name) for name in ("asked_per_s", "served_per_s", "concurrency")}
        for name, value in (values | {"the mean latency": stage.latency_ms["mean"]}).items():
            if value <= 0:
                raise ValueError(f"{stage.source}: {name} must be above 0, got {value:g}")
    stages.sort(key=_load)
    for one, other in pairwise(stages):
        if one.name == other.name:
            rule = f"the loads of a test's stages must increase ({TOOLS} are supported)"
            raise ValueError(f"{rule}, got {one.name} in {one.source} and {other.source}")
    return LoadTest(tool, version, tuple(stages))


def _files(path: str | os.PathLike[str]) -> list[str | os.PathLike[str]]:
    """Return the result files of a folder; a file alone."""
    if not os.path.isdir(path):
        return [path]
    folder = Path(path)
    files = sorted(folder.glob("stage_*_lifecycle_metrics.json"))
    files = files or sorted(each for each in folder.iterdir() if each.suffix in (".json", ".jsonl", ".csv"))
    if not files:
        raise ValueError(f"a folder must have result files ({TOOLS} are supported), got none in {path}")
    return list(files)


def _load(stage: Stage) -> float:
    asked = (stage.asked_per_s, stage.concurrency, math.inf)
    return next(each for each in asked if each == each)


class _File:
    """One file's content, with errors that name the file and what it lacks."""

    def __init__(self, path: str | os.PathLike[str], tool: str) -> None:
        self.path, self.tool = os.fspath(path), tool

    def missing(self, what: str, where: Any = None) -> ValueError:
        of = f" of {self.tool}" if self.tool else ""
        got = f", got {brief(sorted(map(str, where)))}" if isinstance(where, Mapping) else ""
        return ValueError(f"{self.path} must have {what}, as a result file{of} ({TOOLS} are supported){got}")

    def at(self, content: Any, *names: str) -> Any:
        """Return what is at a path of names; ValueError where it is missing."""
        for place, name in enumerate(names):
            if not isinstance(content, Mapping) or content.get(name) is None:
                raise self.missing(".".join(names[: place + 1]), content)
            content = content[name]
        return content

    def number(self, content: Any, *names: str) -> float:
        return _check.real(f"{self.path}: {'.'.join(names)}", self.at(content, *names), at_least=None)

    def gaps_cv(self, name: str, shape: Any) -> float:
        """Return the cv of gamma gaps of that shape; it is inf for constant ones."""
        if not isinstance(shape, (int, float)) or not shape > 0:
            raise ValueError(f"{self.path}: {name} must be above 0, got {shape!r}")
        return float(shape) ** -0.5

    def stats(self, content: Any, names: Mapping[str, str], scale: float = 1.0) -> dict[str, float]:
        """Return the statistics that a tool calls by other names; the mean must be there."""
        found = {to: content[of] * scale for to, of in names.items() if _is_number(content.get(of))}
        if "mean" not in found:
            raise self.missing(f"a mean ({names['mean']})", content)
        if not any(name.startswith("p") for name in found):
            raise self.missing(f"percentiles, such as {names['p50']}", content)
        return found


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _read(path: str | os.PathLike[str]) -> tuple[str, str, list[Stage]]:
    text = text_of(path, TABLE_BYTES)
    if not text.lstrip().startswith(("{", "[")):
        return _perf_analyzer(_File(path, "perf_analyzer"), text)
    if LINES.search(text):
        read = [_content(path, content) for _, content in json_lines(path)]
        return *read[0][:2], [stage for _, _, stages in read for stage in stages]
    return _content(path, json_of(text, os.fspath(path)))


def _content(path: Any, content: Any) -> tuple[str, str, list[Stage]]:
    if isinstance(content, Mapping):
        for key, read in _BY_KEY.items():
            if key in content:
                try:
                    return read(path, content)
                except WRONG as error:
                    if os.fspath(path) in str(error):
                        raise ValueError(str(error)) from None
                    raise _File(path, "").missing(f"what its tool writes ({error})") from None
    raise _File(path, "").missing(f"one of the keys {', '.join(_BY_KEY)}", content)


# Each tool's format.


def _quantiles(to: Iterable[str], names: str) -> dict[str, str]:
    return dict(zip(to, names.split(), strict=True))


GAPS = {"constant": 0.0, "poisson": 1.0, "gamma": math.nan}  # AIPerf's patterns, and the cv of their gaps
ALL = ("mean", "p50", "p90", "p95", "p99", "max")


# The clients of a closed loop send at once in each tool, one by one only over a ramp (`mixed`): vLLM's and
# inference-perf's tasks wait for a semaphore, GuideLLM's streams have one start, AIPerf issues credits while
# there are slots, perf_analyzer's threads fill their contexts. The gaps of an open loop are exponential in
# vLLM, AIPerf and inference-perf (there "constant" too), constant in perf_analyzer, if nothing else is asked.


def _inference_perf(path: Any, content: Any) -> tuple[str, str, list[Stage]]:
    file = _File(path, "inference-perf")
    names = _quantiles(ALL, "mean median p90 p95 p99 max")
    load, done = file.at(content, "load_summary"), file.at(content, "successes")
    times: dict[str, Any] = {
        to: file.stats(file.at(done, "latency", of), names, 1000) if done["latency"].get(of) else {}
        for to, of in (
            ("latency_ms", "request_latency"), ("ttft_ms", "time_to_first_token"),
            ("itl_ms", "inter_token_latency"), ("reported_tpot_ms", "time_per_output_token"),
        )
    }  # fmt: skip
    if not times["latency_ms"]:
        raise file.missing("successes.latency.request_latency", done)
    delay = load.get("schedule_delay")
    # As the server counts them, since 0.7; before, as the tool's tokenizer does. A mean latency needs a mean.
    each = (f"{name}_tokens" if f"{name}_tokens" in done else f"{name}_len" for name in ("prompt", "output"))
    prompts, outputs = (file.number(done, of, "mean") for of in each)
    clients = load.get("concurrency")  # a closed loop, whose requests are all due within a second
    return "inference-perf", "", [Stage(
        int(file.number(load, "count")), **times,
        delay_ms=file.stats(delay, names, 1000) if delay and not clients else {},
        asked_per_s=math.nan if clients else file.number(load, "requested_rate"),
        sent_per_s=file.number(load, "achieved_rate"), concurrency=float(clients or math.nan),
        served_per_s=file.number(done, "throughput", "requests_per_sec"),
        prompt_tokens=prompts, output_tokens=outputs,
        failed=int(file.number(content, "failures", "count")), source=file.path,
    )]  # fmt: skip


def _vllm(path: Any, content: Any) -> tuple[str, str, list[Stage]]:
    tool = "SGLang" if "mean_e2e_latency_ms" in content else "vllm bench serve"
    file = _File(path, tool)
    done = _check.whole(f"{file.path}: completed", file.at(content, "completed"))
    times: dict[str, Any] = {}
    of_latency = "e2e_latency" if tool == "SGLang" else "e2el"
    for to, of in (("latency", of_latency), ("ttft", "ttft"), ("itl", "itl"), ("reported_tpot", "tpot")):
        names = dict(
            zip(ALL[:5], (f"{each}_{of}_ms" for each in ("mean", "median", "p90", "p95", "p99")), strict=True)
        )
        if f"mean_{of}_ms" in content:
            times[f"{to}_ms"] = file.stats(content, names)
    embeds = "total_output_tokens" not in content and "latency_ms" in times
    outputs = math.nan if embeds else file.number(content, "total_output_tokens") / done
    if "latency_ms" not in times:  # it reports end-to-end latencies only if asked: --percentile-metrics
        if not {"ttft_ms", "reported_tpot_ms"} <= times.keys() or not times["ttft_ms"]["mean"]:
            raise file.missing("mean_e2el_ms, or mean_ttft_ms and mean_tpot_ms", content)
        mean_ms = times["ttft_ms"]["mean"] + times["reported_tpot_ms"]["mean"] * (outputs - 1)
        times["latency_ms"] = {"mean": mean_ms}
    rate = content.get("request_rate")
    rate = float(rate) if _is_number(rate) else math.nan  # "inf": all at once
    waits = content.get("queue_times")  # each request's, for one of max_concurrency
    waits = [each for each in waits if _is_number(each)] if isinstance(waits, list) else []
    delay_ms = {"mean": 1000 * math.fsum(waits) / len(waits)} if waits and rate == rate else {}
    limit = content.get("max_concurrency")
    return tool, "", [Stage(
        int(content.get("num_prompts", done)), **times, delay_ms=delay_ms, asked_per_s=rate,
        served_per_s=file.number(content, "request_throughput"), output_tokens=outputs,
        concurrency=float(limit) if limit else math.nan, failed=int(content.get("failed") or 0),
        gaps_cv=file.gaps_cv("burstiness", 1 if content.get("burstiness") is None else content["burstiness"]),
        prompt_tokens=file.number(content, "total_input_tokens") / done, source=file.path,
    )]  # fmt: skip


def _guidellm(path: Any, content: Any) -> tuple[str, str, list[Stage]]:
    file, stages = _File(path, "GuideLLM"), []
    about = content.get("metadata") or {}
    if about.get("version", 1) not in (1, 2):
        raise file.missing("metadata.version 1 or 2", {f"version {about['version']}": 0})
    for each in file.at(content, "benchmarks"):
        metrics = file.at(each, "metrics")
        config = each.get("config") or each.get("args") or {}
        strategy = config.get("strategy") or each.get("scheduler", {}).get("strategy") or {}

        def times(
            name: str, scale: float = 1.0, needed: bool = False, metrics: Any = metrics
        ) -> dict[str, float]:
            found = (metrics.get(name) or {}).get("successful")
            if not found:
                if needed:
                    raise file.missing(f"metrics.{name}.successful", metrics)
                return {}
            flat = {**found, **found.get("percentiles", {})}
            return file.stats(flat, _quantiles(ALL, "mean p50 p90 p95 p99 max"), scale)

        totals = file.at(metrics, "request_totals")
        kind = str(strategy.get("type_"))
        limit = strategy.get("streams") or strategy.get("max_concurrency")
        limit = 1 if kind == "synchronous" else limit
        rate = strategy.get("rate")
        delay = times("request_dispatch_delay", 1000)
        stages.append(Stage(
            int(file.number(totals, "successful")), times("request_latency", 1000, needed=True),
            times("time_to_first_token_ms"), times("inter_token_latency_ms"), {}, delay,
            asked_per_s=math.nan if rate is None else float(rate),
            served_per_s=times("requests_per_second", needed=True)["mean"],
            concurrency=math.nan if limit is None else float(limit),
            gaps_cv=0.0 if "constant" in kind else 1.0, mixed=bool(strategy.get("rampup_duration")),
            prompt_tokens=times("prompt_token_count").get("mean", math.nan),
            output_tokens=times("output_token_count").get("mean", math.nan),
            failed=int(totals.get("errored") or 0), source=file.path,
        ))  # fmt: skip
    return "GuideLLM", str(about.get("guidellm_version", "")), stages


def _aiperf(path: Any, content: Any) -> tuple[str, str, list[Stage]]:
    file = _File(path, "AIPerf")
    schema = str(content.get("schema_version", "1.0"))
    if schema.partition(".")[0] != "1":
        raise file.missing("schema_version 1.x", {f"version {schema}": 0})
    names = _quantiles(ALL, "avg p50 p90 p95 p99 max")
    unit = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1000.0, "sec": 1000.0}

    def times(name: str) -> dict[str, float]:
        found = content.get(name)
        return file.stats(found, names, unit.get(found.get("unit"), 1.0)) if found else {}

    if not (latency_ms := times("request_latency")):
        raise file.missing("request_latency", content)
    given = content.get("input_config") or {}
    phases = given.get("phases") if isinstance(given, Mapping) else None
    if isinstance(phases, list):  # a warm-up may be one of them
        given = [
            each for each in phases if not (isinstance(each, Mapping) and each.get("exclude_from_results"))
        ]
    # AIPerf's gaps are exponential unless told otherwise; genai-perf's, which perf_analyzer makes, constant.
    is_aiperf = "loadgen" in given or not content.keys().isdisjoint(("aiperf_version", "schema_version"))
    each = (
        _named(given, name, [*GAPS].__contains__) for name in ("arrival_pattern", "request_rate_mode", "type")
    )
    gaps = next(filter(None, each), "poisson" if is_aiperf else "constant")
    smooth = (_named(given, name) for name in ("smoothness", "arrival_smoothness"))
    smoothness = next((each for each in smooth if each is not None), 1.0)
    ramps = (_named(given, f"concurrency_ramp{name}", bool) for name in ("", "_duration"))
    limit = _named(given, "concurrency")
    rate = _named(given, "rate" if isinstance(given, list) else "request_rate")
    served = file.number(content, "request_throughput", "avg")
    count = (content.get("request_count") or {}).get("avg") or content["request_latency"].get("count") or 0
    return "AIPerf" if is_aiperf else "genai-perf", str(content.get("aiperf_version", "")), [Stage(
        int(count), latency_ms, times("time_to_first_token"), times("inter_token_latency"),
        asked_per_s=math.nan if rate is None else rate, served_per_s=served,
        concurrency=math.nan if limit is None else limit, mixed=any(ramps),
        gaps_cv=file.gaps_cv("smoothness", smoothness) if gaps == "gamma" else GAPS[gaps],
        prompt_tokens=(content.get("input_sequence_length") or {}).get("avg", math.nan),
        output_tokens=(content.get("output_sequence_length") or {}).get("avg", math.nan),
        failed=int((content.get("error_request_count") or {}).get("avg") or 0), source=file.path,
    )]  # fmt: skip


def _named(content: Any, name: str, suits: Callable[[Any], bool] = _is_number) -> Any:
    """Return the first value of that name at any depth that suits: the place differs by version."""
    if isinstance(content, Mapping):
        if isinstance(found := content.get(name), (int, float, str, Mapping)) and suits(found):
            return found
        content = list(content.values())
    each = (_named(each, name, suits) for each in content) if isinstance(content, list) else ()
    return next((found for found in each if found is not None), None)


def _perf_analyzer(file: _File, text: str) -> tuple[str, str, list[Stage]]:
    rows = csv_rows(file.path, io.StringIO(text, newline=""))
    _, names = next(rows)
    header = {name.partition(" (")[0]: place for place, name in enumerate(names)}
    load = next((name for name in ("Concurrency", "Request Rate") if name in header), None)
    if load is None or "Inferences/Second" not in header:
        raise _File(file.path, "").missing("JSON, or columns Concurrency and Inferences/Second", header)
    parts = [name for name in header if name.startswith(("Client ", "Server ", "Network+"))]
    parts = ["Avg latency"] if "Avg latency" in header else parts
    if not parts:
        raise file.missing("a mean: 'Avg latency', or its parts, such as 'Server Queue'", header)
    if not (percentiles := [name for name in ALL[1:5] if f"{name} latency" in header]):
        raise file.missing("percentiles, such as 'p99 latency'", header)
    found = []
    for line, row in rows:

        def value(name: str, line: int = line, row: list[str] = row) -> float:
            return number_of(file.path, line, row[header[name]], or_zero=True)

        latency = {name: value(f"{name} latency") / 1000 for name in percentiles}
        latency["mean"] = math.fsum(map(value, parts)) / 1000
        found.append((value(load), value("Inferences/Second"), latency))
    # Inferences are samples: `-b 8` sends 8 a request, which no column says. Little's law tells their number.
    is_rate = load == "Request Rate"
    flights = (
        per_s * (1 if is_rate else ms["mean"] / 1000) / asked for asked, per_s, ms in found if asked > 0
    )
    flight = max(flights, default=1.0)
    samples = max(round(flight), 1)
    if abs(flight / (power := 2 ** round(math.log2(samples))) - 1) < NEAR:  # a client does not always wait
        samples = power
    made: Any = partial(Stage, 0, source=file.path, gaps_cv=0.0, samples=samples)
    name = "asked_per_s" if is_rate else "concurrency"
    return "perf_analyzer", "", [
        made(ms, served_per_s=per_s / samples, **{name: asked}) for asked, per_s, ms in found
    ]  # fmt: skip


_BY_KEY = {
    "load_summary": _inference_perf, "benchmarks": _guidellm, "request_latency": _aiperf,
    "request_throughput": _vllm,
}  # fmt: skip
