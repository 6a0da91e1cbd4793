"""The parts in which a student acts, in JupyterLab: a game by keyboard, a drawing by mouse."""

import os
import re
from pathlib import Path

import pytest

from batchsim.teaching import output_capture
from batchsim.view.scripts import widget
from batchsim.view.theme import looks
from browser.conftest import patient
from browser.panel import eventually

SIZE = {"width": 1280, "height": 800}
GAME = """import batchsim as bs
from batchsim.teaching import be_the_batcher, draw_p99
game = be_the_batcher()
game"""
PAPER = """scenario = bs.Scenario(bs.Poisson(1), bs.SizeOrWait(32, 0), bs.Affine(1.85, 0.15))
paper = draw_p99(scenario, top_ms=40, promised_ms=20, then=lambda: print("the outcome"), key="05.a")
paper"""
EXPLORER = "panel = bs.explore(requests=500)\npanel"
PLAYED = """() => new Promise((played) => setInterval(() => {
    const button = document.querySelector(".batchsim-play .big");
    if (button.textContent === "Play again") played(true);
    else button.dispatchEvent(new PointerEvent("pointerdown"));
}, 50))"""
STATUS = ".batchsim-play [role=status]"
# The game's clock is the test's: it stands still but for `pass(ms)`, or runs `times` as fast. In a step
# of a second, which it does not make, the game stands still: the page was out of sight.
CLOCK = """() => {
    const now = performance.now.bind(performance);
    let [last, shown] = [now(), now()];
    window.times = 0;
    window.pass = (ms) => { shown += ms; };
    performance.now = () => {
        const at = now();
        shown += Math.min(times * (at - last), 900);
        last = at;
        return shown;
    };
}"""
FAST, STILL = "times = 5", "times = 0"
HASTE = "const later = setTimeout; window.setTimeout = (act, ms, ...all) => later(act, ms / 10, ...all)"


@pytest.fixture
def panel(lab, opened):
    with opened(lab, GAME, PAPER, EXPLORER, viewport=SIZE) as panel:
        yield panel


def shot(panel, name):
    if folder := os.environ.get("SHOTS"):
        panel.page.screenshot(path=f"{folder}/{name}.png")


def test_a_game_is_played_from_the_keyboard_and_compared_by_python(panel):
    page = panel.page
    send = page.get_by_role("button", name="Start", exact=True)
    send.wait_for()
    send.scroll_into_view_if_needed()
    page.evaluate(CLOCK)
    send.press("Enter")
    send = page.get_by_role("button", name="Send", exact=True)
    send.wait_for()
    said = page.locator(STATUS).first
    while not re.match(r"Batch ([4-9]|\d\d)", said.inner_text()):
        page.evaluate("pass(100)")
        send.press("Space")
    page.evaluate(FAST)
    page.wait_for_selector(".batchsim-play table:not([hidden])")
    shot(panel, "game")
    cells = page.locator(".batchsim-play tbody td").all_inner_texts()
    rows = panel.kernel.ask(
        "[[row['mean_ms'], row['p99_ms'], row['batches']] for row in game.answered['rows']]"
    )
    shown = [
        text for mean, p99, batches in rows for text in (f"{mean:.1f} ms", f"{p99:.1f} ms", f"{batches}")
    ]
    assert cells == shown
    assert panel.kernel.ask("len(game.sends_s)") > 3
    assert "best policy" in said.inner_text()
    page.evaluate("delete performance.now")  # the browser's own is back
    assert panel.noise.errors == []


