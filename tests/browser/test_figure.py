"""The live figure in a cell: a hand moves it in the page, Python moves it too, and both have one run."""

import pytest

from browser.panel import PANEL, eventually

FIGURES = """scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))
one = bs.figure(scenario, views=["latency", "breakdown"])
two = bs.figure(scenario, views=["map", "load"], controls=["rate_per_s", "servers", "objective_ms"])
display(one)
two"""
HOSTS = ".batchsim-figure .figure"
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
# The run that a figure shows, as numbers of JSON: all of it is computed in the page.
SHOWN = """(host) => {
    const { settings, p50_ms, p99_ms, throughput_per_s, run, latency_ms } = host.figure.data;
    return { settings, p50_ms, p99_ms, latency_ms: [...latency_ms], batches: run.batches.size.length };
}"""
OF_PYTHON = """(lambda run: {"p50_ms": run.percentile(50), "p99_ms": run.percentile(99),
    "latency_ms": run.latency_ms.tolist(), "batches": len(run.batches.batch_size)})(%s.result)"""
# A drag of a slider in even steps of time, as `watch.drag` of the explorer's; how many pictures were seen.
DRAG = """async ([host, name, view, steps, seconds]) => {
    const input = host.querySelector(`input[name=${name}]`), canvas = host.querySelector(`.${view} canvas`);
    const seen = new Set(), began = performance.now(), pen = canvas.getContext("2d");
    let over = false;
    const look = () => {
        let sum = 2166136261;
        const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
        for (const part of new Uint32Array(data.buffer)) sum = Math.imul(sum ^ part, 16777619);
        seen.add(sum);
        if (!over) requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
    for (let step = 1; step <= steps; step += 1) {
        const due = began + (step * seconds * 1000) / steps;
        await new Promise((go) => setTimeout(go, due - performance.now()));
        input.value = Math.round(input.max * (0.8 - (0.75 * step) / steps));
        input.dispatchEvent(new Event("input"));
    }
    const took = (performance.now() - began) / 1000;
    over = true;
    input.dispatchEvent(new Event("change"));
    return { pictures: seen.size, seconds: took };
}"""


def shows(page, of=0):
    """Wait until a figure is at rest in the page, and return its element."""
    page.wait_for_function(f"document.querySelectorAll('{HOSTS}')[{of}]?.figure?.data")
    host = page.query_selector_all(HOSTS)[of]
    page.wait_for_function("(host) => host.figure.settled", arg=host)
    return host


def agrees(panel, name, host):
    """Whether a figure's run is that of Python, to the bit."""
    shown = panel.page.evaluate(SHOWN, host)
    settings = shown.pop("settings")
    at = panel.kernel.ask(f"{{name: getattr({name}, name) for name in {list(settings)}}}")
    same = all(settings[each] == at[each] for each in settings if at[each] is not None)
    return same and shown == panel.kernel.ask(OF_PYTHON % name)


@pytest.fixture
def panel(lab, opened):
    with opened(lab, PANEL.replace("500", "20_000"), FIGURES, viewport=WIDE) as panel:
        yield panel


def test_two_figures_show_the_run_of_simulate_to_the_bit_and_move_apart(panel):
    page = panel.page
    one, two = shows(page), shows(page, 1)
    assert agrees(panel, "one", one)
    assert agrees(panel, "two", two)
    other = page.evaluate(SHOWN, two)
    slider = one.query_selector("input[name=max_wait_ms]")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    assert eventually(lambda: panel.kernel.ask("one.max_wait_ms") > 20)
    one = shows(page)
    assert eventually(lambda: agrees(panel, "one", one))
    assert page.evaluate(SHOWN, two) == other
    assert panel.kernel.ask("two.max_wait_ms") == 10
    number = panel.kernel.ask("f'{one.result.percentile(99):.3g} ms'")
    assert number in one.query_selector(".numbers").inner_text()
    assert panel.noise.elsewhere == []
    assert panel.noise.errors == []


