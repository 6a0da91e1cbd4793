"""Config out: a setting as the text that says it to a server."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from batchsim import _check, _format
from batchsim.scenario import Rule, Scenario
from batchsim.scenario.rules import (
    CompetingWindows,
    FrozenBatches,
    LearnedCork,
    LearnedSizes,
    RunningWindow,
    SizeOrWait,
)
from batchsim.scenario.rules.continuous import Continuous
from batchsim.servers.formats import FORMATS, Format
from batchsim.servers.registry import ALL, SERVERS, TOKEN_SERVERS
from batchsim.servers.server import Server, ServerConfig, limits_in_words, timeouts_in_words
from batchsim.servers.write_tokens import token_settings

UNLIMITED = 1_000_000  # of ongoing requests, where Ray Serve must have a limit
# LitServe's, of one worker and of several.
WINDOWS = (RunningWindow, CompetingWindows)

# Of a server that has several rules, what tells one from the other.
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "ray_serve": ({}, {"handler": "blocking"}, {"before_mid_2023": True}),
}


class Written(NamedTuple):
    """Texts by server, and for each of the others why it cannot say what was asked for."""

    texts: dict[str, str]
    refused: dict[str, str]


@dataclass(frozen=True)
class _Asked:
    """What a text is to say, in no server's words."""

    rule: Rule
    servers: int = 1
    queue_limit: int | Mapping[int, int] | None = None
    timeout_ms: float | Mapping[int, float] | None = None
    pad_to: tuple[int, ...] = ()
    timeout_action: str | Mapping[int, str] = "reject"
    levels: tuple[int, ...] = ()


def write(server: str, what: Any, file: str | None = None) -> str:
    """Return the text of a server's file for a ServerConfig, a Rule, a Scenario or a Recommendation.

    `SizeOrWait` is written for each server: comments in the text say which rule the server makes of the same
    two numbers, and each number that had to be rounded. Any other rule, number of servers, limit or timeout
    that the server does not have is refused. Of a ServerConfig that was read, what made no difference is
    written again, and keys that are unknown are not. `file` is the name of one of the server's formats, where
    it has two, as "model-config.yaml".

    >>> from batchsim import SizeOrWait
    >>> print(write("torchserve", SizeOrWait(32, 2)).partition("models=")[0].strip())
    # Written by batchsim for torchserve (2025-03).
    # Its rule: PullThenWait(max_batch_size=32, max_wait_ms=2).
    # Asked for was another rule, SizeOrWait(max_batch_size=32, max_wait_ms=2): simulate this one.
    # Not as asked for: queue limit, 100 requests.
    """
    _check.one_of("server", server, ALL)
    form = _format_of(server, file)
    if isinstance(what, ServerConfig) and what.server == server:
        found, remarks = what, list[str]()
    else:
        found, remarks = _said(ALL[server], _asked(what))
    settings = dict(found.settings)
    extras = {key: value for key, value in found.unused.items() if key not in ALL[server].settings}
    text = form.write(settings, extras)
    head = [f"Written by batchsim for {server} ({ALL[server].version}).", f"Its rule: {found.rule!r}."]
    besides = [f"batchsim: {name}={value!r}" for name, value in settings.items()]
    if server == "mosec" and settings:
        options = " ".join(f"--{name} {value}" for name, value in settings.items())
        besides.append(f"Start it with: python {form.file} {options}")
    return "".join(f"# {line}\n" for line in (*head, *remarks, *besides)) + text


def write_all(what: Any) -> Written:
    """Return what `write` gives for each server, and why not for the others.

    A `Continuous` is written for the servers of language models, any other rule for those of batches.

    >>> from batchsim import RunningWindow
    >>> written = write_all(RunningWindow(8, 5))
    >>> list(written.texts), len(written.refused)
    (['litserve'], 10)
    """
    written = Written({}, {})
    asked = what if isinstance(what, ServerConfig) else _asked(what)
    for server in TOKEN_SERVERS if isinstance(asked.rule, Continuous) else SERVERS:
        try:
            written.texts[server] = write(server, what if isinstance(what, ServerConfig) else asked)
        except ValueError as error:
            written.refused[server] = str(error)
    return written


def file_name(server: str) -> str:
    """Return what a server's file is usually called.

    >>> file_name("triton")
    'config.pbtxt'
    """
    return _format_of(server, None).file


