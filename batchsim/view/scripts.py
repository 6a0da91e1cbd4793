"""JavaScript modules joined into one script, for a page that imports no files and for a widget."""

import re
from pathlib import Path

JS = Path(__file__).parents[1] / "web" / "js"
IMPORT = re.compile(r'^import (\{[^}]*\}) from "(\.{1,2}/[\w./]*?(\w+)\.js)";', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:class|function|const) (\w+))", re.MULTILINE)


def bundle(first: Path, last: str) -> str:
    """Return a module and those that it imports as one script, which ends with `last`.

    Each becomes a function that returns its exports: their names cannot collide, and a page that was opened
    from a disk could import nothing.
    """
    done: dict[str, str] = {}

    def add(path: Path) -> None:
        source = path.read_text(encoding="utf-8")
        for _, place, imported in IMPORT.findall(source):
            if imported not in done:
                add(path.parent / place)
        names = ", ".join(EXPORT.findall(source))
        text = EXPORT.sub("", IMPORT.sub(r"const \1 = modules.\3;", source))
        if left := re.search(r"^(?:import|export)\b.*", text, re.MULTILINE):
            raise ValueError(f"a module must have plain imports and exports, got {left[0]!r} in {path.name}")
        done[path.stem] = f"modules.{path.stem} = (() => {{\n{text.strip()}\nreturn {{ {names} }};\n}})();\n"

    add(first)
    return f"const modules = {{}};\n{''.join(done.values())}{last}"


def widget(first: Path) -> str:
    """Return a module with a function `render`, and those that it imports, as anywidget takes them.

    As text, not as a path: anywidget watches files, and would keep every widget of the class for ever.
    """
    return bundle(first, f"export default {{ render: modules.{first.stem}.render }};")
