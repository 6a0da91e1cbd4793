"""A server's file with other settings: its own text, in which only the values of these settings differ."""

import dataclasses
import difflib
import os
import re
from typing import Any, NamedTuple

from batchsim._files import CONFIG_BYTES, naming, text_of
from batchsim.scenario import Rule, Scenario
from batchsim.servers import files
from batchsim.servers.formats.document import Document
from batchsim.servers.server import Server, ServerConfig


class Edited(NamedTuple):
    """A file with new settings, a unified diff, "" without a change, and what it lost: always nothing."""

    text: str
    diff: str
    lost: tuple[str, ...] = ()


def edit(
    path: str | os.PathLike[str], what: Any, server: str | None = None, which: str | None = None
) -> Edited:
    """Return a server's file with the settings of a ServerConfig, Rule, Scenario or Recommendation.

    Order, comments and other keys stay. A setting that the file cannot have is added as a comment,
    "# batchsim: capacity=512". ValueError as of `read` and `write`, and where the rest cannot stay.

    >>> from tempfile import TemporaryDirectory
    >>> from batchsim import SizeOrWait
    >>> with TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "batching_parameters.txt")
    ...     with open(path, "w") as file:
    ...         _ = file.write("max_batch_size { value: 32 }  # measured")
    ...     edit(path, SizeOrWait(16, 0)).text
    'max_batch_size { value: 16 }  # measured'
    """
    text = text_of(path, CONFIG_BYTES, newline=None)
    with naming(path):
        return edited(text, what, server, which, path)


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
    changed = files.with_settings(document, changes)
    kept = {**changed.settings, **changes} == {**document.settings, **changes}
    kept &= {**changed.unused, **document.unused, **changes} == {**changed.unused, **changes}
    if not kept or changed.unknown != document.unknown or not _is_meant(changed, wanted, what):
        new = ", ".join(f"{name}={value}" for name, value in changes.items())
        raise ValueError(f"an edit must change nothing else: set this by hand, {new}")
    return Edited(changed.text, _diff(path, text, changed.text))


def _changes(own: Server, config: ServerConfig, what: Any) -> tuple[ServerConfig, dict[str, Any]]:
    """Return the wanted config, and those of its settings that are to change; None: to be removed.

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
    (before, old), (after, remarks) = (files.translated_and_why(own, each) for each in (now, wanted))
    similar = type(after.rule) is type(wanted.rule) and not any("whole number" in each for each in remarks)
    lost = [each for each in remarks if each not in old and "dropped" in each]
    if similar and after.rule != wanted.rule and before.rule == now.rule:
        lost.append(f"not {wanted.rule!r}")
    # A limit in batches is rounded.
    limits = "timeout" if own.words.queue_in_batches else "timeout|queue limit"
    kept = re.compile("" if isinstance(what, Rule) else f"(?!Not as requested: ({limits}),)")
    lost += [each for each in remarks if each not in old and not kept.match(each)]
    if lost:
        raise ValueError(f"a setting must be one that {own.title} has: {lost[0]}")
    names = {**before.settings, **after.settings}
    changes = {name: after.settings.get(name) for name in names}
    changes = {name: new for name, new in changes.items() if before.settings.get(name) != new}
    if own.words.size in changes:  # then a preferred size that was the largest would have an effect
        others = {*own.words.others.values()} - {own.words.timeout} - names.keys()
        changes |= dict.fromkeys(others & {*config.settings})
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
    end = "\n\\ No newline at end of file\n"
    return "".join(line if line.endswith("\n") else line + end for line in lines)
