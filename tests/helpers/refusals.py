"""Tables of what is refused, as text."""

import math
import re

import pytest


def rows(table):
    """Return the rows of a table, `left -> right`; a row may go on in indented lines."""
    margin = re.search(r"^ *(?=\S)", table, re.MULTILINE)[0]
    text = re.sub(rf"\n{margin} +", " ", table).strip()
    return [tuple(row.strip().split(" -> ", 1)) for row in text.splitlines()]


def pattern(message):
    """Return a message as a pattern, in which `...` stands for anything."""
    return ".*".join(map(re.escape, message.split("...")))


def refusals(table):
    """Return a test of each row of a docstring, `call -> a part of the message`; see `pattern`.

    An error other than ValueError comes first: `call -> TypeError: a part of the message`. Calls see names
    of their module, and `math`.
    """
    names = {"math": math} | table.__globals__

    @pytest.mark.parametrize(("call", "expected"), rows(table.__doc__))
    def test(call, expected):
        error, message = re.fullmatch(r"(?:([\w.]+Error): )?(.*)", expected).groups("ValueError")
        with pytest.raises(eval(error, names), match=pattern(message)):
            eval(call, names)

    return test
