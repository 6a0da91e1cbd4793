"""axe-core finds nothing serious in the book and the slides that `make package` builds."""

import pytest
from browser.conftest import browser  # noqa: F401
from imported import ROOT as PACKAGE

ROOT = PACKAGE.parent
LESSONS = sorted(path.stem for path in ROOT.glob("notebooks/solutions/*.ipynb"))
PAGES = [
    *(f"book/html/{name}.html" for name in ("index", "guide", "validation", "glossary", "reference/rules")),
    *(f"{folder}/{name}.html" for folder in ("book/html/lessons", "slides") for name in LESSONS),
    "slides/index.html",
]  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(browser, name, scheme):  # noqa: F811
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    file = ROOT / "build" / name
    if not file.exists():
        pytest.skip("`make package` builds it")
    page = browser.new_page(color_scheme=scheme)
    page.goto(file.as_uri())
    page.wait_for_load_state("load")
    found = axe.run(page).response["violations"]
    page.close()
    grave = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in grave] == []
