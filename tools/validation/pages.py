"""VALIDATION.md and docs/validation: one text, its first screen in one file, and a file for each family."""

import re
from pathlib import Path

from validation.page import FAMILIES, place

ROOT = Path(__file__).parents[2]
FIRST = "VALIDATION.md"
LAST = "What this model leaves out"  # which the first screen has
# Pages that no row of the table is about.
OTHERS = {each: (each,) for each in ("The intervals themselves", "The choice of a setting")}
PAGES = {family: titles for family, (titles, _) in FAMILIES.items()} | OTHERS


def sections_of(text):
    """Return what comes before the first section, and the sections by their titles."""
    head, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return head, {each.partition("\n")[0][3:]: each for each in sections}


def files(text):
    """Return the whole text as files, by their paths in the project."""
    head, sections = sections_of(text)
    if others := sections.keys() - {LAST, *(title for titles in PAGES.values() for title in titles)}:
        raise ValueError(f"a section must be of a page, got {', '.join(sorted(others))}")
    found = {FIRST: head + sections[LAST]}
    for name, titles in PAGES.items():
        body = "".join(sections[title] for title in titles).rstrip()
        found[place(name)] = (
            f"# {name}\n\n[The table of all](../../{FIRST}) explains the verdicts.\n\n{body}\n"
        )
    return found


def whole():
    """Return the files of the project as the whole text."""
    head, last = sections_of((ROOT / FIRST).read_text())
    bodies = ("".join(sections_of((ROOT / place(name)).read_text())[1].values()) for name in PAGES)
    return head + "".join(f"{body.rstrip()}\n\n" for body in bodies) + last[LAST]


def write(text):
    """Write the whole text into its files."""
    for path, content in files(text).items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(content)
