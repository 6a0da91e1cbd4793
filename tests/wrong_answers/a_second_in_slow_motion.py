from batchsim.teaching.exercises.a_second_in_slow_motion import run


def split(arrival_ms, start_ms, finish_ms, free_ms):
    idle_ms = max(arrival_ms, free_ms)
    return start_ms - idle_ms, idle_ms - arrival_ms, finish_ms - start_ms


def swapped(*times_ms):
    forming_ms, queueing_ms, computing_ms = split(*times_ms)
    return queueing_ms, forming_ms, computing_ms


# Of a request: when it arrived, started and finished, and when the server became free.
MISTAKES = [
    (lambda a, s, f, e: (s - e, e - a, f - s), "split(1, 2, 10, 0)", "A time cannot be less than 0 ms"),
    (lambda a, s, f, e: (s - a, 0, f - s), "split(3, 10, 17, 10)", "until 10 ms, when this request"),
    (lambda a, s, f, e: (0, s - a, f - s), "split(0, 2, 10, 0)", "The server was idle from 0 ms until 2 ms"),
    (swapped, "split(0, 2, 10, 0)", "their order is not"),
    (lambda a, s, f, e: (*split(a, s, f, e)[:2], f - a), "split(0, 2, 10, 0)", "The sum is 12 ms"),
    (lambda a, s, f, e: (s - e, max(e - a, 0), f - s), "split(1, 2, 10, 0)", "should give (1, 0, 8)"),
    (lambda *times_ms: print(split(*times_ms)), "split(0, 2, 10, 0)", "gave None and should"),
    (lambda *times_ms: split(*times_ms)[:2], "split(0, 2, 10, 0)", "should give three numbers"),
    (lambda a, s, f: split(a, s, f, 0), "split(0, 2, 10, 0)", "TypeError"),
]
WRONG = {
    "03.1": [
        (41, "that is the time of its answer"),
        (6, "its computing time"),
        (10, "its wait is over at 34 ms. What does the server do then?"),
        (15, "starts on arrival"),
        (12, "alone in its batch"),
        (5, "its waiting time"),
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
