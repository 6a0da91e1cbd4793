"""What a learner is told of an answer."""

from batchsim.teaching import check


def said(capsys, exercise, answer):
    """Return what is printed of an answer to an exercise."""
    assert check(exercise, answer) is None
    return capsys.readouterr().out
