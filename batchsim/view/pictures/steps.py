"""The steps of token generation: their tokens, and how many seats and blocks of memory are taken."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from batchsim._compat import repeat
from batchsim._format import counted, duration, listed, number, percent
from batchsim.result import Result
from batchsim.result.moments import Moment, taken
from batchsim.result.seats import replayed
from batchsim.scenario import Continuous
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.view import DASHED, MomentView, Spot, StackedView, Style, Ticks
from batchsim.view.scales import nice
from batchsim.view.theme import FILLS, PHASES

LEAST_MS = 1e-6  # shorter gaps between two steps are rounding errors
ENDLESS = 2**20  # seats: as many are no limit
COLUMNS = {"seats": "step_running", "memory": "step_blocks"}  # of the log
PARTS = {"prefill": "tokens of prompts", "decode": "of answers", "padding": "of padding"}
RUNGS = "captured size"


class StepMomentView(MomentView):
    """Some steps of one server; below, in a large view, what they take, in axes of its own."""

    LACKS = "no step ran\non this server"

    def add_moment(self) -> None:
        """Add what all views of steps have."""
        self.add_place()
        self.mark: Style = {
            "linestyle": "none", "marker": "v", "color": getattr(self.look, PHASES["preempted"].colour),
            "markeredgecolor": self.look.ink, "markeredgewidth": 0.3 * self.line_pt,
            "markersize": 0.5 * self.em,
        }  # fmt: skip
        self.preempted = self.line(self.ax, 4, **self.mark)
        self.strip = self.axes[1] if len(self.axes) > 1 else None
        if self.strip is not None:
            self.ax.tick_params(labelbottom=False)
            self.strip.set_ylabel("taken")

    def title(self, data: ViewData) -> str:
        servers = data.result.scenario.all_servers
        return super().title(data) + f", server {self.server + 1:,}" * (servers > 1 and not self.large)

    def lacks(self, data: ViewData) -> bool:
        return data.moment(self.server) is None

    def now(self, data: ViewData) -> Moment:
        """Return the steps that are shown."""
        found = data.moment(self.server)
        assert found is not None  # else the view lacks them, and is not drawn
        return found

    def update(self, data: ViewData) -> None:
        now = self.now(data)
        servers = now.result.scenario.all_servers
        self.write_place(now.begin_s, f", server {now.server + 1:,} of {servers:,}" * (servers > 1))
        self.show_moment(data, now)

    def show_moment(self, data: ViewData, now: Moment) -> None:
        """Draw a moment."""
        raise NotImplementedError

    def show_preemptions(self, times_ms: np.ndarray, heights: np.ndarray) -> list[tuple[str, Style]]:
        """Mark preemptions; return their entry of the legend, if there are any."""
        self.preempted.set_visible(bool(times_ms.size))
        self.preempted.set_data(times_ms, heights)
        return [("preempted", self.mark)] * bool(times_ms.size)


class StepsView(StepMomentView, StackedView):
    """The tokens of each step of one server; below, how many seats and blocks of memory are taken.

    A small view has only the tokens.
    """

    KEY, NAME, SHORT = "steps", "Step by step: tokens, seats, memory", "Step tokens"
    RANK, PANELS = 2, (0.6, 0.4)

    def make(self) -> None:
        self.ax.set_ylabel("tokens")
        # From the bottom up: every step has tokens of answers.
        bars = {name: (PHASES[name].colour, "") for name in ("decode", "prefill")}
        self.add_bars(self.ax, bars | {"padding": ("grey", FILLS["padding"].hatch)})
        self.rung: Style = self.style("soft", "none") | {"marker": "_", "markersize": 0.8 * self.em}
        # Beside the seats, of which there are fewer than tokens; a small view has tokens alone.
        lowest = self.axes[-1]
        self.rungs = self.line(lowest, 4, transform=lowest.get_yaxis_transform(), **self.rung)
        self.budget = self.ax.axhline(1, zorder=2.5, **self.style("soft", DASHED, 0.6))
        right = {"ha": "right", "va": "bottom", "color": self.look.soft}
        self.budget_name = self.text(self.ax, xycoords=self.ax.get_yaxis_transform(), **right)
        self.add_moment()
        if self.strip is not None:
            self.strip.yaxis.set_major_formatter("{x:g}%")
            self.strip.yaxis.set_major_locator(Ticks(3))
            self.line_styles = {"seats": self.style("blue"), "memory": self.style("orange", DASHED)}
            self.lines, self.other_lines = (
                {name: self.outlines(self.strip, zorder, **style) for name, style in self.line_styles.items()}
                for zorder in (3, 2.5)
            )

    def show_moment(self, data: ViewData, now: Moment) -> None:
        edges_ms = _edges_ms(now)
        parts = now.answer_tokens, now.prompt_tokens, now.padded_rows
        heights = np.array([_with_gaps(each, edges_ms) for each in parts])
        highest = self.show_bars(heights, edges_ms, None, data)
        self.limits(self.ax, x=(0, edges_ms[-1]), y=(0, nice(1.05 * highest)))
        right_ms, top = float(self.ax.get_xlim()[1]), float(self.ax.get_ylim()[1])
        rule = now.result.scenario.rule
        budget = rule.max_num_batched_tokens if isinstance(rule, Continuous) else 0
        seen = 0 < budget <= top
        self.budget.set_visible(seen)
        self.budget.set_ydata([budget] * 2)
        self.write(self.budget_name, f"budget {budget:,}" * (seen and self.large), 1, budget, up=0.15)
        self.label(self.axes[-1].xaxis, "time", right_ms)
        ladder = captured(now.result)
        scale = 1.0 if self.strip is None else 100 / limits_of(now.result)["seats"]
        self.rungs.set_data(np.full(ladder.size, 0.995), ladder * scale)
        self.rungs.set_visible(bool(ladder.size))
        shown = [name for name in PARTS if name != "padding" or now.padded_rows.any()]
        entries = [(PARTS[name], self.styles[name]) for name in shown]
        entries += [(RUNGS, self.rung)] * bool(ladder.size)
        back = np.flatnonzero(now.column("step_preempted"))
        entries += self.show_preemptions(edges_ms[2 * back], np.full(back.size, 0.96 * top))
        if self.strip is not None:
            self._show_lines(self.strip, data, now, edges_ms)
            for name, share in taken_shares(now).items():
                said = f"{percent(float(np.mean(share)))} of {limit_in_words(now, name)}"
                entries.append((said, self.line_styles[name]))
        self.legend(self.axes[-1], entries)

    def _show_lines(self, ax: Axes, data: ViewData, now: Moment, edges_ms: np.ndarray) -> None:
        style, highest = self.other_style(data), 0.0
        for lines, each in ((self.lines, data), (self.other_lines, data.other)):
            limits = {} if each is None else limits_of(each.result)
            for name, line in lines.items():
                line.set_visible(name in limits)
                if each is not None and name in limits:
                    # The same requests arrive in the other setting, so its steps at the same times are shown.
                    stretch = self.server, now.begin_s, now.end_s
                    edges_s, counts = taken(each.result, *stretch, COLUMNS[name])
                    line.set_data(100 * counts / limits[name], 1000 * (edges_s - now.begin_s))
                    highest = max(highest, 100 * float(counts.max()) / limits[name])
                if each is not data:
                    line.set(color=style["color"], linewidth=style["linewidth"])
        self.limits(ax, x=(0, edges_ms[-1]), y=(0, min(nice(1.02 * highest), 102)))

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        now = self.now(data)
        edges_ms = _edges_ms(now)
        place = int(np.searchsorted(edges_ms, x, side="right")) - 1
        if place >= edges_ms.size - 1:
            return None
        if place % 2:
            return Spot(self.KEY, "Nothing runs")
        step = place // 2
        parts = [
            counted(int(tokens[step]), noun)
            for tokens, noun in ((now.prompt_tokens, "prompt token"), (now.answer_tokens, "token"))
            if tokens[step]
        ]
        text = f"Step {now.steps[step]:,}, {duration(edges_ms[place + 1] - edges_ms[place])}: {listed(parts)}"
        text += replayed(now.log, now.result.scenario, int(now.steps[step]))
        running, waiting = (int(now.column(f"step_{name}")[step]) for name in ("running", "waiting"))
        text += f"; {running:,} run, {waiting:,} wait"
        if limit := limits_of(now.result).get("memory"):
            text += f"; {now.column('step_blocks')[step]:,} of {limit:,} blocks"
        if back := int(now.column("step_preempted")[step]):
            text += f"; {back:,} preempted"
        return Spot(self.KEY, text)

    def describe(self, data: ViewData) -> list[str]:
        now = self.now(data)
        span = duration(1000 * (now.end_s - now.begin_s))
        steps = f"{counted(now.steps.size, 'step')} from {number(now.begin_s, 4)} s on, {span} in all"
        means = (float(each.mean()) for each in (now.prompt_tokens, now.answer_tokens))
        tokens = "{} tokens of prompts and {} of answers each on average".format(*map(number, means))
        taken = listed([
            f"{percent(float(share.mean()))} of {limit_in_words(now, name)}"
            for name, share in taken_shares(now).items()
        ])  # fmt: skip
        back = int(now.column("step_preempted").sum())
        return [f"{steps}: {tokens}, {taken} taken" + (f", {back:,} preempted." if back else ".")]


def captured(result: Result) -> np.ndarray:
    """Return the captured sizes of decodes that the seats can fill."""
    service: Any = result.scenario.service
    sizes = np.array(service.captured or (), np.int64)
    return sizes[sizes <= service.whole_cost(result.scenario.rule.largest_batch).most_captured]


def limits_of(result: Result) -> dict[str, int]:
    """Return the numbers of a server's seats and blocks of memory, if these are limited.

    Endless seats count as the most that are ever taken.
    """
    rule = result.scenario.rule
    limits = {"seats": rule.largest_batch}
    if rule.largest_batch >= ENDLESS:
        limits["seats"] = max(int(result.replications[0].steps.running.max()), 1)
    if isinstance(rule, Continuous) and rule.kv_blocks is not None:
        limits["memory"] = rule.kv_blocks
    return limits


def limit_in_words(now: Moment, name: str) -> str:
    """Return the limit with its noun."""
    limit = limits_of(now.result)[name]
    if name == "seats" and now.result.scenario.rule.largest_batch >= ENDLESS:
        return f"{limit:,} that ever run"
    return counted(limit, "seat" if name == "seats" else "block")


def taken_shares(now: Moment) -> dict[str, np.ndarray]:
    """Return the taken fraction of the seats and of the blocks in each step, if they are limited."""
    return {name: now.column(COLUMNS[name]) / limit for name, limit in limits_of(now.result).items()}


def _edges_ms(now: Moment) -> np.ndarray:
    """Return the start and the finish of each step, in ms from the first start; gaps may be 0."""
    times_s = np.stack([now.column("batch_start_s"), now.column("batch_finish_s")], axis=1).ravel()
    return 1000 * (times_s - times_s[0])


def _with_gaps(values: np.ndarray, edges_ms: np.ndarray) -> np.ndarray:
    """Return values with one more for each gap after a step: 0, or the step's own if the gap is rounding."""
    both = repeat(values.astype(float), 2)[:-1]
    both[1::2][np.diff(edges_ms)[1::2] > LEAST_MS] = 0.0
    return both