def _format_of(server: str, file: str | None) -> Format:
    _check.one_of("server", server, ALL)
    own = {form.file: form for form in FORMATS if form.server == server}
    if not own:
        raise ValueError(f"server must be one that has a file, got {server!r}")
    return next(iter(own.values())) if file is None else own[_check.one_of("file", file, own)]


def _asked(what: Any) -> _Asked:
    if isinstance(what, _Asked):
        return what
    if isinstance(what, ServerConfig):
        levels = tuple(range(1, what.priority_levels + 1))
        return _Asked(
            what.rule, what.servers, what.queue_limit, what.timeout_ms, what.pad_to, what.timeout_action,
            levels,
        )  # fmt: skip
    if isinstance(what, Rule):
        return _Asked(what)
    scenario = getattr(what, "scenario", what)  # a Recommendation has one
    _check.instance("what is written", scenario, Scenario, "a ServerConfig, Rule, Scenario or Recommendation")
    padding = tuple(scenario.service.padding or ())
    return _Asked(
        scenario.rule, scenario.servers, scenario.queue_limit, scenario.timeout_ms, padding,
        scenario.timeout_action, scenario.levels,
    )  # fmt: skip


def _said(server: Server, asked: _Asked) -> tuple[ServerConfig, list[str]]:
    """Return what a server's own words can say of it, and sentences on what they cannot."""
    settings, remarks = _settings(server, asked)
    if server.name in TOKEN_SERVERS and not isinstance(asked.rule, Continuous):
        raise ValueError(f"a rule for {server.name} must be a Continuous; got {asked.rule!r}")
    each = [server.configure(settings | variant) for variant in VARIANTS.get(server.name, ({},))]
    found = next((one for one in each if type(one.rule) is type(asked.rule)), each[0])
    if found.rule != asked.rule:
        alike = isinstance(asked.rule, WINDOWS) and isinstance(found.rule, WINDOWS)
        if not alike and not isinstance(asked.rule, (SizeOrWait, Continuous, type(found.rule))):
            own = f"a {type(found.rule).__name__}, or a SizeOrWait, whose numbers it takes its own way"
            raise ValueError(f"a rule for {server.name} must be {own}; got {asked.rule!r}")
        remarks.insert(0, f"Asked for was another rule, {asked.rule!r}: simulate this one.")
    limit = limits_in_words(found.queue_limit)
    if limit != limits_in_words(asked.queue_limit):
        remarks.append(f"Not as asked for: queue limit, {'; '.join(limit) or 'none'}.")
    timeout = timeouts_in_words(found.timeout_ms, found.timeout_action)
    if timeout != timeouts_in_words(asked.timeout_ms, asked.timeout_action):
        remarks.append(f"Not as asked for: timeout, {'; '.join(timeout) or 'none'}.")
    if len(asked.levels) > 1 and not found.priority_levels:
        remarks.append("Not as asked for: requests of all priorities are served in order of arrival.")
    if found.pad_to != asked.pad_to:
        remarks.append(f"Batches are padded to {list(asked.pad_to)} by the model: this does not say it.")
    return found, remarks


def _settings(server: Server, asked: _Asked) -> tuple[dict[str, Any], list[str]]:
    words, rule, remarks = server.words, asked.rule, []
    settings: dict[str, Any] = {words.size: rule.max_batch_size}
    if isinstance(rule, Continuous):
        settings = token_settings(server.name, rule)
        if settings.get("enable_chunked_prefill") is False and rule.max_model_len is None:
            budget = f"{rule.max_num_batched_tokens:,}"
            remarks.append(f"Without chunked prefill vLLM starts only if max_model_len is at most {budget}.")
    if isinstance(rule, SizeOrWait) and math.isinf(rule.max_wait_ms) and server.name != "textbook":
        raise ValueError(f"max_wait_ms must be finite for {server.name}, got inf")
    if not words.wait:
        if isinstance(rule, SizeOrWait) and rule.max_wait_ms:
            remarks.append(f"{server.name} has no wait: {_format.typed(rule.max_wait_ms)} ms is not said.")
    elif not math.isinf(rule.max_wait_ms) or server.name == "textbook":
        wait_ms = rule.max_wait_ms
        settings[words.wait] = wait = wait_ms if math.isinf(wait_ms) else words.wait_of(wait_ms)
        if not math.isclose(wait * words.wait_unit_ms, wait_ms, rel_tol=1e-9):
            least = f", at least {words.least}" if words.least else ""
            rounded = f"{words.wait} is a whole number{least}: {wait}"
            remarks.append(f"{rounded}, where {_format.typed(wait_ms)} ms was asked for.")
    if words.servers:
        if asked.servers > 1 or not isinstance(rule, Continuous):
            settings[words.servers] = asked.servers
    elif asked.servers > 1:
        rule_ = f"servers must be 1 for {server.name}, which has no setting for more"
        raise ValueError(f"{rule_}, got {asked.servers}")
    _add_limits(settings, server, asked)
    return settings | _own(server.name, asked), remarks


