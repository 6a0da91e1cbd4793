from test_exercises_a_second_in_slow_motion import (
    all_forming,
    from_the_last_end,
    swapped,
    two_parts,
    whole_latency,
)

from batchsim.teaching.exercises.a_second_in_slow_motion import run

SPLITS = {
    from_the_last_end: "Nobody waits for less than 0 ms",
    all_forming: "(7, 0, 7) and should give (0, 7, 7)",
    swapped: "not their order",
    whole_latency: "Together that is 12 ms, and the latency is 10 ms",
    two_parts: "should give three numbers",
}

WRONG = {
    "03.1": [
        (41, "that is when it is answered"),
        (6, "how long it computes"),
        (10, "its wait is over at 33 ms. What does the server do then?"),
        (16, "counts from its arrival"),
        (13, "alone in its batch"),
        (3, "when is its wait over"),
    ],
    "03.2": [(lambda asked, answer=answer: answer, word) for answer, word in SPLITS.items()],
    "03.3": [
        (lambda asked: run().mean_latency_ms, "turns nobody away"),
        (7.5, "divide by the number of those who are served"),
        (75, "all latencies together"),
        (7, "how many are served"),
        (3, "how many are turned away"),
        (11.9, "not the batch"),
        (lambda asked: run(queue_limit=1).mean_latency_ms, "with 0 or 1 before it"),
        (1, "fewer than 2 are waiting"),
    ],
}
