"""For the notebooks: predictions to commit to, and exercises that grade themselves."""

from batchsim.teaching.exercises import EXERCISES, check
from batchsim.teaching.exercises.exercise import SEED, SERVICE
from batchsim.teaching.pictures import describe_pictures
from batchsim.teaching.prediction import Prediction, predict

__all__ = ["EXERCISES", "SEED", "SERVICE", "Prediction", "check", "predict"]

describe_pictures()
