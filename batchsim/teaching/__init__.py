"""For the notebooks: predictions to commit to, and exercises that grade themselves."""

from batchsim.teaching.exercises import EXERCISES, SEED, SERVICE
from batchsim.teaching.grading import check
from batchsim.teaching.prediction import Prediction, predict

__all__ = ["EXERCISES", "SEED", "SERVICE", "Prediction", "check", "predict"]
