"""The app's sessions: a kernel for each page, in bounded number, a few of them opening at a time."""

import asyncio
import gc
import os
from typing import Any

from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.web import HTTPError
from traitlets import Dict, Instance, Integer, Set

TURN_S = 30  # the longest that others wait for a page which does not come up


class Sessions(AsyncMappingKernelManager):
    """Voila's kernels: at most `max_sessions` of them.

    A class opens its pages all at once. Each takes a core for some seconds, in its kernel and in its browser,
    whose front ends give up on what takes too long: so they come up in turn, one for each core.
    """

    max_sessions = Integer(40, config=True, help="Pages that may be open at once.")
    starting = Set()  # kernels that `list_kernel_ids` does not have yet
    opening = Dict()  # the timers of kernels whose page has no socket yet
    turns = Instance(asyncio.Semaphore, (os.cpu_count() or 1,))

    async def start_kernel(self, **settings: Any) -> str:  # type: ignore[override]
        """Start a kernel; HTTPError 503, for which the page is 503.html, where there is no place."""
        if len(self.starting.union(self.list_kernel_ids())) >= self.max_sessions:
            raise HTTPError(503, "%d pages are open", self.max_sessions)
        kernel_id = self.new_kernel_id()
        self.starting.add(kernel_id)
        await self.turns.acquire()
        self.opening[kernel_id] = asyncio.get_running_loop().call_later(TURN_S, self.has_opened, kernel_id)
        try:
            return await super().start_kernel(kernel_id=kernel_id, **settings)
        except BaseException:
            self.has_opened(kernel_id)
            raise
        finally:
            self.starting.remove(kernel_id)

    async def shutdown_kernel(self, kernel_id: str, *args: Any, **settings: Any) -> None:  # type: ignore[override]
        """End a kernel, and let go of what Voila made for its page."""
        await super().shutdown_kernel(kernel_id, *args, **settings)  # type: ignore[no-untyped-call]
        # Two megabytes in cycles of few objects, so few that Python would let hundreds of pages pass.
        gc.collect()

    def notify_connect(self, kernel_id: str) -> None:
        """Note a page's socket, which it opens when it is about to draw."""
        super().notify_connect(kernel_id)  # type: ignore[no-untyped-call]
        self.has_opened(kernel_id)

    def has_opened(self, kernel_id: str) -> None:
        """Give a kernel's turn to the next."""
        timer = self.opening.pop(kernel_id, None)
        if timer is not None:
            timer.cancel()
            self.turns.release()
