"""Threads that add requests to one batcher, while others process batches with a model that fails at times."""

import random
import threading
from collections import Counter
from pathlib import Path

import numpy as np

import batchsim as bs


class ModelError(Exception):
    """What the model raises."""


def attack_batcher(rng: random.Random, _: Path) -> str:
    """Every request is answered exactly once, with its own answer, whatever the model raises."""
    adders, workers, each = rng.randint(1, 6), rng.randint(1, 4), rng.randint(1, 300)
    fails, largest = rng.choice([0, 0.1, 0.6]), rng.randint(1, 40)
    luck = random.Random(rng.random())

    def model(batch):
        if luck.random() < fails:
            if luck.random() < 0.5:
                return batch[:-1]  # an answer too few
            raise ModelError
        return batch * 3 + 1

    batcher = bs.InferenceBatcher(model, largest, rng.choice([0, 0.01, np.inf]))
    added, answers, failures = threading.Barrier(adders + workers), [], []
    adding = [True]

    def add(who):
        added.wait()
        for number in range(each):
            batcher.add_request([who, number], (who, number))

    def work():
        added.wait()
        while adding[0] or batcher.queue:
            try:
                answers.extend(batcher.process_batch())
            except (ModelError, ValueError):
                continue
            except Exception as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=add, args=(who,)) for who in range(adders)]
    consumers = [threading.Thread(target=work) for _ in range(workers)]
    for thread in (*threads, *consumers):
        thread.start()
    for thread in threads:
        thread.join()
    adding[0] = False
    for thread in consumers:
        thread.join()
    times = [request["timestamp"] for request in batcher.queue]
    assert times == sorted(times), "batches went back in another order"
    # A batch that failed in the hands of one worker goes back after others saw an empty queue.
    while batcher.queue:
        try:
            answers += batcher.process_batch()
        except (ModelError, ValueError):
            continue
    assert not failures, failures
    ids = Counter(answer["id"] for answer in answers)
    wanted = Counter((who, number) for who in range(adders) for number in range(each))
    assert ids == wanted, f"{(wanted - ids).total()} lost, {(ids - wanted).total()} twice"
    for answer in answers:
        assert np.array_equal(answer["output"], np.array(answer["id"]) * 3 + 1), answer
    return "served" if not fails else "served in spite of failures"
