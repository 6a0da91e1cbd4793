"""Whole requests in the explorer: their rules, service times and servers; their runs come from `runs`."""

import dataclasses
import html
import math
from collections.abc import Mapping
from typing import Any

from batchsim._compat import IN_BROWSER
from batchsim.measured.published import published_source
from batchsim.scenario import Affine, Poisson, Scenario, Service, SizeOrWait
from batchsim.scenario.full_batches import mean_seconds
from batchsim.scenario.routing import NAMES
from batchsim.scenario.rules import RULES_OF_SIZES
from batchsim.scenario.sized_time import PaddedTime, SizedTime, SizeTable
from batchsim.scenario.traffic import UNIT
from batchsim.servers.registry import SERVERS, SIZE_SERVERS
from batchsim.servers.server import ServerConfig
from batchsim.study.slo import SLO
from batchsim.view.explorer import kind, reasons
from batchsim.view.explorer.kind import AState, Kind, Ranges, State
from batchsim.view.explorer.options import ROUTINGS, RULES, SERVICES, SIZES
from batchsim.view.explorer.parts import STAYS, Part, Parts, Values, chosen, optional, same
from batchsim.view.explorer.runs import Stored, run, usual_longest
from batchsim.view.film.clip import Clip, request_clip
from batchsim.view.film.film import RequestFilm
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.timeline import TimelineView
from batchsim.view.scales import nice

LARGEST_SLID = 64  # larger batch sizes can be typed
MAPS: Mapping[str, tuple[str, str] | None] = {  # the heat map's axes, x and y; None: the rule's own
    "own": None, "units": ("max_batch_units", "max_wait_ms"), "limits": ("max_batch_size", "max_batch_units"),
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


def _slow_each_other(values: Mapping[str, Any]) -> bool:
    return values["devices"] is None and values["sharing"] > 0 and values["servers"] > 1


def _slowdown(values: Mapping[str, Any], _: Any) -> dict[int, float] | None:
    if not _slow_each_other(values):
        return None
    return {busy: 1 + values["sharing"] * (busy - 1) for busy in range(1, values["servers"] + 1)}


def _sharing(slowdown: Mapping[int, float] | None, scenario: Scenario) -> Values | None:
    if slowdown is None:
        return {"sharing": 0.0}
    each, servers = slowdown.get(2, 1.0) - 1, scenario.servers
    even = all(abs(slowdown[busy] - 1 - each * (busy - 1)) <= 1e-9 for busy in range(1, servers + 1))
    return {"sharing": each, "servers": servers} if even else None


_RULE = chosen("rule", RULES)
PARTS: Parts = {
    **kind.PARTS,
    "workload.priorities": optional("priorities"),
    "workload.sizes": chosen("sizes", SIZES),
    "workload.size_unit": same("size_unit")._replace(
        make=lambda values, _: UNIT if values["sizes"] == "none" else values["size_unit"]),
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
    "devices": same("devices")._replace(
        make=lambda values, _: values["devices"] and min(values["devices"], values["servers"])),
    "host_ms": same("host_ms")._replace(
        make=lambda values, _: 0.0 if _slow_each_other(values) else values["host_ms"]),
    "slowdown": Part(("sharing", "devices"), _slowdown, _sharing),
    "routing": kind.routing_part(
        {name: each for name, each in ROUTINGS.items() if not NAMES[name].needs_tokens}
    ),
}  # fmt: skip


class Requests(Kind):
    """Requests that are computed whole, in batches."""

    name = "requests"
    parts = PARTS
    base = Scenario(Poisson(1), SizeOrWait(), Affine(1, 1))
    others = "curve_of", "request_map", "objective_ms"
    conditions: Mapping[str, Any] = {
        # Without shared devices they have no effect, but a scenario may name them.
        "host_ms": lambda v: v["devices"] is not None or (v["host_ms"] > 0 and not _slow_each_other(v)),
        "contention": lambda values: values["devices"] is not None or values["contention"] > 1,
        "sharing": lambda values: values["servers"] > 1 and values["devices"] is None,
        "lengths": lambda values: values["service"] == "padded",
        "padding": lambda values: values["service"] != "size_table",
        "timeout_action": lambda values: values["timeout_ms"] is not None,
        "max_batch_units": lambda values: values["sizes"] != "none",
        "request_map": lambda v: _has_limit(v) and "max_wait_ms" in RULES[v["rule"]].controls,
        **dict.fromkeys(("units", "oversize_action"), lambda v: _has_limit(v) and bool(v["max_batch_units"])),
        **kind.CONDITIONS,
    }
    servers: Mapping[str, Any] = SERVERS | SIZE_SERVERS
    service_type = Service
    film = TimelineView.KEY
    shortens = IN_BROWSER  # its map, which takes as long there as all else
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

    def fitting(self, state: AState, config: ServerConfig) -> AState:
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

    def rescaled(self, state: AState, values: Values, keep_rate: bool = False) -> AState:
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

    def clip(self, data: ViewData, server: int) -> Clip:
        return request_clip(RequestFilm.of(data.result), (data.window.begin_s, data.window.end_s))

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
        rough = moving and self.shortens
        return run(scenario, requests, state.seed, stored, knobs, rough, metric, objective_ms=objective_ms)


def _is_sized(state: State) -> bool:
    return issubclass(state.option("service").part, SizedTime)


def _is_of_sizes(state: State) -> bool:
    return state.rule_option.part in RULES_OF_SIZES


def _has_limit(values: Mapping[str, Any]) -> bool:
    """Return whether the chosen rule may limit the units of a batch, and there are units."""
    return values["sizes"] != "none" and "max_batch_units" in RULES[values["rule"]].controls


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
