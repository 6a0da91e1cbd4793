"""The projector's page shows a class's answers as they come, keeps them, and runs nothing that they hold."""

import importlib.util
import json
from contextlib import closing

import psutil
import pytest
from classes import shown, teacher_token

from batchsim.teaching import join, predict
from batchsim.view import voting
from browser.conftest import patient, session_of
from browser.kernel import Kernel
from browser.panel import Noise, eventually
from browser.servers import running
from browser.test_app import INJECTIONS

CHOICES = ["It falls", "It stays", "It rises"]
BARS = """() => [...document.querySelectorAll("#choices li")].map((line) => [
    line.children[0].textContent, line.children[1].textContent, line.querySelector("u").style.width])"""
LISTED = """texts => {
    const lines = [...document.querySelectorAll("#questions span")].map((line) => line.textContent);
    return lines.length === texts.length && lines.every((line, index) => line === texts[index]);
}"""
POLLS = 4  # two seconds at two a second, in which the chart has what the server has
ASKED = "() => performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('votes')).length"
# The page itself notes how often it has asked until it shows a count: this process may look much later.
NOTE = f"""text => {{
    const count = document.getElementById("count");
    const look = () => {{ if (count.textContent === text) window.polls ??= [({ASKED})()]; }};
    performance.clearResourceTimings();
    new MutationObserver(look).observe(count, {{ childList: true }});
    look();
}}"""
HAS = """([text, count]) => questions.some((each) => each.text === text && total(each) === count)"""


@pytest.fixture
def server(app):
    return app


@pytest.fixture
def projector(server, browser):
    page, noise = patient(browser.new_page(viewport={"width": 1280, "height": 800})), Noise()
    noise.listen(page)
    page.goto(f"{server.url}class?teacher_token={teacher_token(server)}")
    assert page.url == f"{server.url}class"  # without the token, which a projector would show
    yield page
    assert noise.errors == noise.elsewhere == []
    page.context.close()


@pytest.fixture
def student(server, monkeypatch):
    """Commit an answer to a question as a student."""
    monkeypatch.setenv(voting.ADDRESS, "")
    join(server.address())

    def commit(number, question, choices, chosen):
        monkeypatch.setenv(voting.STUDENT, f"student {number}")
        asked = predict(question, choices, choices[-1], "It does.")
        asked.choice.value = chosen
        asked.commit.click()

    return commit


def bars(page, question):
    page.wait_for_function("text => document.getElementById('question').textContent === text", arg=question)
    return page.evaluate(BARS)


def counted(server, question, count):
    assert eventually(lambda: [sum(each["counts"]) for each in shown(server, question)] == [count])


def listed(page, server):
    page.wait_for_function(LISTED, arg=[each["text"] for each in reversed(shown(server))])


def test_thirty_students_commit_at_once_and_the_chart_shows_all_and_a_reload_loses_none(
    server, projector, student
):
    for number in range(30):
        student(number, "p99?", CHOICES, CHOICES[number % 2 or 2 * (number % 4 == 0)])
    counted(server, "p99?", 30)
    projector.evaluate(NOTE, "30 have answered")
    expected = [[text, f"{n} · {s} %", w] for text, n, s, w in (
        (CHOICES[0], 7, 23, "23.3333%"), (CHOICES[1], 15, 50, "50%"), (CHOICES[2], 8, 27, "26.6667%"),
    )]  # fmt: skip
    (polls,) = projector.wait_for_function("window.polls").json_value()
    assert polls <= POLLS
    assert not projector.is_visible("#choices b")  # an open vote shows no bars
    projector.get_by_role("button", name="Close the vote").click()
    projector.wait_for_selector("#choices.closed b")
    assert bars(projector, "p99?") == expected
    projector.reload()
    assert bars(projector, "p99?") == expected
    assert "✓" not in projector.inner_text("main")
    projector.get_by_role("button", name="Reveal").click()
    projector.wait_for_selector("#choices li.right")
    projector.reload()
    projector.wait_for_selector("#choices li.right")
    assert projector.inner_text(".right span") == "✓ It rises"
    projector.get_by_role("button", name="Open again").click()
    projector.wait_for_selector("#choices.open")


def test_a_student_who_is_ahead_does_not_turn_the_page_but_the_teacher_may(server, projector, student):
    for number in range(30):
        student(number, "first?", CHOICES, CHOICES[0])
    counted(server, "first?", 30)
    assert bars(projector, "first?")
    for count in (14, 15):
        for number in range(count):
            student(number, "second?", CHOICES, CHOICES[1])
        projector.wait_for_function(HAS, arg=["second?", count])
        assert bars(projector, "first?" if count == 14 else "second?")
    projector.locator("#questions button", has_text="first?").click()
    assert bars(projector, "first?")[0][1] == "30 · 100 %"
    projector.reload()
    assert bars(projector, "first?")
    projector.get_by_role("button", name="Follow the class").click()
    assert bars(projector, "second?")
    projector.once("dialog", lambda dialog: dialog.accept())
    projector.get_by_role("button", name="Remove").click()
    assert bars(projector, "first?")
    assert shown(server, "second?") == []


