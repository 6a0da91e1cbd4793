"""Light and dark: the explorer is one surface with the page around it, and its text is legible."""

import pytest

from browser.panel import PANEL, eventually

TURN = "(theme) => jupyterapp.commands.execute('apputils:change-theme', { theme })"
SURFACE = {"light": [255, 255, 255], "dark": [17, 17, 17]}
# Texts whose contrast with what is behind them is too low, and the surfaces.
COLOURS = """(selector) => {
    const parts = (colour) => {
        const [r, g, b, alpha = 1] = colour.match(/[\\d.]+/g).map(Number);
        return { rgb: [r, g, b], alpha };
    };
    const over = (front, back) => front.rgb.map((it, i) => it * front.alpha + back[i] * (1 - front.alpha));
    const behind = (node) => {
        if (!node) return [255, 255, 255];
        const back = parts(getComputedStyle(node).backgroundColor);
        return back.alpha === 1 ? back.rgb : over(back, behind(node.parentElement));
    };
    const luminance = (rgb) => {
        const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        const [r, g, b] = rgb.map((each) => linear(each / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const panel = document.querySelector(".batchsim-explorer"), faint = [];
    const own = (node) => [...node.childNodes].filter((each) => each.nodeType === Node.TEXT_NODE);
    const said = (node) => node.matches("input, select, textarea") ? node.value
        : own(node).map((each) => each.textContent).join("").trim();
    let texts = 0;
    for (const node of panel.querySelectorAll("*")) {
        const seen = node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
        if (!said(node) || !seen || node.disabled) continue;
        if (node.matches("option, [type=range]") || node.closest("svg, .batchsim-tip")) continue;
        texts += 1;
        const back = behind(node), text = over(parts(getComputedStyle(node).color), back);
        const [low, high] = [luminance(text), luminance(back)].sort((a, b) => a - b);
        const ratio = (high + 0.05) / (low + 0.05); // 4.5: WCAG 2.2, success criterion 1.4.3
        if (ratio < 4.5) faint.push([said(node).slice(0, 30), node.className, Math.round(10 * ratio) / 10]);
    }
    const img = document.querySelector(selector), canvas = document.createElement("canvas");
    Object.assign(canvas, { width: img.naturalWidth, height: img.naturalHeight });
    const context = canvas.getContext("2d");
    context.drawImage(img, 0, 0);
    const film = panel.querySelector(".batchsim-player");
    return {
        texts, faint, page: behind(panel), picture: [...context.getImageData(2, 2, 1, 1).data.slice(0, 3)],
        film: film?.checkVisibility() ? behind(film) : null, window: behind(document.body),
    };
}"""


def colours(panel):
    return panel.page.evaluate(COLOURS, panel.picture)


def check(panel, scheme):
    """Check every page of the explorer, and its film."""
    assert eventually(lambda: colours(panel)["picture"] == SURFACE[scheme])
    tabs = panel.page.locator(".batchsim-tabs > .lm-TabBar .lm-TabBar-tab")
    seen = []
    for index in range(tabs.count()):
        tabs.nth(index).click()
        panel.quiet()
        found = colours(panel)
        assert found["faint"] == [], (scheme, index)
        assert found["texts"] > 15
        assert found["page"] == found["picture"] == SURFACE[scheme]
        seen += [found["film"]] * bool(found["film"])
    assert SURFACE[scheme] in seen
    assert all(each == SURFACE[scheme] for each in seen)
    assert panel.noise.errors == []


def test_the_app_has_the_colours_that_the_browser_prefers(app, opened):
    with opened(app, alone=True, color_scheme="dark") as panel:
        for scheme in "dark", "light", "dark":  # as where a night ends, and an evening begins
            panel.page.emulate_media(color_scheme=scheme)
            assert eventually(lambda scheme=scheme: colours(panel)["picture"] == SURFACE[scheme])
            assert colours(panel)["window"] == SURFACE[scheme]


@pytest.mark.parametrize(("page", "chosen"), [("light", "dark"), ("dark", "light")])
def test_colours_that_the_reader_chooses_hold_for_the_controls_too(app, opened, page, chosen):
    with opened(app, color_scheme=page) as panel:
        panel.kernel.run(f"panel.share.theme.value = {chosen!r}")
        check(panel, chosen)
        assert colours(panel)["window"] == SURFACE[page]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_jupyterlab_the_explorer_is_one_surface_with_its_cell(lab, opened, scheme):
    with opened(lab, PANEL, viewport={"width": 1280, "height": 800}) as panel:
        panel.page.evaluate(TURN, f"JupyterLab {scheme.title()}")
        try:
            check(panel, scheme)
        finally:
            panel.page.evaluate(TURN, "JupyterLab Light")
