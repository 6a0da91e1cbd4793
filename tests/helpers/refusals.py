"""Tests of what is refused, a row each."""

import inspect
import math
import re

import pytest


def refusals(table):
    """Return a test of each row of a docstring, `call -> a part of the message`.

    A row may go on in indented lines. `...` in a message stands for anything. An error other than ValueError
    comes first: `call -> TypeError: a part of the message`. Calls see the names of their module, and `math`.
    """
    names = {"math": math} | table.__globals__

    @pytest.mark.parametrize("row", re.sub(r"\n +", " ", inspect.cleandoc(table.__doc__)).splitlines())
    def test(row):
        call, _, expected = row.partition(" -> ")
        error, message = re.fullmatch(r"(?:([\w.]+Error): )?(.*)", expected).groups("ValueError")
        with pytest.raises(eval(error, names), match=".*".join(map(re.escape, message.split("...")))):
            eval(call, names)

    return test
