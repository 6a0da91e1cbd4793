"""Assemble the sources of the book: python docs/book/build.py build/book/source.

Every page is a copy of a file of the repository, with its links pointing to other pages of the book. The API
reference is made from the public names (reference.py). `make book` then runs Sphinx on the sources.
"""

import re
import shutil
import sys
from os.path import normpath, relpath
from pathlib import Path

import nbformat

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from lessons import for_readers  # noqa: E402
from pages import PAGES  # noqa: E402

LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
CODE = re.compile(r"(^```.*?^```|^ {4}.*?$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')


def lessons():
    """Return the pages of the lessons, by the paths of their notebooks."""
    paths = [ROOT / "notebooks" / "00-explorer.ipynb", *sorted(ROOT.glob("notebooks/solutions/*.ipynb"))]
    return {path.relative_to(ROOT).as_posix(): f"lessons/{path.name}" for path in paths}


def led(text, path, pages):
    """Return the text of a file with each link to a file pointing to its page.

    If the book has no page for a file, the text names its path. ValueError for a link to a missing file.
    """

    def lead(link):
        target = link["target"]
        if "://" in target or target.startswith("mailto:") or not target:
            return link[0]
        found = normpath((Path(path).parent / target).as_posix())
        if found not in pages and (student := f"notebooks/solutions/{Path(found).name}") in pages:
            found = student  # a student's copy shares the page of its lesson
        if found in pages:
            there = relpath(pages[found], Path(pages[path]).parent.as_posix())
            return f"{link['image']}[{link['text']}]({there}{link['anchor'] or ''})"
        if not (ROOT / found).exists():
            raise ValueError(f"a link must lead to a file, got {target!r} in {path}")
        return f"`{found}`" if link["text"] in (target, found) else f"{link['text']} (`{found}`)"

    parts = CODE.split(ANCHOR.sub(r"(\1)=", text))
    return "".join(part if index % 2 else LINK.sub(lead, part) for index, part in enumerate(parts))


def build(folder):
    """Write all sources into a folder, replacing its contents."""
    import reference

    shutil.rmtree(folder, ignore_errors=True)
    pages = {path: page for path, page in PAGES.items() if (ROOT / path).exists()} | lessons()
    for path, page in pages.items():
        there = folder / page
        there.parent.mkdir(parents=True, exist_ok=True)
        if page.endswith(".ipynb"):
            notebook = for_readers(nbformat.read(ROOT / path, as_version=4), number=int(there.name[:2]))
            for cell in notebook.cells:
                if cell.cell_type == "markdown":
                    cell.source = led(cell.source, path, pages)
            nbformat.write(notebook, there)
        elif page.endswith(".md"):
            there.write_text(led((ROOT / path).read_text(), path, pages))
        else:
            shutil.copy(ROOT / path, there)
    (folder / "reference").mkdir()
    for name, text in reference.pages().items():
        (folder / "reference" / f"{name}.rst").write_text(text)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
