"""A class with the app, one page of which sends each kind of attack: `make class-under-attack`.

Prints the server's memory and the pages' response times before, during and after. The exit code is 1 where
the memory was ever above 1.2 times what it was, or a page's median time above twice what it was.
"""

import argparse
import asyncio
import contextlib
import itertools
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

from browser.servers import running

from attack.app import CLOSED, KINDS, close, connected, flood, message, opened_page, refuses, server_of

MEMORY, TIME = 1.2, 2.0
NOISE_S = 0.05  # a median on a machine with other work
BASE_S = 30.0  # for the times before

parser = argparse.ArgumentParser(prog="python -m attack.pages", description=__doc__)
parser.add_argument("--pages", type=int, default=30)
parser.add_argument("--minutes", type=float, default=5)


class Page:
    """A page that is open, and reads what comes: of one that does not, the server lets go."""

    def __init__(self):
        self.socket, self.wanted, self.answered = None, b"", asyncio.Event()

    def heard(self, text):
        if text is not None and self.wanted and self.wanted in text and b"kernel_info_reply" in text:
            self.answered.set()

    async def response_s(self):
        """Return the time of a round trip to the page's kernel."""
        name, sent_s = uuid.uuid4().hex, time.perf_counter()
        self.wanted = name.encode()
        self.answered.clear()
        await self.socket.write_message(message("kernel_info_request", {}, name=name), binary=True)
        await asyncio.wait_for(self.answered.wait(), 60)
        return time.perf_counter() - sent_s


class Watch:
    """The response times of pages, and the most memory of the server."""

    def __init__(self, process, pages):
        self.process, self.pages = process, pages

    async def times_s(self, seconds):
        """Return each page's median, and the server's peak in MB, over so many seconds."""
        until, found, peak = time.monotonic() + seconds, [[] for _ in self.pages], 0
        while time.monotonic() < until or not all(found):
            for page, times_s in zip(self.pages, found, strict=True):
                times_s.append(await page.response_s())
                peak = max(peak, self.process.memory_info().rss / 1e6)
        return [statistics.median(times_s) for times_s in found], peak


async def attacks(server, kernel, sent):
    """Send each kind of attack from one page, again and again, until this is cancelled."""
    for kind in itertools.cycle(KINDS):
        victim = await connected(server, kernel)
        closed = await flood(victim, kind)
        assert closed or kind not in CLOSED, f"{kind}: the page stayed open"
        await close(victim)
        assert await refuses(server, kernel), "a socket without the format was let in"
        sent[kind] = sent.get(kind, 0) + 1


async def hold(server, pages, minutes):
    """Return whether all limits held."""
    others, sent = [], {}
    for _ in range(pages):  # each connects at once, as its turn to open lasts until then
        kernel, page = await opened_page(server), Page()
        page.socket = await connected(server, kernel, page.heard)
        others.append(page)
    watch = Watch(server_of(server), others[:-1])
    await watch.times_s(0)
    before_s, before = await watch.times_s(BASE_S)
    attack = asyncio.create_task(attacks(server, kernel, sent))
    during_s, peak = await watch.times_s(60 * minutes)
    over = attack.done()
    attack.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await attack
    after_s, after = await watch.times_s(BASE_S)
    worst = max(now / was for now, was in zip(during_s, before_s, strict=True))
    late = [now for now, was in zip(during_s, before_s, strict=True) if now > TIME * was + NOISE_S]
    print(f"Sent: {', '.join(f'{count} of {kind}' for kind, count in sent.items())}")
    print(f"The server's memory: {before:.0f} MB before, at most {peak:.0f} MB during, {after:.0f} MB after")
    for when, them in (("before", before_s), ("during", during_s), ("after", after_s)):
        middle, most = statistics.median(them) * 1000, max(them) * 1000
        print(f"A page's median time {when}: {middle:.1f} ms, of the slowest page {most:.1f} ms")
    print(f"The page that suffered most took {worst:.1f} times as long; {len(late)} took over twice as long")
    return not over and not late and peak <= MEMORY * before


def main():
    asked = parser.parse_args()
    options = (f"--Sessions.max_sessions={asked.pages}",)
    with tempfile.TemporaryDirectory() as home, running("app", Path(home), *options) as server:
        return 0 if asyncio.run(hold(server, asked.pages, asked.minutes)) else 1


if __name__ == "__main__":
    sys.exit(main())
