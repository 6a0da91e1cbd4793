"""The page's engine in a worker of a real browser: bit for bit as `simulate`, and how long runs take."""

import base64
import json

import pytest
import web_module
from web_settings import assert_batches_equal, print_times, random_cases, slow_calls, traced

from browser.conftest import patient

IN_WORKER = """
self.onmessage = async ({ data: { module, jobs } }) => {
  const { descriptions, calls } = read(jobs);
  const bytes = Uint8Array.from(atob(module), (letter) => letter.charCodeAt(0));
  const engine = await Engine.load(bytes, descriptions);
  self.postMessage(calls.map((call) => answered(engine, call)));
};
"""
IN_PAGE = """([source, module, jobs]) => new Promise((resolve, reject) => {
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const worker = new Worker(url);
  worker.onmessage = ({ data }) => resolve(data);
  worker.onerror = (event) => reject(new Error(event.message));
  worker.postMessage({ module, jobs });
})"""


@pytest.fixture
def in_worker(browser, tmp_path):
    """Run calls of the engine in a worker of a page from disk; return what each returned."""
    module = base64.b64encode(web_module.module().read_bytes()).decode()
    # A page from disk may start a worker from text, but not as a module.
    scripts = ((web_module.SCRIPTS / "engine.js").read_text(), web_module.CALLS.read_text(), IN_WORKER)
    source = "".join(scripts).replace("\nexport ", "\n")
    (tmp_path / "empty.html").touch()
    page = patient(browser.new_page())
    page.goto((tmp_path / "empty.html").as_uri())

    def in_worker(*calls):
        told = page.evaluate(IN_PAGE, [source, module, web_module.written(calls)])
        return [web_module.unpacked(json.loads(text)) for text in told]

    yield in_worker
    page.close()


@pytest.mark.dear("the page's module is built")
def test_every_batch_is_that_of_simulate_to_the_bit(in_worker):
    cases, calls = random_cases()
    for case, run in zip(cases, in_worker(*calls), strict=True):
        assert_batches_equal(run, traced(case, run))


@pytest.mark.alone
def test_how_long_runs_take(in_worker, capsys):
    took_ms = in_worker(*slow_calls().values())
    with capsys.disabled():
        print_times(took_ms, "worker in Chromium")
