"""A notebook that was saved and is opened with another kernel shows the pictures that it stores."""

import json

import pytest

from browser.conftest import READY, of_the_kernel, patient
from browser.panel import PANEL

SCENARIO = "scenario = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25))"
CELLS = f"{SCENARIO}\nbs.figure(scenario)", "bs.film(scenario, requests=50)"
STORED, GONE = ".batchsim-stored", "text=Error displaying widget"
LIVE = ".batchsim-explorer", ".batchsim-figure .figure", ".batchsim-player:not(.batchsim-placed) canvas"


@pytest.mark.alone  # it takes long
@pytest.mark.parametrize("kind", ["lab", "notebook"])
def test_a_stored_picture_is_shown_while_its_widget_is_not_there(kind, request, opened, browser):
    server = request.getfixturevalue(kind)
    with opened(server, PANEL, *CELLS, alone=True) as panel:
        for live in LIVE:
            panel.page.wait_for_selector(live)
        assert panel.page.locator(STORED).count() == len(LIVE)
        assert panel.page.locator(f"{STORED}:visible").count() == 0
        panel.page.evaluate("jupyterapp.commands.execute('docmanager:save')")
        (path,) = (each for each in server.folder.glob("panel-*.ipynb") if each.stem in panel.page.url)
        saved = path.read_text()
    stored = [each for cell in json.loads(saved)["cells"] for each in cell["outputs"]]
    assert sum("widget-view" in json.dumps(each) for each in stored) == len(LIVE)
    (server.folder / "again.ipynb").write_text(saved)
    page = patient(browser.new_page(viewport={"width": 1280, "height": 3000}))
    answers = of_the_kernel(page)
    page.goto(server.address("again.ipynb"), wait_until="commit")
    page.locator(f"{STORED}:visible").nth(len(LIVE) - 1).wait_for()
    while READY not in answers:
        page.wait_for_timeout(50)
    page.locator(GONE).nth(len(LIVE) - 1).wait_for(state="attached")
    assert page.locator(f"{STORED}:visible").count() == len(LIVE)
    assert page.locator(f"{GONE} >> visible=true").count() == 0
    page.context.close()
