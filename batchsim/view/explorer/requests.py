"""Whole requests in the explorer: their rules, service times and servers; their runs come from `runs`."""

import dataclasses
import html
import math
from collections.abc import Mapping
from typing import Any

from batchsim.measured.published import published, published_names, published_source
from batchsim.scenario import RULES, Affine, Poisson, Rule, Scenario, Service, SizeOrWait, Table
from batchsim.scenario.full_batches import mean_seconds
from batchsim.scenario.lengths import LONGEST, Uniform
from batchsim.scenario.routing import NAMES
from batchsim.scenario.rules import RULES_OF_SIZES
from batchsim.scenario.scenario import OVERSIZE
from batchsim.scenario.sized_time import PackedTime, PaddedTime, SizedTime, SizeTable
from batchsim.scenario.traffic import UNIT
from batchsim.servers.registry import SERVERS, SIZE_SERVERS
from batchsim.servers.server import ServerConfig
from batchsim.study.slo import SLO
from batchsim.view.explorer import kind, reasons
from batchsim.view.explorer.control import (
    ARRIVALS,
    COMPUTING,
    DEVICE,
    MAIN,
    RULE,
    Control,
    Option,
    Slider,
    choice,
    rows_of,
    size_table,
)  # fmt: skip
from batchsim.view.explorer.kind import Kind, Ranges, State
from batchsim.view.explorer.parts import STAYS, Part, Values, chosen, same
from batchsim.view.explorer.presets import SERVER
from batchsim.view.explorer.runs import Stored, run, usual_longest
from batchsim.view.film.film import RequestFilm
from batchsim.view.film.window import Window, request_window
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.timeline import TimelineView
from batchsim.view.scales import nice

LARGEST_SLID = 64  # larger batch sizes can be typed
# Every registered rule, by its name in snake case, and one for full batches only.
SHOWN: tuple[type[Rule], ...] = (*RULES, *RULES_OF_SIZES)
RULE_OPTIONS: Mapping[str, Option] = {
    kind.snake(rule): Option(rule.label(), rule, tuple(rule.parameters())) for rule in SHOWN
} | {
    "full_only": Option("Full batches only", SizeOrWait, ("max_batch_size",), kind.full_only,
        kind.size_of_full),
}  # fmt: skip
COSTS = "fixed_ms", "per_item_ms", "per_unit_ms", "per_pair_ms"
SERVICES: Mapping[str, Option] = {
    "affine": Option("Affine: fixed cost + cost per item", Affine, ("fixed_ms", "per_item_ms")),
    "published": Option("Published", Table, ("published",), published, lambda table: None),
    "curve": Option("Curve", Table, ("curve",)),
    "size_table": Option(
        "Table by batch size and length",
        SizeTable,
        ("size_table",),
        size_table,
        lambda table: (rows_of(table),),
    ),
    "padded": Option("Padded: + cost per unit x batch size x longest", PaddedTime, COSTS),
    "packed": Option("Packed: + cost per unit x sum of sizes", PackedTime, COSTS),
}
SIZES: Mapping[str, Option] = {
    "none": Option("None: all are alike", type(None), (), lambda: None, lambda _: ()),
    **kind.lengths("size", Option("All equal", Uniform, ("size_mean",),
        lambda mean: Uniform(round(mean), round(mean)),
        lambda sizes: (sizes.low,) if sizes.low == sizes.high else None)),
}  # fmt: skip
MAPS: Mapping[str, tuple[str, str] | None] = {  # the heat map's axes, x and y; None: the rule's own
    "own": None, "units": ("max_batch_units", "max_wait_ms"), "limits": ("max_batch_size", "max_batch_units"),
}  # fmt: skip

# Rules share the control of a parameter's name; the first rule that has it describes it.
PARAMETERS: dict[str, Control] = {}
for rule in SHOWN:
    PARAMETERS |= {
        name: kind.of_parameter(it, RULE if it.kind == "word" else MAIN)
        for name, it in rule.parameters().items()
        if name not in PARAMETERS
    }
