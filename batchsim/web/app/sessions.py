"""The app's sessions: one kernel per page, a bounded number of pages, a few of them opening at a time."""

import asyncio
import gc
import os
from typing import Any

from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.ioloop import IOLoop
from tornado.web import HTTPError
from traitlets import Dict, Instance, Integer, Set

from batchsim.web.app.access import ASKING
from batchsim.web.app.classroom import environment
from batchsim.web.app.limits import without_secrets

TURN_S = 30  # the longest that other pages wait for one that never opens


class Sessions(AsyncMappingKernelManager):
    """Voila's kernels: at most `max_sessions` of them.

    A class opens its pages all at once. Each page occupies a core for some seconds, in its kernel and in its
    browser, whose front end gives up after a timeout. So pages open in turn, one per core.
    """

    max_sessions = Integer(40, config=True, help="Pages that may be open at once.")
    starting = Set()  # kernels that `list_kernel_ids` does not have yet
    abandoned = Set()  # those of them whose page has closed already
    opening = Dict()  # timers of the kernels whose page has no socket yet
    turns = Instance(asyncio.Semaphore, (os.cpu_count() or 1,))

    async def start_kernel(self, **settings: Any) -> str:  # type: ignore[override]
        """Start a kernel; HTTPError 503, shown as 503.html, if the app is full."""
        if len(self.pages()) >= self.max_sessions:
            raise HTTPError(503, "%d pages are open", self.max_sessions)
        kernel_id = self.new_kernel_id()
        self.starting.add(kernel_id)
        self.end_with(ASKING.get(), kernel_id)
        await self.turns.acquire()
        self.opening[kernel_id] = asyncio.get_running_loop().call_later(TURN_S, self.has_opened, kernel_id)
        try:
            if kernel_id in self.abandoned:
                raise HTTPError(410)
            settings["env"] = without_secrets(settings.get("env") or os.environ) | environment(self.parent)
            await super().start_kernel(kernel_id=kernel_id, **settings)
            if kernel_id in self.abandoned:
                raise HTTPError(410)
            return kernel_id
        except BaseException:
            self.has_opened(kernel_id)
            if kernel_id in self:
                await self.shutdown_kernel(kernel_id, now=True)
            raise
        finally:
            self.starting.remove(kernel_id)
            self.abandoned.discard(kernel_id)

    def end_with(self, handler: Any, kernel_id: str) -> None:
        """End a kernel whose page closes before it is complete: such a page cannot ask for it."""
        if handler is None:
            return

        def abandon() -> None:
            handler.on_connection_close()
            if kernel_id in self.starting:
                self.abandoned.add(kernel_id)
            elif kernel_id in self:
                IOLoop.current().add_callback(self.shutdown_kernel, kernel_id, now=True)

        handler.request.connection.set_close_callback(abandon)

    def pages(self) -> set[str]:
        """Return the kernels that have a page, or will have one."""
        return self.starting.union(self.list_kernel_ids())

    async def shutdown_kernel(self, kernel_id: str, *args: Any, **settings: Any) -> None:  # type: ignore[override]
        """End a kernel, and free the memory that Voila used for its page."""
        await super().shutdown_kernel(kernel_id, *args, **settings)  # type: ignore[no-untyped-call]
        self.has_opened(kernel_id)
        # A page leaves 2 MB in cycles, of so few objects that Python would collect only after hundreds of
        # pages.
        gc.collect()

    def notify_connect(self, kernel_id: str) -> None:
        """Record a page's socket, which it opens when it is about to draw."""
        super().notify_connect(kernel_id)  # type: ignore[no-untyped-call]
        self.has_opened(kernel_id)

    def has_opened(self, kernel_id: str) -> None:
        """Give a kernel's turn to the next."""
        timer = self.opening.pop(kernel_id, None)
        if timer is not None:
            timer.cancel()
            self.turns.release()
