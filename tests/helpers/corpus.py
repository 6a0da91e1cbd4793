"""A corpus in a folder of tests/data: documents, several in a text, and a table of what is right of each."""

import re

DOCUMENT = re.compile(r"^=== (\S+)\n(.*?)(?=^=== |\Z)", re.DOTALL | re.MULTILINE)


def documents(folder):
    """Return the names of the documents, in order, each with its text."""
    texts = [path.read_text() for path in sorted(folder.glob("*.txt")) if path.stem != "expected"]
    return dict(found for text in texts for found in DOCUMENT.findall(text))


def table(folder, row):
    """Return the rows of `expected.txt` as named tuples of a class."""
    most = len(row._fields) - 1
    return [
        row(*(cell.strip() for cell in re.split(r" \|(?= |$)", line, maxsplit=most)))
        for line in (folder / "expected.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
