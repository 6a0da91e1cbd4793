"""Typical wrong answers of each exercise, and a word of what each must be told; a file a lesson.

`WRONG` of each file has, by the exercise, at least three lines (answer, word). An answer is a number, or a
function of the exercise that returns any other answer, or one that has to be computed: nothing is computed as
a file is loaded. The word is of the hint that is apt to that answer. At least three hints of an exercise must
differ.
"""

import importlib
import pkgutil

WRONG = {
    name: lines
    for lesson in pkgutil.iter_modules(__path__)
    for name, lines in importlib.import_module(f"{__name__}.{lesson.name}").WRONG.items()
}


def given(asked, answer):
    """Return the answer of a line."""
    return answer(asked) if callable(answer) else answer
