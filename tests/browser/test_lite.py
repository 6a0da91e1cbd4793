"""The course without an installation: JupyterLite and Pyodide in Chromium, with every other host blocked."""

import contextlib
import io
import json
import subprocess
import sys
import zipfile

import nbformat
import pytest

from browser import lite
from browser.conftest import FILL, cells_of, patient
from browser.panel import EXPLORER, HANDLE, KNOB, Noise, eventually
from browser.servers import ROOT

LESSONS = [path.stem for path in sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))]
ASKS = "bs.device.load_model('mlp')", "bs.teaching.join('http://class:8888/')"
# As a browser's database refuses what its quota has no room for.
FULL = """const { put } = IDBObjectStore.prototype;
IDBObjectStore.prototype.put = function (...given) {
    if (window.full) throw new DOMException('full', 'QuotaExceededError');
    return put.apply(this, given);
};"""
PLACE = "import sys; print(sys.platform, 'pandas' in sys.modules)"
GOLDEN = """
golden = {"__name__": "golden"}
exec(source, golden)
golden |= {"REQUEST_RUNS": 140, "TOKEN_RUNS": 60}
found = {}
import json, warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for name, scenario, requests in golden["scenarios"]():
        for engine in "simpy", "compiled":
            try:
                run = golden["bs"].simulate(scenario, requests, seed=3, engine=engine)
                found[f"{name} {engine}"] = golden["columns_of"](run)
            except ValueError as error:
                found[f"{name} {engine}"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folder(request, browser, tmp_path_factory):
    """The site's folder; in `make test` with the loops of requests alone, which build in seconds."""
    if why := lite.missing():
        pytest.skip(why)
    runs = ["requests"] if "not alone" in request.config.option.markexpr else []
    return lite.built(tmp_path_factory.mktemp("lite") / "site", *runs)


@pytest.fixture(scope="module")
def site(folder):
    with lite.served(folder) as address:
        yield address


@pytest.fixture
def page(request, browser, site):
    options = getattr(request, "param", {})
    context = patient(browser.new_context(viewport={"width": 1280, "height": 800}, **options))
    context.add_init_script("try { localStorage.setItem('batchsim-opening', 1); } catch {}")
    context.route(lambda url: not url.startswith((site, "data:", "blob:")), lambda route: route.abort())
    page = context.new_page()
    page.noise = Noise()
    page.noise.listen(page)
    yield page
    elsewhere = page.noise.elsewhere
    context.close()
    assert not elsewhere


@pytest.mark.parametrize(
    ("version", "held"),
    [("{}.{}".format(*sys.version_info), ["tool.pyc"]), ("3.0", ["tool.py"])],
    ids=["of_this_python", "of_another"],
)
def test_an_archive_is_packed_with_bytecode_of_one_version_and_without_the_unused(tmp_path, version, held):
    archive = tmp_path / "tool-1-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as wheel:
        for name in "tool.py", "tool.pyi", "numpy/_core/include/numpy.h":
            wheel.writestr(name, "print(6 * 7, __file__)" if name == "tool.py" else "")
    subprocess.run([sys.executable, ROOT / "docs" / "lite" / "pack.py", version, archive], check=True)
    assert [each.name for each in tmp_path.iterdir()] == [archive.name]
    assert zipfile.ZipFile(archive).namelist() == held
    code = f"import sys; sys.path[:] = [{str(archive)!r}, *sys.path]; import tool"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.split() == ["42", f"{archive / held[0]}"]


