"""Config: an editor for a config of a server, what lint finds on its lines, and a tuned diff."""

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import ipywidgets as widgets
import traitlets

from batchsim._format import listed
from batchsim.scenario import Scenario
from batchsim.servers import cards
from batchsim.servers.edit import edited
from batchsim.servers.files import parse
from batchsim.servers.linter import Findings, lint
from batchsim.servers.linter.finding import measured
from batchsim.servers.registry import ALL
from batchsim.servers.server import ServerConfig
from batchsim.study.judgement import OVERLOADED, Judgement, judge
from batchsim.study.recommendation import Recommendation
from batchsim.study.search import Traffic
from batchsim.study.tune import tune
from batchsim.view.explorer import presets
from batchsim.view.explorer.kinds import KINDS, in_labels
from batchsim.view.explorer.main_picture import MainPicture
from batchsim.view.explorer.pages import Page
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.runs import thread
from batchsim.view.explorer.session import Session
from batchsim.view.explorer.state import State
from batchsim.view.explorer.widgets import line, plain
from batchsim.view.scripts import widget

WHERE = "The editor is in the place of the large view. The other views follow its settings."
HINT = "Paste a server's config: config.pbtxt, config.properties, YAML, Python, vllm serve ..."
CHECKING = "Lint and a search for better numbers run in the background."
MOST = 100_000  # letters of a text: with each of them escaped, still a message that the app takes
SEARCHED = 100_000  # requests of the longest run of a search
WHOLE, AROUND, LONGEST = 60, 2, 200  # lines that are shown at most or around a mark, and letters of one


class ConfigBox(anywidget.AnyWidget):
    """A text to paste, and the answer to it, as a page shows both: in a `place` of the explorer's picture."""

    _esm = widget(Path(__file__).parents[1] / "config_box.js")
    text = traitlets.Unicode().tag(sync=True)
    answer = traitlets.Dict().tag(sync=True)
    hint = traitlets.Unicode(HINT).tag(sync=True)
    most = traitlets.Int(MOST).tag(sync=True)
    place: traitlets.List[float] = traitlets.List().tag(sync=True)
    shown = traitlets.Bool(False).tag(sync=True)


class Pasted(NamedTuple):
    """A config that was read, the scenario before it, and the state that it made."""

    text: str
    own: ServerConfig
    config: ServerConfig  # on the card of the step time, if the text does not name one
    before: Scenario
    state: State
    summary: str  # the server, and what was adapted


class ConfigPage(Page):
    """An editor for a config in the place of the large view.

    Without a browser: set `box.text`, wait for `job.result()`, read `box.answer`.
    """

    title = "Config"
    follows = True

    def __init__(self, session: Session, screen: MainPicture) -> None:
        self.screen, self.box = screen, ConfigBox()
        self.pasted: Pasted | None = None
        self.job: Future[None] | None = None
        self.box.observe(lambda _: self.read(), names="text")
        self.box.on_msg(self._hear)
        super().__init__(session, [plain(widgets.HTML, line(WHERE, "note"))])
        session.subscribe("status", self._begin)

    def read(self) -> None:
        """Take the settings of the text, and begin to check it; a bad text changes nothing."""
        text, self.job = self.box.text, None
        if not text.strip():
            self.pasted, self.box.answer = None, {}
            return
        if len(text) > MOST:
            return self._refuse(too_long(len(text)))
        try:
            self.pasted = self._taken(text)
        except (TypeError, ValueError) as error:
            return self._refuse(str(error))
        self.box.answer = listing(text, {}) | {"summary": f"{self.pasted.summary} {CHECKING}"}
        self.session.move_to(self.pasted.state)

    def _begin(self) -> None:
        """Begin to check a pasted text once its run is there; tell why if it never comes."""
        session, pasted, (text, alert) = self.session, self.pasted, self.session.status
        if pasted is None or self.job is not None or session.state != pasted.state:
            return
        if session.data is not None and session.data_state == pasted.state:
            self.job = thread("config").submit(self._check, pasted, session.data.surface)
        elif alert:  # else a loop is compiled first
            self.box.answer = {"summary": text, "alert": True}

    def _refuse(self, why: str) -> None:
        self.pasted, self.job = None, None
        self.box.answer = {"summary": sentence(why), "alert": True}

    def _taken(self, text: str) -> Pasted:
        session, chosen = self.session, self.session.state.server
        try:
            own = parse(text)
        except ValueError as error:  # the text alone may fit several servers
            try:
                own = parse(text, chosen or None)
            except ValueError:
                raise error from None
        mode = next(mode for mode, kind in KINDS.items() if own.server in kind.servers)
        state = session.state
        if mode != state.mode:
            state = session.left[mode].replace(seed=state.seed)
        config = cards.on_card(own, state.kind.on_device(state))
        fitting = state.kind.fitting(state, config)
        adapted = fitting.differences(state)
        sized = adapted.pop("sizes", None)
        cut = [f"{CONTROLS[name].label} {value:,}" for name, value in adapted.items()]
        before = session.scenario(fitting)
        try:
            state = fitting.served(config, before)
            session.scenario(state)
        except ValueError as error:
            raise ValueError(in_labels(str(error))) from None
        server = ALL[own.server]
        summary = f"{server.title} ({server.version}): {type(config.rule).title.lower()}."
        summary += f" Longer requests are cut to fit its model: {listed(cut)}." if cut else ""
        summary += " Requests have sizes now, as its limit needs (page Arrivals)." if sized else ""
        summary += f" Memory is that of {config.settings['gpu']}." if config is not own else ""
        return Pasted(text, own, config, before, state, summary)

    def _check(self, pasted: Pasted, surface: Any) -> None:
        """Mark what lint finds, then propose a diff: on another thread, while the text may change."""
        try:
            found = lint(pasted.config, pasted.before, seed=pasted.state.seed)
            answer = marked(pasted, found)
            if self.pasted is pasted:
                self.box.answer = answer | {"result": "The search for better numbers is running."}
            answer |= self._proposed(pasted, surface)
        except Exception as error:  # a page does not show the errors of a thread
            answer = self.box.answer | {"result": sentence(str(error))}
        if self.pasted is pasted:
            self.box.answer = answer
            self.update()

    def _proposed(self, pasted: Pasted, surface: Any) -> dict[str, Any]:
        """Return the tuned numbers as a diff of the text, with a sentence."""
        state, config = pasted.state, pasted.config
        slo = state.kind.slo(state)
        if surface is None:
            return {"result": "No numbers are proposed: a search needs a rule with a fast engine."}
        if slo is None:
            return {"result": "Set an objective and check again: then a better setting is proposed here."}
        scenario = self.session.scenario(state)
        requests = min(state.kind.requests(scenario, self.session.requests), SEARCHED)
        best = tune(scenario, slo, presets.axes(ALL[config.server], scenario, surface), requests, state.seed)
        # Only the searched settings change, in the terms of the text.
        meant = pasted.own.apply(pasted.before, silent=True).replace(best.knobs)
        change = edited(pasted.text, meant, config.server)
        now = best.judgement if best.scenario == scenario else OVERLOADED
        if scenario.stable and best.scenario != scenario:
            longest = int(best.candidates["requests"].max())
            now = judge(Traffic(scenario, longest, state.seed).run(scenario), slo)
        if not change.diff or not better(best, now):
            return {"result": kept(best, now)}
        before, after = numbers(now) if scenario.stable else "overloaded", numbers(best.judgement)
        gives = f"{after} (now {before})"
        summary = f"The search found a better setting: {gives}, within the objective ({slo})."
        if not best.met:
            summary = f"No setting that was tried meets the objective ({slo}). The nearest has {gives}."
        return {"result": summary, "diff": change.diff, "gain": f"{before} \N{RIGHTWARDS ARROW} {after}"}

    def update(self) -> None:
        """Show the editor while the page is open, and offer another check once the controls have moved."""
        if self.is_open:
            self.box.place = self.screen.picture.places()[self.screen.picture.large]
        self.box.shown = self.is_open
        pasted, answer = self.pasted, self.box.answer
        moved = pasted is not None and self.session.state != pasted.state
        if moved is not bool(answer.get("again")):
            self.box.answer = answer | {"again": moved}

    def _hear(self, _: Any, content: Mapping[str, Any], __: Any) -> None:
        if "long" in content:
            self._refuse(too_long(content["long"]))
        elif "copy" in content:
            self.screen.send({"copy": self.box.answer.get("diff", "")})
            self.session.say("The diff is on the clipboard.")
        elif "again" in content:
            with self.session.reporting():
                self.read()


