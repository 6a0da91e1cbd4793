"""The steps of token generation: their tokens, and how many seats and blocks of memory are taken."""

import numpy as np
from matplotlib.patches import StepPatch

from batchsim._format import counted, duration, listed, number, percent
from batchsim.result import Result
from batchsim.scenario import Continuous
from batchsim.view.canvas.axes import nice
from batchsim.view.canvas.lettering import Label
from batchsim.view.canvas.picture import Box
from batchsim.view.canvas.theme import PHASES
from batchsim.view.pictures.data import ViewData
from batchsim.view.pictures.moments import Moment, taken
from batchsim.view.pictures.view import Entry, Spot, StackedView, Style

LEAST_MS = 1e-6  # shorter gaps between two steps are rounding errors
ENDLESS = 2**20  # seats: as many are no limit
UPPER = 0.6  # the tokens' part of the height
COLUMNS = {"seats": "step_running", "memory": "step_blocks"}  # of the log
PARTS = {"prefill": "tokens of prompts", "decode": "of answers"}


class StepsView(StackedView):
    """The tokens of each step of one server; below, how many seats and blocks of memory are taken.

    A small view has only the tokens.
    """

    KEY, NAME, SHORT = "steps", "Step by step: tokens, seats, memory", "Tokens of each step"
    RANK = 2
    ROWS, SMALL_ROWS = 2, 2

    def add_artists(self) -> None:
        whole = self.plot_box = self.axes_box()
        upper = whole
        if self.large:
            gap = 1.1 * self.em
            upper = Box(whole.left, whole.top, whole.width, UPPER * whole.height - gap)
            below = whole.top + UPPER * whole.height + gap
            lower = Box(whole.left, below, whole.width, whole.bottom - below)
        self.top = self.add_plot(upper, "", "tokens" * self.large, numbers="y" if self.large else "xy")
        self.low = self.add_plot(lower, "", "taken") if self.large else None
        self.upper_box = upper
        # From the bottom up: every step has tokens of answers. A hatch would break narrow bars into pieces.
        self.add_bars(self.top, {name: PHASES[name][:2] for name in ("decode", "prefill")})
        self.budget = self.top.axhline(1, zorder=2.5, **self.line_style("soft", (0, (4, 2)), 0.8))
        self.preempted = self.add_preemptions(self.top)
        self.set_moving(self.budget, self.preempted)
        self.lines: dict[str, StepPatch] = {}
        self.other_lines: dict[str, StepPatch] = {}
        if self.low is not None:
            self.low.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
            self.low.yaxis.get_major_locator().set_params(nbins=3)  # type: ignore[call-arg]
            for name, style in self._line_styles().items():
                self.lines[name] = self.low.stairs([0], [0, 1], baseline=None, zorder=3, **style)
                self.other_lines[name] = self.low.stairs([0], [0, 1], baseline=None, zorder=2.5)
            self.set_moving(*self.lines.values(), *self.other_lines.values())

    def _line_styles(self) -> dict[str, Style]:
        theme, wide = self.theme, self.line_px
        return {
            "seats": {"edgecolor": theme.blue, "linewidth": 1.4 * wide},
            "memory": {"edgecolor": theme.orange, "linewidth": 1.4 * wide, "linestyle": (0, (4, 2))},
        }

    def update(self, data: ViewData) -> None:
        now = data.moment(self.server)
        self.name_server(data.result.scenario.all_servers)
        for artist in self.moving:
            artist.set_visible(now is not None)
        if now is None:
            self.show_legend([])
            return
        edges_ms = _edges_ms(now)
        heights = np.array([_with_gaps(each, edges_ms) for each in (now.answer_tokens, now.prompt_tokens)])
        highest = self.show_bars(heights, edges_ms, None, {})
        rule = now.result.scenario.rule
        self.set_limits(self.top, x=(0, edges_ms[-1]), y=(0, nice(1.05 * highest)))
        right_ms = float(self.top.get_xlim()[1])
        budget = rule.max_num_batched_tokens if isinstance(rule, Continuous) else None
        if budget is not None and budget > self.top.get_ylim()[1]:
            budget = None
        self.budget.set_visible(budget is not None)
        self.budget.set_ydata([budget or 0] * 2)
        back = np.flatnonzero(now.column("step_preempted"))
        self.preempted.set_visible(bool(back.size))
        self.preempted.set_data(edges_ms[2 * back], np.full(back.size, 0.96 * self.top.get_ylim()[1]))
        axis = self.top.xaxis if self.low is None else self.low.xaxis
        if self.low is not None:
            self._show_lines(data, now, edges_ms, right_ms)
        self.set_label(axis, "time", right_ms)
        labels = self._labels(now, budget) if self.large else []
        self.show_legend(self._entries(now, bool(back.size)), labels)

    def _show_lines(self, data: ViewData, now: Moment, edges_ms: np.ndarray, right_ms: float) -> None:
        assert self.low is not None
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
                    line.set(edgecolor=style["color"], linewidth=style["linewidth"])
                    line.set_linestyle(self._line_styles()[name].get("linestyle", "-"))
        self.set_limits(self.low, x=(0, edges_ms[-1]), y=(0, min(nice(1.02 * highest), 102)))

    def _entries(self, now: Moment, preempts: bool) -> list[Entry]:
        entries = [Entry(text, self.styles[name]) for name, text in PARTS.items()]
        entries += [Entry("preempted", self.mark | {"markersize": 0.6 * self.em})] * preempts
        for name, share in taken_shares(now).items() if self.large else ():
            style = self._line_styles()[name]
            line = {"color": style["edgecolor"], "linewidth": style["linewidth"]}
            line |= {"linestyle": style.get("linestyle", "-")}
            of = f"of {limit_in_words(now, name)}"
            entries.append(Entry(f"00.0% {of}", line, f"{percent(float(np.mean(share)))} {of}"))
        return entries

    def _labels(self, now: Moment, budget: int | None) -> list[Label]:
        labels = place_of(now, self.plot_box, self.box.bottom - 0.7 * self.em)
        if budget is not None:
            box, high = self.upper_box, float(self.top.get_ylim()[1])
            y = box.bottom - box.height * budget / high
            labels.append(Label(f"budget {budget:,}", box.right, y - 0.35 * self.em, "right"))
        return labels

    def spot(self, x_px: float, y_px: float, data: ViewData) -> Spot | None:
        now, across = data.moment(self.server), self.across(x_px, y_px)
        if now is None or across is None:
            return None
        at_ms = float(self.top.get_xlim()[1]) * across
        edges_ms = _edges_ms(now)
        place = int(np.searchsorted(edges_ms, at_ms, side="right")) - 1
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
        running, waiting = (int(now.column(f"step_{name}")[step]) for name in ("running", "waiting"))
        text += f"; {running:,} run, {waiting:,} wait"
        if limit := limits_of(now.result).get("memory"):
            text += f"; {now.column('step_blocks')[step]:,} of {limit:,} blocks"
        if back := int(now.column("step_preempted")[step]):
            text += f"; {back:,} preempted"
        return Spot(self.KEY, text)

    def describe(self, data: ViewData) -> list[str]:
        now = data.moment(self.server)
        if now is None:
            return []
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


def place_of(now: Moment, box: Box, y: float) -> list[Label]:
    """Return the time and the server of a moment, as labels left and right of the time axis' name."""
    labels = [Label(f"from {number(now.begin_s, 4)} s on", box.left, y)]
    servers = now.result.scenario.all_servers
    return labels + [Label(f"server {now.server + 1:,} of {servers:,}", box.right, y, "right")] * (
        servers > 1
    )


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
    both = np.repeat(values.astype(float), 2)[:-1]
    both[1::2][np.diff(edges_ms)[1::2] > LEAST_MS] = 0.0
    return both
