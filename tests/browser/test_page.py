"""The explorer under a reader's hands: keys, clicks, typed values, in every front end that can be run here.

VS Code is a front end too, but it cannot be run here.
"""

import pytest

from browser.panel import PANEL, SETTLES_MS, eventually

# States that show the controls for which the first state has no use.
STATES = (
    "State()",
    "State(workload='gamma', rule='at_least', servers=2)",
    "State(devices=1, timeout_ms=80)",
    "State(rule='preferred_sizes')",
    "State(rule='frozen_batches')",
    "State(rule='competing_windows')",
    "State(rule='learned_cork')",
    "State(rule='learned_sizes', deadline_ms=50)",
    "State(workload='onoff')",
    "State(workload='diurnal')",
    "State(workload='closed')",
    "State(replicas=2, routing='two_choices')",
    "State(replicas=2, routing='by_key')",
    "State(sizes='lognormal', service='padded', max_batch_units=2048)",
    "State(sizes='lognormal', rule='buckets')",
    "State(sizes='lognormal', rule='sorted_window')",
    "State(watts=((1, 150),))",
)
TYPED = {
    "rate_per_s": "1200",
    "priorities": "1:0.5, 2:0.5",
    "clients": "32",
    "size_mean": "50",
    "size_cv": "0.5",
    "size_most": "300",
    "max_batch_units": "1024",
    "edges": "128, 512",
    "window": "50",
    "per_unit_ms": "0.02",
    "per_pair_ms": "0.00001",
    "lengths": "64, 512",
    "price_per_hour": "2.5",
    "watts": "0:60, 1:150",
    "max_batch_size": "20",
    "min_batch_size": "4",
    "max_wait_ms": "7",
    "preferred": "4, 32",
    "max_ongoing": "64",
    "poll_ms": "5",
    "patience": "0.5",
    "max_latency_ms": "80",
    "deadline_ms": "60",
    "objective_ms": "30",
    "cv": "2",
    "burst_factor": "4",
    "mean_burst_s": "0.2",
    "peak_to_mean": "1.5",
    "period_s": "30",
    "think_ms": "5",
    "fixed_ms": "6",
    "per_item_ms": "0.3",
    "noise_cv": "0.1",
    "padding": "8, 32",
    "compile_ms": "500",
    "servers": "3",
    "replicas": "2",
    "stale_ms": "5",
    "keys": "50",
    "popularity": "2",
    "devices": "1",
    "host_ms": "0.5",
    "contention": "1.2",
    "sharing": "0.2",
    "queue_limit": "50",
    "timeout_ms": "100",
    "seed": "7",
}
KEYS = {"slider": ["ArrowRight"], "select": ["ArrowDown"]}
# The knob of an element, if it is of one, and its kind; "" where it is outside the explorer.
WHAT = """(it) => {
    if (!it.closest(".batchsim")) return ["", ""];
    const knob = [...(it.closest("[class*=batchsim-knob-]")?.classList ?? [])];
    const name = knob.find((word) => word.startsWith("batchsim-knob-")) ?? "";
    const kind = it.matches(".noUi-handle") ? "slider" : it.tagName.toLowerCase();
    return [name.replace("batchsim-knob-", ""), kind];
}"""
FOCUSED = f"""() => {{
    document.activeElement.dataset.visited = "yes";
    return ({WHAT})(document.activeElement);
}}"""
# The controls that the Tab key reaches on each page of the tabs.
REACHED = """[[name for name in CONTROLS
    if relevant(name, vars(panel.state)) and CONTROLS[name].page in (MAIN, page)]
    for page in [*SETTINGS, *(each.title for each in panel.pages)]]"""
TABS = ".batchsim-tabs > .lm-TabBar .lm-TabBar-tab"
UNVISITED = "document.querySelectorAll('[data-visited]').forEach((it) => it.removeAttribute('data-visited'))"
NOT_VISITED = """() => [...document.querySelectorAll(
    ".batchsim :is(button, input, select, textarea, [role=slider], .batchsim-main img.batchsim-screen)"
)].filter((it) => it.checkVisibility() && !it.disabled && !it.dataset.visited)
  .map((it) => it.outerHTML.slice(0, 200))"""


@pytest.fixture
def panel(lab, opened):
    with opened(lab, PANEL) as panel:
        yield panel
        assert panel.noise.errors == panel.noise.elsewhere == []


def go_to(panel, state):
    words = panel.kernel.run(f"panel.move_to({state})", "panel.screen.alt")
    picture = panel.page.locator(panel.picture)
    assert eventually(lambda: picture.get_attribute("alt") == words)  # after the controls, which came first
    panel.quiet()