def test_a_click_opens_the_question_that_was_pressed_though_another_comes_before_the_release(
    server, projector, student
):
    for question in ("pressed?", "above?"):
        student(0, question, CHOICES, CHOICES[0])
        counted(server, question, 1)
    listed(projector, server)
    projector.locator("#questions button", has_text="pressed?").hover()
    projector.mouse.down()
    student(0, "late?", CHOICES, CHOICES[0])
    counted(server, "late?", 1)
    # One on its way, one with the question, and one that was asked after the page had that: the page counts,
    # as this process may hear late of earlier ones.
    projector.evaluate("performance.clearResourceTimings()")
    projector.wait_for_function(f"({ASKED})() >= 3")
    projector.mouse.up()
    assert bars(projector, "pressed?")
    listed(projector, server)


def test_no_answer_runs_a_script_or_leaves_the_page(server, projector, student):
    for number in range(31):
        for text in INJECTIONS[::7]:
            student(number, f"{text}\N{RIGHT-TO-LEFT OVERRIDE}", [text, f"{text}1", "x" * 500], text)
    for text in INJECTIONS:
        student(0, text, [text, "\ud83d\ude00" * 250], text)
    for text in INJECTIONS[::7]:
        counted(server, f"{text}\N{RIGHT-TO-LEFT OVERRIDE}", 31)
    for text in INJECTIONS:
        counted(server, text, 1)
    listed(projector, server)  # one that comes later would move the others
    for text in INJECTIONS:
        projector.locator("#questions").get_by_text(text, exact=True).click()
        assert bars(projector, text)[0][:2] == [text, "1 · 100 %"]
    assert not projector.evaluate("window.hit")
    assert projector.locator(":is(main, nav) :is(script, img, svg, iframe, meta, details)").count() == 0
    assert projector.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for width, height in ((390, 844), (1920, 1080)):
        projector.set_viewport_size({"width": width, "height": height})
        assert projector.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_pages_without_their_server_say_so_and_the_chart_stays(
    browser, opened, tmp_path, student, monkeypatch
):
    monkeypatch.setenv(voting.ADDRESS, "")
    with running("app", tmp_path / "app") as server, opened(server, alone=True) as panel:
        said = panel.page.locator("#connection")
        assert said.is_hidden()
        join(server.address())
        page = patient(browser.new_page())
        page.goto(f"{server.url}class?teacher_token={teacher_token(server)}")
        student(1, "p99?", CHOICES, CHOICES[0])
        before = bars(page, "p99?")
        assert page.inner_text("#count") == "1 of 2 have answered"  # the explorer's page is a student's
        if importlib.util.find_spec("segno"):
            page.wait_for_function("document.getElementById('code').naturalWidth > 0")
        assert page.locator("#connection").is_hidden()
        psutil.Process(server.pid).terminate()
        page.wait_for_selector("#connection:not([hidden])")
        assert "No connection to the app" in page.inner_text("#connection")
        assert bars(page, "p99?") == before
        page.close()
        # A server that ends may first answer that the session has ended.
        assert eventually(lambda: "No connection" in said.inner_text())


ANSWERED = """
panel.predict.predicting.value = True
panel.controls["max_wait_ms"].value = 40
for answer in panel.predict.answers.values():
    answer.value = {way!r}
panel.predict.reveal.click()
"""


def test_a_page_of_the_app_sends_its_predictions_and_a_reload_is_the_same_student(server, opened):
    question = "Max wait goes from 10 ms to 40 ms. Throughput: falls, stays or rises?"
    with opened(server, alone=True) as panel:
        panel.kernel.run(ANSWERED.format(way="rises"))
        assert panel.kernel.ask("panel.session.cover") != ""
        assert eventually(lambda: [each["counts"] for each in shown(server, question)] == [[0, 0, 1]])
        environment = json.dumps(panel.kernel.ask("dict(__import__('os').environ)"))
        assert server.address().partition("token=")[2] not in environment
        assert teacher_token(server) not in environment
        before = session_of(panel.page)
        panel.page.reload()
        panel.page.wait_for_selector(f"{panel.picture}[data-frame]")
        assert session_of(panel.page) != before
        with closing(Kernel(*server.kernels(session_of(panel.page)))) as kernel:
            kernel.run(ANSWERED.format(way="falls"))
        assert eventually(lambda: [each["counts"] for each in shown(server, question)] == [[1, 0, 0]])
    with opened(server) as panel:  # another browser
        panel.kernel.run(ANSWERED.format(way="falls"))
        assert eventually(lambda: [each["counts"] for each in shown(server, question)] == [[2, 0, 0]])


REMOVE = "number => fetch('/class/votes', {method: 'POST', body: JSON.stringify({number, do: 'remove'})})"


def test_the_projector_says_so_while_each_question_has_one_answer(server, projector, student):
    for question in shown(server):  # of the tests before
        projector.evaluate(REMOVE, question["number"])
    for number in range(4):  # three are one prediction of the explorer
        student(number, f"move {number}?", ["falls", "rises"], "falls")
        projector.wait_for_function("count => questions.length === count", arg=number + 1)
        assert projector.is_visible("#apart") == (number == 3)
    student(4, "move 0?", ["falls", "rises"], "falls")
    projector.wait_for_selector("#apart", state="hidden")
