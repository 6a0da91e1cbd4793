"""Docstrings as reStructuredText: ours are plain text, with names in backticks, examples and listings."""

import re

STARS = re.compile(r"(?<![`\w])(\*{1,2})(?=\w)")  # in *args and **knobs, never emphasis
UNDERSCORE = re.compile(r"(?<=\w)_(?=[\s,.;:)]|$)")  # would turn the word into a link


def to_rst(lines):
    r"""Turn the lines of a docstring into reStructuredText with the same meaning, in place.

    An indented block below a line that ends in a colon is a listing, such as pseudo-code or a table.

    >>> lines = ["Whenever it is free:", "", "    look", "        again", "", "Then `knob` is *args."]
    >>> to_rst(lines)
    >>> lines
    ['Whenever it is free::', '', '    look', '        again', '', 'Then `knob` is \\*args.']
    """
    listing = 0  # the indentation of the paragraph above a listing, from 1; 0: in none
    for index, line in enumerate(lines):
        indent = len(line) - len(line.lstrip()) + 1
        if listing and (not line.strip() or indent > listing):
            continue
        listing = 0
        if line.lstrip().startswith((">>>", "...")):
            continue
        following = lines[index + 1 : index + 3]
        if line.endswith(":") and len(following) == 2 and not following[0].strip():
            deeper = len(following[1]) - len(following[1].lstrip()) + 1
            if deeper > indent and not following[1].lstrip().startswith(">>>"):
                line, listing = line + ":", indent
        lines[index] = UNDERSCORE.sub(r"\\_", STARS.sub(lambda stars: r"\*" * len(stars[1]), line))
