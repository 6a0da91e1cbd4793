"""What the page reads from Python: rules, controls, presets, colours, bins, grid values and words.

JavaScript copies none of these, so a label, a bound or a colour that changes here changes in the page.
"""

import functools
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from batchsim._compat import __version__
from batchsim.measured.fits import fit
from batchsim.measured.published import published_names, published_source
from batchsim.scenario import RULES, Affine
from batchsim.scenario.rules.rule import Trigger
from batchsim.study.surface import LOADS, MAP_REQUESTS
from batchsim.teaching import game
from batchsim.theory.batch import at_least
from batchsim.view import scales
from batchsim.view.explorer.control import Control
from batchsim.view.explorer.opening import STEPS
from batchsim.view.explorer.reasons import LATENCY
from batchsim.view.explorer.rows import CONTROLS
from batchsim.view.explorer.runs import COLUMNS, WAITS, sizes
from batchsim.view.pictures import cells, latency
from batchsim.view.pictures.data import GROUPS
from batchsim.view.pictures.load import LABELS
from batchsim.view.pictures.views import VIEWS
from batchsim.view.theme import COMPONENTS, LEAST_PX, in_words, looks
from batchsim.web.calls import call

SHOWN = ("rate_per_s", "max_batch_size", "max_wait_ms", "fixed_ms", "per_item_ms", "servers", "objective_ms")
DRAWN = ("latency", "map", "load", "breakdown")  # the views of the page; the film names itself
LARGEST_MAPPED = 64  # the largest batch size of the map, as the explorer's
CLOSE = 0.05  # the worst relative error of a published table's straight line
GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"
# The scenario in which the reader is the batcher.
PLAYED = {"rate_per_s": game.RATE_PER_S, "max_batch_size": game.MAX_BATCH_SIZE, **asdict(game.SERVICE)}


@functools.cache
def descriptions() -> dict[str, Any]:
    """Return everything as plain numbers, texts, lists and dicts.

    >>> described = descriptions()
    >>> described["controls"]["max_wait_ms"]["label"], described["components"][0]["name"]
    ('Max wait (ms)', 'forming')
    """
    return {
        "version": __version__,
        "rules": {rule.__name__: {"title": rule.title, "call": call(rule)} for rule in RULES},
        "controls": {name: _control(control) for name, control in CONTROLS.items() if name in SHOWN},
        "presets": presets(),
        "looks": looks(),
        "least_px": LEAST_PX,
        "components": [
            {"name": name, "words": in_words(name), "about": LATENCY[name], **style._asdict()}
            for name, style in COMPONENTS.items()
            if name != "device_wait"  # the page's servers share no device
        ],
        "views": {view.KEY: {"name": view.NAME, "short": view.SHORT} for view in VIEWS["requests"]
            if view.KEY in DRAWN},
        "overloaded": latency.OVERLOADED,
        "latency": {"bins": latency.BINS, "tail": latency.TAIL, "near": latency.NEAR,
            "headroom": latency.HEADROOM, "percentiles": [*latency.PERCENTILES]},
        "groups": GROUPS,
        "load": {"loads": LOADS, "label": LABELS["rate_per_s"]},
        "map": {"sizes": sizes(LARGEST_MAPPED), "waits": WAITS, "columns": COLUMNS, "requests": MAP_REQUESTS,
            "colours": cells.COLOURS(range(256), bytes=True)[:, :3].tobytes().hex(), "factor": cells.FACTOR,
            "words": {"overloaded": "overloaded", "beyond": "too slow"}},
        "axis": {"steps": scales.STEPS, "coarse": scales.COARSE},
        "triggers": {int(trigger): in_words(trigger.name.lower()) for trigger in Trigger},
        "played": played(),
        "opening": [step._asdict() for step in STEPS],
    }  # fmt: skip


def _control(control: Control) -> dict[str, Any]:
    slider = control.slider._asdict() if control.slider else None
    words = {"label": control.label, "about": control.tip, "kind": control.type}
    return {**words, "default": control.default, "slider": slider, "bounds": dict(control.bounds)}


def presets() -> dict[str, dict[str, Any]]:
    """Return the published service times that a straight line meets within 5 %, by name."""
    found = {}
    for name in published_names():
        source = published_source(name)
        points = dict(source.service.points_ms)  # type: ignore[union-attr]
        line = fit(points) if len(points) > 2 else None
        if line and isinstance(line.service, Affine) and abs(line.worst_error) <= CLOSE:
            costs = {"fixed_ms": line.service.fixed_ms, "per_item_ms": line.service.per_item_ms}
            about = {"worst_error": line.worst_error, "largest": max(points), "backend": source.backend}
            rounded = {key: float(f"{ms:.4g}") for key, ms in costs.items()}
            found[name] = {**rounded, **about, "source_url": source.source_url}
    return found


def played() -> dict[str, Any]:
    """Return the scenario in which the reader is the batcher, and the best policy for it."""
    best = game.best()
    none = at_least(game.RATE_PER_S, game.SERVICE, 1, best.max_batch_size)
    means = {"mean_latency_ms": best.mean_latency_ms, "without_wait_ms": none.mean_latency_ms}
    rivals = {name: {"rule": type(rule).__name__, **asdict(rule)} for name, rule in game.rivals().items()}  # type: ignore[call-overload]
    return {**PLAYED, **means, "least": best.control_limit, "rivals": rivals, "until_s": game.UNTIL_S}


def terms() -> dict[str, str]:
    """Return the first paragraph of each entry of the glossary, as plain text."""
    entries = re.findall(r"^### (.+)\n\n(.+)$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    return {term: re.sub(r"\[([^]]+)\]\([^)]*\)|[*`]", r"\1", text) for term, text in entries}
