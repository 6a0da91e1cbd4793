"""No meaning by colour alone: what a picture tells apart differs in lightness, or has a second mark."""

import ast
from itertools import combinations

import nbformat
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from pictures import drawn, names_of
from tracked import notebooks

import batchsim as bs
from batchsim.view.film.film import PlayRange
from batchsim.view.film.lane_kinds import KINDS
from batchsim.view.pictures.cells import border
from batchsim.view.pictures.curves import STYLES
from batchsim.view.pictures.heat_map import MEASURES, HeatMapView, values_of
from batchsim.view.pictures.live import LivePicture
from batchsim.view.pictures.views import views_of
from batchsim.view.theme import COMPILING, COMPONENTS, PHASES, THEMES, fill_style

LESSONS = notebooks("notebooks/solutions/*.ipynb")
STEP = bs.published("llama-3.1-8b/rtx-4090")
LIGHTER = 9  # CIELAB's L*, from 0 to 100: a step that is seen side by side
WIDER = 1.2  # times
# Machado, Oliveira and Fernandes (2009), table 1: full deuteranomaly, of linear RGB.
DEUTERANOPIA = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
SAME = {"solid": "-", "dashed": "--", "none": "", "None": "", None: ""}


def lightness(colour, seen=None):
    """Return L* of a colour, as it is or as `seen` changes linear RGB."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = linear if seen is None else np.clip(seen @ linear, 0, 1)
    y = float(LUMINANCE @ linear)
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


def same_without_hue(one, other):
    """Return whether two styles differ in hue alone, for whoever sees no hue, or takes green for red."""
    marks = ("hatch", "linestyle", "marker", "kind")
    if any(
        SAME.get(one.get(mark), one.get(mark)) != SAME.get(other.get(mark), other.get(mark)) for mark in marks
    ):
        return False
    for size in ("share", "linewidth", "markersize"):
        small, large = sorted((one.get(size) or 1, other.get(size) or 1))
        if large >= WIDER * small:
            return False
    hollow = [style.get("markerfacecolor") == "none" for style in (one, other)]
    if hollow[0] != hollow[1]:
        return False
    return any(
        abs(lightness(one["colour"], seen) - lightness(other["colour"], seen)) < LIGHTER
        for seen in (None, DEUTERANOPIA)
    )


def of_entry(style):
    """Return an entry's style with the colour that is seen most."""
    filled = style.get("facecolor", "none")
    names = ["edgecolor"] if filled == "none" else ["facecolor"]
    names = names if "facecolor" in style else ["color", "markeredgecolor"]
    colour = next(style[name] for name in names if name in style)
    return style | {"colour": colour, "kind": ("patch", filled == "none") if "facecolor" in style else "line"}


def confused(styles):
    """Return the names of what cannot be told apart."""
    return [
        (one, other)
        for one, other in combinations(styles, 2)
        if styles[one]["colour"] != styles[other]["colour"] and same_without_hue(styles[one], styles[other])
    ]


def test_two_hues_of_one_lightness_are_confused_and_a_dash_tells_them_apart():
    green, red = ({"colour": colour} for colour in ("#009E73", "#C35900"))
    assert confused({"green": green, "red": red})
    assert not confused({"green": green, "red": red | {"linestyle": "--"}})


