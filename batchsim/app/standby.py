"""A kernel that waits for the next page, with all that a page takes time for done."""

import asyncio
import json
from typing import Any

from jupyter_client.session import Session
from tornado.log import app_log

PATIENCE_S = 300  # a busy machine compiles for long

# Run one after the other. A page that comes early waits for the one that runs, not for those that follow.
REHEARSAL = (
    "import batchsim.view.explorer.explorer",
    "from batchsim.app.rehearsal import draw; draw()",
)


class Spare:
    """A kernel of `sessions` that is started, and rehearses, before there is a page for it."""

    def __init__(self, sessions: Any, kernel_id: str, **settings: Any) -> None:
        self.sessions, self.kernel_id, self.settings = sessions, kernel_id, settings
        self.taken = False
        self.started = asyncio.ensure_future(sessions.start_process(kernel_id=kernel_id, **settings))
        self.rehearsed = asyncio.ensure_future(self._rehearse())

    def suits(self, settings: dict[str, Any]) -> bool:
        """Return whether a kernel started with these settings, but for the environment, would be another."""
        return {name: value for name, value in settings.items() if name != "env"} == self.settings

    async def become(self, environment: dict[str, str], own: dict[str, str]) -> bool:
        """Be a page's kernel, with what its environment has besides our `own`; False if it has ended."""
        self.taken = True
        if not await self._lives():
            return False
        page = {name: value for name, value in environment.items() if own.get(name) != value}
        said = ascii(json.dumps(page))  # names may be members of enumerations
        await self._run(f"__import__('os').environ.update(__import__('json').loads({said}))")
        return True

    def let_go(self) -> None:
        """Wait no more for what the kernel is doing."""
        self.rehearsed.cancel()

    async def _lives(self) -> bool:
        try:
            await self.started
            if await self.sessions.get_kernel(self.kernel_id).is_alive():
                return True
            await self.sessions.shutdown_kernel(self.kernel_id, now=True)
        except Exception as error:  # whatever it was, a kernel that is started for the page has it again
            app_log.warning("The kernel that waited for a page has ended: %s", error)
        return False

    async def _rehearse(self) -> None:
        try:
            await self.started
            for source in REHEARSAL:
                if not self.taken:
                    await self._run(source)
        except Exception as error:  # the page says what is wrong, if it is still wrong then
            app_log.warning("The kernel that waits for a page could not rehearse: %s", error)

    async def _run(self, source: str) -> None:
        kernel = self.sessions.get_kernel(self.kernel_id)
        # A name of its own: a kernel takes two clients of one session for one, and answers the later alone.
        client = kernel.client(session=Session(config=kernel.session.config, key=kernel.session.key))
        client.start_channels(iopub=False, stdin=False, hb=False, control=False)
        try:
            reply = await client.execute(
                source, silent=True, store_history=False, reply=True, timeout=PATIENCE_S
            )
        finally:
            client.stop_channels()
        if reply["content"]["status"] != "ok":
            raise RuntimeError(reply["content"].get("evalue", reply["content"]["status"]))