def test_python_moves_the_figure_also_out_of_the_sliders_range_and_to_other_traffic(panel):
    one = shows(panel.page)
    before = one.query_selector("canvas").screenshot()
    for change in (
        "one.max_batch_size = 100",
        "one.max_wait_ms = float('inf')",
        "one.scenario = bs.Scenario(bs.Gamma(300, cv=3), bs.SizeOrWait(4, 2), bs.Affine(1, 0.5), servers=2)",
        "one.rate_per_s = 2000",
    ):
        panel.kernel.run(change)
        assert eventually(lambda: agrees(panel, "one", shows(panel.page)), 30), change
    one = shows(panel.page)
    assert one.query_selector("canvas").screenshot() != before
    assert "2,000" in one.query_selector(".controls").inner_text()
    assert panel.noise.errors == []


def test_the_map_comes_from_the_same_requests(panel):
    two = shows(panel.page, 1)
    panel.page.wait_for_function("(host) => host.figure.data.map", arg=two)
    drawn = "({ figure: { data: { map } } }) => [map.sizes, map.waits, [...map.p99_ms]]"
    sizes, waits, p99_ms = panel.page.evaluate(drawn, two)
    at = waits.index(10) * len(sizes) + sizes.index(32)
    assert p99_ms[at] == panel.kernel.ask("two.result.percentile(99)")


@pytest.mark.parametrize(("scheme", "ink"), [("Dark", "rgb(232, 234, 237)"), ("Light", "rgb(27, 31, 36)")])
def test_its_colours_follow_those_of_the_page_behind_it(panel, scheme, ink):
    one = shows(panel.page)
    panel.page.evaluate(
        f"jupyterapp.commands.execute('apputils:change-theme', {{ theme: 'JupyterLab {scheme}' }})"
    )
    colour = "(host) => getComputedStyle(host.querySelector('.controls output')).color"
    assert eventually(lambda: panel.page.evaluate(colour, one) == ink, 30)
    assert panel.page.evaluate("(host) => host.figure.theme()", one) == scheme.lower()


@pytest.mark.alone  # it takes long
@pytest.mark.parametrize("kind", ["notebook", "app"])
def test_it_works_in_notebook_7_and_in_the_app(request, opened, kind):
    server = request.getfixturevalue(kind)
    with opened(server, *([PANEL, FIGURES] if kind == "notebook" else [])) as panel:
        if kind == "app":
            panel.kernel.run(
                FIGURES.replace("display(one)", "panel.children += (one, two)").removesuffix("two")
            )
        one = shows(panel.page)
        assert agrees(panel, "one", one)
        panel.page.evaluate(DRAG, [one, "max_wait_ms", "latency", 5, 0.2])
        assert eventually(lambda: panel.kernel.ask("one.max_wait_ms") < 6)
        assert eventually(lambda: agrees(panel, "one", shows(panel.page)))
        if kind == "notebook":
            panel.page.set_viewport_size(PHONE)
            one.scroll_into_view_if_needed()
            assert eventually(lambda: 300 < one.bounding_box()["width"] < 390)
            assert panel.page.evaluate("(host) => host.scrollWidth <= host.clientWidth", one)
        assert panel.noise.errors == []
        assert panel.noise.elsewhere == []


@pytest.mark.alone
def test_it_goes_on_while_the_kernel_is_busy_and_after_its_end(lab, opened):
    with opened(lab, PANEL, FIGURES, alone=True) as panel:
        one = shows(panel.page)
        panel.kernel.start("import os, time; time.sleep(2); os._exit(0)")
        drawn = panel.page.evaluate(DRAG, [one, "max_wait_ms", "latency", 20, 0.5])
        assert drawn["pictures"] > 2
        panel.page.wait_for_timeout(3000)
        assert panel.page.evaluate(DRAG, [one, "rate_per_s", "latency", 20, 0.5])["pictures"] > 2


@pytest.mark.alone
def test_a_drag_draws_more_pictures_than_the_explorers(panel, capsys):
    panel.page.evaluate("watch.frames.length = 0")
    dragged = panel.drag("max_wait_ms", to=0.05, steps=50, seconds=1)
    panel.quiet(600)
    of_explorer = len(panel.frames()) / dragged["seconds"]
    one = shows(panel.page)
    one.scroll_into_view_if_needed()
    drawn = panel.page.evaluate(DRAG, [one, "max_wait_ms", "latency", 50, 1])
    of_figure = drawn["pictures"] / drawn["seconds"]
    with capsys.disabled():
        print(f"\ndistinct pictures a second in a drag: figure {of_figure:.1f}, explorer {of_explorer:.1f}")
    assert of_figure > of_explorer
    assert eventually(lambda: agrees(panel, "one", shows(panel.page)))
