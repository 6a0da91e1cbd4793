"""One screen: nothing of the explorer is outside of what is visible, at every size and in every front end."""

import pytest

from browser.panel import HANDLE, PANEL

SIZES = [(1280, 800), (1440, 900), (1920, 1080)]
MAIN = ("rate_per_s", "max_batch_size", "max_wait_ms", "servers", "objective_ms")
# What is not wholly within the window and the part of the page that scrolls, and by how much.
OUTSIDE = """() => {
    const panel = document.querySelector(".batchsim-explorer");
    let view = { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
    for (let node = panel.parentElement; node; node = node.parentElement) {
        if (!/auto|scroll|hidden/.test(getComputedStyle(node).overflowY) || node === document.body) continue;
        const box = node.getBoundingClientRect();
        view = { left: Math.max(view.left, box.left), top: Math.max(view.top, box.top),
                 right: Math.min(view.right, box.right), bottom: Math.min(view.bottom, box.bottom) };
    }
    const parts = panel.querySelectorAll(
        ".batchsim-knobs > *, .batchsim-tabs > .lm-TabBar, img.batchsim-screen, .batchsim-foot");
    return [...parts].filter((part) => part.checkVisibility()).map((part) => {
        const box = part.getBoundingClientRect();
        const out = Math.max(
            view.left - box.left, view.top - box.top, box.right - view.right, box.bottom - view.bottom);
        return [part.className, Math.round(out)];
    }).filter(([, out]) => out > 1);
}"""
GEOMETRY = """() => {
    const box = (selector) => document.querySelector(selector).getBoundingClientRect();
    const [picture, column] = [box(".batchsim-main img.batchsim-screen"), box(".batchsim-column")];
    const img = document.querySelector(".batchsim-main img.batchsim-screen");
    return {
        picture: [picture.left, picture.top, picture.width, picture.height].map(Math.round),
        drawn: [img.naturalWidth, img.naturalHeight],
        column: Math.round(column.width),
        slider: Math.round(box(".batchsim-knobs .noUi-base").width),
        knobs: [...document.querySelectorAll(".batchsim-knobs .batchsim-knob + .widget-slider")].map((it) =>
            it.getBoundingClientRect().bottom - it.previousElementSibling.getBoundingClientRect().top),
        covered: [...document.querySelectorAll(".batchsim-knobs .widget-slider")].filter((it) => {
            const name = it.previousElementSibling.querySelector("label > :last-child");
            const top = it.querySelector(".noUi-handle").getBoundingClientRect().top;
            return top < name.getBoundingClientRect().bottom;
        }).length,
        narrow: document.querySelector(".batchsim-explorer").classList.contains("batchsim-narrow"),
        font: Math.min(...[...document.querySelectorAll(".batchsim-explorer *")]
            .filter((it) => it.checkVisibility() && it.textContent.trim())
            .map((it) => parseFloat(getComputedStyle(it).fontSize))),
    };
}"""


def resize(panel, width, height):
    panel.page.set_viewport_size({"width": width, "height": height})
    panel.page.wait_for_function(
        """(selector) => { const it = document.querySelector(selector);
        return it.naturalWidth === it.clientWidth && it.naturalHeight === it.clientHeight; }""",
        arg=panel.picture,
    )
    panel.quiet(300)


def touch_each_main_control(panel):
    """Check that all can be seen before and after each main control is moved, and the picture stays there."""
    place = None
    for name in MAIN:
        handle = panel.page.locator(panel.knob.format(name=name)).locator(HANDLE)
        handle.focus()
        assert panel.page.evaluate(OUTSIDE) == []
        place = place or panel.page.evaluate(GEOMETRY)["picture"]
        panel.page.keyboard.press("ArrowRight")
        panel.quiet()
        assert panel.page.evaluate(OUTSIDE) == []
        assert panel.page.evaluate(GEOMETRY)["picture"] == place


@pytest.mark.parametrize("kind", ["lab", "notebook", "app"])
def test_nothing_is_cut_off_when_it_appears_nor_while_a_control_is_touched(kind, request, opened):
    server, cells = request.getfixturevalue(kind), () if kind == "app" else (PANEL,)
    with opened(server, *cells, viewport={"width": 1280, "height": 800}) as panel:
        panel.quiet(400)
        assert panel.page.evaluate(OUTSIDE) == []
        for size in SIZES:
            resize(panel, *size)
            seen = panel.page.evaluate(GEOMETRY)
            assert not seen["narrow"]
            assert seen["slider"] >= 200
            assert max(seen["knobs"]) <= 46
            assert seen["covered"] == 0  # no handle covers a word
            assert seen["font"] >= 12
            touch_each_main_control(panel)
        panel.kernel.run("panel.share.size.value = 'projector'")
        for size in (SIZES[0], SIZES[2]):
            resize(panel, *size)
            assert panel.page.evaluate(GEOMETRY)["font"] >= 16
            touch_each_main_control(panel)
    assert panel.noise.errors == []


def test_a_page_that_is_opened_moves_no_picture(app, opened):
    with opened(app, viewport={"width": 1280, "height": 800}) as panel:
        panel.quiet(400)
        place = panel.page.evaluate(GEOMETRY)["picture"]
        for index in range(panel.page.locator(TABS).count()):
            panel.page.locator(TABS).nth(index).click()
            panel.quiet()
            assert panel.page.evaluate(GEOMETRY)["picture"] == place
            assert panel.page.evaluate(OUTSIDE) == []


@pytest.mark.parametrize(("width", "height"), [(800, 900), (390, 844)])
def test_the_controls_fold_below_the_picture_where_there_is_no_room_beside_it(app, opened, width, height):
    with opened(app, viewport={"width": width, "height": height}) as panel:
        panel.quiet(400)
        seen = panel.page.evaluate(GEOMETRY)
        assert seen["narrow"]
        assert seen["picture"][2] > 0.9 * width
        assert seen["drawn"] == seen["picture"][2:]
        assert panel.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert panel.kernel.ask("[len(panel.picture.views), panel.tabs.selected_index]") == [1, None]
        knobs = panel.page.locator(".batchsim-knobs").bounding_box()
        assert knobs["y"] >= seen["picture"][1] + seen["picture"][3]
        panel.page.locator(".batchsim-large select").select_option(label="Every setting at this load")
        panel.quiet(400)
        assert panel.kernel.ask("panel.picture.large") == "map"
        resize(panel, 1280, 800)
        assert not panel.page.evaluate(GEOMETRY)["narrow"]
        assert panel.kernel.ask("[len(panel.picture.views), panel.tabs.selected_index]") == [6, 0]
    assert panel.noise.errors == []


TABS = ".batchsim-tabs > .lm-TabBar .lm-TabBar-tab"
