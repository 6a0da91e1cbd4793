"""The film in a real page: its frames while the kernel is busy, exact steps, its words and its keys."""

import json
from itertools import pairwise
from statistics import median

import pytest

from batchsim.view.scripts import JS, bundle
from batchsim.view.theme import looks
from browser.panel import EXPLORER, eventually
from browser.share import Share

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
SOURCES = {"explorer": "", "alone": ALONE, "lanes": LANES, "tokens": TOKENS}
CANVAS = ".batchsim-player canvas"
FILM = "document.querySelector('.batchsim-player')?.film"
SECONDS, AT_LEAST, AIM = 3, 50, 60  # frames in a second while the kernel is busy
LONGEST_MS = 100
BUSY = f"import time\nend_s = time.time() + {SECONDS + 1}\nwhile time.time() < end_s: sum(range(1000))"
# When the film drew each frame, and the film's time then.
SEEN = f"""(seconds) => new Promise((done) => {{
    const film = {FILM}, seen = [], begin = performance.now();
    film.onmoment(() => {{
        const now = performance.now() - begin;
        if (now < 1000 * seconds) seen.push([now, film.time_s]);
        else done(seen);
    }});
}})"""


@pytest.fixture
def page(lab, opened):
    with opened(lab, PAGE, viewport={"width": 1280, "height": 800}) as panel:
        show_the_explorer(panel)
        yield panel


# One film in every run; `make test-all` has them all.
EACH = [pytest.param(name, marks=() if name == "explorer" else pytest.mark.alone) for name in SOURCES]


@pytest.fixture(params=EACH)
def panel(request, page):
    """The page with one film in it, and nothing else."""
    if request.param != "explorer":
        page.kernel.run("shown.children = ()")
        page.page.wait_for_selector(CANVAS, state="detached")
        page.kernel.run(f"{SOURCES[request.param]}\nshown.children = (film,); player = film")
        page.page.wait_for_function(f"{FILM}?.pen")
    yield page
    if request.param != "explorer":
        show_the_explorer(page)


def show_the_explorer(page):
    page.kernel.run("film = panel; shown.children = (panel,); player = panel.play.player")
    page.look_at(EXPLORER)
    page.page.wait_for_function(f"{FILM}?.pen")


def collect(panel, body):
    """Let the film's next moments, once it plays, be collected by `body`, which calls `done` with the result.

    The page begins before it plays and pauses the film itself, as that could end before this process acts.
    """
    panel.page.evaluate(
        f"""() => {{
            const film = {FILM}, seen = [];
            window.collected = null;
            const done = (found) => {{
                film.pause();
                window.collected = found;
            }};
            film.onmoment(() => {{ if (film.playing && !collected) {{ {body} }} }});
        }}"""
    )
    button(panel, "Play").click()
    return panel.page.wait_for_function("window.collected").json_value()


# Requests every 10 ms in batches of `size`, each of which computes until the next starts.
HIDDEN = """async (looks) => {
    const film = (count, size) => {
        const arrival_s = Float64Array.from({ length: count }, (_, i) => i / 100);
        const ends = arrival_s.filter((_, i) => i % size === size - 1), of = (i) => Math.floor(i / size);
        const none = new Uint8Array(ends.length), sizes = new Int32Array(ends.length).fill(size);
        const finish_s = ends.map((s) => s + size / 100);
        const batches = { start_s: ends, finish_s, server: none, trigger: none, size: sizes };
        const left_s = arrival_s.map((_, i) => ends[of(i)]), done_s = left_s.map((s) => s + size / 100);
        const status = new Uint8Array(count), batch = Int32Array.from(arrival_s, (_, i) => of(i));
        const columns = { arrival_s, left_s, done_s, status, batch, batches };
        const rule = { largest: size, max_wait_ms: null };
        const lane = { kind: "requests", title: [], servers: 1, rule, ...columns };
        return { begin_s: 0, until_s: count / 100, lanes: [lane] };
    };
    const frames = async () => { for (let i = 0; i < 3; i += 1) await new Promise(requestAnimationFrame); };
    const host = document.body.appendChild(document.createElement("div"));
    const shown = globalThis.film = new Film(host, { looks });
    shown.load(film(40, 20));
    await frames();
    host.style.display = "none";
    shown.load(film(40, 2), 0.35);
    await frames();
    host.style.display = "";
    await frames();
    return shown.stage.crowd.lane.batches.size[0];
}"""


def test_a_film_that_comes_while_its_place_is_hidden_is_drawn_when_it_is_seen(browser):
    context = browser.new_context()
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(error.stack))
    page.add_script_tag(content=bundle(JS / "film.js", "globalThis.Film = modules.film.Film;"))
    assert page.evaluate(HIDDEN, json.loads(json.dumps(looks()))) == 2
    context.close()
    assert errors == []


def button(panel, name):
    return panel.page.locator(f".batchsim-player button[aria-label='{name}']")


