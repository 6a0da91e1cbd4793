"""Pack what a browser's Python loads: python3.12 docs/lite/pack.py 3.12 ARCHIVE...

Each archive loses what nothing in the course reads. It gains bytecode if this Python has the given version,
as a browser would compile the same sources at each visit. It keeps the sources of batchsim, and the one that
it changes of Pyodide, too: its licence, the MPL, wants that.
"""

import sys
import warnings
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from marshal import dumps
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

UNUSED = (
    "*.a", "*.c", "*.h", "*.pxd", "*.pyi", "*.pyx", "*/tests/*", "*/_test*.so", "*test.cpython*.so",
    "*/cython_special.*", "numpy/f2py/*",  # of developers
    "fontTools/*", "matplotlib/_ttconv.*",  # of PDF and PostScript files
    "PIL/_imagingft*", "matplotlib/_qhull.*", "matplotlib/_tri.*", "numpy/linalg/lapack_lite.*",
    "matplotlib/mpl-data/fonts/afm/*", "matplotlib/mpl-data/fonts/pdfcorefonts/*",  # a second of each visit
    "matplotlib/mpl-data/fonts/ttf/DejaVuSerif*", "matplotlib/mpl-data/sample_data/*", "matplotlib/testing/*",
    "matplotlib/mpl-data/fonts/ttf/DejaVuSansMono-*", "matplotlib/mpl-data/fonts/ttf/*-BoldOblique*",
    "matplotlib/backends/*tk*", "matplotlib/backends/*qt*", "matplotlib/backends/*wx*", "*_rational_tests.*",
    "matplotlib/mpl-data/fonts/ttf/STIX*", "anywidget/nbextension/*",
    "pygments/lexers/[!_p]*", "pygments/lexers/p[!y]*", "pytz/zoneinfo/*", "matplotlib/mpl-data/images/*",
    "_ssl.so", "ssl.py", "ftplib.py", "imaplib.py", "nntplib.py", "poplib.py", "smtplib.py", "telnetlib.py",
    "wsgiref/*", "xmlrpc/*",  # a page has connections of its browser alone
    "scipy/cluster/*", "scipy/datasets/*", "scipy/fftpack/*", "scipy/integrate/*", "scipy/interpolate/*",
    "scipy/io/*", "scipy/misc/*", "scipy/odr/*", "scipy/signal/*", "scipy/stats/*",
)  # fmt: skip
RARE = (  # what a lesson may import, and the explorer's first picture does without: a source is smaller
    "_py[di]*.py", "batchsim/cli/*", "batchsim/web/app/*", "doctest.py",
    "mailbox.py", "multiprocessing/*", "prompt_toolkit/*", "pygments/lexers/*",
    "scipy/[no]*/*", "scipy/spa*/*", "unittest/*",
)  # fmt: skip
WORDLESS = "matplotlib/*", "pandas/*", "scipy/*"  # without docstrings, a third of their bytecode
SITE, STDLIB = "/lib/python3.12/site-packages", "/lib/python312.zip"
LOADER = "pyodide/_package_loader.py"
# What these would load at each visit, the first picture does without: Python loads an extension module as it
# is imported, and SciPy's special functions came with its sparse matrices and with NumPy's tests.
CHANGES = {
    LOADER: (
        b"if tag in EXTENSION_TAGS:\n        return True",
        b"if tag in EXTENSION_TAGS:\n        return False",
    ),
    "scipy/_lib/array_api_compat/numpy/__init__.py": (
        b"from numpy import * # noqa: F403",
        b"import numpy\nglobals().update({it: vars(numpy)[it] for it in numpy.__all__ if it in vars(numpy)})",
    ),
    "scipy/linalg/_sketches.py": (
        b"from scipy.sparse import csc_matrix\n",
        b"def csc_matrix(*args, **options):\n    import scipy.sparse\n"
        b"    return scipy.sparse.csc_matrix(*args, **options)\n",
    ),
    "scipy/special/_orthogonal.py": (
        b"from scipy import linalg\n",
        b"class linalg:\n    def eigvals_banded(*args, **options):\n        import scipy.linalg\n"
        b"        return scipy.linalg.eigvals_banded(*args, **options)\n",
    ),
}
READ = ("batchsim*", LOADER)  # the startup file, too
UNCHECKED = MAGIC_NUMBER + (1).to_bytes(4, "little")  # bytecode that no source is compared with


def main(version: str, *archives: str) -> None:
    """Pack each archive in its place."""
    compiles = version == f"{sys.version_info[0]}.{sys.version_info[1]}"
    for path in map(Path, archives):
        old = path.rename(path.with_name(f"old-{path.name}"))
        with ZipFile(old) as source, ZipFile(path, "w", ZIP_DEFLATED, compresslevel=9) as packed:
            for name in source.namelist():
                for entry in entries(name, source.read(name), "stdlib" in path.name, compiles):
                    packed.writestr(*entry)
        old.unlink()


def entries(name: str, content: bytes, is_zipped: bool, compiles: bool) -> Iterator[tuple[str, bytes]]:
    """Yield what an archive has of a file, with names; one that stays zipped has no __pycache__."""
    if matches(name, UNUSED):
        return
    content, is_read = as_loaded(name, content), matches(name, READ)
    code = bytecode(name, content, STDLIB if is_zipped else SITE) if compiles else b""
    if code:
        yield (f"{name}c" if is_zipped or not is_read else cache_from_source(name)), code
    if is_read or not code:
        yield name, content


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name has one of the patterns of a shell."""
    return any(fnmatch(name, each) for each in patterns)


def as_loaded(name: str, content: bytes) -> bytes:
    """Return a file's content with its change, if it has one."""
    old, new = CHANGES.get(name, (b"", b""))
    if old not in content:
        raise ValueError(f"{name} must have {old!r}")
    return content.replace(old, new) if old else content


def bytecode(name: str, content: bytes, folder: str) -> bytes:
    """Return the bytecode of a source that is often imported; nothing of other files."""
    if not name.endswith(".py") or matches(name, RARE):
        return b""
    wordless = 2 * matches(name, WORDLESS)
    try:
        code = compile(content, f"{folder}/{name}", "exec", dont_inherit=True, optimize=wordless)
    except SyntaxError:  # a template
        return b""
    return UNCHECKED + source_hash(content) + dumps(code)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of others' sources
    main(*sys.argv[1:])
