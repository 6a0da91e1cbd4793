"""The site of `make lite`: built for a test, served to one page, and what its notebooks show."""

import functools
import http.server
import json
import re
import subprocess
import threading
from contextlib import contextmanager

from browser.servers import ROOT

TOOLS, PYODIDE = ROOT / ".venv-lite" / "bin" / "python", ROOT / ".venv" / "pyodide"
IDLE = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
RUN_ALL = """() => {
    window.ran = false;
    jupyterapp.commands.execute('notebook:run-all-cells').then(() => { window.ran = true; });
}"""
CELLS = """() => [...jupyterapp.shell.currentWidget.content.model.cells].map((cell) => ({
    source: cell.sharedModel.source, outputs: cell.type === 'code' ? cell.outputs.toJSON() : [],
}))"""
ANSWER = """async (code) => {
    const { kernel } = jupyterapp.shell.currentWidget.sessionContext.session;
    const said = [], future = kernel.requestExecute({ code });
    future.onIOPub = ({ content }) => said.push(content.text ?? content.evalue ?? '');
    await future.done;
    return said.join('');
}"""


def missing():
    """Return why the site cannot be built here; "" if it can."""
    if not TOOLS.exists():
        return "no JupyterLite: `make .venv-lite/.installed-lite VENV=.venv-lite` installs it"
    if not (PYODIDE / "pyodide-lock.json").exists():
        return "no files of Pyodide: `python tools/pyodide.py .venv/pyodide` downloads them"
    return ""


def built(folder, *runs):
    """Build the site in a folder; a test can ask it for its application."""
    command = [TOOLS, ROOT / "docs" / "lite" / "build.py", folder, PYODIDE, *runs]
    subprocess.run([*map(str, command)], check=True, cwd=ROOT)
    settings = folder / "jupyter-lite.json"
    page = json.loads(settings.read_text())
    page["jupyter-config-data"]["exposeAppInBrowser"] = True
    settings.write_text(json.dumps(page))
    return folder


@contextmanager
def served(folder):
    """Serve a folder as any web server does; yield its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def open_notebook(page, address, name):
    """Open a notebook, and wait for its kernel."""
    page.goto(f"{address}lab/index.html?path=notebooks/{name}.ipynb")
    page.wait_for_function(IDLE)


def run_all(page):
    """Run all cells; return them by their source."""
    page.evaluate(RUN_ALL)
    page.wait_for_function("window.ran")
    return {cell["source"]: cell["outputs"] for cell in page.evaluate(CELLS)}


def shown(outputs):
    """Return what nbval compares: the texts of outputs, without pictures' bytes."""
    texts = []
    for output in outputs:
        kind, data = output["output_type"], output.get("data", {})
        text = output.get("text", data.get("text/plain", output.get("evalue", "")))
        text = text if isinstance(text, str) else "".join(text)
        if texts and kind == "stream" == texts[-1][0]:
            text = texts.pop()[1] + text
        texts.append((kind, re.sub(r" at 0x\w+", "", text)))
    return texts