PER_PAIR_MS = Control("Per pair (ms)", "Time of the attention, for each pair of tokens of a request",
    "real", 0, COMPUTING, Slider("linear", 0, 0.0001, 0.0000001), {"at_least": 0})  # fmt: skip
FIXED_MS = Control("Fixed cost (ms)", "Time that every batch or step takes, independent of its size",
    "real", 5, COMPUTING, Slider("linear", 0, 50, 0.5), {"at_least": 0})  # fmt: skip
CONTROLS: Mapping[str, Control] = {
    **kind.TRAFFIC,
    "priorities": Control("Priorities",
        "Share of level 1, which is served first; type more levels as 1:0.2, 2:0.5, 3:0.3; empty: one level",
        "levels", (), ARRIVALS, Slider("share", 0, 0.95, 0.05), optional=True),
    "sizes": choice("Sizes", "Distribution of the sizes of requests", "none", ARRIVALS, SIZES),
    "size_mean": Control("Mean size", "Mean size of a request, in units such as tokens",
        "real", 80, ARRIVALS, Slider("log", 1, 10_000, 0.01), {"at_least": 1, "at_most": LONGEST}),
    "size_cv": Control("Size spread (CV)", "Standard deviation over mean of the requests' sizes",
        "real", 1, ARRIVALS, Slider("linear", 0, 3, 0.05), {"at_least": 0, "at_most": 1e3}),
    "size_most": Control("Largest size", "Larger requests are cut to this size; empty: no limit",
        "whole", 512, ARRIVALS, Slider("log whole", 1, 10_000, 0.01), {"at_most": LONGEST}, True),
    "size_unit": Control("Unit of sizes", "The name of a unit", "text", UNIT, None),
    "rule": choice("Server or rule", "When a batch leaves: as on a server, with its defaults, or by a rule",
        "size_or_wait", MAIN, RULE_OPTIONS),
    **SERVER,
    **PARAMETERS,
    "service": choice("Service time", "How long a batch computes", "affine", COMPUTING, SERVICES),
    "fixed_ms": FIXED_MS,
    "per_item_ms": Control("Cost per item (ms)", "Time that each request adds to its batch",
        "real", 0.25, COMPUTING, Slider("linear", 0, 5, 0.01), {"at_least": 0}),
    "per_unit_ms": Control("Cost per unit (ms)", "Time that each unit of the requests' sizes adds",
        "real", 0.01, COMPUTING, Slider("linear", 0, 0.1, 0.0005), {"at_least": 0}),
    "per_pair_ms": PER_PAIR_MS,
    "published": choice("Published table", "A published service time", "gpunet-175ms/v100-32gb/fp16", None,
        published_names()),
    "curve": Control("Curve", "A measured service time", "points", (), None, optional=True),
    "size_table": Control("Size table", "A measured service time by batch size and length", "rows", (), None,
        optional=True),
    "curve_of": Control("Curve source", "The model and the device of the curve", "text", "", None),
    **kind.NOISE,
    "padding": Control("Pad to sizes",
        "Round each batch up to the next of these sizes, e.g. 1, 2, 4, 8; empty: no padding",
        "sizes", (), DEVICE, optional=True),
    "lengths": Control("Pad to lengths",
        "Round the longest of a batch up to the next of these lengths, e.g. 128, 512; empty: no padding",
        "sizes", (), DEVICE, bounds={"at_most": LONGEST}, optional=True),
    "compile_ms": Control("Cold start (ms)",
        "Extra time for the first batch of each size, or padded size, while it compiles; the same for all "
        "sizes; 0: warm",
        "real", 0, DEVICE, Slider("linear", 0, 3000, 50), {"at_least": 0}),
    **kind.SERVERS,
    **kind.REPLICAS,
    "devices": Control("Devices",
        "Devices that the servers share, each computing one batch at a time; empty: one each",
        "whole", None, DEVICE, None, {"at_most": 64}, optional=True),
    "host_ms": Control("Host part (ms)",
        "Part of the service time before a batch needs its device; 0: none",
        "real", 0, DEVICE, Slider("linear", 0, 50, 0.1), {"at_least": 0}),
    "contention": Control("Contention", "Slowdown of a batch that starts while its device is busy; 1: none",
        "real", 1, DEVICE, Slider("linear", 1, 3, 0.05), {"at_least": 1, "at_most": 100}),
    "sharing": Control("Slowdown from sharing",
        "Without shared devices: slowdown from each additional busy server; 0: none",
        "real", 0, DEVICE, Slider("linear", 0, 1, 0.05), {"at_least": 0, "at_most": 100}),
    **kind.LIMITS,
    "timeout_action": choice("At the timeout", "The fate of a request that has waited too long", "reject",
        RULE, {"reject": "It leaves", "delay": "It is served after the others"}),
    "oversize_action": choice("Above the limit in units", "The fate of a request that alone exceeds it",
        "reject", RULE, dict(zip(OVERSIZE, ("It is rejected", "It is cut to the limit"), strict=True))),
    "request_map": choice("Heat map of limits", "The two settings on the axes of the heat map", "own", RULE,
        {"own": "The rule's own", "units": "Max batch units x max wait",
         "limits": "Max batch size x max batch units"}),
    "objective_ms": Control("p99 objective (ms)", "99% of requests are answered within this; empty: none",
        "real", 25, MAIN, Slider("log", 0.1, 10_000, 0.01), {"above": 0}, optional=True),
    **kind.SEED,
}  # fmt: skip


