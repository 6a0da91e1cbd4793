"""For the notebooks: predictions to commit to, and exercises that grade themselves."""

from batchsim.teaching.exercises import EXERCISES
from batchsim.teaching.exercises.exercise import SEED, SERVICE
from batchsim.teaching.game import BeTheBatcher, be_the_batcher
from batchsim.teaching.grading import check
from batchsim.teaching.output_capture import describe_pictures
from batchsim.teaching.prediction import Drawing, Prediction, draw_p99, predict
from batchsim.teaching.progress import Progress, progress
from batchsim.view.voting import join

__all__ = [
    "EXERCISES", "SEED", "SERVICE", "BeTheBatcher", "Drawing", "Prediction", "Progress",
    "be_the_batcher", "check", "draw_p99", "join", "predict", "progress",
]  # fmt: skip

describe_pictures()
