"""What `make fidelity` says of its runs, and where it writes it."""

import pytest
from oracles import fidelity
from oracles.fidelity import Cold, Row, of_cold_starts

PAGE = "# Is it true?\n\n## A group\n\nrows\n\n## The intervals themselves\n\ntables\n"


def test_the_section_stands_before_the_intervals_once():
    first = f"\n## {fidelity.TITLE}\n\nfirst\n"
    written = fidelity.put_into(PAGE, first, "The intervals themselves")
    assert written == PAGE.replace("\n## The intervals", first + "\n## The intervals")
    again = fidelity.put_into(written, first.replace("first", "second"), "The intervals themselves")
    assert again == written.replace("first", "second")


def test_the_median_of_the_repeats_decides():
    row = Row("mean", 10, 10.5, (-0.3, 0.05, 0.02), within=0.1)
    assert (row.error, row.verdict) == (0.05, "within")
    assert Row("mean", 10, 12, (0.2, 0.05, -0.3), within=0.1).verdict == "**misses**"
    assert Row("mean", 10, 12, (0.2,), within=0.1, disturbed=1).verdict == "disturbed"
    assert str(row) == "| mean | 10 | 10.5 | +5.0% (-30.0%, +5.0%, +2.0%) | within |"


def test_a_cold_start_that_compiles_more_sizes_is_told_from_one_that_compiles_longer():
    more = Cold(replayed=(8, 1.0), simulated=(10, 1.25), others=0.0)
    longer = Cold(replayed=(10, 1.0), simulated=(10, 1.1), others=0.0)
    busy = Cold(replayed=(10, 1.0), simulated=(10, 9.0), others=0.5)
    assert (more.each, longer.each) == (pytest.approx(0), pytest.approx(0.1))
    row, explained = of_cold_starts("mlp", [more, busy, longer])
    assert row.errors == (pytest.approx(0.25), pytest.approx(0.1))
    assert row.disturbed == 0
    assert explained == "| mlp | 8, 10 | 10, 10 | +0.0%, +10.0% |"
