"""A film on a slide plays by itself: without a kernel, a server or a network."""

import sys

import pytest

import batchsim as bs
from browser.servers import ROOT

SCENARIO = bs.Scenario(bs.Poisson(800), bs.SizeOrWait(4, 2), bs.Affine(1, 1))
ROUTED = SCENARIO.replace(replicas=4, rate_per_s=2000)
FILM = "document.querySelector('.batchsim-player').film"


@pytest.mark.parametrize("made", [SCENARIO, ROUTED], ids=["server", "replicas"])
def test_the_film_of_a_slide_plays_within_its_frame(browser, tmp_path, monkeypatch, made):
    monkeypatch.syspath_prepend(ROOT / "docs" / "book")
    import slides

    (tmp_path / "film.html").write_text(slides.film_page(bs.film(made, requests=60)))
    sys.modules.pop("slides")
    page, errors = browser.new_page(viewport={"width": 1230, "height": 600}), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "film.html").as_uri())
    page.wait_for_function(f"{FILM}?.film")
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    before, time_s = page.locator("canvas").screenshot(), page.evaluate(f"{FILM}.time_s")
    page.get_by_label("Play", exact=True).click()
    page.wait_for_function(f"time_s => {FILM}.time_s > time_s + 0.002", arg=time_s)
    assert page.locator("canvas").screenshot() != before
    assert errors == []
    page.close()
