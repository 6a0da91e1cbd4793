"""A drawing of p99 against the load: the script judges its shape in Node, and Python notes it once."""

import json
import shutil
import subprocess

import numpy as np
import pytest

import batchsim as bs
from batchsim.teaching import draw_p99
from batchsim.teaching.prediction import DRAWN, SHAPES
from batchsim.view.scripts import JS, bundle

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node, which runs the page's script")
LOADS = np.array(DRAWN)
WAITS_MS = 0, 5, 10  # with 10, the curve itself has a hump
TOLD = """import { readFileSync } from "node:fs";
const { gap, judge } = modules.sketch, said = ([what, loads, drawn, truth]) => {
  const guess = drawn.map((ms) => ms ?? NaN);
  return what === "gap" ? [gap(loads, guess), guess] : judge(loads, guess, truth);
};
console.log(JSON.stringify(JSON.parse(readFileSync(process.argv[2])).map(said)));
"""
SHAPED = {  # the height from the first p99, 0, to the last, 1
    SHAPES[0]: [lambda x: x**4, lambda x: x**12, lambda x: x > 0.96, lambda x: 0.01 / (1 - x)],
    SHAPES[1]: [lambda x: x, lambda x: x**0.5, lambda x: np.minimum(2 * x, 1)],
    SHAPES[2]: [lambda x: 0 * x, lambda x: 0.01 * x, lambda x: 0.02 * np.sin(20 * x)],
    SHAPES[3]: [lambda x: 1 - x, lambda x: np.exp(-40 * (x - 0.4) ** 2), lambda x: (x < 0.9) * (x**4 + 0.5)],
}


def paper(wait_ms=5, **given):
    scenario = bs.Scenario(bs.Poisson(1), bs.SizeOrWait(32, wait_ms), bs.Affine(1.85, 0.15))
    return draw_p99(scenario, top_ms=40, requests=20_000, **given)


@pytest.fixture
def ask(tmp_path):
    def ask(jobs):
        (tmp_path / "jobs.json").write_text(json.dumps(jobs))
        (tmp_path / "judge.mjs").write_text(bundle(JS / "sketch.js", TOLD))
        command = [NODE, str(tmp_path / "judge.mjs"), str(tmp_path / "jobs.json")]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    return ask


@needs_node
def test_a_drawing_is_right_if_it_rises_late_and_steeply_whatever_its_height(ask):
    curves = {wait_ms: paper(wait_ms).curve_ms() for wait_ms in WAITS_MS}
    cases = [
        (kind, truth, truth[0] + (truth[-1] - truth[0]) * shape(LOADS))
        for truth in curves.values()
        for kind, shapes in SHAPED.items()
        for shape in shapes
    ]
    cases += [
        (SHAPES[0], truth, factor * np.array(truth)) for truth in curves.values() for factor in (0.5, 1, 2)
    ]
    found = ask([["judge", DRAWN, drawn.tolist(), truth] for _, truth, drawn in cases])
    assert [(each["kind"], each["right"]) for each in found] == [
        (kind, kind == SHAPES[0]) for kind, *_ in cases
    ]
    firsts = {each["kind"]: each["text"].partition(":" if each["right"] else ".")[0] for each in found}
    assert firsts == {
        "rises late and steeply": "Your shape is right",
        "rises too early": "Your curve rises too early",
        "ends too low": "Your curve ends too low",
        "falls": "Your curve falls on its way",
    }


@needs_node
def test_a_gap_is_named_and_the_edges_follow_from_their_neighbours(ask):
    whole, count = [float(2 * i) for i in range(len(DRAWN))], len(DRAWN)
    holes = {(3, 4, 5): "from 30% to 50% load", (6,): "at 60% load", (0, 1): "from 2% to 10% load"}
    drawn = [[None if i in hole else ms for i, ms in enumerate(whole)] for hole in holes]
    edges = [None, *whole[1:-1], None]
    *gaps, empty, filled = ask([["gap", DRAWN, each, None] for each in (*drawn, [None] * count, edges)])
    for (said, _), where in zip(gaps, holes.values(), strict=True):
        assert said == f"Your drawing has a gap {where}: draw there too."
    assert empty[0] == "The paper is empty: draw p99 first."
    assert filled == ["", whole]


def test_progress_notes_the_first_shape_and_nothing_else_that_a_page_sends(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHSIM_PROGRESS", str(tmp_path / "progress.json"))
    drawing = paper(key="05.a")
    for shape in ("<b>right</b>", *SHAPES[::-1], None):
        drawing.paper.verdict = {"kind": shape, "right": True}
    noted = bs.teaching.progress().record.predictions["05.a"]
    assert (drawing.shape, noted.chosen, noted.right) == ("falls", "falls", False)
