"""LitServe's batched loop, fed by a queue as its server feeds it, without the server.

Workers are threads at one `queue.Queue`. In the server they are processes at a manager's, which is the same
queue behind a socket, with a thread for each worker.
"""

import threading

import litserve as ls
from litserve.callbacks import CallbackRunner
from litserve.loops import base
from litserve.loops.simple_loops import BatchedLoop

from validation.real_batchers.desk import Desk, Stop

VERSION = ls.__version__


class _API(ls.LitAPI):
    def setup(self, device): ...

    def decode_request(self, request):
        return request

    def batch(self, inputs):
        return list(inputs)

    def predict(self, inputs):
        return self.desk.compute(inputs)

    def unbatch(self, outputs):
        return outputs

    def encode_response(self, output):
        return output


class _Nowhere:
    def send(self, *answer, **to): ...


def replay(clock, arrival_s, service, *, max_batch_size, batch_timeout=0.0, workers_per_device=1):
    clock = clock.of_threads(workers_per_device)
    requests = clock.queue()

    def done():
        for _ in range(workers_per_device):
            requests.put(base._SENTINEL_VALUE)

    desk = Desk(clock, arrival_s, service, done)

    def deliver(request):
        desk.enter(request)
        requests.put((0, request, 0.0, request))

    def work():
        api = _API(max_batch_size=max_batch_size, batch_timeout=batch_timeout)
        api.desk, api.request_timeout = desk, False
        clock.begin()
        BatchedLoop().run_batched_loop(api, requests, _Nowhere(), CallbackRunner())
        clock.leave()

    with clock.replaced(base):
        clock.open_door(deliver)
        others = [threading.Thread(target=work) for _ in range(workers_per_device - 1)]
        for other in others:
            other.start()
        work()
        for other in others:
            other.join()
    return desk


__all__ = ["VERSION", "Stop", "replay"]
