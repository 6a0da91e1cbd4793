"""The class's answers are counted as a naive count does, and what makes no sense changes nothing."""

import json

import pytest
from classes import ANSWER, WRONG
from hypothesis import given
from hypothesis import strategies as st

from batchsim.web.app.classroom import CHOICES, LETTERS, MOST_BYTES, QUESTIONS, STUDENTS, Votes

POSTS = st.fixed_dictionaries({
    "question": st.sampled_from(["p50?", "p99?"]),
    "choices": st.sampled_from([["falls", "rises"], ["falls", "stays", "rises"]]),
    "right": st.sampled_from([None, 0, 1]),
    "student": st.sampled_from([digit * 32 for digit in "abc"]),
    "chosen": st.integers(-1, 3),
})  # fmt: skip


@given(st.lists(POSTS, max_size=40))
def test_after_any_answers_the_counts_are_those_of_each_student_s_last(posts):
    counted, last = Votes(), {}
    for post in posts:
        if 0 <= post["chosen"] < len(post["choices"]):
            counted.add(post)
            key = post["question"], *post["choices"], post["right"]
            last.setdefault(key, {})[post["student"]] = post["choices"][post["chosen"]]
        else:
            with pytest.raises(ValueError, match="an answer must have"):
                counted.add(post)
    expected = [
        (key[0], [list(students.values()).count(choice) for choice in key[1:-1]])
        for key, students in last.items()
    ]
    assert [(each["text"], each["counts"]) for each in counted.shown()] == expected
    assert [each["number"] for each in counted.shown()] == list(range(1, len(last) + 1))


@pytest.mark.parametrize("message", WRONG, ids=lambda message: repr(message)[-60:])
def test_what_is_no_answer_is_refused_in_one_sentence_and_changes_nothing(message):
    counted = Votes()
    counted.add(ANSWER)
    before = counted.shown()
    with pytest.raises(ValueError, match="an answer must have") as refused:
        counted.add(message)
    assert len(str(refused.value)) < 400
    assert counted.shown() == before


def test_any_letters_are_text():
    counted, text = Votes(), "<script>\N{RIGHT-TO-LEFT OVERRIDE}\ud800\0é\N{FAMILY}"
    counted.add(ANSWER | {"question": text})
    assert counted.shown()[0]["text"] == text


def test_a_chart_that_is_full_takes_answers_to_its_questions_but_no_other_question():
    counted = Votes()
    for number in range(QUESTIONS):
        counted.add(ANSWER | {"question": str(number)})
    with pytest.raises(ValueError, match="at most 100 questions"):
        counted.add(ANSWER)
    counted.add(ANSWER | {"question": "7", "student": "f" * 32})
    assert counted.shown()[7]["counts"] == [2, 0, 0]
    counted.change({"number": 1, "do": "remove"})
    counted.add(ANSWER)
    assert counted.shown()[-1]["number"] == QUESTIONS + 1


def test_a_sender_alone_cannot_fill_the_chart():
    counted = Votes()
    counted.add(ANSWER, "a student")
    for number in range(QUESTIONS - 1):
        counted.add(ANSWER | {"question": str(number)}, "the flood")
    counted.add(ANSWER | {"question": "0", "student": "f" * 32}, "another")
    with pytest.raises(ValueError, match="at most 100 questions"):
        counted.add(ANSWER | {"question": "more"}, "the flood")
    counted.add(ANSWER | {"question": "next"}, "another")
    texts = [each["text"] for each in counted.shown()]
    assert [texts[0], texts[1], texts[2], texts[-1]] == [ANSWER["question"], "0", "2", "next"]
    assert "sender" not in counted.shown()[0]


def test_a_question_that_is_full_takes_no_more_students_but_lets_the_others_change_their_answers():
    counted = Votes()
    for number in range(STUDENTS):
        counted.add(ANSWER | {"student": f"{number:032x}"})
    with pytest.raises(ValueError, match="at most 1,000 answers"):
        counted.add(ANSWER)
    counted.add(ANSWER | {"student": f"{5:032x}", "chosen": 1})
    assert counted.shown()[0]["counts"] == [STUDENTS - 1, 1, 0]


def test_the_right_choice_is_kept_back_until_it_is_revealed():
    counted = Votes()
    counted.add(ANSWER)
    for do, state, right in (
        ("close", "closed", None), ("reveal", "revealed", 2), ("open", "open", None),
    ):  # fmt: skip
        counted.change({"number": 1, "do": do})
        assert (counted.shown()[0]["state"], counted.shown()[0]["right"]) == (state, right)
    counted.change({"number": 2, "do": "remove"})  # gone already: another window removed it
    assert len(counted.shown()) == 1
    counted.change({"number": 1, "do": "remove"})
    assert counted.shown() == []
    for message in (
        None,
        [],
        {},
        {"number": 1},
        {"number": 1, "do": "hide"},
        {"number": 1, "do": ["reveal"]},
    ):
        with pytest.raises(ValueError, match="a teacher must"):
            counted.change(message)


def test_a_closed_vote_counts_no_answer_until_it_is_open_again():
    counted = Votes()
    counted.add(ANSWER)
    for do in ("close", "reveal"):
        counted.change({"number": 1, "do": do})
        with pytest.raises(ValueError, match="the vote on this question is closed"):
            counted.add(ANSWER | {"chosen": 1})
    assert counted.shown()[0]["counts"] == [1, 0, 0]
    counted.change({"number": 1, "do": "open"})
    counted.add(ANSWER | {"chosen": 1})
    assert counted.shown()[0]["counts"] == [0, 1, 0]


def test_each_member_is_counted_once_and_not_more_than_a_class_may_have():
    counted = Votes()
    for number in range(2 * STUDENTS):
        counted.join(str(number // 3))
    assert len(counted.members) == 2 * STUDENTS // 3 + 1
    for number in range(2 * STUDENTS):
        counted.join(str(number))
    assert len(counted.members) == STUDENTS


def test_the_longest_answer_fits_into_a_message():
    letters = "\N{GRINNING FACE}" * LETTERS
    longest = ANSWER | {"question": letters, "choices": [letters] * CHOICES}
    Votes().add(longest)
    assert len(json.dumps(longest)) <= MOST_BYTES
