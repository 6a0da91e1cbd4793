"""Many scenarios: a sweep over a grid, the highest rate of a setting, and a search for the best setting.

A search reads top down from `tune`: `search` runs the settings of a `grid` under one traffic, and confirms
one of them; `judgement` says whether a run meets the `slo`, and how a setting ranks; `paired` compares two;
`recommendation` is the answer, and `what_if` is what would change it. `kinds` has what differs for tokens.
"""

from typing import TYPE_CHECKING

from batchsim import _check

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name):
        raise _check.no_attribute(__name__, name)
