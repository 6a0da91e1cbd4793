"""A server's file with other settings: its own text, in which only the values of these settings differ.

No syntax is known here. A change is tried and the text is read again: it counts if the server then has the
wanted setting, and every other key as before.
"""

import dataclasses
import difflib
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from batchsim.scenario import Rule, Scenario
from batchsim.servers import files
from batchsim.servers.formats.document import Document, Place
from batchsim.servers.server import Server, ServerConfig

# A value where a setting was found: perhaps behind its key, as a list, in quotes, or plain.
_KEY = r"""(?:["']?[\w.-]+["']?(?:\s*\{\s*value)?(?:\s*[:=]\s*|\s+))"""
_VALUE = r"""(?:\[[^\]]*\]|"[^"]*"|'[^']*'|[^\s,;(){}\[\]"'\\]+)"""
_SPANS = [re.compile(f"({key}){_VALUE}") for key in (_KEY, "")]
MOST_PLACES = 200  # tried for a new key


class Edited(NamedTuple):
    """A file with new settings.

    `diff` is a unified diff, "" without a change. `lost` lists what the new text leaves out: nothing, unless
    the settings have no place in the old one, so that the file is written anew.
    """

    text: str
    diff: str
    lost: tuple[str, ...]


def edit(
    path: str | os.PathLike[str], what: Any, server: str | None = None, which: str | None = None
) -> Edited:
    """Return a server's file with the settings of a ServerConfig, Rule, Scenario or Recommendation.

    Order, comments and other keys stay. ValueError as of `read` and `write`.

    >>> from tempfile import TemporaryDirectory
    >>> from batchsim import SizeOrWait
    >>> with TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "batching_parameters.txt")
    ...     with open(path, "w") as file:
    ...         _ = file.write("max_batch_size { value: 32 }  # measured")
    ...     edit(path, SizeOrWait(16, 0)).text
    'max_batch_size { value: 16 }  # measured'
    """
    return edited(files.text_of(path), what, server, which, path)


def edited(
    text: str, what: Any, server: str | None = None, which: str | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Edited:  # fmt: skip
    """Return the text of a server's file with other settings, as `edit` does; `path` names it in the diff."""
    document = files.document(text, server, which, path)
    path = document.server.formats[0].file if path is None else path
    own, config = document.server, document.config()
    if not isinstance(what, (ServerConfig, Rule)):
        knobs, what = getattr(what, "knobs", None), getattr(what, "scenario", what)
        # A search that takes the size of the memory from elsewhere does not change it in the file.
        if knobs is not None and "kv_blocks" not in knobs and getattr(config.rule, "kv_blocks", 0) is None:
            what = what.replace(kv_blocks=None)
    wanted, changes = _changes(own, config, what)
    changed: str | None = text
    for name, value in changes.items():
        changed = changed and _changed(changed, name, value, own.name, which)
    if changed is not None and _is_meant(files.document(changed, own.name, which), wanted, what):
        return Edited(changed, _diff(path, text, changed), ())
    anew = files.write(own.name, dataclasses.replace(wanted, unused=config.unused, kept=config.kept))
    kept = files.parse(anew, own.name)
    lost = [*config.unknown, *(key for key in config.unused if key not in kept.unused)]
    comments = ["its comments"] if re.search(r"(^|\s)(#|//)", text) else []
    return Edited(anew, _diff(path, text, anew), (*lost, *comments, "its order and layout"))


def _changes(own: Server, config: ServerConfig, what: Any) -> tuple[ServerConfig, dict[str, Any]]:
    """Return the wanted config, and those of its settings that are to change.

    Both configs are translated alike, so that a setting that only the translation differs in does not change.
    """
    now = dataclasses.replace(config, server="")
    if isinstance(what, Rule):
        now = dataclasses.replace(now, queue_limit=None, timeout_ms=None)  # these stay as the file has them
        wanted = dataclasses.replace(now, rule=what)
    elif isinstance(what, Scenario):
        now, wanted = (files.target_of(each) for each in (config.apply(what, silent=True), what))
    else:
        wanted = dataclasses.replace(files.target_of(what), server="")
    before, after = (files.translated(own, each) for each in (now, wanted))
    changes = {name: value for name, value in after.settings.items() if before.settings.get(name) != value}
    return after, changes


def _is_meant(document: Document, wanted: ServerConfig, what: Any) -> bool:
    """Return whether a file means what was wanted, for the scenario if there is one."""
    try:
        found = document.config()
    except ValueError:  # the server takes no such settings together
        return False
    if isinstance(what, Scenario) and found.apply(what, silent=True) == what:
        return True
    if isinstance(what, Rule):
        return found.rule == wanted.rule
    each = [
        (one.rule, one.servers, one.queue_limit, one.timeout_ms, one.pad_to, one.replicas)
        for one in (found, wanted)
    ]
    return each[0] == each[1]


def _diff(path: str | os.PathLike[str], old: str, new: str) -> str:
    name, before, after = os.fspath(path), old.splitlines(keepends=True), new.splitlines(keepends=True)
    lines = difflib.unified_diff(before, after, f"{name} (now)", f"{name} (new)", n=1)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _changed(text: str, name: str, value: Any, server: str, which: str | None) -> str | None:
    """Return the text with one setting changed; None if no change that was tried does that alone."""
    before = files.document(text, server, which)
    wanted = before.settings | {name: value}
    for candidate in _candidates(text, name, value, before):
        try:
            after = files.document(candidate, server, which)
        except ValueError:
            continue
        same = after.settings == wanted and after.unknown == before.unknown
        if same and {**after.unused, name: 0} == {**before.unused, name: 0}:
            return candidate
    return None


def _candidates(text: str, name: str, value: Any, document: Document) -> Iterator[str]:
    """Yield texts that may have the setting: first with its present value replaced, then with a new key."""
    written = [str(value).lower(), str(value)] if isinstance(value, bool) else [_literal(value)]
    ends = []
    for key, place in document.places.items():
        for span in _SPANS:
            if (found := span.match(text, _offset(text, place))) is None:
                continue
            ends.append(found.end())
            for literal in written if key == name else ():
                yield text[: found.end(1)] + literal + text[found.end() :]
    literal, dashed = written[-1], name.replace("_", "-")
    beside = (
        "\n{indent}{name}: {literal}", ", {name}={literal}", ', "{name}": {literal}', " --{dashed} {literal}",
        "\n{name}={literal}",
    )  # fmt: skip
    first = " {name}: {literal}", "{name}={literal}, "
    openings = [match.end() for match in re.finditer(r"[({]", text)]
    for position in [*sorted(set(ends), reverse=True), *openings][:MOST_PLACES]:
        line = text[text.rfind("\n", 0, position) + 1 : position]
        indent = line[: len(line) - len(line.lstrip())]
        for form in beside if position in ends else first:
            new = form.format(indent=indent, name=name, literal=literal, dashed=dashed)
            yield text[:position] + new + text[position:]


def _literal(value: Any) -> str:
    return repr(list(value)) if isinstance(value, tuple) else str(value)


def _offset(text: str, place: Place) -> int:
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: place[0] - 1])) + place[1] - 1
