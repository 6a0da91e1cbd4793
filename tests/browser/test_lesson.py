"""A lesson as a student opens it: nothing answers its first prediction until an answer is committed."""

import nbformat

from browser.panel import eventually
from browser.servers import ROOT

LESSON = ROOT / "notebooks" / "07-tune-to-an-objective.ipynb"
BUSY = "import pathlib, time\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.01)"
DARK = "invert(0.93) hue-rotate(180deg)"  # of a still in JupyterLab's dark theme
FILTER = """(light) => {
    document.body.dataset.jpThemeLight = light;
    const stills = [".batchsim-still", ".jp-RenderedImage img"].map((each) => document.querySelector(each));
    return stills.map((each) => getComputedStyle(each).filter);
}"""
RETURNED = "bs.plot(eight)"  # a figure of the cell itself
EXPLORER = "panel = bs.explore(requests=500)\npanel"


def until_the_first_prediction():
    """Yield the code cells of the lesson down to its first prediction."""
    for cell in nbformat.read(LESSON, as_version=4).cells:
        if cell.cell_type == "code":
            yield cell
            if cell.source.startswith("predict("):
                return


def test_the_outcome_of_a_prediction_appears_when_it_is_committed(lab, opened):
    with opened(lab, *until_the_first_prediction(), RETURNED, EXPLORER) as panel:
        page, outcome = panel.page, panel.page.get_by_text("95 % interval")
        page.get_by_text("which single change lowers p99 most?").wait_for()  # once: the code is folded
        page.get_by_role("button", name="Commit").click()
        page.get_by_text("Choose an answer first").wait_for()
        assert outcome.count() == 0
        page.get_by_label("A longer wait").check()
        free = panel.server.folder / "free"
        busy = panel.kernel.start(BUSY.format(str(free)))
        page.get_by_role("button", name="Commit").click()
        page.get_by_text("\N{BALLOT X} Not this time.").wait_for()  # at once, and of the page alone
        assert page.get_by_role("button", name="Commit").is_disabled()
        assert outcome.count() == 0
        free.touch()
        panel.kernel.wait(busy)
        outcome.wait_for(state="attached")
        page.locator(".widget-html img[alt]").first.wait_for()  # the picture comes first
        assert not outcome.is_visible(), "the numbers are folded"
        page.get_by_text("Numbers", exact=True).click()
        outcome.wait_for()
        page.get_by_text("\N{BALLOT X} Not this time.").wait_for()  # once, as strict mode asks
        page.locator(".widget-html td:text-is('50.29')").wait_for()
        assert [page.evaluate(FILTER, light) for light in ("true", "false")] == [["none"] * 2, [DARK] * 2]
        assert eventually(page.get_by_role("button", name="Commit").is_disabled)
        assert panel.noise.errors == []