def test_an_archive_loses_what_no_lesson_reads_and_stays_importable(tmp_path):
    archive = tmp_path / "tool-1-py3-none-any.whl"
    said = '"""Words."""\nprint(__doc__)'
    sources = {
        "scipy/__init__.py": said, "scipy/stats/__init__.py": "", "scipy/optimize/late.py": "",
        "scipy/linalg/__init__.py": "", "scipy/linalg/_sketches.py": "from scipy.sparse import csc_matrix\n",
        "numpy/__init__.py": said, "numpy/f2py/__init__.py": "",
    }  # fmt: skip
    with zipfile.ZipFile(archive, "w") as wheel:
        for name, source in sources.items():
            wheel.writestr(name, source)
    version = "{}.{}".format(*sys.version_info)
    pack = sys.executable, ROOT / "docs" / "lite" / "pack.py", version, archive
    subprocess.run(pack, check=True)
    held = (
        "scipy/__init__.pyc",
        "scipy/linalg/__init__.pyc",
        "scipy/linalg/_sketches.pyc",
        "numpy/__init__.pyc",
    )
    assert {*zipfile.ZipFile(archive).namelist()} == {*held, "scipy/optimize/late.py"}
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); import numpy, scipy.linalg._sketches"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["Words.", "None"]
    with zipfile.ZipFile(archive, "w") as wheel:
        wheel.writestr("scipy/linalg/_sketches.py", "")
    refused = subprocess.run(pack, capture_output=True, text=True)
    assert "scipy/linalg/_sketches.py must have b'from scipy.sparse import" in refused.stderr


def test_the_site_has_at_most_60_megabytes_and_pictures_where_no_run_draws_them(folder):
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= 60e6
    for path in folder.glob("files/notebooks/**/*.ipynb"):
        cells = nbformat.read(path, 4).cells
        outputs = [each.get("data", {}) for cell in cells for each in cell.get("outputs", ())]
        assert any("text/plain" in data for data in outputs), path.name
        pictures = any("image/png" in data for data in outputs)
        assert pictures <= (path.parent.name != "solutions"), path.name
        assert pictures or path.parent.name == "solutions" or not path.name.startswith("08")


def wrong(outputs):
    return [each["evalue"] for each in outputs if each["output_type"] == "error"]


@pytest.mark.dear("a browser's Python starts, and draws the explorer")
def test_the_explorer_comes_by_itself_and_a_slider_redraws_it(page, site):
    page.goto(site)
    page.wait_for_selector(f"{EXPLORER}[data-frame]")
    before = page.locator(EXPLORER).get_attribute("src")
    handle = page.locator(KNOB.format(name="max_wait_ms")).locator(HANDLE)
    handle.focus()
    page.keyboard.press("ArrowRight")
    assert eventually(lambda: page.locator(EXPLORER).get_attribute("src") != before)
    page.wait_for_function(lite.IDLE)
    assert page.evaluate(lite.ANSWER, PLACE) == "emscripten False\n"


@pytest.mark.alone
@pytest.mark.parametrize("name", [name for name in LESSONS if not name.startswith("08")])  # it measures
def test_each_cell_of_a_lesson_says_what_it_says_on_a_computer(page, site, name):
    lite.open_notebook(page, site, f"solutions/{name}")
    found = lite.run_all(page)
    for cell in nbformat.read(ROOT / "notebooks" / "solutions" / f"{name}.ipynb", 4).cells:
        if cell.cell_type == "code" and "nbval-ignore-output" not in cell.metadata.get("tags", []):
            assert lite.shown(found[cell.source]) == lite.shown(cell.outputs), cell.source
        elif cell.cell_type == "code":
            assert not wrong(found[cell.source]), cell.source


def filled(page, site, *cells):
    """Open a notebook with these cells alone, and run them."""
    lite.open_notebook(page, site, "00-explorer")
    page.evaluate(FILL, cells_of(cells))
    return lite.run_all(page)


