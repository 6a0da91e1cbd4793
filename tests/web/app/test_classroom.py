"""Answers of a class go from predictions to a running app, which shows their counts to the teacher alone."""

import html
import http.client
import io
import json
import re
import socket
import threading
from urllib.parse import urlencode, urlsplit

import psutil
import pytest
from browser.panel import eventually
from browser.servers import TOKEN, running
from classes import ANSWER, STUDENT, WRONG, asked, shown, teacher_token

import batchsim as bs
from batchsim.teaching import draw_p99, join, predict
from batchsim.teaching.prediction import SHAPES
from batchsim.view import voting
from batchsim.web.app.classroom import COOKIE, QUESTIONS, STUDENTS, ClassAccess, environment


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running("app", tmp_path_factory.mktemp("app"), host="0.0.0.0") as server:
        yield server


@pytest.fixture
def joined(server, monkeypatch, capsys):
    """This process as a student's kernel, patient with a server on a busy machine."""
    monkeypatch.setattr(voting, "TIMEOUT_S", 300)
    monkeypatch.setenv(voting.ADDRESS, "")
    join(server.address())
    assert capsys.readouterr().out.startswith("Joined the class")
    return server


def sent(server, message):
    body = message if isinstance(message, bytes) else json.dumps(message)
    return asked(server, voting.PATH, body, Authorization=f"token {TOKEN}")


def test_only_the_teacher_sees_the_counts_and_only_the_class_sends_answers(server):
    teacher, student = teacher_token(server), {"Authorization": f"token {TOKEN}"}
    for path in ("/class", "/class/votes"):
        for strange in ("", f"?token={TOKEN}", f"?teacher_token={TOKEN}", f"?teacher_token={teacher[:-1]}"):
            assert asked(server, path + strange)[0] == 403
            assert asked(server, path + strange, "{}")[0] == 403
        assert asked(server, path, **student)[0] == 403
        assert asked(server, path, Cookie=f"{COOKIE}=é")[0] == 403
    for strange in ({}, {"Authorization": "token "}, {"Authorization": f"token {TOKEN[:-1]}"}):
        assert asked(server, voting.PATH, **strange)[0] == 403
        status, headers, page = asked(server, voting.PATH, json.dumps(ANSWER), **strange)
        assert status == 403
        assert "needs its token" in page
        assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert asked(server, f"{voting.PATH}?token={TOKEN}", json.dumps(ANSWER))[0] == 403  # no form can send it
    assert asked(server, voting.PATH, **student)[0] == 204
    assert shown(server, ANSWER["question"]) == []


def test_the_teacher_s_token_leaves_the_address_and_the_page_loads_only_the_server_s_files(server):
    status, headers, _ = asked(server, f"/class?teacher_token={teacher_token(server)}")
    assert (status, headers["Location"]) == (302, "/class")
    assert "HttpOnly" in headers["Set-Cookie"]
    assert "SameSite=Lax" in headers["Set-Cookie"]
    status, headers, page = asked(server, "/class", Cookie=headers["Set-Cookie"].partition(";")[0])
    assert status == 200
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert TOKEN in page  # the class reads it there
    assert "0.0.0.0" not in page  # which is no address of another computer
    assert teacher_token(server) not in page
    assert not re.search(r"https?://|<script>|\son\w+=", page)
    log = (server.folder.parent / "log").read_text()
    assert teacher_token(server) not in log.partition("Serving static files")[2]


@pytest.mark.parametrize(
    "body",
    [*map(json.dumps, WRONG), b"", b"\xff\xfe", b"{", b"[" * 10**5, b"9" * 10**4, b"NaN", b" " * 2**18],
    ids=lambda body: repr(body)[-60:],
)  # fmt: skip
def test_what_is_no_answer_is_refused_in_one_sentence(server, body):
    before = shown(server, ANSWER["question"])
    status, headers, text = sent(server, body if isinstance(body, bytes) else body.encode())
    assert status == 400
    assert headers["Content-Type"].startswith("text/plain")
    assert 0 < len(text.splitlines()[0]) < 400
    assert shown(server, ANSWER["question"]) == before


