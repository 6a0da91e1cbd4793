"""The lessons' exercises, which grade themselves; one module a lesson."""

import textwrap
from typing import Any

from batchsim import _check
from batchsim.teaching.exercises import (
    does_it_tell_the_truth,
    same_knobs_different_servers,
    theory_meets_simulation,
    tune_to_an_objective,
    why_batch,
)
from batchsim.teaching.exercises.exercise import Exercise

EXERCISES: dict[str, Exercise] = {
    "saturation-rate": why_batch.SaturationRate(),
    "smallest-batch": why_batch.SmallestBatch(),
    "break-even": why_batch.BreakEven(),
    "twice-the-time": theory_meets_simulation.TwiceTheTime(),
    "enough-requests": theory_meets_simulation.EnoughRequests(),
    "cost-of-a-wait": theory_meets_simulation.CostOfAWait(),
    "goodput": tune_to_an_objective.Goodput(),
    "stricter-promise": tune_to_an_objective.StricterPromise(),
    "enough-servers": tune_to_an_objective.EnoughServers(),
    "real-saturation": does_it_tell_the_truth.RealSaturation(),
    "explained": does_it_tell_the_truth.Explained(),
    "cold-shapes": does_it_tell_the_truth.ColdShapes(),
    "extra-p99": same_knobs_different_servers.ExtraP99(),
    "least-wait": same_knobs_different_servers.LeastWait(),
    "too-few-ongoing": same_knobs_different_servers.TooFewOngoing(),
}


def check(exercise: str, answer: Any) -> None:
    """Print whether the answer to an exercise is right and why, or a hint that does not give it away.

    `...` stands for an answer not given yet. Within 1 %, or the tolerance of the exercise, a number is
    right, so that rounding does no harm.

    >>> check("saturation-rate", ...)
    Not answered yet: put your number in place of the ... (requests per second).
    >>> from batchsim.teaching import SERVICE
    >>> check("saturation-rate", 12 / SERVICE(12))
    Right: 12 requests every 3.65 ms are 3,288 requests per second.
    """
    if exercise not in EXERCISES:
        nearest = _check.nearest(str(exercise), EXERCISES)
        raise ValueError(f"exercise must be one of the lessons', got {exercise!r}{nearest}")
    task = EXERCISES[exercise]
    if answer is ...:
        print(f"Not answered yet: put your number in place of the ... ({task.unit}).")
        return
    try:
        number = _check.real("the answer", answer)
    except (TypeError, ValueError) as error:
        # One line, even if the answer is a whole table.
        print(f"Not yet: {textwrap.shorten(str(error), 100, placeholder=' ...')} ({task.unit}).")
        return
    right = task.right()
    correct = task.near(number, right)
    print(f"Right: {task.because(right)}" if correct else f"Not yet: {task.hint(number, right)}")
