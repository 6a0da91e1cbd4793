"""The lessons' exercises, which grade themselves; one module a lesson."""

from batchsim.teaching.exercises import (
    a_second_in_slow_motion,
    build_a_batcher,
    continuous_batching,
    does_it_tell_the_truth,
    same_knobs_different_servers,
    size_or_wait,
    tails_and_bursts,
    theory_meets_simulation,
    tune_to_an_objective,
    why_batch,
)
from batchsim.teaching.exercises.exercise import Exercise

# By the lesson's number and the exercise's in it.
EXERCISES: dict[str, Exercise] = {
    **why_batch.EXERCISES,
    **build_a_batcher.EXERCISES,
    **a_second_in_slow_motion.EXERCISES,
    **size_or_wait.EXERCISES,
    **tails_and_bursts.EXERCISES,
    **theory_meets_simulation.EXERCISES,
    **tune_to_an_objective.EXERCISES,
    **does_it_tell_the_truth.EXERCISES,
    **same_knobs_different_servers.EXERCISES,
    **continuous_batching.EXERCISES,
}
