"""Other machines reach the app only on request and with a token; pages load only the server's files."""

import asyncio
import http.client
import logging
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browser.panel import eventually
from browser.servers import ROOT, TOKEN, own_address, running
from traitlets.config.loader import PyFileConfigLoader

from batchsim.web.app import access
from batchsim.web.app.sessions import Sessions

SETTINGS = PyFileConfigLoader(str(ROOT / "notebooks" / ".voila" / "voila.py")).load_config()
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="no make")
LONG = "tulips-and-snowdrops"
KERNEL = "/api/kernels/00000000-0000-0000-0000-000000000000"
SOCKET = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


@pytest.mark.parametrize("host", ["", "127.0.0.1", "127.0.0.2", "localhost", "::1"])
def test_this_machine_needs_no_token_of_ones_own(host):
    assert access.listening(host, "") == (host or "127.0.0.1", None)
    assert access.listening(host, "short") == (host or "127.0.0.1", "short")


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "192.168.1.7", "lab.example.org", "127.0.0.1.example.org", "localhost.example.org"],
)
def test_other_machines_need_a_token_that_nobody_guesses(host):
    assert access.listening(host, LONG) == (host, LONG)
    for token in ("", "short", LONG[:15], "a" * 99, "abcdefg" * 9):
        with pytest.raises(ValueError, match=f"TOKEN must have at least 16 letters.*got {len(token)}"):
            access.listening(host, token)


@pytest.mark.parametrize(
    "token", ["tulips and snowdrops", "tulips&snowdrops=1", "tulips/../snowdrops", "tülips-snowdrops"]
)
def test_a_token_is_a_part_of_an_address(token):
    with pytest.raises(ValueError, match="TOKEN must consist of letters, digits"):
        access.listening("0.0.0.0", token)


def test_the_number_of_pages_is_a_number():
    assert access.pages("30") == 30
    for text in ("", "0", "1001", "x", "-1", "3.5", "٣"):
        with pytest.raises(ValueError, match="PAGES must be a whole number from 1 to 1,000, got"):
            access.pages(text)


def test_a_teacher_is_told_the_address_the_memory_and_that_nothing_is_encrypted():
    lines = access.instructions("192.168.1.7", 9000, LONG, 30).splitlines()
    assert lines[0].endswith(f" http://192.168.1.7:9000/?token={LONG}")
    assert "30 pages" in lines[1]
    assert f"{30 * access.MB_A_PAGE / 1000:.1f} GB" in lines[1]
    assert "without encryption" in lines[2]
    alone = access.instructions("127.0.0.1", 9000, "tulip", 30).splitlines()
    assert alone[0] == "The class opens http://127.0.0.1:9000/?token=tulip"
    assert "this computer alone" in alone[2]
    assert "//0.0.0.0" not in access.instructions("0.0.0.0", 9000, LONG, 30)


def make_app(binaries, *asked, **environment):
    command = ["make", "app", "-s", "-o", ".venv/.installed-app", "-C", str(ROOT), f"BIN={binaries}", *asked]
    others = {name: value for name, value in os.environ.items() if name not in ("HOST", "TOKEN")}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=others | environment)


@needs_make
def test_make_app_for_other_machines_without_a_token_is_refused_and_nothing_listens():
    done = make_app(Path(sys.executable).parent, "HOST=0.0.0.0")
    assert done.returncode == 2
    assert "make app: TOKEN must have at least 16 letters" in done.stderr
    assert "running at" not in done.stderr


