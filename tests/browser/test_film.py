"""The film in a real page: steady frames, exact steps, and a cursor that moves with them."""

import re
from itertools import pairwise
from statistics import median

import pytest

from browser.panel import EXPLORER
from browser.share import Share

# One page for all, as a page and its kernel take longer to begin than a film to be tried.
PAGE = """import batchsim as bs
from ipywidgets import VBox
panel = bs.explore(requests=20_000, play=True)
shown = VBox([panel])
shown"""
ALONE = "film = bs.film(bs.Scenario(bs.Poisson(1000), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25)))"
LANES = """scenario = bs.Scenario(bs.Poisson(2000), bs.SizeOrWait(32, 10), bs.Affine(1.8874, 0.1438))
film = bs.film(bs.compare_servers(scenario, requests=5000))"""
TOKENS = """tokens = bs.Tokens(prompt=200, output=bs.Geometric(60))
step = bs.published("llama-3.1-8b/rtx-4090")
film = bs.film(bs.Scenario(bs.Poisson(6), bs.Continuous(8), step, tokens=tokens))"""
SOURCES = {"explorer": "film = panel", "alone": ALONE, "lanes": LANES, "tokens": TOKENS}
STAGE = ".batchsim-stage img.batchsim-screen"
SECONDS, AT_LEAST, AIM = 3, 24, 60  # frames in these seconds
LONGEST_MS = 150  # the aim
# When each new frame of the film is on the screen: seen between two of the page's own, and decoded before.
SEEN = """(seconds) => new Promise((done) => {
    const times = [], begin = performance.now(), since = performance.timeOrigin + begin;
    let last = null;
    const look = () => {
        const now = performance.now(), source = document.querySelector(".batchsim-patch")?.src;
        if (source && source !== last) times.push(now - begin);
        last = source;
        now - begin < 1000 * seconds ? requestAnimationFrame(look) : done([times, since / 1000]);
    };
    look();
})"""
# How long a frame takes in the kernel, and how many different ones there were.
NOTE = """
import hashlib, time
frames, ticks = [], []
send, tick = player.screen.send, player._tick
def noted(content, buffers=None):
    if "patch" in content:
        frames.append((time.time(), hashlib.sha256(buffers[0]).hexdigest()))
    send(content, buffers=buffers)
def timed():
    began_s = time.perf_counter()
    tick()
    ticks.append(1000 * (time.perf_counter() - began_s))
player.screen.send, player._tick = noted, timed
"""


@pytest.fixture(scope="module")
def page(lab, opened):
    with opened(lab, PAGE, viewport={"width": 1280, "height": 800}) as panel:
        yield panel


# One film in every run; `make test-all` has them all.
EACH = [pytest.param(name, marks=() if name == "explorer" else pytest.mark.alone) for name in SOURCES]


@pytest.fixture(scope="module", params=EACH)
def panel(request, page):
    """The page with one film in it, and nothing else."""
    page.kernel.run("shown.children = ()")
    page.page.wait_for_selector(STAGE, state="detached")
    page.kernel.run(f"{SOURCES[request.param]}\nshown.children = (film,)")
    page.look_at(EXPLORER if request.param == "explorer" else STAGE)
    page.kernel.run(f"player = film.play.player if film is panel else film\n{NOTE}")
    return page


def button(panel, name):
    return panel.page.locator(f".batchsim-player-row button:has-text('{name}')")


def until_it_says(panel, text):
    """Wait until the first button has this text."""
    panel.page.wait_for_function(
        "text => document.querySelector('.batchsim-player-row button').textContent.includes(text)", arg=text
    )


def time_ms(panel):
    """Return the time that the page shows, to as many decimals as it does, and the kernel's."""
    panel.quiet()
    text = panel.page.locator(".batchsim-player-time .batchsim-label").inner_text()
    exact, decimals = panel.kernel.ask("[player.time_ms, player.film.decimals]")
    return pytest.approx(float(re.sub(r"[^\d.]", "", text)), abs=0.51 * 10**-decimals), exact


@pytest.mark.alone
def test_it_plays_steadily(panel, capsys):
    panel.kernel.run("frames.clear(); ticks.clear()")
    button(panel, "Play").click()
    share = Share()
    times, since_s = panel.page.evaluate(SEEN, SECONDS)
    free = share()
    button(panel, "Pause").click()
    until_it_says(panel, "Play")
    gaps = [after - before for before, after in pairwise(times)]
    meanwhile = f"[name for at_s, name in frames if 0 <= at_s - {since_s} <= {SECONDS}]"
    drawn, different, ticks = panel.kernel.run(
        f"seen = {meanwhile}", "[len(seen), len(set(seen)), sorted(ticks)]"
    )
    with capsys.disabled():
        print(
            f"\nThe film: {len(times)} frames in {SECONDS} s (aim: {AIM}), every {median(gaps):.0f} ms, the "
            f"longest pause {max(gaps):.0f} ms (aim: {LONGEST_MS}); in the kernel {median(ticks):.1f} ms each"
            f"; {free:.0%} of the processors were ours"
        )
    assert len(times) >= free * AT_LEAST
    assert different >= 0.9 * drawn
    assert drawn <= 1.3 * len(times) + 10, "frames are drawn that nobody sees"
    assert panel.kernel.ask("player.time_s > player.stretch.begin_s and not player.playing")
    shown, exact = time_ms(panel)
    assert shown == exact
    assert not panel.noise.errors


def test_a_step_goes_exactly_to_the_next_event_and_the_cursor_with_it(panel):
    ways = [("Next event", 1)] * 5 + [("Previous", -1)] * 3
    panel.kernel.run("player.go_to(player.stretch.begin_s)")
    panel.kernel.run("instants, view = player.film.instants().tolist(), player._stage()")
    for name, way in ways:
        before_s = panel.kernel.ask("player.time_s")
        button(panel, name).click()
        shown, exact = time_ms(panel)
        instants = panel.kernel.ask("[time for time in instants if abs(time - player.time_s) < 0.1]")
        beyond = [time for time in instants if (time - before_s) * way > 0]
        assert exact / 1000 == pytest.approx(beyond[0] if way > 0 else beyond[-1], abs=1e-12)
        assert shown == exact
        cursor_ms = panel.kernel.ask("float(view.timeline.cursors[0].get_xdata()[0])")
        begin_s = panel.kernel.ask("view.timeline.window_s[0]")
        assert cursor_ms + 1000 * begin_s == pytest.approx(exact)


def test_the_slider_is_the_time(panel):
    handle = panel.page.locator(".batchsim-player-time .noUi-handle")
    handle.focus()
    assert "Time" in handle.get_attribute("aria-label")
    panel.kernel.run("player.go_to(player.stretch.begin_s)")
    _, before = time_ms(panel)
    frame = panel.page.locator(".batchsim-patch").get_attribute("src")
    for _ in range(5):
        panel.page.keyboard.press("ArrowRight")
    shown, exact = time_ms(panel)
    assert exact > before
    assert shown == exact
    assert panel.page.locator(".batchsim-patch").get_attribute("src") != frame
    assert panel.page.locator(".batchsim-moment [role]").inner_text().startswith(f"At {exact:,.7g} ms")


def test_the_film_is_played_from_the_keyboard_and_ends_by_itself(panel):
    panel.kernel.run("player.time_ms = 1000 * player.stretch.until_s - 1")
    play = button(panel, "Play")
    play.focus()
    panel.page.keyboard.press("Space")
    until_it_says(panel, "Pause")
    until_it_says(panel, "Play")
    assert panel.kernel.ask("player.time_s == player.stretch.until_s")
    assert not panel.noise.errors