def test_a_flood_of_answers_stays_within_its_limits_and_the_others_are_still_counted(tmp_path):
    with running("app", tmp_path / "app") as server:
        process = psutil.Process(server.pid)
        line = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=300)
        own = ANSWER | {"question": "before the flood"}
        assert sent(server, own)[0] == 204
        before = process.memory_info().rss
        answers = []
        for number in range(3 * QUESTIONS):
            junk = ANSWER | {
                "question": f"{number} ".ljust(500, "x"),
                "choices": [f"{choice}".ljust(500, "x") for choice in range(9)],
            }
            line.request("POST", voting.PATH, json.dumps(junk), {"Authorization": f"token {TOKEN}"})
            answers.append(line.getresponse())
            answers[-1].read()
        for number in range(STUDENTS + 50):
            vote = own | {"student": f"{number:032x}", "chosen": 1}
            line.request("POST", voting.PATH, json.dumps(vote), {"Authorization": f"token {TOKEN}"})
            answers.append(line.getresponse())
            answers[-1].read()
        line.close()
        taken = [answer.status for answer in answers]
        assert taken.count(204) == QUESTIONS - 1 + STUDENTS - 1
        assert set(taken) == {204, 400}
        assert process.memory_info().rss - before < 20e6
        assert sent(server, own | {"chosen": 2})[0] == 204
        assert shown(server, own["question"])[0]["counts"] == [0, STUDENTS - 1, 1]


QUESTION = (
    "Which answers sooner?",
    {"One at a time": "", "In batches": "Company costs."},
    "One at a time",
    "No wait.",
)


def test_thirty_committed_predictions_are_thirty_answers_and_a_repeat_is_none(joined, monkeypatch):
    for choice, students in (("In batches", range(30)), ("One at a time", range(20))):
        for student in students:
            monkeypatch.setenv(voting.STUDENT, f"student {student}")
            asked = predict(*QUESTION)
            asked.choice.value = choice
            asked.commit.click()
        expected = [0, 30] if choice == "In batches" else [20, 10]
        assert eventually(lambda: [each["counts"] for each in shown(joined, QUESTION[0])] == [expected])  # noqa: B023
    (found,) = shown(joined, QUESTION[0])
    assert (found["state"], found["right"]) == ("open", None)


def test_a_kernel_that_joins_is_one_member_however_often_and_a_page_of_the_app_another(joined):
    cookie = {"Cookie": f"{COOKIE}={teacher_token(joined)}"}
    members = [json.loads(asked(joined, "/class/votes", **cookie)[2])["members"]]
    for _ in range(2):
        join(joined.address())
        members.append(json.loads(asked(joined, "/class/votes", **cookie)[2])["members"])
    assert members[0] >= 1
    assert len(set(members)) == 1
    asked(joined, f"/?token={TOKEN}")  # as a browser that has no cookie yet
    assert json.loads(asked(joined, "/class/votes", **cookie)[2])["members"] == members[0] + 1


def test_the_teacher_alone_gets_an_address_as_a_code(server):
    segno = pytest.importorskip("segno")
    address = f"{server.url}?token={TOKEN}"
    path = f"/class/code?{urlencode({'address': address})}"
    assert asked(server, path)[0] == 403
    status, headers, drawn = asked(server, path, Cookie=f"{COOKIE}={teacher_token(server)}")
    assert (status, headers["Content-Type"]) == (200, "image/svg+xml")
    expected = io.BytesIO()
    segno.make(address, micro=False).save(expected, kind="svg", light="#fff", border=2, scale=4)
    assert drawn == expected.getvalue().decode()


def test_in_a_class_nothing_gives_the_outcome_away_before_the_student_asks_for_it(joined):
    ran = []
    # A question of its own: this answer counts, also if the test that counts those to QUESTION comes later.
    asked = predict("Which is faster?", *QUESTION[1:], then=lambda: ran.append(1))
    asked.choice.value = "In batches"
    asked.commit.click()
    assert asked.verdict.value == "Your answer is on its way to the class's chart, without your name."
    assert ran == []
    (show,) = asked.outcome.children
    assert show.description == "Show the outcome"
    show.click()
    assert ran == [1]
    assert asked.verdict.value.startswith(
        "✗ Not this time. Company costs.<br>The right answer is “One at a time”."
    )


