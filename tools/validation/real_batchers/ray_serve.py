"""Ray Serve's `@serve.batch` without a cluster: the batch queue in an event loop, as a replica runs it."""

import asyncio
import contextlib
import random
from types import SimpleNamespace

import ray
from ray import serve
from ray.serve import batching, context
from ray.serve._private.common import DeploymentHandleSource, DeploymentID, ReplicaID, RequestMetadata
from ray.serve._private.request_router.common import PendingRequest
from ray.serve._private.request_router.pow_2_router import PowerOfTwoChoicesRequestRouter

from validation.real_batchers.desk import Desk

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


class Replica:
    """What the router knows of a replica: its name, and how many requests are inside."""

    node_id, availability_zone, multiplexed_model_ids = "", None, frozenset()

    def __init__(self, number, deployment, most, handle):
        self.replica_id = ReplicaID(str(number), deployment)
        self.max_ongoing_requests, self.handle, self.inside = most, handle, 0

    async def get_queue_len(self, *, deadline_s):
        return self.inside


def replay_routed(
    clock, arrival_s, service, *, num_replicas, max_batch_size=10, batch_wait_timeout_s=0.01,
):  # fmt: skip
    """Several replicas behind Ray Serve's own router, as a handle of the deployment uses it."""
    desk, most, deployment = Desk(clock, arrival_s, service), len(arrival_s) + 1, DeploymentID("model", "")
    random.seed(0)  # the router's
    context._INTERNAL_REPLICA_CONTEXT = SimpleNamespace(
        app_name="", deployment="", replica_tag="",
        _deployment_config=SimpleNamespace(max_ongoing_requests=most),
    )  # fmt: skip

    async def main(loop):
        def handle_of_one():
            @serve.batch(max_batch_size=max_batch_size, batch_wait_timeout_s=batch_wait_timeout_s)
            async def handle(requests):
                return await desk.compute_async(requests)

            return handle

        router = PowerOfTwoChoicesRequestRouter(
            deployment_id=deployment, handle_source=DeploymentHandleSource.REPLICA,
            use_replica_queue_len_cache=True, get_curr_time_s=clock.now,
        )  # fmt: skip
        router.update_replicas(
            [Replica(number, deployment, most, handle_of_one()) for number in range(num_replicas)]
        )
        over, answers = asyncio.Event(), set()

        async def answer(request):
            about = RequestMetadata(request_id=str(request), internal_request_id=str(request))
            replica = await router._choose_replica_for_request(PendingRequest([], {}, about))
            replica.inside += 1
            router.on_send_request(replica.replica_id)
            await replica.handle(request)
            replica.inside -= 1
            router.decrement_queue_len_cache(replica.replica_id)
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
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
            await asyncio.wait([task])

    with clock.replaced(batching):
        clock.run(main)
    return desk
