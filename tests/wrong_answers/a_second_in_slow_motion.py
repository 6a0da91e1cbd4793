from test_exercises_a_second_in_slow_motion import MISTAKES

from batchsim.teaching.exercises.a_second_in_slow_motion import run

WRONG = {
    "03.1": [
        (41, "that is the time of its answer"),
        (6, "its computing time"),
        (10, "its wait is over at 33 ms. What does the server do then?"),
        (16, "starts on arrival"),
        (13, "alone in its batch"),
        (3, "when is its wait over"),
    ],
    "03.2": [(lambda asked, answer=answer: answer, word) for answer, _, word in MISTAKES],
    "03.3": [
        (lambda asked: run().mean_latency_ms, "an unlimited queue"),
        (7.5, "divide by the number of answered requests"),
        (75, "the sum of the latencies"),
        (7, "the number of answered requests"),
        (3, "the number of rejected requests"),
        (11.9, "not the batch"),
        (lambda asked: run(queue_limit=1).mean_latency_ms, "that finds 2 waiting"),
        (1, "fewer than 2 are waiting"),
    ],
}
