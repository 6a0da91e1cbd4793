"""batchsim's own batcher, polled: the one that needs no other package."""

import numpy as np

import batchsim as bs
from validation.real_batchers.desk import Desk

VERSION = bs.__version__
POLL_S = {True: 0.001, False: 0.00002}  # on the machine's clock, which cannot sleep much shorter, or not


def replay(clock, arrival_s, service, *, max_batch_size=32, max_wait_ms=50.0):
    desk = Desk(clock, arrival_s, service)
    batcher = bs.InferenceBatcher(
        lambda batch: desk.compute(batch[:, 0].tolist()), max_batch_size, max_wait_ms, clock=clock.now
    )

    def deliver(request):
        desk.enter(request)
        batcher.add_request(np.array([request]), request)

    clock.open_door(deliver)
    while desk.left:
        if batcher.should_process():
            batcher.process_batch()
        else:
            clock.sleep(POLL_S[clock.real])
    return desk
