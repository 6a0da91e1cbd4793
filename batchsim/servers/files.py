"""Servers' files: a file as a ServerConfig, and a setting as the text of a file."""

import ast
import contextlib
import itertools
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from batchsim import _check, _format
from batchsim._files import CONFIG_BYTES, text_of
from batchsim.scenario import Rule, Scenario
from batchsim.scenario.rules import SizeOrWait
from batchsim.scenario.rules.continuous import Continuous
from batchsim.scenario.rules.rule import ENDLESS
from batchsim.servers.formats.document import Document, Node, Section
from batchsim.servers.language import ENGINE, IN_ENGINE
from batchsim.servers.registry import ALL, SERVERS, SIZE_SERVERS, TOKEN_SERVERS
from batchsim.servers.server import Format, Server, ServerConfig, describe_limit, describe_timeout

_BESIDE = re.compile(r"^[ \t]*#[ \t]*batchsim:[ \t]*(\w+)[ \t]*=[ \t]*(.*?)[ \t]*\r?$", re.MULTILINE)
_COMMENT = re.compile(r"#.*$", re.MULTILINE)
# Between the items of a list, as [vllm, serve], or of two.
_BETWEEN = re.compile(
    r"""["']?(?:,|\]?\n[ \t]*(?:command|args)[ \t]*:[ \t]*(?:\[|\n[ \t]*-)|\n[ \t]*-)[ \t]*["']?"""
)
MOST_WORDS = 30_000  # and signs, in a config
_WORD = re.compile(r"\w+|[^\w\s]")


def read(
    path: str | os.PathLike[str], server: str | None = None, which: str | None = None, *,
    text: str | None = None,
) -> ServerConfig:  # fmt: skip
    """Return the meaning of a server's file, as `parse` does; the file's name also identifies the server.

    `text` is the file's, if it has been read.
    """
    text = text_of(path, CONFIG_BYTES, newline=None) if text is None else text
    try:
        return document(text, server, which, path).config()
    except ValueError as error:
        raise ValueError(_format.printable(f"{os.fspath(path)}: {error}")) from None


def parse(text: str, server: str | None = None, which: str | None = None) -> ServerConfig:
    """Return the meaning of the text of a server's file.

    The text identifies its server, unless `server` names it. `which` selects one of several models, functions
    or workers; in Python, a line number also works. Python is parsed, never run. `unused` of the answer has
    everything without effect in a simulation, `unknown` the keys that the server does not have. Raises
    ValueError with line and column for an invalid text, or a value that the server refuses.

    >>> parse("@serve.batch(max_batch_size=8, batch_wait_timeout_s=0.02, max_batchs=3)")
    ray_serve: FrozenBatches(max_batch_size=8, max_wait_ms=20.0, max_ongoing=5) on 1 server
      unknown      max_batchs (did you mean 'max_batch_size'?)
    """
    _check.instance("text", text, str, "text")
    return document(text, server, which).config()


def document(
    text: str, server: str | None, which: str | None, path: str | os.PathLike[str] | None = None
) -> Document:
    """Return the settings of the text of a server's file, and their places, before they are checked."""
    _check_extent(text)
    try:
        return _read(*_recognised(text, server, None if path is None else Path(path)), text, which)
    except ValueError as error:
        rule = re.match(r"(.*, |.*; )got (none|neither|a file that only)\b", str(error), re.DOTALL)
        if rule is None or not re.search(ENGINE, text):
            raise
        raise ValueError(f"{rule[1]}got {IN_ENGINE}") from None


def _read(server: Server, form: Format, text: str, which: str | None) -> Document:
    document = Document(server, form, text, which)
    try:
        form.read(document, text, which)
    except RecursionError:
        raise ValueError(f"{form.title} must not nest so deeply, got too many brackets") from None
    for match in _BESIDE.finditer(text):
        name = match[1]
        if name not in document.settings:
            document.settings[name] = _literal(name, match[2])
            document.nodes[name] = Node(document.settings[name], match.start(), match.span(2)), BESIDE
    document.sections.append(BESIDE)
    document.settle()
    return document


def _commented(text: str, name: str, new: str) -> str:
    at = len(re.match(r"(#!.*\n)?", text)[0])  # type: ignore[index]  # behind the name of an interpreter
    return f"{text[:at]}# batchsim: {name}={new}\n{text[at:]}"


# Settings outside of a file, such as options of a command line: "# batchsim: capacity=512".
BESIDE = Section(lambda name: True, lambda name, value: repr(value), _commented)


