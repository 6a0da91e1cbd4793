"""The class's answers: counted in memory, without names, in bounded number; they end with the server."""

import re
from collections import Counter
from typing import Any

QUESTIONS, STUDENTS, CHOICES, LETTERS = 100, 1000, 10, 500  # at most: questions, and of each
STATES = {"open": "open", "close": "closed", "reveal": "revealed"}
STUDENT = re.compile("[0-9a-f]{32}")  # random, and another one for each question
RULE = (
    f"an answer must have a question and 2 to {CHOICES} choices of 1 to {LETTERS} letters each, the numbers "
    "of the chosen and the right choice, and a student of 32 hexadecimal digits"
)


class Question:
    """A question, and each student's latest answer."""

    def __init__(self, number: int, text: str, choices: list[str], right: int | None, sender: Any) -> None:
        self.number, self.text, self.choices, self.right, self.sender = number, text, choices, right, sender
        self.answers: dict[str, int] = {}
        self.state = "open"  # to answers; then "closed", when the projector shows them, and "revealed"

    def shown(self) -> dict[str, Any]:
        """Return what the projector shows: not the right choice, unless it is revealed."""
        counts = [0] * len(self.choices)
        for chosen in self.answers.values():
            counts[chosen] += 1
        shown = {name: value for name, value in vars(self).items() if name not in ("answers", "sender")}
        return shown | {"counts": counts, "right": self.right if self.state == "revealed" else None}


class Votes:
    """The questions of a class, in the order of their first answers.

    >>> votes = Votes()
    >>> answer = {"question": "p99?", "choices": ["falls", "rises"], "right": 1, "student": "a" * 32}
    >>> for chosen in (0, 1):  # the same student changes the answer
    ...     votes.add(answer | {"chosen": chosen})
    >>> [question["counts"] for question in votes.shown()]
    [[0, 1]]
    """

    def __init__(self) -> None:
        self.asked, self.questions = 0, dict[tuple[Any, ...], Question]()
        self.members: set[str] = set()  # of the class, each under a name that tells nothing

    def add(self, message: Any, sender: Any = "") -> None:
        """Count an answer; ValueError if it makes no sense, or if this sender has filled the chart."""
        try:
            names = "question", "choices", "right", "student", "chosen"
            text, choices, right, student, chosen = (message[name] for name in names)
            fits = (
                type(choices) is list and 2 <= len(choices) <= CHOICES
                and all(type(each) is str and 1 <= len(each) <= LETTERS for each in (text, *choices))
                and all(type(each) is int and each in range(len(choices))
                    for each in (chosen, 0 if right is None else right))
                and STUDENT.fullmatch(student)
            )  # fmt: skip
        except (TypeError, LookupError):
            fits = None
        if not fits:
            raise ValueError(f"{RULE}, got {message!r:.80}")
        key = (text, *choices, right)
        question = self.questions.get(key) or Question(self.asked + 1, text, choices, right, sender)
        if question.number > self.asked and len(self.questions) == QUESTIONS:
            most = Counter(each.sender for each in self.questions.values()).most_common(1)[0][0]
            if most == sender:
                raise ValueError(
                    f"the chart must have at most {QUESTIONS} questions: the teacher can remove some"
                )
            theirs = [key for key, each in self.questions.items() if each.sender == most]
            del self.questions[min(theirs, key=lambda key: len(self.questions[key].answers))]
        if question.state != "open":
            raise ValueError("the vote on this question is closed")
        if student not in question.answers and len(question.answers) == STUDENTS:
            raise ValueError(f"a question must have at most {STUDENTS:,} answers")
        self.questions[key], self.asked = question, max(self.asked, question.number)
        question.answers[student] = chosen

    def join(self, member: str) -> None:
        """Count a member of the class, once."""
        if member and len(self.members) < STUDENTS:
            self.members.add(member)

    def change(self, message: Any) -> None:
        """Close, reveal, open or remove a question, as {"number": 3, "do": "close"}; else ValueError."""
        do = message.get("do") if isinstance(message, dict) else None
        if do not in (*STATES, "remove"):
            rule = "a teacher must close, reveal, open or remove a question"
            raise ValueError(f"{rule}, got {message!r:.80}")
        for key, question in list(self.questions.items()):
            if question.number == message.get("number"):
                if do == "remove":
                    del self.questions[key]
                else:
                    question.state = STATES[do]

    def shown(self) -> list[dict[str, Any]]:
        """Return what the projector shows, the first question first."""
        return [question.shown() for question in self.questions.values()]