def reported(panel):
    """Return the film's time in the page, once the kernel has the same."""
    time_s = panel.page.evaluate(f"{FILM}.time_s")
    assert eventually(lambda: panel.kernel.ask("player.time_s") == time_s)
    return time_s


def stand_at(panel, time_s):
    """Let the kernel set the film's time, and wait for the page, which may have stood there already."""
    panel.kernel.run(f"player.go_to({time_s})")
    panel.quiet()
    panel.page.wait_for_function(f"{FILM}.time_s === {panel.kernel.ask('player.time_s')!r}")


@pytest.mark.alone
def test_it_plays_at_the_screens_rate_while_the_kernel_is_busy(panel, capsys):
    button(panel, "Play").click()
    panel.page.wait_for_function(f"{FILM}.playing")
    busy, share = panel.kernel.start(BUSY), Share()
    seen = panel.page.evaluate(SEEN, SECONDS)
    free = share()
    button(panel, "Pause").click()
    panel.kernel.wait(busy)
    gaps = [after - before for (before, _), (after, _) in pairwise(seen)]
    with capsys.disabled():
        print(
            f"\nThe film: {len(seen) / SECONDS:.0f} frames a second while the kernel is busy (aim: {AIM}), "
            f"every {median(gaps):.1f} ms, the longest pause {max(gaps):.0f} ms (aim: {LONGEST_MS}); "
            f"{free:.0%} of the processors were ours"
        )
    assert len(seen) >= free * AT_LEAST * SECONDS
    times_s = [time_s for _, time_s in seen]
    assert all(after >= before for before, after in pairwise(times_s))
    assert len(set(times_s)) >= 0.9 * len(times_s)
    assert reported(panel) > panel.kernel.ask("player.stretch.begin_s")
    assert not panel.noise.errors


def test_a_step_goes_exactly_to_the_next_event_and_python_says_the_same_words(panel):
    stand_at(panel, panel.kernel.ask("player.stretch.begin_s"))
    for name, way in [("Next event", 1)] * 5 + [("Previous", -1)] * 3:
        before_s = panel.page.evaluate(f"{FILM}.time_s")
        button(panel, name).click()
        time_s = reported(panel)
        nearest = (
            f"min(t for t in player.clip.instants if t > {before_s!r})"
            if way > 0
            else f"max(t for t in player.clip.instants if t < {before_s!r})"
        )
        assert time_s == panel.kernel.ask(f"float({nearest})")
        words = panel.kernel.ask("player.words")
        assert panel.page.evaluate(f"{FILM}.said.textContent") == words
        assert panel.page.locator(CANVAS).get_attribute("aria-label") == words


def test_the_slider_is_the_time(panel):
    slider = panel.page.locator(".batchsim-player input[type=range]")
    stand_at(panel, panel.kernel.ask("player.stretch.begin_s"))
    slider.focus()
    panel.page.keyboard.press("ArrowRight")
    panel.page.keyboard.press("PageUp")
    time_s = reported(panel)
    begin_s, until_s = panel.kernel.ask("[*player.stretch]")
    share = float(slider.input_value()) / 1000
    assert time_s == pytest.approx(begin_s + share * (until_s - begin_s))
    assert time_s > begin_s
    assert slider.get_attribute("aria-valuetext").endswith(" ms")


def test_a_request_is_followed_by_key_and_by_click(panel):
    page, said = panel.page, f"{FILM}.said.textContent"
    latencies = page.evaluate(f"{FILM}.numbers")
    page.locator(CANVAS).focus()
    page.keyboard.press("s")
    if not latencies:  # lanes of batches, which show no single requests
        page.wait_for_function(f"{said} === 'This film shows no single requests.'")
        return
    slowest = max((each for each in latencies if each[1] is not None), key=lambda each: each[1])[0]
    page.wait_for_function(f"{FILM}.picked === {slowest} && {said}.includes('Request {slowest:,} ')")
    assert eventually(lambda: panel.kernel.ask("player.followed") == slowest)
    if page.locator(".batchsim-acting").count():  # the explorer marks the line that sent the batch
        page.wait_for_function("document.querySelectorAll('.batchsim-code .batchsim-followed').length === 1")
        panel.quiet(500)  # also after the kernel has written the code anew
        assert page.locator(".batchsim-code .batchsim-followed").count() == 1
        assert panel.kernel.ask("panel.session.data.followed") == slowest
    page.keyboard.press("n")
    page.wait_for_function(f"{FILM}.picked !== {slowest}")
    page.keyboard.press("Escape")
    page.wait_for_function(f"{FILM}.picked === null")
    stand_at(panel, panel.kernel.ask("sum(player.stretch) / 2"))
    number, x, y = page.evaluate(
        f"""async () => {{
            for (let i = 0; i < 2; i += 1) await new Promise(requestAnimationFrame);  // it is drawn
            const film = {FILM}, {{ there }} = film.shown, [number, box] = there.at(-1);
            return [number, box.x + box.w / 2, film.below.y + box.y + box.h / 2];
        }}"""
    )
    page.locator(CANVAS).click(position={"x": x, "y": y})
    page.wait_for_function(f"{FILM}.picked === {number} && {said}.includes('Request {number:,} ')")
    page.locator(CANVAS).click(position={"x": 2, "y": 2})
    page.wait_for_function(
        f"{FILM}.picked === null && {said}.startsWith('There is no request at this place')"
    )
    assert not panel.noise.errors