def _rule(values: Mapping[str, Any], given: Any) -> Any:
    rule = _RULE.make(values, given)
    if values["sizes"] == "none" and rule.by_size and hasattr(rule, "max_batch_units"):
        return dataclasses.replace(rule, max_batch_units=None)  # its control is hidden
    return rule


def _lengths(values: Mapping[str, Any], _: Any) -> Any:
    return (values["lengths"] or None) if values["service"] == "padded" else STAYS


def _costs_ms(costs_ms: Any, _: Any) -> Values | None:
    each = {cost_ms for _, cost_ms in costs_ms or ((1, 0),)}
    return {"compile_ms": each.pop()} if len(each) == 1 else None


# Servers share devices, or slow each other down, or neither.


def _devices(devices: int | None, scenario: Scenario) -> Values:
    apart = scenario.host_ms > 0 or scenario.contention > 1
    if devices is None and scenario.slowdown is None and apart:  # one each, which is the same
        return {"devices": scenario.servers, "servers": scenario.servers}
    return {"devices": devices}


def _slowdown(values: Mapping[str, Any], _: Any) -> dict[int, float] | None:
    if values["devices"] is not None or not values["sharing"] or values["servers"] == 1:
        return None
    return {busy: 1 + values["sharing"] * (busy - 1) for busy in range(1, values["servers"] + 1)}


def _sharing(slowdown: Mapping[int, float] | None, scenario: Scenario) -> Values | None:
    if slowdown is None:
        return {"sharing": 0.0}
    each, servers = slowdown.get(2, 1.0) - 1, scenario.servers
    even = all(abs(slowdown[busy] - 1 - each * (busy - 1)) <= 1e-9 for busy in range(1, servers + 1))
    return {"sharing": each, "servers": servers} if even else None


_RULE = chosen("rule", RULE_OPTIONS)
PARTS = kind.all_parts(
    {
        "workload.priorities": Part(("priorities",), lambda values, _: values["priorities"] or None,
            lambda shares, _: {"priorities": shares or ()}),
        "workload.sizes": chosen("sizes", SIZES),
        "workload.size_unit": same("size_unit"),
        "rule": _RULE._replace(make=_rule),
        "service": chosen("service", SERVICES)._replace(whole=True),
        "service.noise": kind.NOISE_PART,
        "service.padding": Part(("padding",),
            lambda values, _: (values["padding"] or None) if values["service"] != "size_table" else None,
            lambda padding, of: {"padding": () if isinstance(of.service, SizeTable) else padding or ()}),
        "service.lengths": Part(("lengths",), _lengths,
            lambda edges, of: {"lengths": edges or ()} if isinstance(of.service, PaddedTime) else {}),
        "service.compile_ms": Part(("compile_ms",),
            lambda values, _: ((1, values["compile_ms"]),) if values["compile_ms"] else None, _costs_ms),
        # The slider of the servers moves below the devices, too.
        "devices": Part(("devices",),
            lambda values, _: values["devices"] and min(values["devices"], values["servers"]), _devices),
        "host_ms": same("host_ms")._replace(
            make=lambda values, _: 0.0 if values["devices"] is None else values["host_ms"]),
        "contention": same("contention")._replace(
            make=lambda values, _: 1.0 if values["devices"] is None else values["contention"]),
        "slowdown": Part(("sharing", "devices"), _slowdown, _sharing),
        "routing": kind.routing_part(
            {name: each for name, each in kind.ROUTINGS.items() if not NAMES[name].needs_tokens}
        ),
    },
    CONTROLS,
)  # fmt: skip