def numbers(judgement: Judgement) -> str:
    """Return the value for each objective."""
    return ", ".join(measured(each.key, found.value) for each, found in judgement.estimates.items())


def better(best: Recommendation, now: Judgement) -> bool:
    """Return whether a recommendation is nearer to the objective, or within it faster, than a setting."""
    limit = best.slo.latency
    if best.met and now.excess <= 1 and limit in now.estimates:
        return best.judgement.estimates[limit].value < now.estimates[limit].value
    return best.judgement.excess < now.excess


def kept(best: Recommendation, now: Judgement) -> str:
    """Return why no other setting is proposed."""
    if now is OVERLOADED:
        return f"This setting is overloaded; the search found no better one for the objective ({best.slo})."
    objective = f"the objective ({best.slo}): {numbers(now)}"
    if now.meets:
        return f"This setting meets {objective}; the search found no better one."
    if now.too_short:
        run = "In this run, too short to be sure, the"
        return f"{run} setting meets {objective}; the search found no better one."
    return f"This setting misses {objective}; the search found no better one."


def too_long(letters: int) -> str:
    """Return why a text is refused."""
    return f"a pasted config must have at most {MOST:,} characters, got {letters:,}"


def sentence(text: str) -> str:
    """Return a message as a sentence on one line."""
    text = " ".join(text.split())
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def marked(pasted: Pasted, found: Findings) -> dict[str, Any]:
    """Return the lines of a text with the findings about each, and the rest below."""
    marks: dict[int, list[str]] = {}
    below = []
    for each in [*found, *found.notes]:
        words = str(each).partition(": ")[2] if each in found else f"Note: {each.sentence}"
        for number in found.lines(each):
            marks.setdefault(number, []).append(words)
        if not found.lines(each):
            below.append(words)
    below += [f"Note: {each}." for each in pasted.config.notes]
    traffic = pasted.before.workload
    verdict = found.title.partition(": ")[2] if found else "No single setting is clearly wrong"
    summary = f"{pasted.summary} {verdict} under {traffic!r}."
    return listing(pasted.text, marks) | {"summary": summary, "below": below}


def listing(text: str, marks: Mapping[int, list[str]]) -> dict[str, Any]:
    """Return the lines to show, each with its number and marks: those around a mark, if there are many."""
    lines = text.splitlines()
    shown = set(range(1, len(lines) + 1))
    if len(lines) > WHOLE:
        shown = {near for line in marks for near in range(line - AROUND, line + AROUND + 1)} & shown
    return {
        "lines": [(line, lines[line - 1][:LONGEST], marks.get(line, [])) for line in sorted(shown)],
    }  # fmt: skip
