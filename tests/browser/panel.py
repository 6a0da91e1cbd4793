"""A panel of sliders in a page: what it shows, and hands that move it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from browser.kernel import Kernel
from browser.servers import Server

# Where things are: the one place that knows the pages' insides.
EXPLORER = ".batchsim-main img.batchsim-screen"
TEXTBOOK = ".jp-OutputArea-output .jp-OutputArea-output img"
KNOB = ".batchsim-knob-{name}"
HANDLE = ".noUi-handle"
TEXTBOOK_SLIDER = ".widget-hslider:has(.widget-label:text-is('{name}'))"
LINES = ".batchsim-readout [role=status]"
PANEL = """import batchsim as bs
from batchsim.view.explorer.state import State
panel = bs.explore(requests=500)
panel"""
LIMITS = "[[*axes.get_xlim(), *axes.get_ylim()] for axes in panel.picture.figure.axes]"  # for the kernel
SETTLES_MS = 400  # after a key is let go: then the axes may shrink, which is a redraw of its own


def eventually(holds: Callable[[], Any], seconds: float = 300) -> bool:
    """Return whether something comes to hold: a page and its kernel take their time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.05)
    return False


@dataclass
class Noise:
    """What a page should not have: errors, and requests to anywhere but this machine."""

    errors: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def listen(self, page: Any) -> None:
        page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        page.on("pageerror", lambda error: self.errors.append(error.stack or str(error)))
        page.on("request", lambda request: self._asked(request.url))

    def clear(self) -> None:
        self.errors.clear()
        self.elsewhere.clear()

    def _asked(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1":
            self.elsewhere.append(url)


@dataclass
class Panel:
    page: Any
    server: Server
    kernel: Kernel | None = None  # until it has answered
    noise: Noise = field(default_factory=Noise)
    picture: str = EXPLORER
    knob: str = KNOB
    seconds: float = 0.0  # from Run, or from the address of an app, to the picture
    cells: Sequence[Any] = ()

    def __post_init__(self) -> None:
        self.noise.listen(self.page)

    def close(self) -> None:
        if self.kernel:
            self.kernel.close()
        self.page.context.close()

    def watch(self, ms: float) -> None:
        """Wait for the picture and its rest, and keep watching it."""
        self.page.wait_for_selector(self.picture)
        self.page.evaluate("selector => void watch.start(selector)", self.picture)
        self.quiet(ms)

    def look_at(self, picture: str) -> None:
        """Watch another picture of the page."""
        self.picture = picture
        self.page.wait_for_selector(f"{picture}[data-frame]")
        self.page.evaluate("selector => watch.turn(selector)", picture)
        self.quiet()

    def quiet(self, ms: float = 150) -> None:
        """Wait until the picture has been still for so long, and nothing is on its way to it or from it."""
        self.kernel.run("")
        self.page.evaluate("id => watch.heard(id)", self.kernel.last)
        self.page.evaluate("ms => watch.quiet(ms)", ms)

    def frames(self) -> list[float]:
        return self.page.evaluate("watch.frames")

    def pixels(self) -> int:
        return self.page.evaluate("watch.pixels()")

    def handle(self, name: str) -> Any:
        return self.page.locator(self.knob.format(name=name)).locator(HANDLE)

    def move_ms(self, name: str, key: str, settles_ms: int = SETTLES_MS) -> float:
        """Press a key on a slider, and return the milliseconds until other pixels are on the screen."""
        self.handle(name).focus()
        self.page.evaluate("ms => watch.arm(ms)", settles_ms)
        self.page.keyboard.press(key)
        move = self.page.evaluate("watch.move")
        assert move["changed"], f"{key} on {name} has drawn the same pixels again"
        return move["ms"]

    def grasp(self, name: str) -> tuple[float, float]:
        """Press the mouse on a slider's handle, once that stands still; return its place."""
        self.handle(name).hover()
        self.page.mouse.down()
        box = self.handle(name).bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def drag(self, name: str, to: float, steps: int, seconds: float) -> dict[str, float]:
        """Drag a slider to a part of its track in even steps; return the values it took and the seconds."""
        begin, y = self.grasp(name)
        track = self.page.locator(self.knob.format(name=name)).locator(".noUi-base").bounding_box()
        end = track["x"] + track["width"] * to
        way = {"origin": f"{self.knob.format(name=name)} .noUi-origin", "begin": begin, "end": end, "y": y}
        dragged = self.page.evaluate("way => watch.drag(way)", {**way, "steps": steps, "seconds": seconds})
        self.page.mouse.move(end, y)
        self.page.mouse.up()
        return dragged

    def slid(self, name: str) -> float:
        """Return the place at which a slider's handle stands, in steps."""
        return (
            self.page.locator(self.knob.format(name=name))
            .locator(".noUi-target")
            .evaluate("slider => Number(slider.noUiSlider?.get(true) ?? NaN)")
        )

    def redraws_after_release(self) -> int:
        """Return how many frames of the explorer came after the mouse's button was let go."""
        return self.page.evaluate(
            "selector => document.querySelector(selector).dataset.frame - watch.arrived", self.picture
        )

    def typed(self, name: str) -> Any:
        """Return the field of a knob."""
        return self.page.locator(self.knob.format(name=name)).locator("input[type=text]")

    def words(self) -> str:
        return self.page.locator(LINES).inner_text()

    def picture_bytes(self) -> str:
        """Return the SHA-256 of the file that is shown."""
        return self.page.evaluate(
            """async (selector) => {
                const file = await (await fetch(document.querySelector(selector).src)).arrayBuffer();
                const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", file));
                return [...sum].map((byte) => byte.toString(16).padStart(2, "0")).join("");
            }""",
            self.picture,
        )

    def heap(self) -> dict[str, float]:
        """Return the page's memory after a collection: bytes, DOM nodes and listeners."""
        devtools = self.page.context.new_cdp_session(self.page)
        devtools.send("HeapProfiler.collectGarbage")
        used = devtools.send("Runtime.getHeapUsage")["usedSize"]
        counted = devtools.send("Memory.getDOMCounters")
        devtools.detach()
        return {"bytes": used, "nodes": counted["nodes"], "listeners": counted["jsEventListeners"]}