@pytest.fixture(scope="module")
def shown():
    """What the explorer shows after a move, and with A pinned; of requests and of tokens."""
    panel = bs.explore(bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25)), requests=500)
    panel.controls["max_wait_ms"].value = 20
    found = {"before": panel.session.data}
    panel.session.pin()
    panel.controls["max_batch_size"].value = 8
    found["pinned"] = panel.session.data
    tokens = bs.Tokens(prompt=400, output=bs.Geometric(mean=150))
    rule = bs.Continuous(64, kv_blocks=600)
    panel = bs.explore(bs.Scenario(bs.Poisson(4), rule, STEP, tokens=tokens), requests=200)
    return found | {"tokens": panel.session.data}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(
    ("what", "large"),
    [(what, key) for what in ("before", "pinned") for key in views_of("requests")]
    + [("tokens", key) for key in views_of("tokens")],
)
def test_the_legend_of_each_view_can_be_read_without_hue(shown, what, large, theme):
    mode = "tokens" if what == "tokens" else "requests"
    if large not in views_of(mode, shown[what].parts):
        return
    picture = LivePicture(1000, 640, theme=theme, large=large, mode=mode, alone=True)
    picture.show(shown[what])
    view = picture.views[large]
    styles = (view.styles[key] for key in view.shown)
    entries = {style["label"]: style for style in styles if style.get("label")}
    assert {*entries} >= {*names_of(view.axes[0])}
    assert confused({name: of_entry(style) for name, style in entries.items()}) == []


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_the_legends_of_lanes_can_be_read_without_hue(theme):
    plain = bs.Scenario(bs.Poisson(80), bs.SizeOrWait(4, 50), bs.Affine(47, 3.6))
    whole = bs.Scenario(
        bs.Poisson(2),
        bs.Continuous(4, kv_blocks=40),
        STEP,
        tokens=bs.Tokens(prompt=100, output=bs.Geometric(mean=100)),
    )
    servers = bs.compare_servers(plain, ["triton"], 4, 50, requests=100)
    rules = {"whole batches": bs.SizeOrWait(4, 500), "continuous": whole.rule}
    for comparison in (servers, bs.compare_servers(whole, rules, requests=60)):
        kind = KINDS[comparison.scenario.kind]
        lanes = [kind.lane(group, PlayRange(0, 1000)) for group in comparison.groups]
        entries = kind.legend(comparison.groups, lanes)
        assert len(entries) >= 3
        styles = {
            text: of_entry(fill_style(theme, name)) | {"share": share}
            for name, text, share in entries
            if name != "preempted"  # a triangle
        }
        assert confused(styles) == []


@pytest.mark.parametrize("theme", THEMES)
def test_now_before_a_and_the_objective_are_told_apart_without_hue(shown, theme):
    picture = LivePicture(1000, 640, theme=theme, alone=True)
    picture.show(shown["before"])
    view = picture.views["latency"]
    styles = {"now": view.now_style}
    styles |= {name: view.other_style(shown[key]) for name, key in (("before", "before"), ("A", "pinned"))}
    assert confused({name: of_entry(style) for name, style in styles.items()}) == []


def test_which_side_of_the_objective_a_cell_of_the_map_is_on_is_seen_without_hue(shown):
    view = drawn(HeatMapView, shown["before"])
    values = values_of(shown["before"].surface)
    beyond = np.isfinite(values) & (values > shown["before"].objective_ms)
    assert 0 < beyond.sum() < beyond.size
    edges = border(MEASURES["p99_ms"].within(shown["before"]))
    np.testing.assert_array_equal(view.shown["border"].get_path().vertices, edges.vertices)
    white, _ = view.shown["border"].get_path_effects()  # on dark cells, too
    assert white._gc["linewidth"] > 1.5 * view.shown["border"].get_linewidth()


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
@pytest.mark.parametrize("parts", [PHASES, COMPONENTS | {"compiling": COMPILING}], ids=["tokens", "requests"])
def test_the_parts_of_a_latency_are_told_apart_without_hue(parts, theme):
    areas = {
        name: {"colour": getattr(theme, part.colour), "hatch": part.hatch} for name, part in parts.items()
    }
    assert confused(areas) == []


def test_the_lines_of_a_chart_have_a_dash_and_a_mark_that_no_other_has():
    styles = {colour: {"colour": colour, "linestyle": dash, "marker": mark} for colour, dash, mark in STYLES}
    assert confused(styles) == []
    assert len({mark for _, _, mark in STYLES}) == len(STYLES)


def styles_of(cell):
    """Yield the styles in the code of a lesson: calls with a colour, and dictionaries of such arguments."""
    for node in ast.walk(ast.parse(cell)):
        if isinstance(node, ast.Call):
            pairs = [(each.arg, each.value) for each in node.keywords]
            kind = ast.unparse(node.func).rpartition(".")[2]
            dash = [arg for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            pairs += [("linestyle", arg) for arg in dash]
        elif isinstance(node, ast.Dict):
            pairs = [
                (getattr(key, "value", None), value)
                for key, value in zip(node.keys, node.values, strict=True)
            ]
            kind = "dict"
        else:
            continue
        found = {name: value.value for name, value in pairs if isinstance(value, ast.Constant)}
        if str(found.get("color", "")).startswith("#"):
            yield ast.unparse(node), found | {"colour": found["color"], "kind": kind}


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem[:2])
def test_what_a_lesson_draws_in_two_colours_has_a_second_mark(path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            assert confused(dict(styles_of(cell.source))) == []
