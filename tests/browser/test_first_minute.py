"""The first minute of a notebook: a word once the kernel has the package, then the explorer in the window."""

import nbformat

from browser.conftest import MET, READY, of_the_kernel, patient
from browser.panel import EXPLORER

SIZES = [(1280, 800), (1440, 900), (1920, 1080)]
CELLS = [
    nbformat.v4.new_markdown_cell("# The explorer\n\n" + "A line above it.\n\n" * 4, id="above"),
    nbformat.v4.new_code_cell("import batchsim as bs\nbs.explore(requests=500)", id="cell"),
    nbformat.v4.new_markdown_cell("# Below\n\n" + "A line below it.\n\n" * 60, id="below"),
]
SAID = ".jp-OutputArea:has-text('The explorer is loading')"
CLEAR = "jupyterapp.commands.execute('notebook:clear-all-cell-outputs')"
AGAIN = "void jupyterapp.commands.execute('notebook:run-all-cells')"
AWAY = """() => {
    const it = document.querySelector(".jp-WindowedPanel-outer");
    it.scrollTop = it.scrollHeight;
}"""
PLACE = """() => {
    const box = document.querySelector(".batchsim-explorer").getBoundingClientRect();
    const view = document.querySelector(".jp-WindowedPanel-outer").getBoundingClientRect();
    return [box.top - view.top, view.bottom - box.bottom].map(Math.round);
}"""
WITHIN = f"() => {{ const [above, below] = ({PLACE})(); return above >= -1 && above < 60 && below >= -1; }}"


def test_a_fresh_kernel_says_what_it_does_and_the_explorer_comes_into_the_window(lab, browser):
    (width, height), *others = SIZES
    page = patient(browser.new_page(viewport={"width": width, "height": height}))
    page.add_init_script(MET)
    name = "first.ipynb"
    kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=CELLS, metadata={"kernelspec": kernelspec})
    nbformat.write(notebook, lab.folder / name)
    answers = of_the_kernel(page)
    page.goto(lab.address(name), wait_until="commit")
    page.click(".jp-CodeCell .cm-content")
    while READY not in answers:
        page.wait_for_timeout(50)
    page.keyboard.press("Shift+Enter")
    page.wait_for_selector(SAID)
    assert page.locator(EXPLORER).count() == 0
    page.evaluate(AWAY)  # the reader looks further down, as the notebook itself does with a longer cell
    page.wait_for_selector(f"{EXPLORER}[data-frame]")
    page.wait_for_selector(SAID, state="detached")
    page.wait_for_function(WITHIN)
    for width, height in others:
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(CLEAR)
        page.wait_for_selector(EXPLORER, state="detached")
        page.evaluate(AWAY)
        page.evaluate(AGAIN)
        page.wait_for_selector(f"{EXPLORER}[data-frame]")
        page.wait_for_function(WITHIN)
    page.context.close()