@needs_make
def test_a_host_is_asked_for_on_the_line_alone_since_shells_have_one_of_their_own(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho $BATCHSIM_HOST $BATCHSIM_TOKEN\n")
    python.chmod(0o755)
    assert make_app(tmp_path, HOST="0.0.0.0", TOKEN=LONG).stdout.split() == [LONG]
    assert make_app(tmp_path, "HOST=0.0.0.0", TOKEN=LONG).stdout.split() == ["0.0.0.0", LONG]
    assert make_app(tmp_path, "HOST=::", f"TOKEN={LONG}").stdout.split() == ["::", LONG]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The app as `make app HOST=0.0.0.0` runs it."""
    with running("app", tmp_path_factory.mktemp("app"), host="0.0.0.0") as server:
        yield server


@pytest.fixture(scope="module")
def everywhere(server):
    """An address by which other machines know this one."""
    return server.url.replace("127.0.0.1", own_address() or "127.0.0.1")


def status(url, path, **headers):
    asked = http.client.HTTPConnection(urlsplit(url).netloc, timeout=300)
    try:
        asked.request("GET", path, headers=headers)
        return asked.getresponse().status
    finally:
        asked.close()


def test_nobody_comes_in_without_the_token(everywhere):
    for path in ("/", "/login", "/?token=", f"/?token={TOKEN[:-1]}", KERNEL, "/voila/api/shutdown/x"):
        assert status(everywhere, path) == 403, path
    assert status(everywhere, f"{KERNEL}/channels", **SOCKET) == 403
    assert status(everywhere, "/", Authorization="token wrong") == 403


def test_the_token_opens_the_door_for_requests_and_sockets(everywhere):
    for path in (KERNEL, f"{KERNEL}/channels"):  # there is no such kernel, which is not said to strangers
        headers = SOCKET if path.endswith("channels") else {}
        assert status(everywhere, f"{path}?token={TOKEN}", **headers) == 404
        assert status(everywhere, path, Authorization=f"token {TOKEN}", **headers) == 404


def test_no_file_of_the_folder_is_served(everywhere):
    for path in ("docs/explorer.webp", "README.md", "notebooks/app.ipynb", "x.png"):
        assert status(everywhere, f"/voila/files/{path}?token={TOKEN}") == 403


def test_the_log_holds_no_token_of_an_address(everywhere, server):
    assert status(everywhere, f"/voila/files/x.png?token={TOKEN}") == 403  # which is logged, as a full app is
    log = (server.folder.parent / "log").read_text()
    assert "/voila/files/x.png?token=..." in log
    assert TOKEN not in log.partition("Serving static files")[2]  # before that, a teacher reads the address


def test_a_page_that_is_left_before_it_has_come_leaves_no_kernel(everywhere, server):
    place = urlsplit(everywhere)
    with socket.create_connection((place.hostname, place.port)) as asked:
        asked.sendall(f"GET /?token={TOKEN} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
        asked.recv(1)  # the page has begun: it has a kernel
    log = server.folder.parent / "log"
    assert eventually(lambda: "[Voila] Kernel shutdown" in log.read_text())


@pytest.mark.parametrize("method", ["GET", "POST", "FOO"])
@pytest.mark.parametrize(
    "path", ["/%00", "/%ff", "/voila/templates/%00", "/voila/templates/x/%00", "/class/%ff"]
)
def test_no_path_and_no_method_writes_a_traceback_to_the_log(server, method, path):
    place, log = urlsplit(server.url), server.folder.parent / "log"
    for query in ("", f"?token={TOKEN}"):
        with socket.create_connection((place.hostname, place.port)) as asked:
            request = f"{method} {path}{query} HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n\r\n"
            asked.sendall(request.encode())
            assert asked.recv(12) > b"HTTP/1.1 4"
    assert "Traceback" not in log.read_text()


def failing(origin):
    """An error of a module of a name."""
    exec("def fail(): raise KeyError('no part')", names := {"__name__": origin})
    try:
        names["fail"]()
    except KeyError:
        return sys.exc_info()


def test_the_log_keeps_tracebacks_of_this_package_alone():
    template = "/home/a/batchsim/notebooks/.voila/index.html.j2"
    for origin, kept in (("batchsim.web.app.classroom", True), ("tornado.web", False), (template, False)):
        record = logging.LogRecord("x", 40, "", 1, "GET /\x1b[2J%s", ("?token=a",), failing(origin))
        access.HideTokens().filter(record)
        assert bool(record.exc_info) == kept
        assert record.getMessage() == "GET /[2J?token=..." + ("" if kept else ": KeyError: 'no part'")


def test_an_error_that_nobody_waits_for_as_the_page_was_left_is_one_line(caplog):
    async def leave():
        asyncio.get_running_loop().call_exception_handler(
            {"message": "Task exception was never retrieved", "exception": failing("voila.handler")[1]}
        )

    asyncio.run(leave())  # with the log that the app's SETTINGS prepare
    (record,) = caplog.records
    assert record.exc_info is None
    assert record.getMessage() == "Task exception was never retrieved: KeyError: 'no part'"


def test_who_is_refused_reads_why(everywhere):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(everywhere)
    with refused.value as answer:
        page = answer.read().decode()
        assert "needs its token" in page
        assert TOKEN not in page
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]


def test_a_page_may_run_scripts_of_files_alone():
    sent = SETTINGS.Voila.tornado_settings["headers"]["Content-Security-Policy"]
    allowed = dict(part.split(" ", 1) for part in sent.split("; "))
    assert allowed["script-src"] == "'self' 'unsafe-eval' blob:"
    assert allowed["default-src"] == "'self'"
    assert allowed["base-uri"] == allowed["object-src"] == "'none'"
    assert "http" not in sent


def test_the_theme_and_the_template_are_not_the_address_s_to_say():
    assert SETTINGS.VoilaConfiguration.allow_template_override == "NO"
    assert SETTINGS.VoilaConfiguration.allow_theme_override == "NOTEBOOK"
    assert SETTINGS.VoilaConfiguration.prelaunch_hook is access.prepare
    assert [access.theme_of(text) for text in ("dark", "light", "", "Dark", '"><script>')] == [
        "dark", "light", "light", "light", "light",
    ]  # fmt: skip


def test_kernels_of_lost_pages_end_and_slow_pages_have_time():
    assert SETTINGS.VoilaConfiguration.multi_kernel_manager_class == f"{Sessions.__module__}.Sessions"
    assert 300 <= SETTINGS.MappingKernelManager.cull_idle_timeout <= 900  # s
    assert "cull_connected" not in SETTINGS.MappingKernelManager
    assert SETTINGS.VoilaExecutor.iopub_timeout >= 60
    assert SETTINGS.Sessions.max_sessions > 30
