"""The opening: one thing after another for a new reader; then three controls and views, or all."""

import pytest

from browser.panel import eventually

KNOBS = ("rate_per_s", "max_wait_ms", "max_batch_size")
SHOWN = """() => [...document.querySelectorAll(".batchsim-knobs > *")].filter((each) => each.offsetHeight)
    .flatMap((each) => [...each.classList]).filter((name) => name.startsWith("batchsim-knob-"))
    .map((name) => name.slice(14))"""
CLIP = "() => document.querySelector('.batchsim-main img').style.clipPath.split(',').length"
# The step that the kernel has, and the corners of what the picture shows: one, and six a box.
PLACED = """[panel.opening.step, 1 + 6 * sum(len(panel.opening.boxes.get(step["name"], ()))
    for step in panel.opening.steps[: panel.opening.step + 1])]"""
# A film of 20 requests per second is over in seconds, which a busy machine may spend elsewhere.
PLAYED = """() => { const film = document.querySelector(".batchsim-player")?.film;
    return film?.playing || film?.time_s >= film?.film?.until_s; }"""
NEXT, SKIP = ".batchsim-opening button:first-child", ".batchsim-opening button:last-child"
TABS = ".batchsim-explorer .batchsim-tabs"
PICTURE, MORE = ".batchsim-main img", ".batchsim-explorer button:text-is('More')"
NOTEBOOK = "import batchsim as bs\npanel = bs.explore(play=True, opening=True)\npanel"


@pytest.mark.parametrize("size", [(1280, 800), (390, 800)])
def test_the_app_opens_with_one_slider_ends_with_three_and_shows_all_of_them_on_demand(app, opened, size):
    width, height = size
    with opened(app, met=False, viewport={"width": width, "height": height}) as panel:
        page = panel.page
        page.wait_for_selector(NEXT)
        page.wait_for_function(PLAYED)
        assert eventually(lambda: panel.kernel.ask("panel.state.rate_per_s") == 20)
        assert not page.is_visible(TABS)
        for at in range(len(KNOBS)):
            assert eventually(lambda at=at: panel.kernel.ask("panel.state.rate_per_s") == (800 if at else 20))
            first_s, begin_s = panel.kernel.ask(
                "[panel.result.arrival_s[0], panel.play.player.stretch.begin_s]"
            )
            assert first_s == begin_s  # no reader waits for the first request
            assert set(page.evaluate(SHOWN)) == set(KNOBS[: at + 1])
            assert page.evaluate(CLIP) == 1  # only the film
            page.click(NEXT)
        clips = []
        for at in (len(KNOBS), len(KNOBS) + 1):  # latency, map
            assert eventually(lambda at=at: panel.kernel.ask(PLACED) == [at, page.evaluate(CLIP)])
            clips.append(page.evaluate(CLIP))
            page.click(NEXT)
        # Where there is room for one view, it is another one; else one more.
        assert 1 < clips[0] <= clips[1]
        assert width < 900 or clips[0] < clips[1]
        page.wait_for_selector(NEXT, state="detached")
        picture, knobs = (page.locator(each).bounding_box() for each in (PICTURE, ".batchsim-knobs"))
        assert not page.is_visible(TABS)
        assert set(page.evaluate(SHOWN)) == set(KNOBS)
        assert eventually(lambda: panel.kernel.ask("len(panel.picture.views)") == (3 if width > 900 else 1))
        assert width > 900 or picture["y"] + picture["height"] <= knobs["y"]
        page.click(MORE)
        page.wait_for_selector(TABS)
        assert set(page.evaluate(SHOWN)) > set(KNOBS)
        assert eventually(lambda: panel.kernel.ask("len(panel.picture.views)") == (6 if width > 900 else 1))
        if width > 900:  # the picture makes room for the title's words, which the opening hid
            low = "document.querySelector('.batchsim-foot').getBoundingClientRect().bottom"
            assert eventually(lambda: page.evaluate(f"{low} <= innerHeight"))
        assert panel.kernel.ask("panel.session.data.before") is None
        assert not panel.noise.errors
        if width > 900:
            page.reload()  # it plays once, and the browser remembers what the reader wanted
            page.wait_for_selector(f"{PICTURE}[data-frame]")
            page.wait_for_selector(TABS)
            assert page.query_selector(NEXT) is None


def test_a_rate_that_the_reader_has_moved_stays(lab, opened):
    with opened(lab, NOTEBOOK, met=False) as panel:
        panel.page.wait_for_selector(NEXT)
        assert eventually(lambda: panel.kernel.ask("panel.state.rate_per_s") == 20)
        assert eventually(lambda: panel.typed("rate_per_s").input_value() == "20")
        panel.typed("rate_per_s").fill("300")
        panel.typed("rate_per_s").press("Enter")
        assert eventually(lambda: panel.kernel.ask("panel.state.rate_per_s") == 300)
        panel.page.click(NEXT)
        assert eventually(lambda: panel.kernel.ask("panel.opening.step") == 1)
        assert panel.kernel.ask("panel.state.rate_per_s") == 300


def test_a_key_skips_it_in_a_notebook_and_the_explorer_is_as_it_would_have_been(lab, opened):
    with opened(lab, NOTEBOOK, met=False) as panel:
        panel.page.wait_for_selector(NEXT)
        assert eventually(lambda: panel.kernel.ask("panel.state.rate_per_s") == 20)
        panel.page.keyboard.press("Escape")
        panel.page.wait_for_selector(NEXT, state="detached")
        assert eventually(lambda: panel.kernel.ask("panel.state == panel.session.initial"))
        assert panel.page.is_visible(MORE)
        assert panel.page.evaluate(CLIP) == 1
        assert not panel.noise.errors
