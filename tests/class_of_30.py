"""A class with the app: all open a page at once, move a slider, reload, and close; then the next lesson.

    make class-of-30            (STUDENTS=30, LESSONS=3)

Prints how many pages showed a picture, how long the last one took, and what memory a session and the server
took, before and after. In the last lesson some pages are lost without a word, as in a crash: only the
server's own timeout ends their kernels, shortened from ten minutes to two. The exit code is 1 where a page
had no picture, a kernel was left, or the memory did not come back to within 10 % of what one page had left.
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

sys.path.insert(0, str(Path(__file__).parent))

from browser.panel import EXPLORER, KNOB
from browser.servers import running

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_S = 600
LOST = 3  # pages of the last lesson that crash
OPTIONS = ("--MappingKernelManager.cull_idle_timeout=120", "--MappingKernelManager.cull_interval=5")
HEAD = (
    "lesson",
    "opened",
    "last s",
    "moved",
    "reloaded",
    "last s",
    "MB a session",
    "server MB",
    "left",
    "MB after",
)


class Class:
    """Pages of one browser with one server."""

    def __init__(self, browser, server):
        self.browser, self.server = browser, psutil.Process(server.pid)
        self.address = server.address()

    def kernels(self):
        return self.server.children(recursive=True)

    def megabytes(self, processes=None):
        """Return what processes have for themselves, by default the server and its kernels."""
        total = 0
        for process in [self.server, *self.kernels()] if processes is None else processes:
            try:
                total += process.memory_full_info().uss
            except psutil.NoSuchProcess:
                continue
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

    async def lesson(self, count, lost):
        """Hold a lesson of so many pages, and return a line of the table."""
        # A browser for each: the tabs of one have six connections to a server among them.
        contexts = [await self.browser.new_context(reduced_motion="reduce") for _ in range(count)]
        pages = [await context.new_page() for context in contexts]
        for page in pages:
            page.set_default_timeout(PATIENCE_S * 1000)
        opened, opened_s = await self.pictures(map(self.open, pages))
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
        left = len(self.kernels())
        return opened, opened_s, moved, reloaded, reloaded_s, session, server, left, self.megabytes()


async def hold(address, count, lessons):
    """Hold lessons, the first with a single page, and return whether nothing is left of the others."""
    executable = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if executable is None:
        raise SystemExit(f"class_of_30 needs a Chromium: none of {', '.join(CHROMIUM)} is installed")
    async with async_playwright() as playwright:
        quietly = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = await playwright.chromium.launch(executable_path=executable, args=quietly)
        it = Class(browser, address)
        print(f"{it.megabytes():.0f} MB before the first page")
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
    all_shown = all(line[0] == line[2] == line[3] == count for line in lines[1:])
    return all_shown and not any(line[-2] for line in lines) and lines[-1][-1] <= 1.1 * lines[0][-1]


def main():
    parser = argparse.ArgumentParser(description="A class with the app: pages, pictures, seconds, memory.")
    parser.add_argument("--pages", type=int, default=30)
    parser.add_argument("--lessons", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, running("app", Path(home), *OPTIONS) as server:
        return 0 if asyncio.run(hold(server, given.pages, given.lessons)) else 1


if __name__ == "__main__":
    sys.exit(main())
