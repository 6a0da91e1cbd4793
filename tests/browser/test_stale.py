"""Whatever belongs to another setting than the controls is dimmed, and a new choice is answered at once."""

import pytest

from browser.panel import PANEL, eventually
from browser.servers import running
from browser.test_tokens import SWITCH

# What a reader sees of a run: how visible each part is.
SEEN = """() => [...document.querySelectorAll(
    ".batchsim-screen, .batchsim-numbers, .batchsim-code, .batchsim-told, " +
    ".batchsim-moment, .batchsim-player > *"
)].filter((part) => part.checkVisibility()).map((part) => Number(getComputedStyle(part).opacity))"""
PLAY = PANEL.replace("(", "(play=True, ")
FILM = ".batchsim-placed"
LAYER = """(it) => {
    const { backgroundColor, zIndex } = getComputedStyle(it);
    return { color: backgroundColor, layer: Number(zIndex) };
}"""
RULE = ".batchsim-knob-rule select"
COVER, NUMBERS = ".batchsim-cover", ".batchsim-numbers"
FIGURES = f"{NUMBERS} b"
ANSWER_S = 6  # less than the loops of tokens take to compile in a process beside


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["lab", "app"])
def test_while_something_compiles_all_of_the_setting_before_is_dimmed(
    kind, browser, opened, tmp_path, monkeypatch
):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "compiled"))
    cells = () if kind == "app" else (PANEL,)
    with running(kind, tmp_path / "server") as server, opened(server, *cells, alone=True) as panel:
        page, tokens, requests = panel.page, panel.page.locator(SWITCH).last, panel.page.locator(SWITCH).first

        def dimmed():
            return [opacity < 0.5 for opacity in page.evaluate(SEEN)]

        assert not any(dimmed())
        of_requests = page.locator(FIGURES).all_inner_texts()
        tokens.click()
        assert eventually(lambda: all(dimmed()), ANSWER_S)
        assert page.locator(NUMBERS).get_attribute("aria-busy") == "true"
        assert eventually(lambda: "once on this machine … 2 s" in page.locator(COVER).inner_text())
        requests.click()  # is answered while the process compiles
        assert eventually(lambda: not any(dimmed()), ANSWER_S)
        assert page.locator(FIGURES).all_inner_texts() == of_requests
        page.locator(RULE).select_option(label="Rule: adaptive batching (BentoML)")
        assert eventually(lambda: all(dimmed()), ANSWER_S)
        page.locator(RULE).select_option(label="Rule: size or wait (textbook, Triton, TensorFlow Serving)")
        assert eventually(lambda: not any(dimmed()), ANSWER_S)
        tokens.click()
        assert eventually(lambda: all(dimmed()), ANSWER_S)
        assert eventually(lambda: not any(dimmed()))
        assert "TTFT" in panel.words()
        assert "TTFT" in page.locator(NUMBERS).inner_text()
    assert panel.noise.errors == []


def test_a_refused_value_dims_what_belongs_to_the_setting_before(lab, opened):
    with opened(lab, PLAY) as panel:
        cover = panel.page.locator(COVER)
        panel.page.wait_for_selector(f"{FILM} canvas")
        assert cover.is_hidden()
        panel.kernel.run("panel.session.simulate, run = None, panel.session.simulate")
        panel.handle("max_wait_ms").press("ArrowRight")
        assert eventually(lambda: cover.inner_text() == "This is another setting")
        assert all(opacity < 0.5 for opacity in panel.page.evaluate(SEEN))
        # The film hides the picture below it, which is dimmed, too, and not the words above it.
        film, words = (panel.page.locator(each).evaluate(LAYER) for each in (FILM, COVER))
        assert film["color"].startswith("rgb(")
        assert film["layer"] < words["layer"]
        panel.kernel.run("panel.session.simulate = run")
        panel.handle("max_wait_ms").press("ArrowRight")
        assert eventually(cover.is_hidden)
        assert not any(opacity < 0.5 for opacity in panel.page.evaluate(SEEN))
