"""Whole requests in the explorer: their rules, service times and servers; their runs come from `runs`."""

import dataclasses
import html
import math
from collections.abc import Mapping
from typing import Any

from batchsim.measured.published import published, published_names, published_source
from batchsim.scenario import RULES, Affine, Rule, Scenario, Service, SizeOrWait, Table, Tokens
from batchsim.scenario.full_batches import mean_seconds
from batchsim.scenario.lengths import LONGEST, Lengths, Uniform
from batchsim.scenario.rules import RULES_OF_SIZES
from batchsim.scenario.scenario import OVERSIZE
from batchsim.scenario.sized_time import PackedTime, PaddedTime, SizedTime, SizeTable
from batchsim.scenario.traffic import UNIT
from batchsim.servers.registry import SERVERS, SIZE_SERVERS
from batchsim.servers.server import ServerConfig
from batchsim.study.slo import SLO
from batchsim.view.explorer import kind, presets, reasons
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
from batchsim.view.explorer.kind import Kind, Ranges, State, Values, Workload
from batchsim.view.explorer.presets import SERVER
from batchsim.view.explorer.runs import Stored, run, usual_longest
from batchsim.view.film.film import RequestFilm
from batchsim.view.film.window import Window, request_window
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.timeline import TimelineView
from batchsim.view.scales import nice

LARGEST_SLID = 64  # larger batch sizes can be typed
# Controls that are fields of the scenario, under the same name.
FIELDS = (
    "servers", "queue_limit", "timeout_ms", "timeout_action", "devices", "host_ms", "contention",
    "oversize_action",
)  # fmt: skip

ROUTINGS = kind.routings(of_tokens=False)

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
        "whole", 512, ARRIVALS, Slider("log", 1, 10_000, 0.01), {"at_most": LONGEST}, True),
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
    **kind.replicas(ROUTINGS, MAIN),
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