def test_a_class_counts_the_first_shape_that_each_student_draws(joined, monkeypatch):
    scenario = bs.Scenario(bs.Poisson(1), bs.SizeOrWait(32, 5), bs.Affine(1.85, 0.15))
    question = "Drawing: how does p99 grow with the load?"
    for student, shape in enumerate([*SHAPES, SHAPES[1]]):
        monkeypatch.setenv(voting.STUDENT, f"student {student}")
        drawing = draw_p99(scenario, top_ms=40)
        for each in ("<script>", shape, SHAPES[0]):  # the curve is seen: a second drawing is no prediction
            drawing.paper.verdict = {"kind": each, "right": each == SHAPES[0]}
    assert eventually(lambda: [each["counts"] for each in shown(joined, question)] == [[1, 2, 1, 1]])
    (found,) = shown(joined, question)
    assert (found["choices"], found["state"], found["right"]) == (SHAPES, "open", None)


def test_where_no_setting_has_a_steady_state_no_choice_is_right(joined):
    explored("rate_per_s=4000").predict.reveal.click()
    of_p99 = "with Arrival rate (per s) = 4000. p99"
    assert eventually(lambda: any(of_p99 in each["text"] for each in shown(joined)))
    for _ in range(2):
        (found,) = (each for each in shown(joined) if of_p99 in each["text"])
        reveal = json.dumps({"number": found["number"], "do": "reveal"})
        asked(joined, "/class/votes", reveal, Cookie=f"{COOKIE}={teacher_token(joined)}")
    assert (found["state"], found["right"]) == ("revealed", None)


def explored(link=""):
    panel = bs.explore(requests=300, link=link)
    panel.predict.predicting.value = True
    panel.controls["max_wait_ms"].value = 50
    for answer in panel.predict.answers.values():
        answer.value = "rises"
    return panel


def test_the_explorer_sends_its_predictions_first_and_reveals_at_the_second_click(joined):
    panel = explored()
    page = panel.predict
    page.reveal.click()
    assert panel.screen.cover
    assert page.told.value.startswith("Your answers are on their way")
    assert page.rows["p99"].value == ""
    assert all(answer.disabled for answer in page.answers.values())
    assert page.told.value == panel.screen.cover
    move = "Max wait goes from 10 ms to 50 ms"
    names = "Throughput", "p99, the slowest in a hundred", "p50, the middle latency"  # the newest is on top
    texts = [f"{move}. {name}: falls, stays or rises?" for name in names]
    assert eventually(lambda: shown(joined, texts[-1]))
    assert [each["text"] for each in shown(joined) if each["text"].startswith(f"{move}.")] == texts
    for text in texts:
        (question,) = shown(joined, text)
        assert (question["choices"], question["counts"]) == (["falls", "stays", "rises"], [0, 0, 1])
    page.reveal.click()
    assert panel.screen.cover == ""
    assert "p99: you said it rises: right" in page.rows["p99"].value


def test_another_move_after_the_answers_is_another_question(joined):
    panel = explored()
    panel.predict.reveal.click()
    panel.controls["max_wait_ms"].value = 20
    assert panel.screen.cover.startswith("Predict first")
    assert not any(answer.disabled for answer in panel.predict.answers.values())
    panel.predict.reveal.click()
    assert panel.screen.cover
    other = "Max wait goes from 10 ms to 20 ms. Throughput: falls, stays or rises?"
    assert eventually(lambda: [each["counts"] for each in shown(joined, other)] == [[0, 0, 1]])
    panel.predict.reveal.click()
    assert panel.screen.cover == ""


