"""Config in: a server's own file as what it means."""

import ast
import os
import re
from pathlib import Path

from batchsim import _check
from batchsim.servers.formats import FORMATS, Document, Format
from batchsim.servers.registry import ALL
from batchsim.servers.server import ServerConfig

# What a server's file cannot say, such as an option of its command line: "# batchsim: capacity=512".
BESIDES = re.compile(r"^[ \t]*#[ \t]*batchsim:[ \t]*(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"#.*$", re.MULTILINE)


def read(path: str | os.PathLike[str], server: str | None = None, which: str | None = None) -> ServerConfig:
    """Return what a server's file means; see `parse`. The file's name, too, tells which server it is for."""
    file = _check.path("path", path)
    text = _text(file)
    try:
        return _parse(text, server, which, file)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def parse(text: str, server: str | None = None, which: str | None = None) -> ServerConfig:
    """Return what the text of a server's file means.

    The text tells which server it is for, unless `server` says it. `which` names the model, function or
    worker that is meant where there are several; of Python, its line will do. Python is read and not run.
    In the answer, `unused` has what makes no difference to a simulation, and `unknown` what the server does
    not have. Raises ValueError with line and column for a text that is not what it should be, or a value
    that the server refuses.

    >>> parse("@serve.batch(max_batch_size=8, batch_wait_timeout_s=0.02, max_batchs=3)")
    ray_serve: FrozenBatches(max_batch_size=8, max_wait_ms=20.0, max_ongoing=5) on 1 server
      unknown      max_batchs (did you mean 'max_batch_size'?)
    """
    _check.instance("text", text, str, "text")
    return _parse(text, server, which, None)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: a config must be text in UTF-8, got {error.reason}") from None


def _parse(text: str, server: str | None, which: str | None, file: Path | None) -> ServerConfig:
    form = _format_of(text, server, file)
    document = Document(ALL[form.server])
    try:
        form.read(document, text, which)
    except RecursionError:
        raise ValueError(f"{form.title} must not nest so deep, got too many brackets") from None
    for name, value in BESIDES.findall(text):
        document.settings.setdefault(name, _literal(name, value))
    return document.config()


def _literal(name: str, text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"batchsim: {name} must be a number or quoted text, got {text!r}") from None


def _format_of(text: str, server: str | None, file: Path | None) -> Format:
    """Return the format of a text, or raise ValueError with the candidates."""
    if server is not None:
        _check.one_of("server", server, ALL)
    plain = _COMMENT.sub("", text)
    own = [form for form in FORMATS if server in (None, form.server)]
    if not own:
        raise ValueError(f"server must be one that has a file, got {server!r}")
    signed = [form for form in FORMATS if form.has_signs(plain, form.server == server)]
    fits = [form for form in signed if form in own]
    if server is not None and signed and not fits:
        rule = f"a config of {server} must be {' or '.join(form.title for form in own)}"
        raise ValueError(f"{rule}, got what looks like {signed[0].title}")
    if len(fits) != 1 and file is not None:  # then the file's name tells, if anything does
        some = fits or own
        fits = [form for form in some if form.file == file.name]
        fits = fits or [form for form in some if file.suffix.lower() in form.suffixes and (signed or server)]
        fits = fits or some
    fits = fits or own
    if len(fits) > 1 and server is None:
        known = " or ".join(dict.fromkeys(form.server for form in fits))
        raise ValueError(f"server must be given for a config that may be one of {known}, got none")
    return fits[0]
