"""The lessons' exercises, which grade themselves; one module a lesson."""

from batchsim.teaching.exercises import theory_meets_simulation, tune_to_an_objective, why_batch
from batchsim.teaching.exercises.exercise import SEED, SERVICE, Exercise

__all__ = ["EXERCISES", "SEED", "SERVICE", "Exercise"]

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
}
