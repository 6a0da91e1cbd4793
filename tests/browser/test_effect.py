"""The effect is visible: axes hold in a drag, what was there before is a ghost, a prediction comes first."""

import pytest

from browser.panel import LIMITS, eventually

PANEL = "import batchsim as bs\npanel = bs.explore(requests=4_000)\npanel"
WAIT = "panel.result.scenario.rule.max_wait_ms"
TOP = "document.querySelector('.batchsim-explorer').getBoundingClientRect().top"
COVERED = ".batchsim-covered img.batchsim-screen"


@pytest.fixture
def panel(lab, opened):
    with opened(lab, PANEL, viewport={"width": 1280, "height": 800}) as panel:
        yield panel


def drag_to(panel, name, part):
    knob = panel.page.locator(panel.knob.format(name=name))
    track = knob.locator(".noUi-base").bounding_box()
    x, y = track["x"] + part * track["width"], track["y"] + track["height"] / 2
    panel.page.mouse.move(x, y, steps=3)
    panel.quiet(600)


def test_axes_hold_in_a_drag_and_shrink_when_it_ends(panel):
    panel.grasp("max_wait_ms")
    drag_to(panel, "max_wait_ms", 0.9)
    far = panel.kernel.ask(LIMITS)
    drag_to(panel, "max_wait_ms", 0.5)
    middle = panel.kernel.ask(LIMITS)
    assert middle[0][:2] == far[0][:2]
    drag_to(panel, "max_wait_ms", 0.15)
    assert panel.kernel.ask(LIMITS)[0][:2] == far[0][:2]
    ghost = panel.kernel.ask("panel.data.before.result.scenario.rule.max_wait_ms")
    assert ghost == 10  # where the drag began
    panel.page.mouse.up()
    panel.quiet(500)
    assert panel.kernel.ask(LIMITS)[0][1] < far[0][1]


def test_a_key_that_is_held_down_is_one_move_and_two_keys_are_two(panel):
    panel.handle("max_wait_ms").focus()
    waits = [panel.kernel.ask(WAIT)]
    for _ in range(3):  # down again without up is what a keyboard repeats
        panel.page.keyboard.down("ArrowRight")
        panel.quiet()
        waits.append(panel.kernel.ask(WAIT))
        assert panel.kernel.ask(f"panel.data.before.{WAIT.partition('.')[2]}") == waits[0]
    assert sorted(set(waits)) == waits
    panel.page.keyboard.up("ArrowRight")
    panel.quiet(500)
    panel.page.keyboard.press("ArrowRight")
    panel.quiet(500)
    assert panel.kernel.ask(f"panel.data.before.{WAIT.partition('.')[2]}") == waits[-1]


def test_a_prediction_comes_first_and_the_picture_before_stays_below_it(panel):
    panel.page.locator(".batchsim-tabs > .lm-TabBar .lm-TabBar-tab", has_text="Predict").click()
    panel.page.get_by_text("Predict before seeing").click()
    panel.quiet(600)
    pixels = panel.pixels()
    panel.handle("max_wait_ms").focus()
    panel.page.keyboard.press("PageUp")
    panel.page.wait_for_selector(COVERED)
    panel.quiet(400)
    assert panel.pixels() == pixels
    opacity = panel.page.locator(COVERED).evaluate("(it) => Number(getComputedStyle(it).opacity)")
    assert 0.2 < opacity < 0.5
    for button in panel.page.get_by_role("button", name="rises").all():
        button.click()
    panel.quiet()
    # The panel is brought into view by a click in it, but not from under the pointer.
    panel.page.locator(".jp-WindowedPanel-outer").evaluate("it => { it.scrollTop = 0; }")
    away = panel.page.evaluate(TOP)
    panel.page.get_by_role("button", name="Reveal").click()
    panel.page.wait_for_selector(COVERED, state="detached")
    rows = panel.page.locator(".batchsim-column [role=status]", has_text="you said")
    assert eventually(lambda: rows.count() == 3)
    told = rows.all_inner_texts()
    assert all(row[0] in "\N{HEAVY CHECK MARK}\N{HEAVY BALLOT X}" for row in told)
    assert "forming grew from" in told[1]
    assert eventually(lambda: panel.page.evaluate(TOP) < away)
    assert panel.noise.errors == []


def test_the_pointer_is_told_what_a_click_does_and_a_click_enlarges(panel):
    picture, tip = panel.page.locator(panel.picture), panel.page.locator(".batchsim-tip")
    box = picture.bounding_box()

    def told():  # a picture that arrives or scrolls under a still pointer tells nothing: move it again
        for part in (0.84, 0.85):
            picture.hover(position={"x": part * box["width"], "y": 0.3 * box["height"]})
        panel.quiet()
        return tip.is_visible()

    assert eventually(told)
    assert picture.evaluate("(it) => it.style.cursor") == "pointer"
    large = panel.page.locator(".batchsim-large select").input_value()
    panel.page.mouse.down()
    panel.page.mouse.up()
    assert eventually(lambda: panel.page.locator(".batchsim-large select").input_value() != large)


def test_a_finger_is_told_what_it_taps_unless_the_tap_acts(panel):
    picture, tip = panel.page.locator(panel.picture), panel.page.locator(".batchsim-tip")
    large = panel.page.locator(".batchsim-large select")
    before, finger = large.input_value(), panel.page.context.new_cdp_session(panel.page)
    picture.hover(position={"x": 2, "y": 2})  # once it stands still
    box = picture.bounding_box()
    for part, is_told in ((0.25, True), (0.84, False)):
        at = {"x": box["x"] + part * box["width"], "y": box["y"] + 0.3 * box["height"]}
        for event, points in (("touchStart", [at]), ("touchEnd", [])):
            finger.send("Input.dispatchTouchEvent", {"type": event, "touchPoints": points})
        panel.quiet(600)
        assert tip.is_visible() == is_told
        assert (large.input_value() == before) == is_told
    finger.detach()


def test_a_last_value_that_arrives_after_its_drag_ends_with_an_exact_run(panel):
    panel.kernel.run("panel.session.turn_to('tokens')")
    panel.quiet(600)
    # As from a page whose slider waited for a busy kernel: a move, and no gesture.
    panel.kernel.run("panel.controls['max_num_seqs'].slider.set_state({'value': 98})")  # 99
    settled = "not (panel.session.moved or panel.session.data_coarse)"
    assert eventually(lambda: panel.kernel.ask(settled))
    assert panel.kernel.ask("panel.result.scenario.rule.max_num_seqs") == 99
