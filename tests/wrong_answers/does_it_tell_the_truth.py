from batchsim.teaching import SERVICE
from batchsim.teaching.exercises.does_it_tell_the_truth import _mean_ms

WRONG = {
    "08.1": [
        (16 / SERVICE(16), "the measurement alone"),
        (16 / (1.1 * SERVICE(16)), "0.6 ms in the batcher itself"),
        (16 / (SERVICE(16) + 0.0006), "1.1 times as long"),
        (1 / (1.1 * SERVICE(16) + 0.0006), "batches per second"),
        (1000, "full batch"),
    ],
    "08.2": [
        (lambda asked: _mean_ms(1, 0), "the measured service times"),
        (lambda asked: _mean_ms(1, 0) + 0.6, "requests also wait longer"),
        (lambda asked: _mean_ms(1, 0) * 1.1 + 0.6, "make others wait"),
        (100, "Table"),
    ],
    "08.3": [
        (3 * 350, "the compile time with padding"),
        (16 * 350, "without padding"),
        (13, "the number of saved shapes"),
        (1, "how many shapes"),
    ],
}