def test_a_server_that_went_away_costs_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(voting, "PAUSES_S", (0.0, 0.01))
    monkeypatch.setattr(voting, "TIMEOUT_S", 300)  # it is there, on a busy machine
    monkeypatch.setenv(voting.ADDRESS, "")
    with running("app", tmp_path / "app") as server:
        join(server.address())
    asked = predict(*QUESTION, then=lambda: "the outcome")
    asked.choice.value = "One at a time"
    asked.commit.click()
    said = "The class's server, 127.0.0.1, does not answer: the chart lacks your prediction."
    assert eventually(lambda: asked.children[-2].value == said)
    asked.outcome.children[0].click()
    assert asked.verdict.value == "✓ Right. No wait."
    assert "the outcome" in asked.outcome.children[0].value
    assert asked.children[-2].value == said
    panel = explored()
    panel.predict.reveal.click()
    assert eventually(lambda: panel.status.value.count(html.escape(said)) == 1)
    panel.predict.reveal.click()
    assert panel.screen.cover == ""


def test_a_server_that_fails_at_first_is_asked_again():
    with socket.create_server(("127.0.0.1", 0)) as door:
        replies, heard = (
            ["", "HTTP/1.1 503 Busy\r\n\r\n", "garbage\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"],
            [],
        )

        def serve():
            for reply in replies:
                line, _ = door.accept()
                with line:
                    heard.append(line.recv(10_000))
                    line.sendall(reply.encode())

        threading.Thread(target=serve, daemon=True).start()
        address = f"http://127.0.0.1:{door.getsockname()[1]}/?token=t"
        assert voting._asked(address, "POST", "{}", (0.0,) * 4) == ""
        assert len(heard) == 4


@pytest.mark.parametrize(
    "address",
    ["x", "192.168.1.7:8888", "ftp://h/", "http://", "http:///x", "http://[::1", "http://h:x/", 3,
     "http://h:99999/", "http://127.0.0.1:1/?token=%0d%0aX: y", "javascript:alert(1)"],
)  # fmt: skip
def test_what_is_no_address_joins_no_class_and_says_so(address, monkeypatch, capsys):
    monkeypatch.setenv(voting.ADDRESS, "http://before")
    join(address)
    assert re.match(
        "A class's address must be like|The class's server, .*, does not answer", capsys.readouterr().out
    )
    assert not voting.joined()


def test_a_wrong_token_joins_no_class_and_an_empty_address_leaves_one(server, monkeypatch, capsys):
    monkeypatch.setattr(voting, "TIMEOUT_S", 300)
    monkeypatch.setenv(voting.ADDRESS, "http://before")
    join(server.url + "?token=wrong")
    assert "The class's server refuses, HTTP 403 This address needs its token" in capsys.readouterr().out
    assert not voting.joined()
    join(server.address())
    assert voting.joined()
    join("")
    assert not voting.joined()


def test_an_answer_has_no_name_and_another_student_for_each_question(monkeypatch):
    bodies = []
    monkeypatch.setattr(voting, "_asked", lambda address, method, body, pauses_s: bodies.append(body) or "")
    monkeypatch.setenv(voting.STUDENT, "ann")
    for question in ("p50?", "p99?", "p99?"):
        voting.send([voting.Vote(question, ["a", "b"], "b", None)], print)
    assert eventually(lambda: len(bodies) == 3)
    messages = [json.loads(body) for body in bodies]
    assert [set(message) for message in messages] == [set(ANSWER)] * 3
    assert len({message["student"] for message in messages}) == 2
    assert not any("ann" in body for body in bodies)
    assert all(len(message["student"]) == len(STUDENT) for message in messages)


def test_without_a_token_of_one_s_own_there_is_no_class():
    class App:
        ip, port = "0.0.0.0", 8888
        identity_provider = ClassAccess()

    assert environment(App()) == {}
    App.identity_provider = ClassAccess(token=TOKEN)
    found = environment(App())
    assert re.fullmatch(r"http://127\.0\.0\.1:8888/\?token=[\w-]{40,}", found[voting.ADDRESS])
    assert TOKEN not in str(found)
    assert environment(None) == {}
