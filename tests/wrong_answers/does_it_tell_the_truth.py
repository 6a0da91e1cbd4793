from batchsim.teaching import SERVICE
from batchsim.teaching.exercises.does_it_tell_the_truth import _mean_ms

WRONG = {
    "08.1": [
        (16 / SERVICE(16), "the measurement alone"),
        (16 / (1.2 * SERVICE(16)), "0.5 ms in the batcher itself"),
        (16 / (SERVICE(16) + 0.0005), "1.2 times as long"),
        (1 / (1.2 * SERVICE(16) + 0.0005), "batches per second"),
        (16 / (1.2 * (SERVICE(16) + 0.0005)), "only the model"),
        (5.6, "how long a batch takes"),
        (1000, "full batch"),
    ],
    "08.2": [
        (lambda asked: _mean_ms(1, 0), "the measured service times"),
        (lambda asked: _mean_ms(1.2, 0), "leaves out the 0.5 ms"),
        (lambda asked: _mean_ms(1, 0.5), "1.2 times as long"),
        (lambda asked: _mean_ms(1.2, 0.6), "only the model"),
        (lambda asked: _mean_ms(1, 0) + 0.5, "adds 0.5 ms"),
        (lambda asked: _mean_ms(1, 0) * 1.2 + 0.5, "what happened to a batch"),
        (100, "with both effects"),
    ],
    "08.3": [
        (3 * 350, "the compile time with padding"),
        (16 * 350, "without padding"),
        (13, "the number of saved shapes"),
        (1, "how many shapes"),
    ],
}
