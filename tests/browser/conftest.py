import contextlib
import json
import os
import re
import shutil
import time

import nbformat
import pytest

from browser.kernel import Kernel
from browser.panel import EXPLORER, TEXTBOOK, TEXTBOOK_SLIDER, Panel
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


KEPT = {}  # the panels whose page and kernel tests share, by their server
PAGE = {"viewport": {"width": 1280, "height": 1000}, "color_scheme": "light"}
# A kept kernel begins anew; or its panel does, for a test that wants the same cells.
ANEW = "from ipywidgets import Widget; Widget.close_all(); get_ipython().reset(new_session=False)"
BEGUN = "begun = panel.tabs.selected_index, panel.large.value"
AGAIN = """
panel.share.theme.value, panel.share.size.value, panel.config.box.text = "auto", "page", ""
panel.predict.predicting.value = panel.words.value = False
panel.session.reset()
panel.tabs.selected_index, panel.large.value = begun
"""
INTO_VIEW = (
    "document.querySelector('.batchsim-explorer').scrollIntoView({ block: 'nearest' })"  # as one that opens
)
# The reader has seen the opening, and wants all controls.
MET = "try { for (const name of ['opening', 'more']) localStorage.setItem(`batchsim-${name}`, 1); } catch {}"
NEW = "['opening', 'more'].forEach((name) => localStorage.removeItem(`batchsim-${name}`))"
FILL = """(cells) => {
    const notebook = jupyterapp.shell.currentWidget.model.sharedModel;
    notebook.transact(() => {
        notebook.deleteCellRange(0, notebook.cells.length);
        const bare = ({ cell_type, source, metadata }) => ({ cell_type, source, metadata });
        notebook.insertCells(0, cells.map(bare)); // without the outputs that a file holds
    });
}"""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    while report.failed and KEPT:  # the next test has a page and a kernel that this one has not touched
        KEPT.popitem()[1].close()
    return report


@pytest.fixture(scope="package")
def opened(browser):
    """Open a panel: `with opened(server, *cells)` in a notebook, cells or code; `opened(app)` the app.

    It has the page and the kernel of the test before, as new ones take longer than what most tests try. Those
    that try the beginning, or spoil the page, are `alone`. Who has not `met` the explorer sees its opening.
    """

    @contextlib.contextmanager
    def opened(server, *cells, alone=False, textbook=False, query="", met=True, **page):
        alone = alone or textbook or query or not (met or (cells and server in KEPT))
        page = {**PAGE, **page}
        panel, cells = None if alone else KEPT.get(server), cells_of(cells)
        is_new = panel is None
        if is_new:
            context = patient(browser.new_context(**(page if alone else PAGE)))
            context.add_init_script(path=HERE / "watch.js")
            if met:
                context.add_init_script(MET)
            panel = Panel(context.new_page(), server)
            if not alone:
                KEPT[server] = panel
        try:
            if is_new:
                begin(panel, cells, query, textbook)
            else:
                go_on(panel, cells, met)
            if not alone:
                panel.page.set_viewport_size(page["viewport"])
                panel.page.emulate_media(color_scheme=page["color_scheme"])
            if met:  # else the film plays from the beginning, and nothing is at rest
                panel.watch(500 if is_new else 150)  # a kept page has been at rest
            if not is_new:
                panel.page.evaluate(INTO_VIEW)
            yield panel
        except BaseException:
            shown = server.folder / f"{time.time():.0f}.png"
            print(f"what the page showed: {shown}")
            panel.page.screenshot(path=shown)
            raise
        finally:
            if alone:
                panel.close()

    yield opened
    while KEPT:
        KEPT.popitem()[1].close()


def begin(panel, cells, query, textbook):
    """Open a page, whose kernel then begins, and wait for the picture."""
    server, page, known = panel.server, panel.page, panel.server.kernels()
    name = f"panel-{len(list(server.folder.iterdir()))}.ipynb"
    if cells:
        kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernelspec})
        nbformat.write(notebook, server.folder / name)
    answers, began = of_the_kernel(page), time.perf_counter()
    page.goto(server.address(name if cells else "", query), wait_until="commit")
    if cells:
        for _ in range(20 * MOST_S):  # the page shows an idle kernel before it has one
            if READY in answers:
                break
            page.wait_for_timeout(50)
        assert READY in answers, "the kernel does not answer"
        panel.noise.errors.clear()  # of the front end's own start (Notebook 7.6 has one)
        began = run_all_cells(page)
    if textbook:
        panel.picture, panel.knob = TEXTBOOK, TEXTBOOK_SLIDER
    page.wait_for_selector(TEXTBOOK if textbook else f"{EXPLORER}[data-frame]")
    panel.seconds = time.perf_counter() - began
    panel.kernel = Kernel(*(server.kernels() - known if cells else server.kernels(session_of(page))))
    panel.cells = cells
    if not textbook:
        panel.kernel.run(BEGUN)


def go_on(panel, cells, met):
    """Bring a kept page and its kernel back to the beginning, of the same cells or of others."""
    panel.page.evaluate(MET if met else NEW)
    panel.page.set_viewport_size(PAGE["viewport"])
    panel.page.mouse.move(0, 0)
    others = cells != panel.cells or not met  # an opening plays once
    panel.kernel.run(ANEW if others else AGAIN)
    if others:
        panel.page.evaluate(FILL, cells_of([""]))
    panel.quiet()
    panel.noise.clear()
    if others:
        panel.page.evaluate(FILL, cells)
        run_all_cells(panel.page)
        panel.picture, panel.cells = EXPLORER, cells
        panel.page.wait_for_selector(f"{EXPLORER}[data-frame]")
        panel.kernel.run(BEGUN)


def patient(page):
    """Return a page or a context whose actions wait long enough on a busy machine."""
    page.set_default_timeout(1000 * MOST_S)
    return page


def session_of(page):
    """Return the name of the kernel that a page of the app has."""
    return json.loads(page.text_content("#jupyter-config-data"))["kernelId"]


def cells_of(cells):
    return [
        nbformat.v4.new_code_cell(each, id=f"added-{at}") if isinstance(each, str) else each
        for at, each in enumerate(cells)
    ]


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