@pytest.mark.alone
def test_the_film_plays_and_a_click_on_the_map_moves_the_sliders(page, site):
    filled(page, site, "import batchsim as bs\npanel = bs.explore(play=True)\npanel")
    canvas = page.wait_for_selector(".batchsim-player canvas")
    first = canvas.get_attribute("aria-label")
    page.click(".batchsim-player button")
    assert eventually(lambda: canvas.get_attribute("aria-label") != first)
    say = "print(panel.state.max_wait_ms, panel.state.max_batch_size)"
    before = page.evaluate(lite.ANSWER, say)
    page.evaluate(lite.ANSWER, "panel.large.value = 'map'")
    page.wait_for_selector(f"{EXPLORER}[data-frame]")
    box = page.locator(EXPLORER).bounding_box()
    page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 0.5 * box["height"])
    assert eventually(lambda: page.evaluate(lite.ANSWER, say) != before)


@pytest.mark.alone
def test_an_answer_has_its_feedback_and_progress_stays_for_the_next_visit(page, site):
    asks = 'from batchsim.teaching import check\ncheck("05.1", 12)', 'check("05.1", 100 * (1 - 0.99**40))'
    found = filled(page, site, *asks)
    assert "Right" not in str(found[asks[0]])
    assert "Right" in str(found[asks[1]])
    page.reload()
    found = filled(page, site, "import batchsim as bs\nprint(bs.teaching.progress())")
    assert "1 solved (2 tries)" in str(*found.values())


@pytest.mark.alone
def test_a_saved_result_is_loaded_again(page, site):
    saving = (
        "import batchsim as bs\n"
        "run = bs.simulate(bs.Scenario(bs.Poisson(800), bs.SizeOrWait(32, 10), bs.Affine(5, 0.25)), 2000)\n"
        "run.save('run.zip'); print(run.percentile(99))"
    )
    (first,) = filled(page, site, saving).values()
    page.reload()
    (second,) = filled(
        page, site, "import batchsim as bs\nprint(bs.Result.load('run.zip').percentile(99))"
    ).values()
    assert lite.shown(first) == lite.shown(second) != []


@pytest.mark.alone
def test_a_browser_says_what_it_lacks(page, site):
    found = filled(
        page,
        site,
        *(
            f"import batchsim as bs\ntry:\n    {ask}\nexcept Exception as error:\n    print(error)"
            for ask in ASKS
        ),
    )
    assert [lite.shown(outputs)[0][1].strip() for outputs in found.values()] == [
        "jax needs a computer with batchsim, got a browser: pip install 'batchsim[device]'",
        "joining a class needs a computer with batchsim, "
        "got a browser: docs/install.md says how to install it",
    ]


@pytest.mark.alone
def test_runs_are_the_same_to_the_bit(page, site):
    code = f"source = {(ROOT / 'tools' / 'golden.py').read_text()!r}\n{GOLDEN}"
    lite.open_notebook(page, site, "00-explorer")
    found = json.loads(page.evaluate(lite.ANSWER, code))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(code, {})
    assert found == json.loads(said.getvalue())
    assert len(found) > 300


@pytest.mark.alone
@pytest.mark.parametrize("page", [{"service_workers": "block"}], indirect=True)
def test_where_storage_is_forbidden_an_exercise_runs_and_says_that_it_is_not_kept(page, site):
    asks = (
        'from batchsim.teaching import check, progress\ncheck("05.1", 100 * (1 - 0.99**40))',
        "print(progress())",
    )
    answer, kept = filled(page, site, *asks).values()
    assert "Right" in str(answer)
    assert "this browser stores no files" in str(kept)


@pytest.mark.alone
def test_where_storage_is_full_an_exercise_runs_and_the_page_says_that_it_is_not_kept(page, site):
    page.add_init_script(FULL)
    lite.open_notebook(page, site, "00-explorer")
    page.evaluate("window.full = true")
    asks = (
        'from batchsim.teaching import check, progress\ncheck("05.1", 100 * (1 - 0.99**40))',
        "print(progress())",
    )
    page.evaluate(FILL, cells_of(asks))
    answer, kept = lite.run_all(page).values()
    assert "Right" in str(answer)
    assert "1 solved (1 try)" in str(kept)
    assert "files and progress are not kept" in page.locator(".Toastify").inner_text()