class Requests(Kind):
    """Requests that are computed whole, in batches."""

    name = "requests"
    options: Mapping[str, Any] = {"workload": kind.WORKLOADS, "sizes": SIZES, "rule": RULE_OPTIONS,
        "service": SERVICES, "routing": ROUTINGS}  # fmt: skip
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
        **kind.with_replicas("replicas", "routing"),
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

    def workload_values(self, workload: Any) -> Values:
        values = super().workload_values(workload) | {"priorities": workload.priorities or ()}
        sizes = self.values_of("sizes", workload.sizes) or {"sizes": "given"}
        return values | sizes | {"size_unit": workload.size_unit}

    def service_time(self, state: State) -> Service:
        service: Service = super().service_time(state)
        if state.padding and not isinstance(service, SizeTable):
            service = service.padded_to(state.padding)
        if state.lengths and isinstance(service, PaddedTime):
            service = service.padded_to(lengths=state.lengths)
        return service.compiling(state.compile_ms) if state.compile_ms else service

    def scenario(
        self, state: State, workload: Any, traffic: Workload | None, tokens: Tokens | None
    ) -> Scenario:  # fmt: skip
        sizes, rule = sizes_of(state, traffic), state.made("rule")
        own = {"priorities": state.priorities or None, "sizes": sizes, "size_unit": state.size_unit}
        if workload.of_requests != own:
            workload = dataclasses.replace(workload, **own)
        if (
            sizes is None and rule.by_size and hasattr(rule, "max_batch_units")
        ):  # the control of the limit is hidden
            rule = dataclasses.replace(rule, max_batch_units=None)
        sharing: dict[str, Any] = {}  # servers share devices, or slow each other down, or neither
        if state.devices is not None:  # the slider of the servers moves below them, too
            devices = min(state.devices, state.servers)
            sharing = {"devices": devices, "host_ms": state.host_ms, "contention": state.contention}
        elif state.sharing and state.servers > 1:
            counts = range(1, state.servers + 1)
            sharing["slowdown"] = {busy: 1 + state.sharing * (busy - 1) for busy in counts}
        return Scenario(
            workload, rule, state.service_time(), state.servers, state.queue_limit,
            state.timeout_ms, timeout_action=state.timeout_action, oversize_action=state.oversize_action,
            replicas=state.replicas, routing=state.made("routing"), stale_ms=state.stale_ms, **sharing,
        )  # fmt: skip

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

    def setting_values(self, scenario: Scenario) -> Values:
        slowdown, sharing = scenario.slowdown, 0.0
        if slowdown is not None:
            sharing = slowdown.get(2, 1.0) - 1
            if any(abs(slowdown[n] - 1 - sharing * (n - 1)) > 1e-9 for n in range(1, scenario.servers + 1)):
                raise ValueError(f"slowdown must grow evenly to be explored, got {slowdown!r}")
        rule = self.values_of("rule", scenario.rule)
        if rule is None:
            raise ValueError(f"a rule must be registered to be explored, got {scenario.rule!r}")
        values = {name: getattr(scenario, name) for name in FIELDS} | {"sharing": sharing}
        values |= self.replica_values(scenario, "replicas", "routing")
        for name, value in values.items():
            if isinstance(value, Mapping):
                raise ValueError(f"{name} must be the same for all levels to be explored, got {value!r}")
        if (
            slowdown is None
            and scenario.devices is None
            and (scenario.host_ms > 0 or scenario.contention > 1)
        ):
            values["devices"] = scenario.servers  # one each, which is the same
        return values | rule | {
            "priorities": scenario.workload.priorities or (), "padding": _padding(scenario.service),
        }  # fmt: skip

    def values(self, scenario: Scenario) -> Values:
        values = self.workload_values(scenario.workload) | self.service_values(scenario.service)
        return values | self.setting_values(scenario)

    def service_values(self, service: Service, curve_of: str = "") -> Values:
        values = self.values_of("service", service)
        if values is None:
            known = "an Affine, a Table, a PaddedTime, a PackedTime or a SizeTable"
            raise TypeError(f"service must be {known} to be explored, got {service!r}")
        values["padding"] = _padding(service)
        if isinstance(service, PaddedTime):
            values["lengths"] = service.edges
        if service.compile_ms is not None:
            costs_ms = dict(service.compile_ms)
            if len(set(costs_ms.values())) > 1:
                raise ValueError(f"compile_ms must be one for all sizes to be explored, got {costs_ms!r}")
            values["compile_ms"] = next(iter(costs_ms.values()))
        values |= kind.noise_values(service.noise)
        return values | ({"curve_of": curve_of} if {"curve", "size_table"} & values.keys() else {})

    def python(self, state: State, scenario: Scenario) -> dict[str, str]:
        service = f"bs.{scenario.service!r}"
        if state.service == "published":  # by its name, not point by point
            points = f"bs.{published(state.published)!r}"
            service = service.replace(points, f'bs.published("{state.published}")')
        rule = f"bs.{scenario.rule!r}".replace("=inf", '=float("inf")')
        return {"rule": presets.python(state.server, scenario) or rule, "service": service}

    def ranges(self, state: State, traffic: Workload | None, tokens: Tokens | None) -> Ranges:
        service, sizes = state.service_time(), sizes_of(state, traffic)
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

    def rescaled(
        self, state: State, values: Values, traffic: Workload | None = None, keep_rate: bool = False
    ) -> State:  # fmt: skip
        # The padding of the last service time may exceed this one's largest size.
        state = state.replace(**{"padding": (), **values})
        if state.sizes == "none" and _is_sized(state):
            state = state.replace(sizes="lognormal")
        service = state.service_time()
        if (longest := getattr(service, "longest", math.inf)) < math.inf:
            most = int(min(state.size_most or longest, longest))
            state = state.replace(size_mean=min(state.size_mean, longest), size_most=most)
        size = min(state.max_batch_size, largest_slid(service))
        state = state.replace(max_batch_size=size).fitted()
        full_ms = 1000 * float(mean_seconds(service, sizes_of(state, traffic), size)[-1])
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
        from batchsim.device.models import devices  # loads JAX, as the measurement of a curve did

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
        return run(scenario, requests, state.seed, stored, knobs, objective_ms=state.objective_ms)


def sizes_of(state: State, traffic: Workload | None) -> Lengths | None:
    """Return the sizes of a state's requests, those of `traffic` for "given"; None without any."""
    if state.sizes != "given":
        sizes: Lengths | None = state.made("sizes")
        return sizes
    if traffic is None or traffic.sizes is None:
        raise ValueError("sizes='given' must come with traffic that has sizes, got none")
    return traffic.sizes


def _is_sized(state: State) -> bool:
    return issubclass(state.option("service").part, SizedTime)


def _is_of_sizes(state: State) -> bool:
    return state.rule_option.part in RULES_OF_SIZES


def _padding(service: Service) -> tuple[int, ...]:
    """Return the sizes to which a control pads batches; a SizeTable has its own."""
    return () if isinstance(service, SizeTable) else service.padding or ()


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