def _add_limits(settings: dict[str, Any], server: Server, asked: _Asked) -> None:
    words, limit, timeout_ms = server.words, asked.queue_limit, asked.timeout_ms
    if server.name == "triton" and len(asked.levels) > 1:
        settings |= _levels(asked)
        return
    if (
        isinstance(limit, Mapping)
        or isinstance(timeout_ms, Mapping)
        or isinstance(asked.timeout_action, Mapping)
    ):
        raise ValueError(
            f"limits and timeouts must be of all levels alike for {server.name}, got some by level"
        )
    if limit is not None:
        if server.name == "tf_serving":
            settings["max_enqueued_batches"] = max(round(limit / asked.rule.max_batch_size), 1)
        elif words.queue:
            settings[words.queue] = limit
        else:
            raise ValueError(f"queue_limit must be None for {server.name}, which has none, got {limit}")
    if timeout_ms is not None:
        if not words.timeout:
            must = f"timeout_ms must be None for {server.name}, which has none"
            raise ValueError(f"{must}, got {_format.typed(timeout_ms)}")
        timeout = float(_format.typed(timeout_ms / words.timeout_unit_ms))
        whole = timeout == int(timeout) or words.timeout_unit_ms < 1 or words.whole
        settings[words.timeout] = math.ceil(timeout) if whole else timeout
    if asked.timeout_action != "reject":
        if server.name != "triton":
            raise ValueError(
                f"timeout_action must be 'reject' for {server.name}, got {asked.timeout_action!r}"
            )
        settings["timeout_action"] = asked.timeout_action.upper()


def _levels(asked: _Asked) -> dict[str, Any]:
    """Return Triton's priority levels, each with a queue policy of its own."""

    def of(limit: Any, level: int, other: Any) -> Any:
        return limit.get(level, other) if isinstance(limit, Mapping) else other if limit is None else limit

    last = max(asked.levels)
    policies = {
        level: {
            "max_queue_size": of(asked.queue_limit, level, 0),
            "default_timeout_microseconds": math.ceil(
                float(_format.typed(of(asked.timeout_ms, level, 0) * 1000))
            ),
            "timeout_action": of(asked.timeout_action, level, "reject").upper(),
        }
        for level in asked.levels
    }
    return {"priority_levels": last, "default_priority_level": last, "priority_queue_policy": policies}


def _own(server: str, asked: _Asked) -> dict[str, Any]:
    """Return settings that one server alone has."""
    rule = asked.rule
    match server:
        case "triton" if preferred := getattr(rule, "preferred", ()):
            return {"preferred_batch_size": list(preferred)}
        case "tf_serving" if asked.pad_to and asked.pad_to[-1] == rule.max_batch_size:
            return {"allowed_batch_sizes": list(asked.pad_to)}
        case "bentoml" if isinstance(rule, LearnedCork) and rule.refuses:
            return {"max_latency_ms": rule.max_latency_ms}
        case "clipper" if isinstance(rule, LearnedSizes):
            return {"batch_size": -1, "slo_micros": math.ceil(float(_format.typed(rule.deadline_ms * 1000)))}
        case "litserve":
            return {"devices": 1}
        case "ray_serve" if isinstance(rule, FrozenBatches):
            limited = math.isfinite(rule.max_ongoing)
            return {"max_ongoing_requests": int(rule.max_ongoing) if limited else UNLIMITED}
        case "ray_serve":  # so many that one batch forms while another is computed: fewer, and none is full
            return {"max_ongoing_requests": 2 * rule.max_batch_size * asked.servers}
    return {}
