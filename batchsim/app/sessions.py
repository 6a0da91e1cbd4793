"""The app's sessions: a kernel for each page, in bounded number, a few of them opening at a time."""

import asyncio
import gc
import os
from typing import Any

from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.ioloop import IOLoop
from tornado.web import HTTPError
from traitlets import Dict, Instance, Integer, Set

from batchsim.app.access import ASKING
from batchsim.app.standby import Spare

TURN_S = 30  # the longest that others wait for a page which does not come up
REST_S = 5  # from the last page that came or went to the start of a spare kernel


class Sessions(AsyncMappingKernelManager):
    """Voila's kernels: at most `max_sessions` of them.

    A class opens its pages all at once. Each takes a core for some seconds, in its kernel and in its browser,
    whose front ends give up on what takes too long: so they come up in turn, one for each core.

    Where a place is left, one kernel more has been started, and has drawn a picture, before its page comes.
    """

    max_sessions = Integer(40, config=True, help="Pages that may be open at once.")
    spare_settings = Dict(config=True, help="As what a spare kernel is started; none is where this is empty.")
    spare = Instance(Spare, allow_none=True)
    starting = Set()  # kernels that `list_kernel_ids` does not have yet
    left = Set()  # those of them whose page is left before they have started
    opening = Dict()  # the timers of kernels whose page has no socket yet
    turns = Instance(asyncio.Semaphore, (os.cpu_count() or 1,))
    rest = Instance(asyncio.TimerHandle, allow_none=True)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)  # type: ignore[no-untyped-call]
        if self.spare_settings:
            IOLoop.current().add_callback(self.start_spare)

    async def start_kernel(self, **settings: Any) -> str:  # type: ignore[override]
        """Start a kernel; HTTPError 503, for which the page is 503.html, where there is no place."""
        if len(self.pages()) >= self.max_sessions:
            raise HTTPError(503, "%d pages are open", self.max_sessions)
        spare = self.spare if self.spare and self.spare.suits(settings) else None
        kernel_id = spare.kernel_id if spare else self.new_kernel_id()
        if spare:
            self.spare = None
        self.starting.add(kernel_id)
        self.end_with(ASKING.get(), kernel_id)
        await self.turns.acquire()
        self.opening[kernel_id] = asyncio.get_running_loop().call_later(TURN_S, self.has_opened, kernel_id)
        try:
            if kernel_id in self.left:
                raise HTTPError(410)
            if not (spare and await spare.become(settings.get("env", {}), dict(os.environ))):
                await self.start_process(kernel_id=kernel_id, **settings)
            if kernel_id in self.left:
                raise HTTPError(410)
            return kernel_id
        except BaseException:
            self.has_opened(kernel_id)
            if kernel_id in self:
                await self.shutdown_kernel(kernel_id, now=True)
            raise
        finally:
            self.starting.remove(kernel_id)
            self.left.discard(kernel_id)

    def end_with(self, handler: Any, kernel_id: str) -> None:
        """End a kernel whose page is left before all of it was sent: it could not say so itself."""
        if handler is None:
            return

        def leave() -> None:
            handler.on_connection_close()
            if kernel_id in self.starting:
                self.left.add(kernel_id)
            elif kernel_id in self:
                IOLoop.current().add_callback(self.shutdown_kernel, kernel_id, now=True)

        handler.request.connection.set_close_callback(leave)

    async def start_process(self, **settings: Any) -> str:
        """Start a kernel, whether there is a place or not."""
        return await super().start_kernel(**settings)

    def pages(self) -> set[str]:
        """Return the kernels that have a page, or will have."""
        kernels = self.starting.union(self.list_kernel_ids())
        return kernels - {self.spare.kernel_id} if self.spare else kernels

    def start_spare(self) -> None:
        """Start a kernel for the next page, if there is a place for it and no page is coming up."""
        busy = self.starting or self.opening
        if self.spare is None and not busy and len(self.pages()) < self.max_sessions:
            self.spare = Spare(self, self.new_kernel_id(), **self.spare_settings)

    def start_spare_later(self) -> None:
        """Start it when no page has come or gone for a while: until then they need the cores."""
        if self.spare_settings:
            if self.rest is not None:
                self.rest.cancel()
            self.rest = asyncio.get_running_loop().call_later(REST_S, self.start_spare)

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """End a kernel whose page was lost: not one that waits for a page."""
        if self.spare is None or kernel_id != self.spare.kernel_id:
            await super().cull_kernel_if_idle(kernel_id)  # type: ignore[no-untyped-call]

    async def shutdown_kernel(self, kernel_id: str, *args: Any, **settings: Any) -> None:  # type: ignore[override]
        """End a kernel, and let go of what Voila made for its page."""
        if self.spare and kernel_id == self.spare.kernel_id:
            self.spare.let_go()
            self.spare = None
        await super().shutdown_kernel(kernel_id, *args, **settings)  # type: ignore[no-untyped-call]
        self.has_opened(kernel_id)
        # Two megabytes in cycles of few objects, so few that Python would let hundreds of pages pass.
        gc.collect()
        self.start_spare_later()

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
            self.start_spare_later()
