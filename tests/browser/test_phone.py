"""A lesson's prediction on a phone: every choice can be read and tapped, and its outcome, too."""

from browser.panel import PANEL

PHONE = {"width": 390, "height": 844}
LONG = "max_batch_size: larger batches share the fixed cost, and more requests are served in one second"
CELL = f"""from batchsim.teaching import predict
import pandas
import matplotlib.pyplot as plt

def outcome():
    print("The wait adds 2.42 ms, from 2.41 to 2.43 ms (95 % interval). " * 2)
    figure, ax = plt.subplots(figsize=(7, 3))
    ax.plot([1, 2])
    return figure, pandas.DataFrame([[0.123] * 9], columns=[f"wait {{at}} (ms)" for at in range(9)])

predict("Which?", [{LONG!r}, {LONG[:50]!r}, {LONG[::-1]!r}], {LONG!r}, "So it is.", outcome)"""
# Where two things of a list lie over each other, and what is wider than the place that scrolls it.
OVERLAPS = """() => {
    const boxes = [...document.querySelectorAll(".widget-radio-box label")].map((each) => {
        const text = document.createRange();
        text.selectNodeContents(each);
        return text.getBoundingClientRect();
    });
    return boxes.slice(1).map((box, at) => Math.round(boxes[at].bottom - box.top)).filter((px) => px > 2);
}"""
# A circle that is not at the first line of its choice.
BESIDE = """() => [...document.querySelectorAll(".widget-radio-box label")].filter((each) => {
    const [{ left, top }, line] = [each.firstChild, each.querySelector("input")].map((part) => {
        const range = document.createRange();
        range.selectNode(part);
        return range.getClientRects()[0];
    });
    return line.right > left || Math.abs(line.top - top) > 6;
}).map((each) => each.textContent)"""
CUT = """() => [...document.querySelectorAll(".batchsim-prediction :is(table, pre, img)")].filter((each) => {
    let place = each.parentElement;
    while (place && !/auto|scroll/.test(getComputedStyle(place).overflowX)) place = place.parentElement;
    const { right } = each.getBoundingClientRect();
    return right > innerWidth && (!place || place.getBoundingClientRect().right > innerWidth);
}).map((each) => each.tagName)"""


def test_choices_lie_apart_and_what_is_wide_scrolls_in_its_place(lab, opened):
    with opened(lab, PANEL, CELL) as panel:
        page = panel.page
        page.set_viewport_size(PHONE)
        page.evaluate("jupyterapp.shell.collapseLeft(); jupyterapp.shell.collapseRight()")
        page.locator(".batchsim-prediction").scroll_into_view_if_needed()
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(BESIDE) == []
        for label in page.locator(".batchsim-prediction .widget-radio-box label").all():
            label.click()  # which fails where another one lies over it
        page.get_by_role("button", name="Commit").click()
        page.get_by_text("Numbers", exact=True).click()
        page.locator(".batchsim-prediction table").wait_for()
        assert page.evaluate(CUT) == []
        picture = page.locator(".batchsim-prediction img")
        assert picture.bounding_box()["width"] > 450  # of 700: its letters can be read
