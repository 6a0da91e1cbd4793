"""Copy link: what is copied opens the same state, in the app and in a notebook."""

import pytest

from browser.panel import PANEL, eventually

LINK = "mode=tokens&max_num_seqs=64&rate_per_s=3&seed=4&ttft_objective_ms=500"
STATE = "[panel.state.to_link(), panel.session.style.large]"
CLIPBOARD = """window.copied = "";
navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }"""


@pytest.mark.parametrize("kind", ["app", "lab"])
def test_what_copy_link_copies_opens_the_same_state(kind, request, opened):
    server = request.getfixturevalue(kind)
    cells, size = () if kind == "app" else (PANEL,), {"width": 1280, "height": 800}
    with opened(server, *cells, viewport=size) as panel:
        panel.kernel.run(f"panel.session.open_link({LINK!r}); panel.session.enlarge('map')")
        panel.page.evaluate(CLIPBOARD)
        panel.kernel.run("panel.share.buttons['Copy link'].click()")
        assert eventually(lambda: panel.page.evaluate("window.copied"))
        copied, state = panel.page.evaluate("window.copied"), panel.kernel.ask(STATE)
    if cells:
        with opened(server, copied.replace("bs.explore", "panel = bs.explore") + "\npanel") as panel:
            assert panel.kernel.ask(STATE) == state
    else:
        assert copied.startswith(server.url)
        with opened(server, query="&" + copied.partition("&")[2], viewport=size) as panel:
            assert panel.page.url == copied
            assert panel.kernel.ask(STATE) == state
    assert panel.noise.errors == []
