"""A crew says which round of a search it is in."""

from batchsim._workers import Crew


def test_rounds_are_counted_from_one():
    with Crew(progress=True, about="Search") as crew:
        for settings in (8, 4):
            crew.round(2000, settings)
        assert crew.bar.desc == "Search: round 2, 4 left, runs of 2,000: "
        assert (crew.bar.n, crew.bar.total) == (0, 4)