def walk(panel):
    """Press Tab from the first control to the last, and yield what has the focus."""
    panel.page.locator(".batchsim :is(button, input, .noUi-handle):visible").first.focus()
    for _ in range(100):
        name, kind = panel.page.evaluate(FOCUSED)
        if not kind:
            return
        yield name, kind
        panel.page.keyboard.press("Tab")


def turn_to(panel, page):
    """Open a page of controls with the keyboard."""
    # The tab that the Tab key comes to, which need not be the open one: count from the first.
    panel.page.locator(f"{TABS}[tabindex='0']").focus()
    for key in ("Home", *["ArrowRight"] * page, "Enter"):
        panel.page.keyboard.press(key)
    assert eventually(lambda: panel.kernel.ask("panel.tabs.selected_index") == page)


def values(panel):
    return panel.kernel.ask("{name: str(control.value) for name, control in panel.controls.made.items()}")


def differs(panel, name, before):
    return lambda: values(panel)[name] != before


def test_the_tab_key_comes_by_everything(panel):
    panel.page.evaluate(UNVISITED)
    for page in range(panel.page.locator(TABS).count()):
        turn_to(panel, page)
        panel.quiet()  # else the kernel adds to the page behind the focus
        kinds = [kind for _, kind in walk(panel)]
        assert len(kinds) < 100
        assert "li" in kinds  # the pages' tabs
        assert panel.page.evaluate(NOT_VISITED) == [], page


def test_the_keyboard_alone_changes_every_control(lab, opened):
    # Where there is room for one view, each move draws only that one.
    with opened(lab, PANEL, viewport={"width": 850, "height": 1000}) as panel:
        panel.kernel.run("from batchsim.view.explorer.control import MAIN")
        panel.kernel.run("from batchsim.view.explorer.controls import SETTINGS")
        panel.kernel.run("from batchsim.view.explorer.kinds import KINDS, relevant")
        panel.kernel.run("from batchsim.view.explorer.rows import CONTROLS")
        every = "[name for name in KINDS['requests'].controls if CONTROLS[name].page]"
        changed = set()
        for state in STATES:
            go_to(panel, state)
            for page, reached in enumerate(panel.kernel.ask(REACHED)):
                if set(reached) - {"mode"} <= {name for name, _ in changed}:
                    continue
                turn_to(panel, page)
                for name, kind in walk(panel):
                    if name and kind != "button" and (name, kind) not in changed:
                        before = values(panel)
                        for key in KEYS.get(kind, ["Control+A", *TYPED.get(name, ""), "Enter"]):
                            panel.page.keyboard.press(key)
                        assert eventually(differs(panel, name, before[name])), (name, kind)
                        changed.add((name, kind))
                        go_to(panel, state)
        # But for `mode`, whose buttons test_tokens presses.
        assert {name for name, _ in changed} == set(panel.kernel.ask(every))
        assert {name for name, kind in changed if kind == "input"} == set(TYPED)


def centre_of(panel, row, column):
    """Return where a cell of the heat map is, in CSS pixels of the picture."""
    inside = f"""[(across, down) for across in range(100) for down in range(100)
        if (spot := panel.picture.at(across / 100, down / 100)) and (spot.change or {{}}).get("rule")
        == (grid := panel.data.surface).scenario.rule.at(grid.x_values[{column}], grid.y_values[{row}])]"""
    places = panel.kernel.ask(inside)
    box = panel.page.locator(panel.picture).bounding_box()
    return {
        "x": box["width"] * sum(across for across, _ in places) / len(places) / 100,
        "y": box["height"] * sum(down for _, down in places) / len(places) / 100,
    }


def test_a_click_on_the_heat_map_moves_the_sliders_there(panel):
    panel.page.locator(".batchsim-large select").select_option(value="Every setting at this load")
    panel.quiet(400)
    row, column = panel.kernel.ask("[int(n) for n in panel.data.surface.best()]")
    size = panel.kernel.ask(f"panel.data.surface.x_values[{column}]")
    wait_ms = panel.kernel.ask(f"panel.data.surface.y_values[{row}]")
    panel.page.locator(panel.picture).click(position=centre_of(panel, row, column))
    assert eventually(lambda: panel.typed("max_batch_size").input_value() == str(size))
    assert eventually(lambda: float(panel.typed("max_wait_ms").input_value()) == wait_ms)
    assert eventually(lambda: panel.kernel.ask("panel.result.scenario.rule == panel.scenario.rule"))