def test_a_drawing_with_a_gap_is_told_so_and_a_whole_one_is_judged(panel):
    page = panel.page
    paper = page.locator(".batchsim-play .paper canvas")
    paper.scroll_into_view_if_needed()
    show = page.get_by_role("button", name="Show the curve")
    said = page.locator(".batchsim-play [role=status]").last
    show.click()
    assert "empty" in said.inner_text()

    def draw(begin, end):
        paper.hover()  # once it stands still
        box = paper.bounding_box()
        for step in range(41):
            at = begin + (end - begin) * step / 40
            height = 0.12 + 0.1 * at + 0.5 * at**12
            x = box["x"] + 40 + at * (box["width"] - 52)
            page.mouse.move(x, box["y"] + box["height"] - 36 - height * (box["height"] - 62))
            if not step:
                page.mouse.down()
        page.mouse.up()

    draw(0, 0.5)
    show.click()
    assert "a gap" in said.inner_text()
    draw(1, 0.4)  # backwards
    show.click()
    page.get_by_text("Your shape is right").wait_for()
    page.get_by_text("the outcome", exact=True).wait_for()
    shot(panel, "drawing")
    drawn = panel.kernel.ask("[paper.paper.done['drawn'], list(paper.paper.answered['curve_ms'])]")
    assert all(ms is not None for ms in drawn[0])
    assert drawn[1] == panel.kernel.ask("paper.curve_ms()")
    # The page sends its verdict after the kernel's answer, which it may show first.
    right = "getattr(bs.teaching.progress().record.predictions.get('05.a'), 'right', None)"
    assert eventually(lambda: panel.kernel.ask(right) is not None)
    assert panel.kernel.ask(right)
    assert panel.noise.errors == []


def test_without_a_kernel_the_game_and_the_paper_say_so_and_go_on(lab, opened):
    with opened(lab, GAME, PAPER, EXPLORER, alone=True, viewport=SIZE) as panel:
        page = panel.page
        start = page.get_by_role("button", name="Start", exact=True)
        start.wait_for()
        page.evaluate(CLOCK)
        page.evaluate(HASTE)
        page.evaluate("times = 20")
        page.click('.lm-MenuBar-itemLabel:text-is("Kernel")')
        page.click('.lm-Menu-itemLabel:text-is("Shut Down Kernel")')
        page.wait_for_selector("text=No Kernel")
        start.click()
        page.evaluate(PLAYED)
        page.get_by_text("The kernel does not answer").wait_for()
        page.evaluate(STILL)  # else the next game could end before this test sees it
        page.evaluate("pass(2000)")  # the hand's rest after a game
        page.get_by_role("button", name="Play again").click()
        page.get_by_role("button", name="Send", exact=True).wait_for()
        show = page.get_by_role("button", name="Show the curve")
        show.click()
        show.click()  # without a drawing
        assert eventually(lambda: "does not answer" in page.locator(STATUS).last.inner_text())


# A page whose kernel is this test: it answers what was done before, and then what was done last.
ACT = """async ([source, looks]) => {
  const { default: act } = await import(`data:text/javascript,${encodeURIComponent(source)}`);
  const loads = [0.2, 0.4, 0.6, 0.8], hear = [];
  const [given, before] = [{ loads, top_ms: 40 }, { turn: 1 }];
  const state = { part: "sketch", looks, given, done: before, answered: before };
  const model = {
    get: (name) => state[name], set: (name, value) => { state[name] = value; }, save_changes() {},
    on: (_, heard) => hear.push(heard), off() {},
  };
  const el = document.body.appendChild(document.createElement("div"));
  act.render({ model, el });
  const button = el.querySelector("button");
  button.click();
  button.click(); // once more, as nothing is drawn
  const shown = [];
  for (const turn of [1, 2]) {
    state.answered = { turn, curve_ms: loads.map((load) => 10 * load) };
    hear[0]();
    await new Promise((done) => setTimeout(done));
    shown.push(button.textContent);
  }
  return [state.done.turn, ...shown];
}"""


def test_an_answer_to_what_was_done_before_is_not_shown(browser):
    page = patient(browser.new_page())
    source = widget(Path(output_capture.__file__).with_name("act.js"))
    assert page.evaluate(ACT, [source, looks()]) == [2, "Show the curve", "Draw again"]
    page.close()
