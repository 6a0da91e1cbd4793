"""The lessons' exercises, which grade themselves; one module a lesson."""

from typing import Any

from batchsim import _check
from batchsim.teaching.exercises import (
    continuous_batching,
    does_it_tell_the_truth,
    same_knobs_different_servers,
    theory_meets_simulation,
    tune_to_an_objective,
    why_batch,
)
from batchsim.teaching.exercises.exercise import Exercise

# By the lesson's number and the exercise's in it.
EXERCISES: dict[str, Exercise] = {
    **why_batch.EXERCISES,
    **theory_meets_simulation.EXERCISES,
    **tune_to_an_objective.EXERCISES,
    **does_it_tell_the_truth.EXERCISES,
    **same_knobs_different_servers.EXERCISES,
    **continuous_batching.EXERCISES,
}


def check(exercise: str, answer: Any) -> None:
    """Print whether the answer to an exercise is right and why, or a hint that does not give it away.

    `exercise` is its number, such as "01.1". `...` stands for an answer not given yet.

    >>> check("01.1", ...)
    Not answered yet: put your answer in place of the ...: a number (requests per second).
    >>> from batchsim.teaching import SERVICE
    >>> check("01.1", 12 / SERVICE(12))
    Right: 12 requests every 3.65 ms are 3,288 requests per second.
    """
    if exercise not in EXERCISES:
        nearest = _check.nearest(str(exercise), EXERCISES)
        raise ValueError(f"exercise must be one of the lessons', got {exercise!r}{nearest}")
    task = EXERCISES[exercise]
    if answer is ...:
        print(f"Not answered yet: put your answer in place of the ...: {task.asks}.")
        return
    try:
        right, text = task.judge(answer)
    except (TypeError, ValueError) as error:
        print(f"Not yet: {error}. The exercise asks for {task.asks}.")
        return
    print(f"Right: {text}" if right else f"Not yet: {text}")
