"""The durations of token generation: TTFT, TPOT and the whole answer, as cumulative shares."""

import math
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes

from batchsim._format import duration, listed, number, percent, typed_duration
from batchsim.result.metrics import ITL, LATENCY, TPOT, TTFT
from batchsim.view.pictures.data import NAMED, ViewData
from batchsim.view.pictures.latency import SAID, GrowingView, describe_objective, difference
from batchsim.view.pictures.view import DASHED, DOTTED, Spot, Style, Ticks
from batchsim.view.scales import log_ticks, nice_span

DASHES: dict[str, Any] = {TTFT: DASHED, TPOT: DOTTED, ITL: (0, (3, 1, 1, 1)), LATENCY: "-"}
ABOVE = 1.6  # ems above 100 %, for the names of curves at their ends


class TokenLatencyView(GrowingView):
    """The share of the requests whose TTFT, TPOT and answer are within a time, and that of the gaps.

    Objectives are lines, with a dot at the share that meets each.
    """

    NAME, SHORT = "TTFT, TPOT, gaps and answer", "Share within a time"
    COMPARED: ClassVar = {
        "ttft_p99_ms": ("TTFT p99", " ms"), "tpot_p99_ms": ("TPOT p99", " ms"),
        "output_tokens_per_s": ("throughput", " tokens/s"),
    }  # fmt: skip
    UNSTEADY = "TTFT"

    def show_times(self, data: ViewData, other: ViewData | None) -> None:
        shown_ms, ends = [*data.all_limits_ms.values()], {}
        given = [of for of in NAMED if self.large or of != ITL]  # a small view has no room for a fourth name
        for each, key, zorder in ((data, "now", 3), (other, "other", 2.5)):
            for of in NAMED if each is not None else ():
                assert each is not None
                times_ms, shares = each.curves[of]
                shown_ms += times_ms[[0, -1]].tolist() if times_ms.size else []
                if of in given:
                    style = self.now_style if each is data else self.other_style(data)
                    look: Style = style | {"linestyle": DASHES[of], "zorder": zorder}
                    self.plot((key, of), times_ms, 100 * shares, **look)
                if of in given and each is data and times_ms.size:
                    ends[of] = NAMED[of], max(float(times_ms[-1]), 1e-9), 100 * float(shares[-1])
        for of in given:
            if (limit_ms := data.all_limits_ms.get(of)) is not None:
                objective: Style = self.style("objective", DASHES[of], 0.8) | {"zorder": 2.2}
                upright = self.ax.get_xaxis_transform()
                self.plot(("objective", of), [limit_ms] * 2, [0, 1], transform=upright, **objective)
                dot = self.mark("o", 2.8, "objective", "background")
                self.plot(("dot", of), [limit_ms], [100 * data.shares[of]], **dot)
        there = [ms for ms in shown_ms if 0 < ms < math.inf]
        self._scale(*nice_span(min(there), max(there)) if there else (1.0, 100.0))
        above: Style = {"up": 0.8, "ha": "center", "va": "center", "bbox": self.halo}
        self.names(ends, 4.2 if self.large else 3.6, across=True, **above)
        self.note("note", "\n".join(self._notes(data)), y=0.4, right=-0.3, up=0, bbox=self.halo)

    def _scale(self, low_ms: float, high_ms: float) -> None:
        if self.changed("scale", "log"):
            self.ax.set_xscale("log")
        top = 100 / (1 - ABOVE * self.em_px / self.ax.bbox.height)
        self.limits(self.ax, "times", x=(low_ms, high_ms), y=(0, top))
        self.label(self.ax.xaxis, "time")
        self.label(self.ax.yaxis, "requests within this time" if self.large else "requests", form="{x:g}%")
        room = int(self.ax.bbox.width / (5 * self.em_px))  # their units make texts wide
        if self.changed("room", room):
            log_ticks(self.ax.xaxis, max(min(7 if self.large else 4, room), 2))
            self.ax.xaxis.set_major_formatter(lambda ms, _: typed_duration(ms))

    def _show_queue(self, data: ViewData, other: ViewData | None) -> None:
        if self.changed("scale", "linear"):
            self.known.pop("room", None)
            self.ax.set_xscale("linear")
            self.ax.xaxis.set_major_locator(Ticks(5))
        super()._show_queue(data, other)

    def _notes(self, data: ViewData) -> list[str]:
        """Return the words beside the curves: the differences from A, or the shares within the objectives."""
        if data.pinned is not None and data.comparison is not None:
            names = {key: name for key, (name, unit) in self.COMPARED.items() if unit == " ms"}
            found = [" ".join(difference(data.comparison, key, name)) for key, name in names.items()]
            if any(found):
                return found
        notes, given = [], data.all_limits_ms
        for of, name in NAMED.items():
            if of == ITL and given and ITL not in given:
                continue
            if (limit_ms := given.get(of)) is None:
                notes.append(f"{name} p99 {duration(data.percentile_of_all(99, of))}")
            else:
                notes.append(f"{name} {percent(data.shares[of])} in {typed_duration(limit_ms)}")
        if len(data.limits_ms) > 1:
            notes.append(f"all {percent(data.attainment)}")
        if data.loss:
            notes.append(f"{percent(data.loss)} lost")
        return notes

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        if not data.summary["served"]:
            return None
        if data.overloaded:
            return self.spot_of_queue(x, data)
        shares = (
            f"{name} {percent(float(np.interp(x, *data.curves[of], left=0.0)))}"
            for of, name in NAMED.items()
            if data.curves[of][0].size  # an answer of one token has no TPOT
        )
        return Spot(self.KEY, f"Within {duration(x)}: {listed([*shares])} of the requests, or gaps")

    def carried(self, data: ViewData) -> str:
        servers = data.result.scenario.all_servers
        return "the server carries" if servers == 1 else f"{servers:,} servers carry"

    def describe_times(self, data: ViewData) -> list[str]:
        sentences = []
        for of, name in NAMED.items():
            if math.isnan(data.percentile_of_all(50, of)):
                sentences.append(f"{name}: there is none, each answer has one token.")
                continue
            values = (f"p{q} {number(data.result.percentile(q, column=of))} ms" for q in SAID)
            sentences.append(f"{name[0].upper()}{name[1:]}: {', '.join(values)}.")
            if (limit_ms := data.all_limits_ms.get(of)) is not None:
                p99_ms = data.percentile_of_all(99, of)
                said = describe_objective(limit_ms, p99_ms, data.shares[of])
                sentences.append(said.replace("requests", "gaps between tokens") if of == ITL else said)
        if len(data.limits_ms) > 1:
            within = f"{percent(data.attainment)} of requests are within all objectives"
            sentences.append(f"{within}: goodput {number(data.goodput_per_s)}/s.")
        if data.loss:
            sentences.append(f"{percent(data.loss)} of requests are lost.")
        return sentences
