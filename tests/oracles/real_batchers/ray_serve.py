"""Ray Serve's `@serve.batch` without a cluster: the batch queue in an event loop, as a replica runs it."""

import asyncio
import contextlib
from types import SimpleNamespace

import ray
from oracles.real_batchers.desk import Desk
from ray import serve
from ray.serve import batching, context

VERSION = ray.__version__


def replay(
    clock, arrival_s, service, *, max_batch_size=10, batch_wait_timeout_s=0.01, max_concurrent_batches=1,
    max_ongoing_requests=None, handler="async",
):  # fmt: skip
    desk = Desk(clock, arrival_s, service)
    ongoing = max_ongoing_requests or len(arrival_s)
    # What a replica sets before it runs a handler: the queue warns where too few requests may be inside.
    context._INTERNAL_REPLICA_CONTEXT = SimpleNamespace(
        app_name="", deployment="", replica_tag="",
        _deployment_config=SimpleNamespace(max_ongoing_requests=ongoing),
    )  # fmt: skip

    async def main(loop):
        compute = desk.compute_async if handler == "async" else desk.compute_blocking

        @serve.batch(
            max_batch_size=max_batch_size, batch_wait_timeout_s=batch_wait_timeout_s,
            max_concurrent_batches=max_concurrent_batches,
        )  # fmt: skip
        async def handle(requests):
            return await compute(requests)

        over, answers = asyncio.Event(), set()
        door = asyncio.Semaphore(ongoing)

        async def answer(request):
            async with door if max_ongoing_requests else contextlib.nullcontext():
                await handle(request)
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
        await asyncio.gather(*answers)
        await asyncio.sleep(0.01)
        # Only the batch queue's own loop is left; unless it is ended here, its end is noisy.
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            await asyncio.wait([task])

    with clock.replaced(batching):
        clock.run(main)
    return desk
