"""A class with the app: all open a page at once, move a slider, reload, and close; then the next lesson.

    make class-of-30            (STUDENTS=30, LESSONS=3)

The app listens on all networks of this machine, with a token. Prints how many pages showed a picture, how
long the last one took, what one page more than there are places was answered, and what memory a session and
the server took: memory that several processes share is divided by their number (the proportional set size,
PSS; where there is none, what a process has for itself alone). In the last lesson some pages are lost without
a word, as in a crash: only the server's own timeout ends their kernels, shortened from ten minutes to two.
The exit code is 1 where a page had no picture, one page more was let in, a kernel was left, or the server's
memory did not come back to within 10 % of what one page left.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

import psutil
from playwright.async_api import async_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from browser.panel import EXPLORER, KNOB
from browser.servers import own_address, running

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_S = 600
LOST = 3  # pages of the last lesson that crash
OPTIONS = ("--MappingKernelManager.cull_idle_timeout=120", "--MappingKernelManager.cull_interval=5")
RESTED_S = 5  # in which the server frees what the last pages left
HEAD = (
    "lesson",
    "opened",
    "last s",
    "one more",
    "moved",
    "reloaded",
    "last s",
    "sessions",
    "MB a session",
    "server MB",
    "left",
    "server MB after",
)


class Class:
    """Pages of one browser with one server."""

    def __init__(self, browser, server, places):
        self.browser, self.server, self.places = browser, psutil.Process(server.pid), places
        self.address = server.address().replace("127.0.0.1", own_address() or "127.0.0.1")

    def kernels(self):
        return self.server.children(recursive=True)

    def megabytes(self, processes):
        total = 0
        for process in processes:
            try:
                memory = process.memory_full_info()
            except psutil.NoSuchProcess:
                continue
            total += getattr(memory, "pss", memory.uss)
        return total / 1e6

    async def pictures(self, doings):
        """Return how many pages come to show a picture, and the seconds until the last does."""
        begin = time.monotonic()
        done = await asyncio.gather(*doings, return_exceptions=True)
        for error in {repr(it)[:200] for it in done if it is not None}:
            print(f"no picture: {error}", file=sys.stderr)
        return sum(it is None for it in done), time.monotonic() - begin

    async def open(self, page):
        await page.goto(self.address, wait_until="commit")
        await page.wait_for_selector(EXPLORER)

    async def move(self, page):
        before = await page.get_attribute(EXPLORER, "data-frame")
        await page.focus(f"{KNOB.format(name='max_wait_ms')} .noUi-handle")
        await page.keyboard.press("ArrowRight")
        await page.wait_for_selector(f"{EXPLORER}:not([data-frame='{before}'])")

    async def reload(self, page):
        await page.reload(wait_until="commit")
        await page.wait_for_selector(EXPLORER)

    async def one_more(self):
        """Return the status of the answer to a page for which there is no place."""
        page = await self.browser.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        answer = await page.goto(self.address, wait_until="commit")
        await page.close(run_before_unload=True)
        return answer.status

    async def lesson(self, count, lost):
        """Hold a lesson of so many pages, and return a line of the table."""
        # A browser for each: the tabs of one have six connections to a server among them.
        contexts = [await self.browser.new_context(reduced_motion="reduce") for _ in range(count)]
        pages = [await context.new_page() for context in contexts]
        for page in pages:
            page.set_default_timeout(PATIENCE_S * 1000)
        opened, opened_s = await self.pictures(map(self.open, pages))
        status = await self.one_more() if count == self.places else 0
        moved, _ = await self.pictures(map(self.move, pages))
        reloaded, reloaded_s = await self.pictures(map(self.reload, pages))
        kernels = self.kernels()
        session, server = self.megabytes(kernels) / max(len(kernels), 1), self.megabytes([self.server])
        for page in pages[lost:]:
            await page.close(run_before_unload=True)
        await asyncio.sleep(5)
        for context in contexts:
            await context.close()
        until = time.monotonic() + (240 if lost else 60)
        while self.kernels() and time.monotonic() < until:
            await asyncio.sleep(1)
        await asyncio.sleep(RESTED_S)
        left, after = len(self.kernels()), self.megabytes([self.server])
        sessions = len(kernels)
        return opened, opened_s, status, moved, reloaded, reloaded_s, sessions, session, server, left, after


async def hold(server, count, lessons):
    """Hold lessons, the first with a single page, and return whether nothing is left of the others."""
    executable = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if executable is None:
        raise SystemExit(f"class_of_30 needs a Chromium: none of {', '.join(CHROMIUM)} is installed")
    async with async_playwright() as playwright:
        quietly = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = await playwright.chromium.launch(executable_path=executable, args=quietly)
        it = Class(browser, server, count)
        print(f"{it.megabytes([it.server]):.0f} MB before the first page")
        print(" | ".join(HEAD))
        lines = []
        for lesson, pages in enumerate([1, *[count] * lessons]):
            lines.append(await it.lesson(pages, LOST if lesson == lessons else 0))
            shown = (
                f"{value:.0f}".rjust(len(name))
                for name, value in zip(HEAD, (lesson, *lines[-1]), strict=True)
            )
            print(" | ".join(shown), flush=True)
        await browser.close()
    all_shown = all(line[0] == line[3] == line[4] == count and line[2] == 503 for line in lines[1:])
    return all_shown and not any(line[-2] for line in lines) and lines[-1][-1] <= 1.1 * lines[0][-1]


def main():
    parser = argparse.ArgumentParser(description="A class with the app: pages, pictures, seconds, memory.")
    parser.add_argument("--pages", type=int, default=30)
    parser.add_argument("--lessons", type=int, default=3)
    given = parser.parse_args()
    options = (*OPTIONS, f"--Sessions.max_sessions={given.pages}")
    with (
        tempfile.TemporaryDirectory() as home,
        running("app", Path(home), *options, host="0.0.0.0") as server,
    ):
        return 0 if asyncio.run(hold(server, given.pages, given.lessons)) else 1


if __name__ == "__main__":
    sys.exit(main())
