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
from batchsim.view.pictures.view import DASHED, MomentView, Spot, Style, Ticks
from batchsim.view.scales import nice
from batchsim.view.theme import FILLS, PHASES

LEAST_MS = 1e-6  # shorter gaps between two steps are rounding errors
ENDLESS = 2**20  # seats: as many are no limit
COLUMNS = {"seats": "step_running", "memory": "step_blocks"}  # of the log
PARTS = {  # of the tokens: names, colours and hatches
    "decode": ("tokens of answers", PHASES["decode"].colour),
    "prefill": ("of prompts", PHASES["prefill"].colour),
    "padding": ("of padding", "grey", FILLS["padding"].hatch),
}  # fmt: skip
RUNGS = "captured size"


class StepMomentView(MomentView):
    """Some steps of one server; below, in a large view, how many seats and blocks of memory are taken."""

    LACKS = "no step ran\non this server"

    def make(self) -> None:
        super().make()
        self.strip = self.axes[1] if len(self.axes) > 1 else None
        if self.strip is not None:
            self.ax.tick_params(labelbottom=False)
            self.strip.set_ylabel("taken")
            self.strip.set_title(" ", size=self.em, alpha=0)  # room for the shares
            self.strip.yaxis.set_major_formatter("{x:g}%")
            self.strip.yaxis.set_major_locator(Ticks(3))

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
        if self.strip is not None:
            self._show_taken(self.strip, data, now)
        self.legend(self.axes[-1], most=None if self.large else 2)

    def show_moment(self, data: ViewData, now: Moment) -> None:
        """Draw a moment."""
        raise NotImplementedError

    def show_preemptions(self, times_ms: np.ndarray, heights: np.ndarray) -> None:
        """Mark preemptions, if there are any."""
        if times_ms.size:
            mark = self.mark("v", 2.7, "vermilion", "ink", markeredgewidth=0.3 * self.line_pt)
            self.plot("preempted", times_ms, heights, **mark, label="preempted")

    def _show_taken(self, ax: Axes, data: ViewData, now: Moment) -> None:
        """Draw the taken shares of seats and blocks, here and in the other setting, and captured sizes."""
        looks = {"seats": self.style("blue"), "memory": self.style("orange", DASHED)}
        highest = 0.0
        ladder = captured(now.result)
        if ladder.size:  # beside the seats
            rung = self.mark("_", 4.3, "soft", transform=ax.get_yaxis_transform(), label=RUNGS)
            at = 100 * ladder / limits_of(now.result)["seats"]
            self.plot("captured", np.full(ladder.size, 0.995), at, ax, **rung)
        for each in filter(None, (data, data.other)):
            for name, limit in limits_of(each.result).items():
                # The same requests arrive in the other setting, so its steps at the same times are shown.
                edges_s, counts = taken(each.result, self.server, now.begin_s, now.end_s, COLUMNS[name])
                percents, look = 100 * counts / limit, looks[name] | {"zorder": 3}
                if each is data:
                    look["label"] = name
                else:
                    look |= self.other_style(data) | {"linestyle": look["linestyle"], "zorder": 2.5}
                kind = "now" if each is data else "other"
                self.stairs((kind, name), percents, 1000 * (edges_s - now.begin_s), ax=ax, **look)
                highest = max(highest, float(percents.max()))
        self.limits(ax, x=(0, 1000 * (now.end_s - now.begin_s)), y=(0, min(nice(1.02 * highest), 102)))
        # Numbers in the legend would make all be drawn again at every move.
        self.note("taken", ", ".join(taken_in_words(now).values()), up=0.45, ax=ax, va="baseline")

    def spot(self, ax: Axes, x: float, y: float, data: ViewData) -> Spot | None:
        now = self.now(data)
        edges_ms = _edges_ms(now)
        place = int(np.searchsorted(edges_ms, x, side="right")) - 1
        if place >= edges_ms.size - 1:
            return None
        if place % 2:
            return Spot(self.KEY, "Nothing runs")
        step = place // 2
        counts = {"prompt token": now.prompt_tokens[step], "token": now.answer_tokens[step]}
        parts = [counted(int(count), noun) for noun, count in counts.items() if count]
        text = f"Step {now.steps[step]:,}, {duration(edges_ms[place + 1] - edges_ms[place])}: {listed(parts)}"
        text += replayed(now.log, now.result.scenario, int(now.steps[step]))
        running, waiting = (int(now.column(f"step_{name}")[step]) for name in ("running", "waiting"))
        text += f"; {running:,} run, {waiting:,} wait"
        if limit := limits_of(now.result).get("memory"):
            text += f"; {now.column('step_blocks')[step]:,} of {limit:,} blocks"
        if back := int(now.column("step_preempted")[step]):
            text += f"; {back:,} preempted"
        return Spot(self.KEY, text)


