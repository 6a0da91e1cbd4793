"""Film the explorer's own page for the README. Run by `make picture`.

A hand moves the wait of the app, and latency, map and batches follow; each frame is a picture of the page. It
writes docs/explorer.webp, with the names of the pages and views that it shows, which a test compares with the
explorer. It needs the test extra and a Chromium.
"""

import io
import json
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser.conftest import CHROMIUM, MET, QUIETLY  # noqa: E402
from browser.panel import EXPLORER, HANDLE, KNOB  # noqa: E402
from browser.servers import running  # noqa: E402

SIZE = {"width": 1120, "height": 690}
MOST_BYTES = 2_000_000
STILL_MS, MOVING_MS = 1800, 110  # how long a frame stays: at rest, and as the slider moves
MOVES = (("ArrowRight", 26), ("ArrowLeft", 38))  # of the wait, from 10 ms
NAMES = "() => [...document.querySelectorAll('.batchsim-tabs .lm-TabBar-tabLabel, .batchsim-large option')]"


def frames(page):
    """Yield (picture, milliseconds) of the page under a hand."""

    def picture():
        page.evaluate("watch.quiet(60)")
        return Image.open(io.BytesIO(page.screenshot())).convert("RGB")

    page.locator(".batchsim-tabs .lm-TabBar-tab", has_text="Arrivals").click()
    page.locator(".batchsim-large select").select_option(label="Latency")
    yield picture(), STILL_MS
    for key, presses in MOVES:
        page.locator(KNOB.format(name="max_wait_ms")).locator(HANDLE).focus()
        for _ in range(presses):
            page.keyboard.press(key)
            yield picture(), MOVING_MS
        page.wait_for_timeout(500)  # the hand lets go
        yield picture(), STILL_MS


def main() -> None:
    """Run the app, film it, and write the picture."""
    chromium = next(filter(None, map(shutil.which, CHROMIUM)))
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as home:
        browser = playwright.chromium.launch(executable_path=chromium, args=QUIETLY)
        with running("app", Path(home) / "app") as server:
            page = browser.new_page(viewport=SIZE)
            page.add_init_script(path=ROOT / "tests" / "browser" / "watch.js")
            page.add_init_script(MET)
            page.goto(server.address())
            page.wait_for_selector(EXPLORER)
            page.evaluate("selector => void watch.start(selector)", EXPLORER)
            page.evaluate("watch.quiet(1000)")
            names = page.evaluate(f"({NAMES})().map(each => each.textContent)")
            pictures, durations = zip(*frames(page), strict=True)
        browser.close()
    moving = ROOT / "docs" / "explorer.webp"
    options = {
        "quality": 60,
        "method": 4,
        "loop": 0,
        "minimize_size": True,
        "xmp": json.dumps(names).encode(),
    }
    pictures[0].save(moving, save_all=True, append_images=pictures[1:], duration=list(durations), **options)
    size = moving.stat().st_size
    assert size <= MOST_BYTES, f"{moving.name} must be at most {MOST_BYTES:,} bytes, got {size:,}"
    print(f"{moving.name}: {len(pictures)} frames, {sum(durations) / 1000:.0f} s, {size:,} bytes")


if __name__ == "__main__":
    main()
