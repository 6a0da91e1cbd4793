"""mixedbread's batched: the processor behind the decorator, with threads or in an event loop."""

import asyncio
import importlib.metadata
import threading

import batched
from batched import batch_generator, batch_processor

from validation.real_batchers.desk import Desk, Stop

VERSION = importlib.metadata.version("batched")


def replay(clock, arrival_s, service, *, batch_size=32, timeout_ms=5.0):
    """`@batched.dynamically`: a loop in a thread."""
    over = threading.Event()

    def done():
        over.set()
        if not clock.real:
            raise Stop

    desk = Desk(clock, arrival_s, service, done)
    processor = batched.dynamically(desk.compute, batch_size=batch_size, timeout_ms=timeout_ms)

    def deliver(request):
        desk.enter(request)
        processor._schedule([request])

    with clock.replaced(batch_generator, batch_processor):
        if clock.real:
            clock.open_door(deliver)
            clock.sleep_until(0)
            processor.start()
            over.wait()
            processor.shutdown()
        else:
            processor._running = True
            clock.open_door(deliver)
            try:
                processor._process_batches()
            except Stop:
                processor._running = False
    return desk


def replay_async(clock, arrival_s, service, *, batch_size=32, timeout_ms=5.0):
    """`@batched.aio.dynamically`: the same loop as a coroutine."""
    desk = Desk(clock, arrival_s, service)

    async def main(loop):
        processor = batched.aio.dynamically(desk.compute_async, batch_size=batch_size, timeout_ms=timeout_ms)
        over, answers = asyncio.Event(), set()

        async def answer(request):
            await processor(request)
            if desk.left == 0:
                over.set()

        def enter(request):
            task = loop.create_task(answer(request))
            answers.add(task)
            task.add_done_callback(answers.discard)

        await processor._start()

        def deliver(request):
            desk.enter(request)
            clock.from_outside(loop, enter, request)

        clock.open_door(deliver)
        await over.wait()
        processor._task.cancel()
        processor._loop = None

    clock.run(main)
    return desk
