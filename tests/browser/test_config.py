"""A config pasted into a page: its marks and a diff are in the large view, and no script of it ever runs."""

import pytest

from browser.panel import PANEL, eventually

BOX = ".batchsim-config textarea"
BOXES = "them => them.map((it) => document.querySelector(it).getBoundingClientRect().toJSON())"
TRITON = """\
name: "resnet"
max_batch_size: 16
dynamic_batching {
  max_queue_delay_microseconds: 500000  # <img src=x onerror="window.ran = 1">
  prefered_batch_size: [8]
}
"""
HOSTILE = [
    ("<script>window.ran = 1</script>", "A config must have a key"),
    ("max_batch_size: \"<img src=x onerror='window.ran = 1'>\"\ndynamic_batching { }", "Line 1, column 17"),
    ("\x00\x07\x1b[31m\ufffd", "A config must have a key"),
    ("x" * 2_000_000, "A pasted config must have at most 100,000 characters, got 2,000,000."),
    ("\x01" * 100_000, "A config must have at most 30,000 words and signs"),  # 600 kB in a message
]


@pytest.fixture(params=["lab", "app"])
def panel(request, opened):
    server = request.getfixturevalue(request.param)
    cells = [PANEL] if request.param == "lab" else []
    with opened(server, *cells, viewport={"width": 1280, "height": 800}) as panel:
        yield panel


def open_page(panel):
    panel.page.click(".batchsim-tabs .lm-TabBar-tab:has-text('Config')")
    panel.page.wait_for_selector(BOX)


def test_the_editor_takes_the_large_view_and_shows_marks_and_a_diff_with_what_it_changes(panel):
    page = panel.page
    open_page(panel)
    page.fill(BOX, TRITON)
    page.wait_for_selector(".batchsim-diff")
    lines = page.eval_on_selector_all(
        ".batchsim-marked", "them => them.map((it) => [it.value, it.innerText])"
    )
    assert [number for number, _ in lines] == [4, 5]
    assert "is too long" in lines[0][1]
    assert "did you mean preferred_batch_size" in lines[1][1]
    diff = page.inner_text(".batchsim-diff")
    assert "-max_batch_size: 16" in diff
    assert "+  max_queue_delay_microseconds: " in diff
    # A line that was cut would show another number.
    assert page.eval_on_selector(".batchsim-diff", "it => it.scrollWidth <= it.clientWidth")
    chosen = 'document.querySelector(".batchsim-knob-rule select").selectedOptions[0].text'
    # JupyterLab writes blanks of another kind.
    assert eventually(lambda: page.evaluate(chosen).replace("\xa0", " ") == "Triton: size or wait")
    assert eventually(lambda: page.input_value(".batchsim-knob-max_wait_ms input") == "500")
    name = "max_queue_delay_microseconds: 500000"
    assert eventually(lambda: name in page.inner_text(".batchsim-knob-max_wait_ms"))
    before, after = page.inner_text(".batchsim-diff .batchsim-new b").split(" → ")  # beside a new line
    assert float(after.split()[1]) < float(before.split()[1])
    panel.quiet()
    editor, picture = page.evaluate(BOXES, [".batchsim-config", panel.picture])
    left, top, width, height = panel.kernel.ask("panel.picture.places()[panel.picture.large]")
    assert editor["x"] == pytest.approx(picture["x"] + left * picture["width"], abs=2)
    assert editor["y"] == pytest.approx(picture["y"] + top * picture["height"], abs=2)
    assert editor["width"] == pytest.approx(width * picture["width"], abs=2)
    assert editor["height"] == pytest.approx(height * picture["height"], abs=2)
    page.click(".batchsim-tabs .lm-TabBar-tab:has-text('Arrivals')")
    page.wait_for_selector(BOX, state="hidden")
    assert page.evaluate("window.ran") is None
    assert panel.noise.errors == []


@pytest.mark.parametrize(("text", "said"), HOSTILE, ids=["script", "tag", "binary", "long", "wide"])
def test_a_hostile_text_gives_a_sentence_and_runs_nothing(panel, text, said):
    page = panel.page
    open_page(panel)
    page.fill(BOX, "")
    page.wait_for_function("document.querySelector('.batchsim-config [role]') === null")
    page.fill(BOX, text)
    page.wait_for_selector(".batchsim-config [role=alert]")
    assert page.inner_text(".batchsim-config [role=alert]").startswith(said)
    assert page.evaluate("window.ran") is None
    panel.quiet()
    assert panel.noise.errors == []


def test_the_diff_can_be_copied(panel):
    page = panel.page
    open_page(panel)
    page.fill(BOX, TRITON)
    page.click("button:has-text('Copy the diff')")
    page.wait_for_selector(".batchsim-status:has-text('on the clipboard')")
