import contextlib
import json
import os
import re
import shutil
import time

import nbformat
import pytest

from browser.kernel import Kernel
from browser.panel import EXPLORER, KNOB, TEXTBOOK, TEXTBOOK_SLIDER, Noise, Panel
from browser.servers import ROOT, running

REQUIRED = os.environ.get("BATCHSIM_BROWSER") == "required"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIETLY = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HERE = ROOT / "tests" / "browser"
READY = "comm_info_reply"  # the last of what a notebook asks of a kernel before it runs cells
MOST_S = 300  # until what is waited for is there: a loop may be compiled first, on a busy machine


def without(reason):
    """There is no browser: skip, unless one is required."""
    (pytest.fail if REQUIRED else pytest.skip)(reason)


@pytest.fixture(scope="package")
def browser():
    """The system's Chromium. Playwright's loop ends with this package: others here use asyncio's."""
    executable = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if executable is None:
        without(f"no browser: none of {', '.join(CHROMIUM)} is installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        without("no playwright: install the test extra")
    with sync_playwright() as playwright:
        patience_ms = 1000 * MOST_S
        browser = playwright.chromium.launch(executable_path=executable, args=QUIETLY, timeout=patience_ms)
        yield browser
        browser.close()


def server(kind):
    @pytest.fixture(scope="package", name=kind)
    def started(browser, tmp_path_factory):
        with running(kind, tmp_path_factory.mktemp(kind)) as server:
            yield server

    return started


lab, notebook, app = server("lab"), server("notebook"), server("app")


@pytest.fixture(scope="package")
def opened(browser):
    """Open a panel: `with opened(server, *cells)` in a notebook, cells or code; `opened(app)` the app."""

    @contextlib.contextmanager
    def opened(server, *cells, textbook=False, query="", picture=EXPLORER, met=True, **page):
        known = server.kernels()
        name = f"panel-{len(list(server.folder.iterdir()))}.ipynb"
        if cells:
            nbformat.write(notebook_of(cells), server.folder / name)
        context = patient(browser.new_context(**{"viewport": {"width": 1280, "height": 1000}, **page}))
        context.add_init_script(path=HERE / "watch.js")
        if met:  # the reader has seen the opening
            context.add_init_script("try { localStorage.setItem('batchsim-opening', 1); } catch {}")
        view, noise = context.new_page(), Noise()
        noise.listen(view)
        answers = of_the_kernel(view)
        kernel = None
        try:
            began = time.perf_counter()
            view.goto(server.address(name if cells else "", query), wait_until="commit")
            if cells:
                for _ in range(20 * MOST_S):  # the page shows an idle kernel before it has one
                    if READY in answers:
                        break
                    view.wait_for_timeout(50)
                assert READY in answers, "the kernel does not answer"
                noise.errors.clear()  # of the front end's own start (Notebook 7.6 has one)
                began = run_all_cells(view)
            view.wait_for_selector(TEXTBOOK if textbook else f"{picture}[data-frame]")
            seconds = time.perf_counter() - began
            kernel = Kernel(*(server.kernels() - known if cells else server.kernels(session_of(view))))
            selectors = (TEXTBOOK, TEXTBOOK_SLIDER) if textbook else (picture, KNOB)
            panel = Panel(view, kernel, noise, *selectors, seconds)
            if met:  # else the film plays from the beginning, and nothing is at rest
                panel.watch()
            yield panel
        except BaseException:
            print(f"what the page showed: {server.folder / name}.png")
            view.screenshot(path=f"{server.folder / name}.png")
            raise
        finally:
            if kernel:
                kernel.close()
            context.close()

    return opened


def patient(page):
    """Return a page or a context whose actions wait long enough on a busy machine."""
    page.set_default_timeout(1000 * MOST_S)
    return page


def session_of(page):
    """Return the name of the kernel that a page of the app has."""
    return json.loads(page.text_content("#jupyter-config-data"))["kernelId"]


def notebook_of(cells):
    kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [nbformat.v4.new_code_cell(cell) if isinstance(cell, str) else cell for cell in cells]
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernelspec})


def of_the_kernel(page):
    """Return what will hold the types of the messages that a notebook has had from its kernel."""
    types = set()

    def note(frame):
        found = re.search(rb'"msg_type": ?"(\w+)"', frame if isinstance(frame, bytes) else frame.encode())
        types.add(found and found[1].decode())

    page.on("websocket", lambda socket: socket.on("framereceived", note))
    return types


def run_all_cells(page):
    """Use the menu, and return when."""
    page.click('.lm-MenuBar-itemLabel:text-is("Run")')
    began = time.perf_counter()
    page.click('.lm-Menu-itemLabel:text-is("Run All Cells")')
    page.wait_for_selector(r'.jp-InputPrompt:text-matches("\[[\d*]")')
    return began