def with_settings(document: Document, settings: Mapping[str, Any]) -> Document:
    """Return a file with some other settings, read again; None removes one."""
    settings = {name: list(each) if isinstance(each, tuple) else each for name, each in settings.items()}
    for name, value in settings.items():
        if document.settings.get(name) != value:
            text = document.changed(name, value)
            try:
                document = _read(document.server, document.form, text, document.which)
            except ValueError as error:
                must = f"{name} must stand where an edit keeps the rest: set it by hand, {value}"
                raise ValueError(f"{must} ({error})") from None
    for name, value in settings.items():
        if value is not None and document.settings.get(name, document.server.default(name)) != value:
            raise ValueError(f"{name} must be possible in {document.form.title}, got {value}")
    return document


def _check_extent(text: str) -> None:
    """Refuse a text that would take a reader more than a second: some of them take a microsecond a letter."""
    if len(text) > CONFIG_BYTES:
        raise ValueError(f"a config must have at most {CONFIG_BYTES:,} characters, got {len(text):,}")
    text.encode()  # raises for half a character, as a link may have it: protobuf would fail
    if next(itertools.islice(_WORD.finditer(text), MOST_WORDS, None), None):
        raise ValueError(f"a config must have at most {MOST_WORDS:,} words and signs, got more")


def _literal(name: str, text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(
            f"batchsim: {name} must be a number or quoted text, got {_format.brief(text)}"
        ) from None


def _recognised(text: str, server: str | None, file: Path | None) -> tuple[Server, Format]:
    """Return the server and the format of a text, or raise ValueError with the candidates."""
    if server is not None:
        _check.one_of("server", server, ALL)
    plain = _COMMENT.sub("", text).replace("\\n", "\n")  # of a text in quotes
    every = [(each, form) for each in ALL.values() for form in each.formats]
    suffix = "" if file is None or server else file.suffix.lower()
    every = [each for each in every if suffix in (*each[1].suffixes, *each[1].also)] or every
    own = [(each, form) for each, form in every if server in (None, each.name)]
    if not own:
        raise ValueError(f"server must be one with a file, got {server!r}")
    texts = plain, _BETWEEN.sub(" ", plain)
    signed = [each for each in every if any(re.search(each[1].signs, it, re.MULTILINE) for it in texts)]
    fits = [each for each in signed if each in own]
    like = [form for _, form in signed if file is None or file.suffix in (*form.suffixes, *form.also)]
    if server is not None and like and not fits:
        rule = f"a config of {server} must be {' or '.join(form.title for _, form in own)}"
        raise ValueError(f"{rule}, got what looks like {like[0].title}")
    if len(fits) != 1 and file is not None:  # then the file's name may decide
        some = fits or own
        fits = [each for each in some if each[1].file == file.name]
        suffix = file.suffix.lower()
        fits = fits or [each for each in some if suffix in each[1].suffixes and (signed or server)] or some
    fits = fits or own
    if len(fits) > 1 and server is None:
        known = " or ".join(dict.fromkeys(each.name for each, _ in fits))
        for each in ALL.values() if not signed else ():
            if each.started and re.search(each.started, plain, re.MULTILINE):
                form = each.formats[0]
                must = f"a config must have {each.title}'s own settings: read {form.title} ({form.file})"
                raise ValueError(f"{must}, or what this file renders to; got a file that only names it")
        if not signed:
            must = "a config must have a key that only its server has, or server must be given"
            hint = "; a template must be rendered first" if "{{" in text else ""
            raise ValueError(f"{must} ({known}), got neither{hint}")
        raise ValueError(f"server must be given for a config that may be one of {known}, got none")
    return fits[0]


class Written(NamedTuple):
    """Texts by server, and for the other servers the reason why the setting cannot be written."""

    texts: dict[str, str]
    refused: dict[str, str]


def write(server: str, what: Any, file: str | None = None) -> str:
    """Return the text of a server's file for a ServerConfig, a Rule, a Scenario or a Recommendation.

    `SizeOrWait` can be written for every server: comments in the text name the rule that the server makes of
    the same two numbers, and each number that was rounded. Any other rule, number of servers, limit or
    timeout that the server does not have is refused. A ServerConfig that was read is its own text again.
    `file` selects one of the server's formats by its file name, such as "model-config.yaml". A server that is
    configured in Python has no such file: `edit` changes the settings in yours.

    >>> from batchsim import SizeOrWait
    >>> print(write("torchserve", SizeOrWait(32, 2)).partition("models=")[0].strip())
    # Written by batchsim for torchserve (2025-03).
    # Its rule: PullThenWait(max_batch_size=32, max_wait_ms=2).
    # Not the requested rule, SizeOrWait(max_batch_size=32, max_wait_ms=2): simulate the one above.
    # Not as requested: queue limit, 100 requests.
    """
    form, own = _format_of(server, file), ALL[server]
    target = target_of(what)
    if target.server == server and target.text and _recognised(target.text, server, None)[1] is form:
        return with_settings(_read(own, form, target.text, target.which), target.settings).text
    template = _template(server, form)
    found, remarks = (target, []) if target.server == server else translated_and_why(own, target)
    text = with_settings(_read(own, form, template, None), found.settings).text
    head = [f"Written by batchsim for {server} ({own.version}).", f"Its rule: {found.rule!r}."]
    head += getattr(what, "certainty", ())  # of a Recommendation
    return "".join(f"# {line}\n" for line in (*head, *remarks)) + text


def write_all(what: Any) -> Written:
    """Return the texts of `write` for all servers, and its errors for the rest.

    A `Continuous` is written for the servers of language models, any other rule for the servers of batches. A
    rule that limits the units of a batch is also written for those whose requests have sizes.

    >>> from batchsim import RunningWindow
    >>> written = write_all(RunningWindow(8, 5))
    >>> list(written.texts), len(written.refused)
    ([], 11)
    """
    written = Written({}, {})
    target = target_of(what)
    sized = SIZE_SERVERS if getattr(target.rule, "max_batch_units", None) is not None else {}
    for server in TOKEN_SERVERS if isinstance(target.rule, Continuous) else SERVERS | sized:
        try:
            written.texts[server] = write(server, what)
        except ValueError as error:
            written.refused[server] = str(error)
    return written


def file_name(server: str) -> str:
    """Return the usual name of a server's file, or raise ValueError if `write` makes none.

    >>> file_name("triton")
    'config.pbtxt'
    """
    form = _format_of(server, None)
    _template(server, form)
    return form.file


def _template(server: str, form: Format) -> str:
    if form.template is None:
        must = f"a file for {server} must be yours, as it is a program"
        raise ValueError(f"{must}: `servers.edit` changes its settings, and no new one is written")
    return form.template


def _format_of(server: str, file: str | None) -> Format:
    _check.one_of("server", server, ALL)
    own = {form.file: form for form in ALL[server].formats}
    if not own:
        raise ValueError(f"server must be one with a file, got {server!r}")
    return next(iter(own.values())) if file is None else own[_check.one_of("file", file, own)]


def target_of(what: Any) -> ServerConfig:
    """Return a rule or a scenario as a config of no server; a config stays itself."""
    if isinstance(what, ServerConfig):
        return what
    if isinstance(what, Rule):
        return ServerConfig("", what)
    scenario = getattr(what, "scenario", what)  # a Recommendation has one
    _check.instance("what is written", scenario, Scenario, "a ServerConfig, Rule, Scenario or Recommendation")
    return ServerConfig(
        "", scenario.rule, scenario.servers, scenario.queue_limit, scenario.timeout_ms,
        tuple(scenario.service.padding or ()), scenario.timeout_action,
        max(scenario.levels) if len(scenario.levels) > 1 else 0, devices=scenario.devices,
        oversize_action=scenario.oversize_action if scenario.rule.largest_size < ENDLESS else None,
        replicas=scenario.replicas, routing=scenario.router.name,
        captured={name: getattr(scenario.service, name) for name in ("captured", "captured_padding")}
        if getattr(scenario.service, "captured", None) else {},
    )  # fmt: skip


def translated(server: Server, target: ServerConfig) -> ServerConfig:
    """Return the config of another server, or of none, in a server's settings."""
    return translated_and_why(server, target)[0]


def has_rule(server: Server, rule: Rule) -> bool:
    """Return whether some settings of a server give a rule of this kind."""
    try:
        found = translated(server, ServerConfig("", rule)).rule
    except ValueError:
        return False
    # Every server turns one of these into a rule of its own.
    return type(found) is type(rule) or not isinstance(rule, (SizeOrWait, Continuous))


def translated_and_why(server: Server, target: ServerConfig) -> tuple[ServerConfig, list[str]]:
    """Return a target in a server's settings, and sentences on the differences."""
    settings, remarks = _settings(server, target)
    plain = server.configure(settings)  # whose error is the one to see
    each = [plain]
    for variant in filter(None, server.variants):
        with contextlib.suppress(ValueError):  # a variant may lack a setting
            each.append(server.configure(settings | {**variant}))
    found = next((one for one in each if type(one.rule) is type(target.rule)), each[0])
    ours, theirs = found.rule, target.rule
    if target.servers == 1:
        ours, theirs = ours.alone, theirs.alone
    if ours != theirs:
        similar = type(found.rule.alone) is type(target.rule.alone)
        if not similar and not isinstance(target.rule, (SizeOrWait, Continuous, type(found.rule))):
            names = " or ".join(dict.fromkeys([f"a {type(found.rule).__name__}", "a SizeOrWait"]))
            rules = f"{names}, whose numbers it interprets its own way"
            raise ValueError(f"a rule for {server.name} must be {rules}; got {target.rule!r}")
        remarks.insert(0, f"Not the requested rule, {target.rule!r}: simulate the one above.")
    for name, own, wanted in (
        ("queue limit", *(describe_limit(each.queue_limit) for each in (found, target))),
        ("timeout", *(describe_timeout(each.timeout_ms, each.timeout_action) for each in (found, target))),
    ):
        if own != wanted:
            remarks.append(f"Not as requested: {name}, {'; '.join(own) or 'none'}.")
    if target.priority_levels > 1 and not found.priority_levels:
        remarks.append("Not as requested: requests of all priorities are served in order of arrival.")
    if found.pad_to != target.pad_to:
        remarks.append(f"The model pads batches to {list(target.pad_to)}; this file does not.")
    return found, remarks


def _settings(server: Server, target: ServerConfig) -> tuple[dict[str, Any], list[str]]:
    """Return a server's settings for a target, and sentences on rounded and dropped numbers."""
    words, rule, remarks = server.words, target.rule, list[str]()
    continuous = isinstance(rule, Continuous)
    if continuous != (server.name in TOKEN_SERVERS):
        own = "one for whole batches," if continuous else "a Continuous;"
        raise ValueError(f"a rule for {server.name} must be {own} got {rule!r}")
    extras = server.extras(target)
    settings: dict[str, Any] = extras if continuous else {words.size: rule.max_batch_size}
    if isinstance(rule, SizeOrWait) and math.isinf(rule.max_wait_ms) and not server.unbounded:
        raise ValueError(f"max_wait_ms must be finite for {server.name}, got inf")
    if words.wait and (server.unbounded or math.isfinite(rule.max_wait_ms)):
        wait_ms = rule.max_wait_ms
        settings[words.wait] = wait = wait_ms if math.isinf(wait_ms) else words.wait_of(wait_ms)
        if not math.isclose(wait * words.wait_unit_ms, wait_ms, rel_tol=1e-9):
            least = f", at least {words.least}" if words.least else ""
            rounded = f"{words.wait} is a whole number{least}: {wait}"
            remarks.append(f"{rounded}, where {_format.typed(wait_ms)} ms was requested.")
    elif isinstance(rule, SizeOrWait) and rule.max_wait_ms:
        remarks.append(f"{server.name} has no wait: {_format.typed(rule.max_wait_ms)} ms is dropped.")
    if words.servers:
        if target.servers > 1 or not continuous:
            settings[words.servers] = target.servers
        if words.devices and target.servers > 1:
            settings[words.devices] = target.devices or target.servers
    elif target.servers > 1 and continuous and words.replicas and target.replicas == 1:
        settings[words.replicas] = target.servers
        remarks.append(
            f"Not as requested: {target.servers} engines have a queue each, behind {server.routing}, not one."
        )
    elif target.servers > 1:
        must = f"servers must be 1 for {server.name}, which has no setting for more"
        raise ValueError(f"{must}, got {target.servers}")
    if target.replicas > 1:
        if words.replicas:
            settings[words.replicas] = target.replicas
        else:
            lost = f"one of {target.replicas} replicas, which this file does not start"
            remarks.append(f"Not as requested: {lost}.")
        if target.routing != server.routing:
            remarks.append(f"Not as requested: its router is {server.routing}, not {target.routing}.")
    settings |= _limits(server, target) | extras
    return settings, remarks + server.remarks(settings)


def _limits(server: Server, target: ServerConfig) -> dict[str, Any]:
    words = server.words
    limit, timeout_ms, action = target.queue_limit, target.timeout_ms, target.timeout_action
    if server.level_limits is not None and target.priority_levels > 1:
        return server.level_limits(target)
    settings: dict[str, Any] = {}
    if isinstance(limit, Mapping) or isinstance(timeout_ms, Mapping) or isinstance(action, Mapping):
        raise ValueError(f"limits must be the same for all levels in {server.name}, got limits by level")
    if limit is not None:
        if not words.queue:
            raise ValueError(f"queue_limit must be None for {server.name}, which has none, got {limit}")
        if words.queue_in_batches:
            limit = max(round(limit / target.rule.max_batch_size), 1)
        settings[words.queue] = limit
    if timeout_ms is not None:
        if not words.timeout:
            must = f"timeout_ms must be None for {server.name}, which has none"
            raise ValueError(f"{must}, got {_format.typed(timeout_ms)}")
        timeout = float(_format.typed(timeout_ms / words.timeout_unit_ms))
        whole = timeout == int(timeout) or words.timeout_unit_ms < 1 or words.whole
        settings[words.timeout] = math.ceil(timeout) if whole else timeout
    if action != "reject":
        if not words.timeout_action:
            must = f"timeout_action must be 'reject' for {server.name}"
            raise ValueError(f"{must}, got {action!r}")
        settings[words.timeout_action] = action.upper()
    return settings