class StepsView(StepMomentView):
    """The tokens of each step of one server; below, how many seats and blocks of memory are taken."""

    KEY, NAME, SHORT = "steps", "Step by step: tokens, seats, memory", "Step tokens"
    RANK, PANELS = 2, (0.6, 0.4)

    def make(self) -> None:
        super().make()
        self.ax.set_ylabel("tokens")

    def show_moment(self, data: ViewData, now: Moment) -> None:
        edges_ms = _edges_ms(now)
        # From the bottom up: every step has tokens of answers.
        parts = {"decode": now.answer_tokens, "prefill": now.prompt_tokens, "padding": now.padded_rows}
        styles = {name: self.filled(*fill) | {"label": label} for name, (label, *fill) in PARTS.items()}
        heights = np.array([_with_gaps(each, edges_ms) for each in parts.values()])
        highest = self.stack(styles, heights, edges_ms, None, data)
        self.limits(self.ax, x=(0, edges_ms[-1]), y=(0, nice(1.05 * highest)))
        right_ms, top = float(self.ax.get_xlim()[1]), float(self.ax.get_ylim()[1])
        rule = now.result.scenario.rule
        budget = rule.max_num_batched_tokens if isinstance(rule, Continuous) else 0
        if 0 < budget <= top:
            across: Style = {"transform": self.ax.get_yaxis_transform(), "zorder": 2.5}
            self.plot("budget", [0, 1], [budget] * 2, **self.style("soft", DASHED, 0.6) | across)
            name: Style = {"xycoords": self.ax.get_yaxis_transform(), "va": "bottom"}
            self.note("budget name", f"budget {budget:,}", y=budget, up=0.15, **name)
        self.label(self.axes[-1].xaxis, "time", right_ms)
        back = np.flatnonzero(now.column("step_preempted"))
        self.show_preemptions(edges_ms[2 * back], np.full(back.size, 0.96 * top))

    def describe(self, data: ViewData) -> list[str]:
        now = self.now(data)
        span = duration(1000 * (now.end_s - now.begin_s))
        steps = f"{counted(now.steps.size, 'step')} from {number(now.begin_s, 4)} s on, {span} in all"
        means = (float(each.mean()) for each in (now.prompt_tokens, now.answer_tokens))
        tokens = "{} tokens of prompts and {} of answers each on average".format(*map(number, means))
        taken = listed([*taken_in_words(now).values()])
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


def taken_in_words(now: Moment) -> dict[str, str]:
    """Return the mean shares of the seats and blocks that the steps take, with these limits."""
    found, endless = {}, now.result.scenario.rule.largest_batch >= ENDLESS
    for name, limit in limits_of(now.result).items():
        of = counted(limit, "seat" if name == "seats" else "block")
        of = f"{limit:,} that ever run" if name == "seats" and endless else of
        found[name] = f"{percent(float((now.column(COLUMNS[name]) / limit).mean()))} of {of}"
    return found


def _edges_ms(now: Moment) -> np.ndarray:
    """Return the start and the finish of each step, in ms from the first start; gaps may be 0."""
    times_s = np.stack([now.column("batch_start_s"), now.column("batch_finish_s")], axis=1).ravel()
    return 1000 * (times_s - times_s[0])


def _with_gaps(values: np.ndarray, edges_ms: np.ndarray) -> np.ndarray:
    """Return values with one more for each gap after a step: 0, or the step's own if the gap is rounding."""
    both = repeat(values.astype(float), 2)[:-1]
    both[1::2][np.diff(edges_ms)[1::2] > LEAST_MS] = 0.0
    return both