def test_the_film_is_played_from_the_keyboard_and_ends_by_itself(panel):
    until_s = panel.kernel.ask("player.stretch.until_s")
    stand_at(panel, f"player.stretch.until_s - 0.3 / {panel.page.evaluate(f'{FILM}.slowness')}")
    panel.page.evaluate(
        f"() => {{ window.played = false; {FILM}.onmoment((it) => (played ||= it.playing)); }}"
    )
    panel.page.locator(CANVAS).focus()
    panel.page.keyboard.press("Space")
    panel.page.wait_for_function(f"played && !{FILM}.playing")
    button(panel, "Play").wait_for()
    assert reported(panel) == until_s
    panel.page.keyboard.press("ArrowLeft")
    assert reported(panel) < until_s
    panel.page.keyboard.press("Home")
    assert reported(panel) == panel.kernel.ask("player.stretch.begin_s")
    assert not panel.noise.errors


def test_reduced_motion_shows_event_after_event_without_gliding(panel):
    panel.page.emulate_media(reduced_motion="reduce")
    stand_at(panel, panel.kernel.ask("player.stretch.begin_s"))
    seen, instants = collect(
        panel, "seen.push(film.moment[0]); if (seen.length === 40) done([seen, film.instants]);"
    )
    panel.page.emulate_media(reduced_motion="no-preference")
    begin_s = panel.kernel.ask("player.stretch.begin_s")
    assert all(time_s in instants or time_s - begin_s < instants[0] - begin_s for time_s in seen)


def test_axe_finds_nothing_in_the_explorer_and_its_film(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page.page, context=".batchsim-explorer").response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found if each["id"] != "region"] == []


def test_the_page_marks_the_acting_line_while_it_plays(page):
    found = collect(
        page,
        """const lines = ".batchsim-acting [role=group] > div > div";
        const marked = () => [...document.querySelectorAll(lines)].findIndex((row) => row.ariaCurrent);
        queueMicrotask(() => { // when all else that a moment calls is done
            seen.push([film.line, marked()]);
            if (seen.length >= 60 && new Set(seen.map(([line]) => line)).size >= 2) done(seen);
        });""",
    )
    assert all(line == marked for line, marked in found)


SHOWN = """() => {
    const { film, lanes, time_s, playing, said } = document.querySelector(".batchsim-player").film;
    const rows = [...document.querySelectorAll(".batchsim-acting [role=group] > div > div")];
    const code = rows.map((row) => row.lastElementChild.textContent.trim()).filter(Boolean);
    const acts = rows.findIndex((row) => row.ariaCurrent);
    return [film.begin_s, film.until_s, lanes[0].kind, time_s, playing, said.textContent, code, acts];
}"""
MEANT = """[player.stretch.begin_s, player.stretch.until_s, panel.result.scenario.kind, player.time_s, False,
    player.words, [line.text for line in pseudocode(panel.result.scenario)],
    -1 if player.line is None else player.line]"""
SETTLED = """(not (panel.session.moved or panel.session.data_coarse)
    and panel.session.data_state == panel.state and panel.play.run[0] is panel.result)"""


def test_the_film_is_the_run_after_each_drag_while_paused_with_a_busy_kernel(page):
    page.kernel.run("from batchsim.view.film.pseudocode import pseudocode")
    page.page.evaluate(f"{FILM}.pace(3)")  # ten times slower: on a busy machine it must not end before Pause
    knobs = {"requests": ("rate_per_s", "max_wait_ms"), "tokens": ("rate_per_s", "max_num_seqs")}
    for drag, mode in enumerate(["requests", "tokens", "tokens", "requests"]):
        page.page.locator(".batchsim-knob-mode button").nth(int(mode == "tokens")).click()
        assert eventually(lambda mode=mode: page.kernel.ask("panel.result.scenario.kind") == mode)
        page.quiet(600)
        button(page, "Play").click()
        page.page.wait_for_function(f"{FILM}.playing")
        busy = page.kernel.start(BUSY.replace(f"{SECONDS + 1}", "1.2"))
        page.page.wait_for_timeout(550)  # a report is on its way when it pauses
        button(page, "Pause").click()
        page.drag(knobs[mode][drag % 2], to=0.2 + 0.15 * drag, steps=10, seconds=0.2)
        page.kernel.wait(busy)
        assert eventually(lambda: page.kernel.ask(SETTLED))
        page.quiet(400)
        assert page.page.evaluate(SHOWN) == page.kernel.ask(MEANT), drag
