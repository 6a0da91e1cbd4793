"""BentoML's dispatcher, the cork, without the server."""

import asyncio

import bentoml
from bentoml._internal.marshal import dispatcher as module
from bentoml._internal.utils import alg

from validation.real_batchers.desk import Desk

VERSION = bentoml.__version__
REFUSED = object()


def replay(clock, arrival_s, service, *, max_batch_size=100, max_latency_ms=60_000):
    desk = Desk(clock, arrival_s, service)

    async def main(loop):
        cork = module.CorkDispatcher(
            max_latency_ms, max_batch_size, fallback=lambda: REFUSED, get_batch_size=lambda _: 1
        )
        call, over, answers = cork(desk.compute_async), asyncio.Event(), set()

        async def answer(request):
            if await call(request) is REFUSED:
                desk.refuse()
            if desk.left == 0:
                over.set()

        def enter(request):
            task = loop.create_task(answer(request))
            answers.add(task)
            task.add_done_callback(answers.discard)

        def deliver(request):
            desk.enter(request)
            clock.from_outside(loop, enter, request)

        clock.open_door(deliver)
        await over.wait()
        cork.shutdown()
        desk.cork = cork

    with clock.replaced(module, alg):
        clock.run(main)
    return desk
