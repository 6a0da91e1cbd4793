"""For the notebooks: predictions to commit to, and exercises that grade themselves."""

from batchsim._vote import join
from batchsim.teaching.exercises import EXERCISES
from batchsim.teaching.exercises.exercise import SEED, SERVICE
from batchsim.teaching.grading import check
from batchsim.teaching.output_capture import describe_pictures
from batchsim.teaching.prediction import Prediction, predict
from batchsim.teaching.progress import Progress, progress

__all__ = ["EXERCISES", "SEED", "SERVICE", "Prediction", "Progress", "check", "join", "predict", "progress"]

describe_pictures()
