"""The app's sessions: a kernel for each page, in bounded number."""

from typing import Any

from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.web import HTTPError
from traitlets import Integer, Set


class Sessions(AsyncMappingKernelManager):
    """Voila's kernels: at most `max_sessions` of them."""

    max_sessions = Integer(40, config=True, help="Pages that may be open at once.")
    starting = Set()  # those that `list_kernel_ids` does not have yet

    async def start_kernel(self, **settings: Any) -> str:  # type: ignore[override]
        """Start a kernel; HTTPError 503, for which the page is 503.html, where there is no place."""
        if len(self.starting.union(self.list_kernel_ids())) >= self.max_sessions:
            raise HTTPError(503, "%d pages are open", self.max_sessions)
        kernel_id = self.new_kernel_id()
        self.starting.add(kernel_id)
        try:
            return await super().start_kernel(kernel_id=kernel_id, **settings)
        finally:
            self.starting.remove(kernel_id)
