"""Build the course for a browser alone: python docs/lite/build.py dist/lite [FOLDER OR ADDRESS OF PYODIDE].

JupyterLite shows notebooks without a server, and Pyodide is Python as WebAssembly. The site holds all that
it loads: JupyterLite, the part of Pyodide's release that batchsim imports, batchsim itself, and the course.
So it needs a web server for files, and no other host.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import nbformat

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from batchsim.web import course_files, wasm  # noqa: E402

PYODIDE = "https://cdn.jsdelivr.net/pyodide/v0.27.7/full/"
CORE = ("pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip")
# What the kernel and batchsim import: of Pyodide, of JupyterLite's kernel, and what also runs as pure Python.
COMPILED = ("ipython", "matplotlib", "micropip", "numpy", "pandas", "pillow", "scipy", "sqlite3", "ssl")
KERNEL = ("ipykernel", "piplite", "pyodide-kernel")
EXTENSION = Path(sys.prefix, "share/jupyter/labextensions/@jupyterlite/pyodide-kernel-extension")
PURE = ("anywidget", "comm", "ipywidgets", "jupyterlab-widgets", "protobuf", "psygnal", "pyyaml", "simpy",
        "tomlkit", "tqdm", "typing-extensions")  # fmt: skip
STARTUP = "batchsim_startup.py"  # beside the package
FIRST = "notebooks/00-explorer.ipynb"
STORED = "08-does-it-tell-the-truth.ipynb"  # it measures with JAX and threads
WHY_STORED = """\
> **This page shows the results of a run on a computer.** A browser has neither JAX nor threads, so it cannot
> measure a model. To measure yours, [install batchsim](https://batchsim.readthedocs.io/en/latest/install.html).
"""
# JupyterLab's scripts for diagrams, terminals and other languages, which no lesson has, by what they contain.
UNUSED = (
    "--mermaid-", "CanvasRenderer:()", "GlyphRenderer", "cppLanguage", "cytoscape", "dagre", "javaLanguage",
    "mermaidDoc", "org.eclipse.elk", "phpLanguage", "rustLanguage", "vega-lite",
)  # fmt: skip
SPEC = {"name": "python", "display_name": "Python (Pyodide)", "language": "python"}


def main(site: Path, pyodide: str = "", *runs: str) -> None:
    """Write the site; loops that these runs do not need (`batchsim.web.loops`) are plain Python in it."""
    with TemporaryDirectory() as folder:
        lite = Path(folder)
        course(lite / "files")
        packages = runtime(lite / "static" / "pyodide", as_address(pyodide or PYODIDE), runs)
        shutil.copy(ROOT / "notebooks" / ".lab" / "overrides.json", lite)
        settings = {"pyodideUrl": "./static/pyodide/pyodide.js", "disablePyPIFallback": True}
        settings["loadPyodideOptions"] = {
            "packages": packages,
            "env": {"PYTHONSTARTUP": f"/lib/python3.12/site-packages/{STARTUP}"},
        }
        plugins = {"@jupyterlite/pyodide-kernel-extension:kernel": settings}
        page = {"jupyter-lite-schema-version": 0, "jupyter-config-data": {"litePluginSettings": plugins}}
        (lite / "jupyter-lite.json").write_text(json.dumps(page), "utf-8")
        shutil.rmtree(site, ignore_errors=True)
        options = f"--output-dir={site}", "--apps=lab", "--no-unused-shared-packages", "--no-sourcemaps"
        run("jupyterlite_core.app", "build", *options, cwd=lite)
    for path in site.glob("build/*"):
        is_font = path.match("fa-*") and path.suffix != ".woff2"  # which every browser with WebAssembly reads
        if is_font or (path.match("[0-9]*.js") and any(each in path.read_text("utf-8") for each in UNUSED)):
            path.unlink()
    shutil.copy(site / "static" / "favicons" / "favicon.ico", site / "lab")  # a tenth of the other
    add_first_cell(site)


def run(module: str, *words: object, **options: object) -> None:
    """Run a module of this environment; what it prints is for its own developers."""
    subprocess.run(
        [sys.executable, "-m", module, *map(str, words)], check=True, stdout=subprocess.DEVNULL, **options
    )


def as_address(pyodide: str) -> str:
    """Return an address that ends with a slash, also of a folder."""
    address = pyodide if "://" in pyodide else Path(pyodide).resolve().as_uri()
    return address.rstrip("/") + "/"


def course(folder: Path) -> None:
    """Write what a student gets, for the kernel that there is; lesson 08 with its results.

    Solutions keep their texts: a run draws the pictures, and the lesson 08 itself has its own.
    """
    for name, path in course_files.files(ROOT):
        there = folder / name
        there.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".ipynb":
            shutil.copy(path, there)
            continue
        stored = path.name == STORED
        notebook = nbformat.read(ROOT / "notebooks" / "solutions" / STORED if stored else path, 4)
        notebook.metadata["kernelspec"] = SPEC
        if stored:
            notebook.cells.insert(1, nbformat.v4.new_markdown_cell(WHY_STORED))
        if path.parent.name == "solutions":
            for output in (each for cell in notebook.cells for each in cell.get("outputs", ())):
                output.get("data", {}).pop("image/png", None)
        # Texts are whole: unlike a server, JupyterLite does not join their lines.
        there.write_text(json.dumps(notebook), "utf-8")


def runtime(folder: Path, pyodide: str, runs: tuple[str, ...]) -> list[str]:
    """Write Pyodide with its packages and ours; return the names of those that a kernel loads at once."""
    folder.mkdir(parents=True)
    lock = json.loads(content(pyodide + "pyodide-lock.json"))
    for name in CORE:
        (folder / name).write_bytes(content(pyodide + name))
    released, kept = lock["packages"], {}
    released["ssl"]["depends"] = []  # what `pack` leaves of it needs no OpenSSL
    for name in needed(COMPILED, released):
        entry = kept[name] = released[name]
        (folder / entry["file_name"]).write_bytes(content(pyodide + entry["file_name"], entry["sha256"]))
    for path in wheels(folder, runs):
        name = path.name.split("-")[0].replace("_", "-")
        kept[name] = {
            "name": name, "version": path.name.split("-")[1], "file_name": path.name, "install_dir": "site",
            "package_type": "package", "depends": [], "imports": [name.replace("-", "_")],
            "unvendored_tests": False,
        }  # fmt: skip
    pack(lock["info"]["python"], *folder.glob("*.whl"), *folder.glob("*.zip"))
    for entry in kept.values():
        entry["sha256"] = hashlib.sha256((folder / entry["file_name"]).read_bytes()).hexdigest()
    lock["packages"] = kept
    (folder / "pyodide-lock.json").write_text(json.dumps(lock), "utf-8")
    return sorted({*COMPILED, *KERNEL, *PURE, "batchsim"})


def content(address: str, sha256: str = "") -> bytes:
    """Return a file's bytes; ValueError unless they have the checksum."""
    with urlopen(address) as file:
        found = file.read()
    if sha256 and (got := hashlib.sha256(found).hexdigest()) != sha256:
        raise ValueError(f"{address} must have the sha256 {sha256}, got {got}")
    return found


def needed(names: tuple[str, ...], packages: dict) -> list[str]:
    """Return packages and all on which they depend."""
    found = list(names)
    for name in found:
        asked = (each.replace("_", "-") for each in packages[name]["depends"])
        found += [each for each in asked if each not in found]
    return found


def pack(version: str, *archives: Path) -> None:
    """Pack archives by a Python of Pyodide's version, whose bytecode it reads; else by this one."""
    version = version.rpartition(".")[0]
    options = {"env": {"PYENV_VERSION": version, **os.environ}}  # by which pyenv finds it
    python = sys.executable if sys.version.startswith(f"{version}.") else f"python{version}"
    probe = [python, "-c", ""]
    if not shutil.which(python) or subprocess.run(probe, stderr=subprocess.DEVNULL, **options).returncode:
        print(f"No python{version}: a browser compiles Python's sources at each visit, some seconds.")
        python = sys.executable
    subprocess.run([python, HERE / "pack.py", version, *archives], check=True, **options)


def wheels(folder: Path, runs: tuple[str, ...]) -> list[Path]:
    """Write the wheels that are pure Python, in the versions of this environment; return their paths."""
    theirs = EXTENSION.glob("static/pypi/[!w]*.whl")  # the others stand for widgetsnbextension
    found = [Path(shutil.copy(path, folder)) for path in theirs]
    with TemporaryDirectory() as made:
        wasm.for_wheel(quietly=True)
        run("build", "--wheel", "--outdir", made, ROOT)
        (ours,) = Path(made).iterdir()
        run("batchsim.web.loops", made, *runs)
        found.append(folder / ours.name)
        for_a_browser(ours, found[-1])
    return [*found, *(packed(name, folder) for name in PURE)]


def packed(name: str, folder: Path) -> Path:
    """Write a wheel of an installed package without its compiled parts, which it can do without."""
    found = distribution(name)
    wheel = folder / f"{name.replace('-', '_')}-{found.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as new:
        for file in found.files or ():
            if file.suffix not in (".so", ".pyd", ".pyc") and file.parts[0] != "..":
                new.write(file.locate(), file.as_posix())
    return wheel


def for_a_browser(wheel: Path, copy: Path) -> None:
    """Copy batchsim's wheel with the compiled loops beside it, and without the course, which the site has."""
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as new:
        for each in old.infolist():
            if not each.filename.startswith(("batchsim/course/", "batchsim/web/batchsim.html")):
                new.writestr(each, old.read(each))
        for name in "loops.json", "loops.wasm":
            new.write(wheel.with_name(name), f"batchsim/web/{name}")
        new.write(HERE / "startup.py", STARTUP)


def add_first_cell(site: Path) -> None:
    """Open the explorer's notebook first, and run its first cell."""
    extension = site / "extensions" / "batchsim-first-cell"
    extension.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "first_cell.js", extension)
    path = site / "jupyter-lite.json"
    settings = json.loads(path.read_text("utf-8"))
    settings["jupyter-config-data"]["federated_extensions"].append(
        {"name": "batchsim-first-cell", "extension": "./extension", "load": "first_cell.js"}
    )
    path.write_text(json.dumps(settings), "utf-8")
    page = site / "index.html"  # the pages below read its settings
    redirect = "await import('./config-utils.js')"
    page.write_text(
        page.read_text("utf-8").replace(redirect, f"location.replace('lab/index.html?path={FIRST}')"), "utf-8"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), *sys.argv[2:])
