"""The app's pages: a kernel each that ends with its page, in bounded number, and no script from a link."""

import http.client
from dataclasses import replace
from urllib.parse import quote, urlsplit

import psutil
import pytest

from batchsim.web.app.sessions import PROTOCOL
from browser.conftest import patient, session_of
from browser.panel import eventually
from browser.servers import TOKEN, own_address, running

PLACES = 2
HIT = "window.hit = 1"
# Twenty ways to have text run as a script.
INJECTIONS = (
    f"<script>{HIT}</script>",
    f'"><script>{HIT}</script>',
    f"'><script>{HIT}</script>",
    f"</script><script>{HIT}</script>",
    f"--><script>{HIT}</script>",
    f"</title></style></textarea><script>{HIT}</script>",
    f"<ScRiPt>{HIT}</sCrIpT>",
    f'<script type="module">{HIT}</script>',
    f'<script src="data:text/javascript,{HIT}"></script>',
    f'<script src="blob:text/javascript,{HIT}"></script>',
    f'<img src=x onerror="{HIT}">',
    f'"><img src=x onerror="{HIT}">',
    f'<svg onload="{HIT}">',
    f"<svg><script>{HIT}</script></svg>",
    f'<body onload="{HIT}">',
    f'" onmouseover="{HIT}" autofocus onfocus="{HIT}" x="',
    f'<details open ontoggle="{HIT}">',
    f'<iframe srcdoc="<script>parent.{HIT}</script>"></iframe>',
    f'<iframe src="javascript:parent.{HIT}"></iframe>',
    f'<meta http-equiv="refresh" content="0;url=javascript:{HIT}">',
)
# As the picture's page shows what a link says: its names, its values, and what is wrong with them.
SHOW = """
from urllib.parse import quote
said = quote(text)
for link in (f"curve_of={said}&service=curve&curve=1:2,8:3", f"{said}=1", f"workload={said}"):
    try:
        panel.move_to(State.from_link(link))
    except ValueError as error:
        panel.say(str(error), alert=True)
"""
# What no text may become; the page's own code has neither.
ELEMENTS = ".batchsim :is(script, iframe, [onerror], [onload], [ontoggle], [onfocus])"
INSERT = """(text) => {
    const place = document.body.appendChild(document.createElement("div"));
    place.innerHTML = text;
    for (const script of place.querySelectorAll("script")) {  // which HTML that is set would not run
        const copy = document.createElement("script");
        for (const { name, value } of script.attributes) copy.setAttribute(name, value);
        copy.textContent = script.textContent;
        script.replaceWith(copy);
    }
}"""


def kernels(server):
    return {child.pid for child in psutil.Process(server.pid).children()}


def refused(page, server):
    return page.goto(server.address()).status == 503


def test_a_full_app_says_so_until_a_page_is_closed_and_other_machines_need_the_token(
    opened, browser, tmp_path
):
    address, option = own_address(), f"--Sessions.max_sessions={PLACES}"
    with running("app", tmp_path / "app", option, host="0.0.0.0" if address else "") as server:
        elsewhere = replace(server, url=server.url.replace("127.0.0.1", address or "127.0.0.1"))
        stranger, third = (patient(browser.new_page()) for _ in range(2))
        if address:
            assert stranger.goto(elsewhere.url).status == 403
            assert "needs its token" in stranger.inner_text("body")
        stranger.close()
        with opened(elsewhere, alone=True) as first, opened(server, alone=True):
            first.move_ms("max_wait_ms", "ArrowRight")
            assert first.noise.errors == []
            if address:
                socket = f"/api/kernels/{session_of(first.page)}/channels"
                assert upgraded(elsewhere, socket) == 403, "who knows a session's name is not in it"
                assert upgraded(elsewhere, f"{socket}?token=not-{TOKEN}") == 403
                assert upgraded(elsewhere, f"{socket}?token={TOKEN}") == 101
            assert eventually(lambda: len(kernels(server)) == PLACES)
            its_kernel = first.kernel.ask("__import__('os').getpid()")
            assert refused(third, server)
            assert f"{PLACES} pages are open" in third.inner_text("body")
            assert len(kernels(server)) == PLACES
            first.page.close(run_before_unload=True)
            assert eventually(lambda: its_kernel not in kernels(server))
            assert eventually(lambda: not refused(third, server))
            third.close()


def test_no_link_and_no_text_of_a_page_runs_a_script(app, opened):
    query = f"&theme={quote(INJECTIONS[1])}&template={quote(INJECTIONS[1])}&{quote(INJECTIONS[0])}=1"
    with opened(app, query=query) as panel:
        assert panel.page.get_attribute("body", "data-jp-theme-name") == "JupyterLab Light"
        panel.kernel.run("from batchsim.view.explorer.state import State")
        for text in INJECTIONS:
            panel.kernel.run(f"text = {text!r}\n{SHOW}")
        panel.quiet()
        assert panel.page.locator(ELEMENTS).count() == 0
        assert not panel.page.evaluate("window.hit")
        # And if one did get through:
        for text in INJECTIONS:
            panel.page.evaluate(INSERT, text)
        panel.quiet(300)
        assert not panel.page.evaluate("window.hit")


def upgraded(server, path):
    """Return the status of the answer to who asks for a socket, without a browser's cookies."""
    asked = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=120)
    key = {
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": PROTOCOL,
    }  # fmt: skip
    try:
        asked.request("GET", path, headers={"Connection": "Upgrade", "Upgrade": "websocket", **key})
        return asked.getresponse().status
    finally:
        asked.close()


@pytest.mark.dear("axe checks each element of a page")
@pytest.mark.parametrize(("query", "theme"), [("", "light"), ("&theme=dark", "dark")])
def test_a_link_chooses_the_theme_and_axe_finds_nothing_serious_in_the_page(app, opened, query, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    # The address comes before the browser's preference.
    with opened(app, query=query, color_scheme="light") as panel:
        assert panel.page.get_attribute("body", "data-jp-theme-name") == f"JupyterLab {theme.title()}"
        assert eventually(lambda: panel.kernel.ask("panel.session.style.theme") == theme)
        found = axe.run(panel.page).response["violations"]
    grave = [each for each in found if each["impact"] in ("serious", "critical")]
    assert [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in grave] == []