class Requests(Kind):
    """Requests that are computed whole, in batches."""

    name = "requests"
    parts = PARTS
    base = Scenario(Poisson(1), SizeOrWait(), Affine(1, 1))
    controls: Mapping[str, Any] = CONTROLS
    conditions: Mapping[str, Any] = {
        "host_ms": lambda values: values["devices"] is not None,
        "contention": lambda values: values["devices"] is not None,
        "sharing": lambda values: values["servers"] > 1 and values["devices"] is None,
        "lengths": lambda values: values["service"] == "padded",
        "padding": lambda values: values["service"] != "size_table",
        "timeout_action": lambda values: values["timeout_ms"] is not None,
        "max_batch_units": lambda values: values["sizes"] != "none",
        "request_map": lambda v: _has_limit(v) and "max_wait_ms" in RULE_OPTIONS[v["rule"]].controls,
        **dict.fromkeys(("units", "oversize_action"), lambda v: _has_limit(v) and bool(v["max_batch_units"])),
        **kind.CONDITIONS,
    }
    servers: Mapping[str, Any] = SERVERS | SIZE_SERVERS
    service_type = Service
    film = TimelineView.KEY
    compared = ("p50_ms", "p99_ms", "mean_latency_ms", "throughput_per_s", "utilisation", "mean_batch_size")
    questions: Mapping[str, str] = {
        "p50": "p50, the middle latency", "p99": "p99, the slowest in a hundred", "throughput": "throughput",
    }  # fmt: skip
    cover = "Predict first: what happens to p50, p99 and throughput?\nThen choose Reveal."
    outcome = staticmethod(reasons.of_requests)

    def published(self, state: State) -> str:
        return str(state.published) if state.service == "published" else ""

    def changes(self, before: State, name: str, value: Any) -> Values:
        """Return the values that change with one: sizes come and go with the parts that need them."""
        values, state = super().changes(before, name, value), before.replace(**{name: value})
        if name == "sizes" and value == "none":
            values |= {"service": "affine"} if _is_sized(state) else {}
            return values | ({"rule": "size_or_wait", "server": ""} if _is_of_sizes(state) else {})
        return values | ({"sizes": "lognormal"} if _is_of_sizes(state) and state.sizes == "none" else {})

    def fitting(self, state: State, config: ServerConfig) -> State:
        lacks = config.rule.by_size and state.sizes == "none"
        return state.replace(sizes="lognormal") if lacks else state

    def slo(self, state: State) -> SLO | None:
        return None if state.objective_ms is None else SLO(p99_ms=state.objective_ms)

    def ranges(self, state: State) -> Ranges:
        service, sizes = state.field("service"), state.part("workload.sizes")
        largest = largest_slid(service)
        least_ms, slowest_ms = (1000 * mean_seconds(service, sizes, largest)[[0, -1]]).tolist()
        longest_ms = nice(4 * slowest_ms)
        ranges: Ranges = {
            "rate_per_s": (tenth(20 / least_ms), tenth(16 * largest / slowest_ms * 1000)),
            "max_batch_size": (1, largest),
            "host_ms": (0, least_ms, least_ms / 100),
            "objective_ms": (tenth(0.5 * least_ms), tenth(50 * slowest_ms)),
        }
        if sizes is not None:
            ranges["max_batch_units"] = tenth(usual_longest(sizes)), tenth(largest * usual_longest(sizes))
        for name in state.option("rule").controls:
            if name.endswith("_ms"):
                ranges[name] = (0, longest_ms, longest_ms / 200)
            elif name.endswith("batch_size"):
                ranges.setdefault(name, (1, state.max_batch_size))
        return ranges

    def rescaled(self, state: State, values: Values, keep_rate: bool = False) -> State:
        # The padding of the last service time may exceed this one's largest size.
        state = state.replace(**{"padding": (), **values})
        if state.sizes == "none" and _is_sized(state):
            state = state.replace(sizes="lognormal")
        service = state.field("service")
        if (longest := getattr(service, "longest", math.inf)) < math.inf:
            most = int(min(state.size_most or longest, longest))
            state = state.replace(size_mean=min(state.size_mean, longest), size_most=most)
        size = min(state.max_batch_size, largest_slid(service))
        state = state.replace(max_batch_size=size).fitted()
        full_ms = 1000 * float(mean_seconds(service, state.part("workload.sizes"), size)[-1])
        saturation_per_s = size / full_ms * 1000 * state.servers * state.replicas
        if not keep_rate and not 0.25 * saturation_per_s < state.rate_per_s < saturation_per_s:
            state = state.replace(rate_per_s=float(f"{0.4 * saturation_per_s:.2g}"))
        suits = full_ms / 50 <= state.max_wait_ms <= 5 * full_ms
        if not suits and state.max_wait_ms not in (0, math.inf):
            state = state.replace(max_wait_ms=nice(0.5 * full_ms))
        if state.objective_ms is not None and not full_ms < state.objective_ms < 20 * full_ms:
            state = state.replace(objective_ms=nice(2 * full_ms))
        return state

    def window(self, data: ViewData, server: int) -> Window:
        return request_window(RequestFilm.of(data.result), (data.window.begin_s, data.window.end_s))

    def origin(self, state: State) -> str:
        if state.service == "published":
            return origin_of(state.published, " latency")
        if "fixed_ms" in state.option("service").controls:
            of_units = state.option("service").label.partition(":")[2] if _is_sized(state) else ""
            return f"A formula: fixed cost + cost per item x batch size{of_units}."
        of = state.curve_of
        if not of:
            return "Given; its model and device are unknown."
        from batchsim.measured.models import devices  # loads JAX, as the measurement of a curve did

        here = devices()
        text = f"Measured: {of}, a device like this machine's."
        if of.partition(" on ")[2] not in here:
            other = f"This machine has {' and '.join(here)} instead"
            text = f"Measured: {of}. {other}: choose “Measure here” for its own curve."
        return html.escape(text)

    def run(
        self, state: State, scenario: Scenario, requests: int, stored: Stored, moving: bool
    ) -> ViewData:  # fmt: skip
        knobs = MAPS[state.request_map] if self.relevant("request_map", vars(state)) else None
        metric, objective_ms = state.map_metric, state.objective_ms
        return run(scenario, requests, state.seed, stored, knobs, metric=metric, objective_ms=objective_ms)


def _is_sized(state: State) -> bool:
    return issubclass(state.option("service").part, SizedTime)


def _is_of_sizes(state: State) -> bool:
    return state.rule_option.part in RULES_OF_SIZES


def _has_limit(values: Mapping[str, Any]) -> bool:
    """Return whether the chosen rule may limit the units of a batch, and there are units."""
    return values["sizes"] != "none" and "max_batch_units" in RULE_OPTIONS[values["rule"]].controls


def largest_slid(service: Service) -> int:
    """Return the largest batch size that a slider reaches."""
    return int(min(service.largest_batch, LARGEST_SLID))


def tenth(value: float) -> float:
    """Return the nearest tenth of a power of ten, for the end of a log slider."""
    return 10 ** (round(math.log10(value) * 10) / 10)


def origin_of(name: str, metric: str = "") -> str:
    """Return where a published service time comes from, as HTML with a link."""
    source = published_source(name)
    text = f"Published: {source.stat}{metric} with {source.backend}. Not measured on this machine."
    link = html.escape(source.source_url, quote=True)
    return f'{html.escape(text)} <a href="{link}" target="_blank" rel="noopener">Source</a>'