def test_arrow_keys_on_the_picture_walk_the_heat_map(panel):
    before = panel.kernel.ask("panel.state.max_batch_size")
    panel.page.locator(panel.picture).focus()
    panel.page.keyboard.press("ArrowLeft")
    assert eventually(lambda: panel.kernel.ask("panel.state.max_batch_size") < before)


def test_what_makes_no_sense_is_refused_where_it_is_typed(panel):
    pixels, field = panel.pixels(), panel.typed("max_batch_size")
    field.fill("0")
    field.press("Enter")
    refusal = panel.page.locator(panel.knob.format(name="max_batch_size")).get_by_role("alert")
    refusal.wait_for()
    assert refusal.inner_text() == "Max batch size must be at least 1, got 0"
    assert field.input_value() == "0"
    panel.quiet()
    assert panel.kernel.ask("panel.state.max_batch_size") == 32
    assert panel.pixels() == pixels
    field.fill("32")
    field.press("Enter")
    refusal.wait_for(state="detached")


LINKS = (
    "rate_per_s=1.234",
    "seed=3",
    "workload=onoff&burst_factor=1.05",
    "service=published&rate_per_s=400",
    "max_wait_ms=0.7",
    "service=curve&curve=1:2.4,32:6.7",
    "service=curve&curve=1:2.4,32:13.4",
    "fixed_ms=0.05&per_item_ms=0.003&max_wait_ms=0.013&objective_ms=0.77&rate_per_s=51234",
    "fixed_ms=1&per_item_ms=0.05&max_wait_ms=0.3",
    "seed=0",
)


def test_a_link_is_the_state_and_no_slider_rounds_it(panel):
    panel.page.locator(TABS).last.click()
    panel.quiet()  # else the kernel's own link replaces what is typed
    field = panel.page.get_by_placeholder("paste a link here")
    for link in LINKS:
        field.fill(link)
        field.press("Enter")
        reached = f"panel.state == State.from_link('{link}')"
        assert eventually(lambda reached=reached: panel.kernel.ask(reached)), link
        panel.quiet(300)  # for what the page may send back
        assert panel.kernel.ask(reached), (link, panel.kernel.ask("panel.state.to_link()"))


def test_a_service_time_of_another_scale_brings_values_that_no_slider_rounds(panel):
    for name in ("nnunet/t4/fp16", "gpunet-085ms/v100-32gb/fp16", "bert-large/t4/fp16/trt", "nnunet/t4/fp16"):
        chosen = f"panel.controls['service'].value = 'Published: {name}'"
        brought = panel.kernel.run(chosen, "panel.state.to_link()")  # before the page answers
        panel.quiet(300)
        assert panel.kernel.ask("panel.state.to_link()") == brought


def test_an_overloaded_setting_says_so(panel):
    go_to(panel, "State(rate_per_s=4000)")
    assert "overloaded" in panel.words().lower()
    assert "no steady state" in panel.words()
    assert "p50" not in panel.words()


def test_the_picture_says_what_the_line_of_words_says(panel):
    assert panel.move_ms("max_wait_ms", "ArrowRight") > 0
    panel.quiet(SETTLES_MS)  # the whole run follows the rough one
    assert panel.words() == panel.page.locator(panel.picture).get_attribute("alt")


def test_it_lives_in_notebook_7(notebook, opened):
    with opened(notebook, PANEL) as panel:
        assert panel.move_ms("max_wait_ms", "ArrowRight") > 0
        panel.quiet(SETTLES_MS)
        assert panel.words() == panel.page.locator(panel.picture).get_attribute("alt")
    assert panel.noise.errors == []
    assert panel.noise.elsewhere == []


def test_it_lives_alone_in_a_page_whose_address_says_its_state(app, opened):
    with opened(app, query="&rate_per_s=900&max_wait_ms=5&theme=light", color_scheme="dark") as panel:
        theme = panel.page.get_attribute("body", "data-jp-theme-name")
        assert theme == "JupyterLab Light"  # it comes before the browser's preference
        assert panel.kernel.ask("panel.session.style.theme") == "light"
        assert panel.typed("rate_per_s").input_value() == "900"
        assert panel.typed("max_wait_ms").input_value() == "5"
        assert panel.move_ms("max_wait_ms", "ArrowRight") > 0
        assert panel.page.locator("pre, .jp-CodeCell-input, .jp-InputArea").count() == 0
    assert panel.noise.errors == []
    assert panel.noise.elsewhere == []
