"""The page as a file, in Chromium without a network: it draws, moves, and is for everybody."""

import contextlib
import re

import pytest
import web_module

from batchsim.web import page as built
from browser.conftest import KEPT, patient
from browser.panel import eventually

WIDE, PHONE = {"width": 1280, "height": 1000}, {"width": 320, "height": 740}
FIGURES = ("why", "knobs", "cost", "tail", "choose")
# Write down what charts write and how they fill areas, from before the page's own script.
SPY = """
const canvas = CanvasRenderingContext2D.prototype;
globalThis.written = [];
globalThis.patterns = 0;
const { fillText, createPattern } = canvas;
canvas.fillText = function (text, ...rest) {
  written.push(String(text));
  return fillText.call(this, text, ...rest);
};
canvas.createPattern = function (...all) { patterns++; return createPattern.apply(this, all); };
"""
EMULATED = {"color_scheme": "light", "reduced_motion": "no-preference"}  # what a page can be told
DRAG = """async ([figure, control]) => {
  const input = batchsim.figures[figure].host.querySelector(`input[name=${control}]`);
  input.scrollIntoView({ block: "end" });
  await new Promise((done) => setTimeout(done, 800));
  const times = [];
  for (let i = 0; i <= 120; i++) {
    await new Promise(requestAnimationFrame);
    times.push(performance.now());
    input.value = Math.round(input.max * (0.35 + 0.3 * (1 - Math.cos(i / 20))));
    input.dispatchEvent(new Event("input"));
  }
  return times.slice(1).map((time, i) => time - times[i]);
}"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "batchsim.html"
    file.write_text(built.page(web_module.module().read_bytes()))
    return file


@pytest.fixture
def opened(browser, file):
    """Open the file without a network; an error or a request to anywhere fails the test.

    Tests share a tab, which loads the file anew, but for those that want another browser.
    """

    @contextlib.contextmanager
    def opened(before="", fragment="", live=True, met=True, viewport=WIDE, **options):
        shared = met and not before and options.keys() <= EMULATED.keys()
        context = KEPT.get(file) if shared else None
        if context is None:
            context = patient(
                browser.new_context(viewport=viewport, offline=True, **({} if shared else options))
            )
            context.add_init_script(before or SPY)
            if met:  # the reader has seen the opening
                context.add_init_script("localStorage.setItem('batchsim-opening', 1)")
            context.new_page()
        if shared:
            KEPT[file] = context
        (page,), errors, requests = context.pages, [], []
        listening = {
            "pageerror": lambda error: errors.append(str(error)),
            "console": lambda line: live and line.type in ("error", "warning") and errors.append(line.text),
            "request": lambda request: requests.append(request.url),
        }
        for event, hear in listening.items():
            page.on(event, hear)
        page.set_viewport_size(viewport)
        page.emulate_media(**{name: options.get(name, usual) for name, usual in EMULATED.items()})
        page.goto(file.as_uri() + fragment)
        if live:
            page.wait_for_selector("html.live")
        yield page
        for event, hear in listening.items():
            page.remove_listener(event, hear)
        if shared:  # its films end, and the next test loads the file again, also for another fragment alone
            page.goto("about:blank")
        else:
            context.close()
        assert not errors
        assert not [url for url in requests if not re.match("file:|blob:|data:", url)]

    return opened


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_page_opens_with_one_slider_and_a_film_for_those_who_come_first(opened, size):
    said, shown = "#first .opening [role=status]", "#first .controls label:not([hidden])"
    views = "#first .view:not([hidden])"
    with opened(met=False, viewport=size) as page:
        counts = []
        for _ in range(5):
            counts.append((page.locator(shown).count(), page.locator(views).count()))
            page.locator("#first .opening button").first.click()
        alone = size is PHONE  # a phone has room for one view
        assert counts == [(1, 1), (2, 1), (3, 1), (3, 1 if alone else 2), (3, 1 if alone else 3)]
        assert eventually(lambda: abs(page.locator("#how-to-choose").bounding_box()["y"]) < 2)
        assert page.locator("#first").count() == 0
        assert values(page, "choose")["rate_per_s"] == 800  # which the second sentence brings
        page.goto(page.url.partition("#")[0])  # as a link, which comes after a while, has no opening
        page.wait_for_selector("html.live")
        assert not page.locator("#first").is_visible()  # it plays once
    with opened(met=False, viewport=size) as page:
        assert page.locator(said).inner_text().startswith("Twenty requests arrive per second")
        page.keyboard.press("Escape")
        assert page.locator("#first").count() == 0
        assert values(page, "choose")["rate_per_s"] != 20
    with opened(met=False, viewport=size) as page:
        page.locator("#first input[name=rate_per_s]").press("ArrowRight")
        for _ in range(5):
            page.locator("#first .opening button").first.click()
        assert 20 < values(page, "choose")["rate_per_s"] < 30  # goes on where the reader left it


def test_a_request_is_followed_through_the_figure(opened):
    with opened() as page:
        film = "batchsim.figures.choose.film"
        page.evaluate(f"{film}.host.scrollIntoView()")
        page.evaluate(f"{film}.pause(), {film}.canvas.focus()")
        page.keyboard.press("s")
        until(page, f"{film}.said.textContent.startsWith('Request ')")
        number, latency_ms = page.evaluate(
            f"{film}.numbers.reduce((most, each) => each[1] > most[1] ? each : most)"
        )
        assert page.evaluate(f"{film}.picked") == number
        until(page, "batchsim.figures.choose.data.followed_ms > 0")  # which histogram and breakdown frame
        assert page.evaluate("batchsim.figures.choose.data.followed_ms") == pytest.approx(1000 * latency_ms)
        page.keyboard.press("Escape")
        until(page, f"{film}.picked === null && Number.isNaN(batchsim.figures.choose.data.followed_ms)")


def values(page, figure):
    return page.evaluate(f"batchsim.figures.{figure}.values")


def until(page, condition):
    """Wait; the page's policy refuses Playwright's own `wait_for_function`."""
    assert eventually(lambda: page.evaluate(condition)), f"this never came true: {condition}"


def settled(page, figure):
    until(page, f"batchsim.figures.{figure}.settled")


def box_of(page, figure, view):
    settled(page, figure)
    found = page.locator(f"#{figure} .view.{view} canvas").first
    found.hover()  # once it stands still
    return found.bounding_box()


def place(page, figure, view, x, y):
    """Return the place on the screen of a value of a chart."""
    chart = f"batchsim.figures.{figure}.charts.find((each) => each.view === '{view}')"
    box = box_of(page, figure, view)
    return box["x"] + page.evaluate(f"{chart}.x({x})"), box["y"] + page.evaluate(f"{chart}.y({y})")


def drag(page, begin, end):
    page.mouse.move(*begin)
    page.mouse.down()
    page.mouse.move(*end, steps=8)
    page.mouse.up()


def test_it_opens_from_a_disk_without_a_network_and_draws(opened):
    with opened() as page:
        until(page, "batchsim.figures.choose.data.map !== undefined")
        for figure in FIGURES:
            assert page.evaluate(f"batchsim.figures.{figure}.data.run.finish_s.length") == 20_000
        painted = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        until(page, painted)  # another process paints, and says when
        paint_ms = page.evaluate(painted)
        print(f"first picture after {paint_ms:.0f} ms")
        assert page.evaluate("written.length") > 100


def test_the_console_can_run_any_setting(opened):
    with opened() as page:
        run = """() => {
          const rule = { max_batch_size: 32, max_wait_ms: 10 }, service = { fixed_ms: 5, per_item_ms: 0.25 };
          const run = batchsim.run({ rate_per_s: 800, ...rule, ...service, servers: 1, requests: 1000 });
          const { arrival_s, start_s, finish_s } = run;
          return [arrival_s, start_s, finish_s].map((each) => [each.constructor.name, each.length]);
        }"""
        assert page.evaluate(run) == [["Float64Array", 1000]] * 3


@pytest.mark.alone
def test_a_drag_redraws_all_views_in_every_frame(opened):
    with opened() as page:
        until(page, "batchsim.figures.choose.data.map !== undefined")
        for control in ("rate_per_s", "max_wait_ms"):
            frames_ms = page.evaluate(DRAG, ["choose", control])
            rate = 1000 * len(frames_ms) / sum(frames_ms)
            print(f"{control}: {rate:.0f} frames a second, the longest {max(frames_ms):.0f} ms")
            assert rate > 10  # a machine that is busy otherwise draws fewer than the 40 to expect


def test_a_map_that_comes_late_is_that_of_the_last_setting(opened):
    with opened() as page:
        page.evaluate(DRAG, ["choose", "rate_per_s"])
        page.evaluate("batchsim.figures.choose.move()")
        settled(page, "choose")
        same = """() => {
          const { values, data, engine, requests } = batchsim.figures.choose;
          if (!data.map) return false; // a busy machine has not computed the first one yet
          const p99_ms = engine.grid({ ...values, requests }, data.map.sizes, data.map.waits);
          return p99_ms.every((ms, i) => ms === data.map.p99_ms[i]);
        }"""
        until(page, same)


def test_the_parts_of_a_picture_can_be_dragged(opened):
    with opened() as page:
        drag(page, place(page, "choose", "latency", 25, 1), place(page, "choose", "latency", 20, 1))
        assert values(page, "choose")["objective_ms"] == pytest.approx(20, rel=0.03)
        drag(page, place(page, "choose", "breakdown", 30, 10), place(page, "choose", "breakdown", 30, 4))
        assert values(page, "choose")["max_wait_ms"] == pytest.approx(4, rel=0.1)
        until(page, "batchsim.figures.choose.data.map !== undefined")
        drag(page, place(page, "choose", "map", 9.5, 5.5), place(page, "choose", "map", 7.5, 0.5))
        assert [values(page, "choose")[name] for name in ("max_batch_size", "max_wait_ms")] == [16, 0]
        drag(page, place(page, "choose", "load", 800, 40), place(page, "choose", "load", 1600, 40))
        assert values(page, "choose")["rate_per_s"] == pytest.approx(1600, rel=0.03)
        drag(page, place(page, "choose", "load", 1600, 40), place(page, "choose", "load", 2900, 40))
        until(page, "document.querySelector('#choose .numbers').innerText.includes('overloaded')")


def test_unstable_settings_are_labelled_as_in_the_explorer(opened):
    with opened() as page:
        figure = page.locator("#why")
        assert "overloaded" in figure.locator(".numbers").inner_text()
        until(page, "written.includes('Overloaded: the queue grows')")
        assert "Overloaded: the queue grows" in figure.locator(".view.latency canvas").get_attribute(
            "aria-label"
        )


def test_a_link_sets_the_figure_and_values_out_of_range_become_the_nearest_with_a_note(opened):
    with opened(fragment="#rate_per_s=1600&max_batch_size=0&servers=99&max_wait_ms=abc&fixed_ms=2") as page:
        found, note = values(page, "choose"), page.locator(".note-of-link").inner_text()
        assert (found["rate_per_s"], found["fixed_ms"]) == (1600, 2)
        assert (found["max_batch_size"], found["servers"], found["max_wait_ms"]) == (1, 8, 10)
        assert all(name in note for name in ("Max batch size 0 became 1", "Servers 99 became 8", "Max wait"))
        assert "Arrival rate" not in note
        page.locator("#choose input[name=servers]").press("ArrowLeft")
        until(page, "location.href.includes('servers=7')")


def test_the_answer_to_a_question_is_found_by_moving(opened):
    with opened() as page:
        question = page.locator("#why-batch .question")
        question.get_by_role("button").click()
        slider = page.locator("#why input[name=max_batch_size]")
        slider.focus()
        for _ in range(8):
            assert "Yes" not in question.inner_text()
            slider.press("ArrowRight")
            until(page, "!batchsim.figures.why.frame")  # it is drawn
        page.wait_for_selector("#why-batch .question.solved")
        assert page.locator("#why-batch details.answer").get_attribute("open") is not None


@pytest.mark.parametrize(
    ("section", "figure", "control", "value"),
    [
        ("two-knobs", "knobs", "max_batch_size", 3),
        ("waiting", "cost", "max_wait_ms", 2),
        ("the-tail", "tail", "rate_per_s", 2000),
        ("how-to-choose", "choose", "max_wait_ms", 5),
    ],
)
def test_the_slider_reaches_the_answer_of_each_question(opened, section, figure, control, value):
    with opened() as page:
        for button in page.locator(f"#{section} .question button").all():
            button.click()
        page.evaluate(
            """([name, control, value]) => {
              const figure = batchsim.figures[name];
              const input = figure.host.querySelector(`input[name=${control}]`);
              const places = Array.from({ length: Number(input.max) + 1 }, (_, i) => i);
              const away = (place) => Math.abs(figure.at(control, place / input.max) - value);
              input.value = places.reduce((best, place) => (away(place) < away(best) ? place : best));
              input.dispatchEvent(new Event("input"));
            }""",
            [figure, control, value],
        )
        until(page, f"document.querySelector('#{section} .question').classList.contains('solved')")


def test_a_reader_is_the_batcher_and_compares(opened):
    with opened() as page:
        page.evaluate(
            "() => { const now = performance.now.bind(performance); performance.now = () => 5 * now(); }"
        )
        send = page.locator("#player button")
        send.focus()
        for _ in range(12):
            send.press("Space")
            page.wait_for_timeout(150)
        page.wait_for_selector("#player table:not([hidden])")
        rows = page.locator("#player tbody tr").all_inner_texts()
        means = [float(re.search(r"([\d.]+) ms", row)[1]) for row in rows]
        assert len(rows) == 4
        assert means[2] < means[1]  # no wait, and a wait of 10 ms
        assert min(means) > 5.25


def test_a_drawing_of_the_curve_gets_feedback_on_its_shape(opened):
    def told(page, height):
        page.locator("#sketch canvas").hover()  # once it stands still
        box = page.locator("#sketch canvas").bounding_box()
        page.mouse.move(box["x"] + 42, box["y"] + box["height"] - 60)
        page.mouse.down()
        for step in range(41):
            x = box["x"] + 42 + step / 40 * (box["width"] - 60)
            page.mouse.move(x, box["y"] + box["height"] - 36 - height(step / 40) * (box["height"] - 62))
        page.mouse.up()
        page.locator("#sketch button").click()
        words = page.locator("#sketch [role=status]").inner_text()
        page.locator("#sketch button").click()
        return words

    with opened() as page:
        page.locator("#sketch").scroll_into_view_if_needed()
        assert page.evaluate("getComputedStyle(document.querySelector('.after')).visibility") == "hidden"
        paper, next_part = (page.locator(at).bounding_box() for at in ("#sketch", "#how-to-choose h2"))
        assert next_part["y"] - paper["y"] - paper["height"] < 150  # what is hidden takes no room
        assert "too early" in told(page, lambda x: 0.1 + 0.8 * x)
        assert "too low" in told(page, lambda x: 0.15 + 0.02 * x)
        assert "right" in told(page, lambda x: 0.15 + 0.06 * x + 0.6 * x**12)
        assert page.evaluate("getComputedStyle(document.querySelector('.after')).visibility") == "visible"


# For everybody.


def test_axe_finds_nothing(opened):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for scheme, viewport in (("light", WIDE), ("dark", WIDE), ("light", PHONE)):
        with opened(color_scheme=scheme, viewport=viewport) as page:
            page.locator("#sketch button").dblclick()  # the paper is empty: the second click shows the curve
            found = axe.run(page).response["violations"]
            assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []


def test_every_control_is_reached_and_moved_with_the_keyboard(opened):
    with opened(reduced_motion="reduce") as page:
        for _ in range(3):  # the paper is empty, the curve appears, the next drawing begins
            page.locator("#sketch button").click()
        reached = set()
        focused = """() => {
          const it = document.activeElement;
          return [it.closest("[id]")?.id, it.name || it.dataset.knob || it.tagName];
        }"""
        for _ in range(150):
            page.keyboard.press("Tab")
            reached.add(tuple(page.evaluate(focused)))
        sliders = page.evaluate(
            "Object.entries(batchsim.figures).flatMap(([id, it]) => it.controls.map((name) => [id, name]))"
        )
        assert {(figure, name) for figure, name in sliders} <= reached
        assert {("sketch", "CANVAS"), ("player", "BUTTON"), ("theme", "BUTTON")} <= reached
        number = page.locator("#two-knobs [data-knob=max_wait_ms]")
        number.press("ArrowRight")
        settled(page, "knobs")
        assert values(page, "knobs")["max_wait_ms"] > 5
        page.locator("#sketch canvas").press("ArrowRight")
        page.locator("#sketch canvas").press("ArrowUp")
        assert "25 ms" in page.locator("#sketch [role=status]").inner_text()


def test_a_live_region_says_what_a_move_changed(opened):
    with opened() as page:
        before = page.locator("#cost .words").inner_text()
        page.locator("#cost input[name=max_wait_ms]").press("End")
        settled(page, "cost")
        words = page.locator("#cost .words").inner_text()
        assert page.locator("#cost .words").get_attribute("role") == "status"
        assert words != before
        assert "Max wait (ms) 30" in words
        assert re.search(r"p99 [\d.]+ ms.*forming [\d.]+ ms", words)


def test_no_meaning_has_a_hue_alone(opened):
    with opened() as page:
        until(page, "batchsim.figures.choose.data.map !== undefined")
        words = {"forming", "queueing", "computing", "p50", "p99", "objective", "overloaded", "★"}
        assert eventually(lambda: words <= set(page.evaluate("written")))
        until(page, "written.some((text) => text.startsWith('max wait'))")
        until(page, "patterns >= 4")  # two parts of a latency; overloaded and too slow cells of the map
        page.evaluate("batchsim.figures.choose.move({ objective_ms: 10 })")
        until(page, "document.querySelector('#choose .numbers').innerText.includes('✗ above 10 ms')")


def test_nothing_moves_by_itself_for_those_who_prefer_that(opened):
    with opened(reduced_motion="reduce") as page:
        page.locator("#why").scroll_into_view_if_needed()
        until(page, "batchsim.figures.why.isFilmSeen")
        page.wait_for_timeout(500)
        assert not page.evaluate("Object.values(batchsim.figures).some((figure) => figure.film?.playing)")


def test_a_phone_shows_everything_in_its_width_and_a_finger_moves_it(opened):
    with opened(viewport=PHONE, has_touch=True, is_mobile=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        small = """[...document.querySelectorAll("button:not(.term), select, input, summary")]
          .filter((each) => each.offsetParent && each.getBoundingClientRect().height < 24)
          .map((each) => each.outerHTML)"""
        assert page.evaluate(small) == []
        shown = page.locator("#choose .view:visible")
        assert shown.count() == 1
        page.locator("#choose .picker select").select_option("latency")
        assert eventually(lambda: "Latency" in shown.inner_text())
        for _ in range(2):  # the paper is empty: the second tap shows the curve
            page.locator("#sketch button").tap()
        page.touchscreen.tap(*place(page, "tail", "load", 1600, 30))
        until(page, "Math.abs(batchsim.figures.tail.values.rate_per_s - 1600) < 50")
        slider = page.locator("#cost input[name=max_wait_ms]")
        box = slider.bounding_box()
        slider.tap(position={"x": box["width"] - 4, "y": box["height"] / 2})
        until(page, "batchsim.figures.cost.values.max_wait_ms > 28")


def test_it_is_dark_where_readers_prefer_that_and_a_button_changes_it(opened):
    background = "getComputedStyle(document.documentElement).backgroundColor"
    with opened(color_scheme="dark") as page:
        assert page.evaluate(background) == "rgb(17, 17, 17)"
        page.locator("#theme").click()
        until(page, f"{background} === 'rgb(255, 255, 255)'")


@pytest.mark.parametrize("missing", ["JavaScript", "WebAssembly"])
def test_without_javascript_or_webassembly_there_are_stills_text_and_a_sentence(opened, missing):
    without = {"java_script_enabled": False} if missing == "JavaScript" else {}
    with opened("" if without else "delete globalThis.WebAssembly", live=False, **without) as page:
        page.locator(".need").wait_for(state="visible")
        assert missing in page.locator(".need").inner_text()
        assert eventually(lambda: page.locator("img.still:visible").count() == len(FIGURES))
        assert re.search(r"a request waits \d\.\d+ ms for company", page.locator("#two-knobs").inner_text())
        assert page.locator("#the-tail .after").is_visible()


def test_the_book_shows_one_figure_alone_with_a_lessons_numbers(opened):
    asked = "#views=latency+breakdown&controls=max_wait_ms+none&rate_per_s=2000&max_wait_ms=3&fixed_ms=1.85"
    with opened(fragment=asked) as page:
        until(page, "document.querySelector('#choose .numbers')")
        assert page.locator("section h2:visible").count() == 0
        assert page.locator("#choose input:visible").count() == 1
        values = page.evaluate("batchsim.figures.choose.values")
        assert (values["rate_per_s"], values["max_wait_ms"], values["fixed_ms"]) == (2000, 3, 1.85)
        assert page.evaluate("Object.keys(batchsim.figures)") == ["choose"]
        # Four times a full batch, of 32 as nothing moves the size: 4 x (1.85 + 32 x 0.25) ms.
        assert page.evaluate("batchsim.figures.choose.range('max_wait_ms')") == [0, 40]
        limits = "batchsim.figures.choose.range('rate_per_s').map((rate) => Math.round(rate))"
        assert page.evaluate(limits) == [10, 6310]  # twice what one server carries


def test_a_page_that_frames_a_figure_stays_where_its_reader_is(browser, file, tmp_path):
    source = f"{file.as_uri()}#views=latency&controls=max_wait_ms&max_wait_ms=3"
    framed = tmp_path / "lesson.html"
    framed.write_text(f'<div style="height:3000px"></div><iframe src="{source}" height="500"></iframe>')
    page = browser.new_page(viewport=WIDE)
    page.goto(framed.as_uri())
    page.frame_locator("iframe").locator("#choose .numbers").wait_for()
    page.wait_for_timeout(200)
    assert page.evaluate("scrollY") == 0
    page.close()


def test_slides_show_the_game_alone(opened):
    with opened(fragment="#player") as page:
        page.locator("#player button").wait_for()
        shown = page.locator("section h2, section > p, .figure, footer, header").all()
        assert [each.inner_text() for each in shown if each.is_visible()] == []
        assert page.locator("#player").bounding_box()["y"] < 50
        page.locator("#player button").click()
        page.get_by_role("button", name="Send").wait_for()
