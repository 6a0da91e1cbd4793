"""A kernel that is started, and warmed up, before the page that will use it."""

import asyncio
import json
from typing import Any

from jupyter_client.session import Session
from tornado.log import app_log

TIMEOUT_S = 300  # compiling takes long on a busy machine

# Cells, run in order. A page that comes early waits for the running cell and skips the rest.
WARM_UP = (
    "import batchsim.view.explorer.explorer",
    "from batchsim.app.prewarm import draw; draw()",
)


class Standby:
    """A kernel of `sessions` that waits for a page and warms up meanwhile."""

    def __init__(self, sessions: Any, kernel_id: str, **settings: Any) -> None:
        self.sessions, self.kernel_id, self.settings = sessions, kernel_id, settings
        self.taken = False
        self.started = asyncio.ensure_future(sessions.start_process(kernel_id=kernel_id, **settings))
        self.warm = asyncio.ensure_future(self._warm_up())

    def suits(self, settings: dict[str, Any]) -> bool:
        """Return whether these settings match the kernel's, ignoring the environment."""
        return {name: value for name, value in settings.items() if name != "env"} == self.settings

    async def take(self, environment: dict[str, str], own: dict[str, str]) -> bool:
        """Serve a page, with the variables of its environment that our `own` lacks; False if dead."""
        self.taken = True
        if not await self._is_alive():
            return False
        page = {name: value for name, value in environment.items() if own.get(name) != value}
        text = ascii(json.dumps(page))  # JSON, as names may be members of enumerations
        await self._run(f"__import__('os').environ.update(__import__('json').loads({text}))")
        return True

    async def _is_alive(self) -> bool:
        try:
            await self.started
            if await self.sessions.get_kernel(self.kernel_id).is_alive():
                return True
            await self.sessions.shutdown_kernel(self.kernel_id, now=True)
        except Exception as error:  # the kernel that the page then gets will report it, if it persists
            app_log.warning("The standby kernel has died: %s", error)
        return False

    async def _warm_up(self) -> None:
        try:
            await self.started
            for source in WARM_UP:
                if not self.taken:
                    await self._run(source)
        except Exception as error:  # the page will report it, if it persists
            app_log.warning("The standby kernel could not warm up: %s", error)

    async def _run(self, source: str) -> None:
        kernel = self.sessions.get_kernel(self.kernel_id)
        # The client needs its own session: a kernel answers only the later of two clients that share one.
        client = kernel.client(session=Session(config=kernel.session.config, key=kernel.session.key))
        client.start_channels(iopub=False, stdin=False, hb=False, control=False)
        try:
            reply = await client.execute(
                source, silent=True, store_history=False, reply=True, timeout=TIMEOUT_S
            )
        finally:
            client.stop_channels()
        if reply["content"]["status"] != "ok":
            raise RuntimeError(reply["content"].get("evalue", reply["content"]["status"]))
