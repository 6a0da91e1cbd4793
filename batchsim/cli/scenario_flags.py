"""The scenario of a command: from options, from a TOML file, or from a file with options over it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import batchsim as bs
from batchsim import _check
from batchsim.cli import values
from batchsim.cli.flags import Command, FileTable, Panel, argument
from batchsim.measured.measurement import Measurement
from batchsim.scenario import Scenario, Service
from batchsim.scenario.toml import KINDS, read_toml

if TYPE_CHECKING:
    from batchsim.servers import ServerConfig

TABLES = ("simulate", "slo", "over")  # of a file, beside the scenario
WORKLOAD, RULE, SERVICE, OTHER = map(Panel, ("Workload", "Rule", "Service time", "Scenario"))
TOKENS, STEPS = map(Panel, ("Token generation", "Continuous batching"))
CONTINUOUS = (
    "max_num_seqs", "max_num_batched_tokens", "first", "chunked", "reserve", "kv_blocks", "block_size",
    "watermark_blocks", "long_prefill_token_threshold", "prefix_reuse", "max_model_len",
)  # fmt: skip
STEP_TIME = ("weights_ms", "per_token_ms", "per_read_ms", "per_pair_ms", "ragged")
KNOBS = (
    "rate_per_s", "clients", "max_batch_size", "max_wait_ms", "fixed_ms", "per_item_ms",
    "compile_ms", "servers", "devices", "host_ms", "contention", "queue_limit", "timeout_ms",
    "timeout_action", "priorities", *STEP_TIME, *CONTINUOUS,
)  # fmt: skip
SERVICES = ("--service", "--table", "--published", "--measurement")  # each a whole service time
_TEXTBOOK = bs.SizeOrWait.parameters()  # of the rule where no other is given
_CONTINUOUS = bs.Continuous.parameters()


def _one_of(part: str, example: str) -> str:
    return f"Written as in Python: {example}. Kinds: {', '.join(KINDS[part])}."


@dataclass
class ScenarioFlags(Command):
    """The scenario, named as in Python."""

    file: Path | None = argument("A scenario in TOML (`batchsim init` writes one); options override it.")

    rate_per_s: float | None = WORKLOAD.number(
        "PER_S", "Mean arrival rate, of Poisson arrivals or of any workload scaled to it."
    )
    workload: Any = WORKLOAD.part(_one_of("workload", "'Gamma(800, cv=2)'"))
    clients: int | None = WORKLOAD.whole("Closed loop with this many clients, each waiting for its answer.")
    trace: Path | None = WORKLOAD.option(
        "Real traffic: arrival times in a CSV file, JSON lines (.jsonl) or Parquet."
    )
    column: str | None = WORKLOAD.option("The trace's column (default: the first).")
    unit: str | None = WORKLOAD.option(
        "Of the trace's numbers: s, ms, us or ns (default: from the column's name, or times since 1970).",
        metavar="UNIT",
    )  # fmt: skip
    speedup: float | None = WORKLOAD.number("FACTOR", "Replay the trace this many times faster.")
    priorities: Any = WORKLOAD.option(
        "Priority levels, 1 first, and their shares of the requests: 1:0.2,2:0.8.",
        metavar="LEVEL:SHARE,...", parser=values.levels,
    )  # fmt: skip

    max_batch_size: int | None = RULE.whole(
        f"{_TEXTBOOK['max_batch_size'].about} (default: 32, or the largest size of a smaller table)."
    )
    max_wait_ms: float | None = RULE.number(
        "MS", f"{_TEXTBOOK['max_wait_ms'].about} (default: 10); inf: without limit."
    )
    rule: Any = RULE.part(_one_of("rule", "'AtLeast(4, 8)'"))
    server_config: Path | None = RULE.option(
        "A server's own file, as config.pbtxt or app.py: its rule, servers, limits and padding."
    )
    server: str | None = RULE.option("Whose file that is (default: told by its name and content).")
    which: str | None = RULE.option("The model, function or worker that is meant, if the file has several.")

    fixed_ms: float | None = SERVICE.number("MS", "Time that every batch takes (default: 0).")
    per_item_ms: float | None = SERVICE.number("MS", "Time that each request adds to its batch (default: 0).")
    table: Any = SERVICE.option(
        "Measured times by batch size: 1=2.08,2=2.65,8=3.29.", metavar="SIZE=MS,...", parser=values.table
    )
    published: Any = SERVICE.option(
        "Published, such as nnunet/t4/fp16: see `batchsim published`.", metavar="<str>", parser=bs.published
    )
    measurement: Any = SERVICE.option(
        "A file that `batchsim measure --save` wrote.", metavar="<path>",
        parser=lambda path: Measurement.load(path).service,
    )  # fmt: skip
    service: Any = SERVICE.part(_one_of("service", "'Affine(5, 0.25).with_noise(0.1)'"))

    weights_ms: float | None = SERVICE.number("MS", "Of a step of tokens: least time of its products.")
    per_token_ms: float | None = SERVICE.number("MS", "Of a step: its products' time for each token.")
    per_read_ms: float | None = SERVICE.number("MS", "Of a step: time for each key that a decode reads.")
    per_pair_ms: float | None = SERVICE.number("MS", "Of a step: time for each pair of a prompt's tokens.")
    ragged: bool | None = SERVICE.option(
        "Whole batches compute a row until its own end, or padded to the longest.", None, "--ragged/--padded"
    )

    compile_ms: Any = SERVICE.option(
        "Cold start: what the first batch of each size takes longer: 800, or by size 1=300,32=650.",
        metavar="MS", parser=values.by_size,
    )  # fmt: skip

    prompt_tokens: Any = TOKENS.part(
        f"Length of prompts: a number, or {', '.join(KINDS['lengths'])}, as 'Lognormal(800, 1.2)'."
    )
    output_tokens: Any = TOKENS.part("Length of answers, likewise, as 'Geometric(200)'.")
    token_limit: int | None = TOKENS.whole("What clients ask for at most (default: the answer's own length).")
    tokens: Any = TOKENS.part("All of it, as in Python: 'Tokens.from_csv(\"azure.csv\")'.")

    max_num_seqs: int | None = STEPS.whole(f"{_CONTINUOUS['max_num_seqs'].about} (default: 256).")
    max_num_batched_tokens: int | None = STEPS.whole(
        f"{_CONTINUOUS['max_num_batched_tokens'].about} (default: 2,048)."
    )
    first: str | None = STEPS.option("Who goes first (default: decode).", metavar="decode|prefill")
    chunked: bool | None = STEPS.option(
        "Whether a prompt may be cut (default: chunked).", None, "--chunked/--no-chunked"
    )
    reserve: str | None = STEPS.option(
        "Memory for the next step, or for the whole life (default: step).", metavar="step|life"
    )
    kv_blocks: int | None = STEPS.whole(
        "Usable blocks of memory of each engine (default: as many as it takes)."
    )
    block_size: int | None = STEPS.whole(f"{_CONTINUOUS['block_size'].about} (default: 16).")
    watermark_blocks: int | None = STEPS.whole(f"{_CONTINUOUS['watermark_blocks'].about} (default: 0).")
    long_prefill_token_threshold: int | None = STEPS.whole(
        f"{_CONTINUOUS['long_prefill_token_threshold'].about} (default: 0)."
    )
    prefix_reuse: bool | None = STEPS.option(
        "Whether a preempted request may find its own blocks again (default: no).", None,
        "--prefix-reuse/--no-prefix-reuse",
    )  # fmt: skip

    max_model_len: int | None = STEPS.whole(
        "The most tokens of a request, prompt and output together (default: any number)."
    )

    servers: int | None = OTHER.whole("Model instances, each computing one batch at a time (default: 1).")
    devices: int | None = OTHER.whole("Devices that the servers share (default: one for each server).")
    host_ms: float | None = OTHER.number(
        "MS", "Part of the service time before a batch needs its device (default: 0)."
    )
    contention: float | None = OTHER.number(
        "FACTOR", "How much longer a batch computes that finds its device busy (default: 1)."
    )
    queue_limit: int | None = OTHER.whole(
        "Reject arrivals when this many are waiting; arrivals at one instant all count."
    )
    timeout_ms: float | None = OTHER.number("MS", "Drop a request that has not started after this long.")
    timeout_action: str | None = OTHER.option(
        "What a timeout does: reject, or delay (serve it after the others).", metavar="ACTION"
    )
    set_: list[str] | None = OTHER.option(
        "Any knob by name: workload.cv=2, 'slowdown={1: 1, 2: 1.8}'. Repeatable.", None, "--set",
        metavar="KNOB=VALUE",
    )  # fmt: skip

    def scenario(self) -> tuple[bs.Scenario, dict[str, FileTable]]:
        """Return the scenario, and the tables `TABLES` of its file, empty if it has none."""
        base, content = (None, {}) if self.file is None else read_toml(Scenario, self.file, TABLES)
        tables = {name: FileTable(f"{self.file}, [{name}]", content.get(name, {})) for name in TABLES}
        knobs = self._knobs()
        workload, service = self._workload(base, knobs), self._service(base, knobs)
        tokens = self._tokens(base, knobs)
        rule, config = self.rule, self.read_config()
        if config is not None:
            _once("rule", {"--rule": rule, "--server-config": config})
            rule = config.rule
        parts = {"workload": workload, "rule": rule, "service": service, "tokens": tokens}
        changes = {name: part for name, part in parts.items() if part is not None}
        if base is None:
            base, changes = self._new(changes, knobs), {}
        if config is not None:
            if {"devices", "slowdown"} & knobs.keys():  # they say how devices are shared
                config = replace(config, devices=None)
            silent = bool({"host_ms", "contention"} & knobs.keys())
            base, changes = config.apply(base.replace(changes), silent=silent), {}
        return base.replace(changes | knobs), tables

    def read_config(self) -> "ServerConfig | None":
        """Return what the server's file means, and say what of it makes no difference."""
        if self.server_config is None:
            if (self.server, self.which) != (None, None):
                raise ValueError("--server and --which must come with --server-config, got none")
            return None
        from batchsim import servers

        config = servers.read(self.server_config, self.server, self.which)
        if config.unused:
            typer.echo(f"{self.server_config}: no effect: {', '.join(config.unused)}", err=True)
        for key, nearest in config.unknown.items():
            hint = f"; did you mean {nearest!r}?" if nearest else ""
            _check.warn(f"{self.server_config}: {config.server} does not have {key}{hint}")
        for note in config.notes:
            _check.warn(f"{self.server_config}: {note}")
        return config

    def _new(self, parts: dict[str, Any], knobs: dict[str, Any]) -> bs.Scenario:
        """Return a scenario from options alone; the knobs of its rule are taken out of `knobs`."""
        for name, options in (
            ("workload", "--rate-per-s, --workload, --trace or --clients"),
            ("service", "--fixed-ms, --table, --published, --measurement or --service"),
        ):
            if name not in parts:
                raise ValueError(f"a {name} must be given: by a TOML file, {options}")
        textbook = any(name in knobs for name in _TEXTBOOK)
        if "rule" not in parts and "tokens" in parts and not textbook:
            parts["rule"] = bs.Continuous(**{name: knobs.pop(name) for name in CONTINUOUS if name in knobs})
        if "rule" not in parts:
            largest, service = bs.SizeOrWait().max_batch_size, parts["service"]
            # What is no service time at all is left to Scenario, which refuses it.
            if isinstance(service, Service):
                largest = int(min(largest, service.largest_batch)) or largest
            given = {name: knobs.pop(name) for name in _TEXTBOOK if name in knobs}
            parts["rule"] = bs.SizeOrWait(**{"max_batch_size": largest} | given)
        return bs.Scenario(**parts)

    def _knobs(self) -> dict[str, Any]:
        """Return the knobs that have an option of their own, and those of --set."""
        knobs = {name: getattr(self, name) for name in KNOBS if getattr(self, name) is not None}
        for text in self.set_ or ():
            name, value = values.setting(text)
            if name in knobs:
                raise ValueError(f"{name} must be given once, got it again by --set {text}")
            knobs[name] = value
        return knobs

    def _workload(self, base: bs.Scenario | None, knobs: dict[str, Any]) -> Any:
        """Return a new workload, None to keep the file's; the knobs that it uses are taken out of `knobs`."""
        _once("workload", {"--workload": self.workload, "--trace": self.trace, "--clients": self.clients})
        if self.trace is not None:
            speedup = 1.0 if self.speedup is None else self.speedup
            return bs.Trace.from_file(self.trace, self.column, speedup, self.unit)
        if any(option is not None for option in (self.column, self.unit, self.speedup)):
            raise ValueError("--column, --unit and --speedup must come with --trace, got none")
        if self.clients is not None and not (base and isinstance(base.workload, bs.ClosedLoop)):
            return bs.ClosedLoop(knobs.pop("clients"))
        if self.rate_per_s is not None and self.workload is None and base is None:
            return bs.Poisson(knobs.pop("rate_per_s"))
        return self.workload

    def _tokens(self, base: bs.Scenario | None, knobs: dict[str, Any]) -> Any:
        """Return new lengths, None to keep the file's; single ones are put into `knobs`."""
        options = {"prompt": self.prompt_tokens, "output": self.output_tokens, "limit": self.token_limit}
        given = {name: value for name, value in options.items() if value is not None}
        if self.tokens is not None or not given:
            _once("length of tokens", {"--tokens": self.tokens, "--prompt-tokens": given or None})
            return self.tokens
        if base is not None and base.tokens is not None:
            knobs.update({f"tokens.{name}": value for name, value in given.items()})
            return None
        for name in ("prompt", "output"):
            if name not in given:
                raise ValueError(
                    f"--{name}-tokens must be given too: tokens need prompts and outputs, got none"
                )
        return bs.Tokens(**given)

    def _service(self, base: bs.Scenario | None, knobs: dict[str, Any]) -> Any:
        """Return a new service time, as `_workload` does."""
        affine = self.fixed_ms if self.fixed_ms is not None else self.per_item_ms
        step = next((value for name in STEP_TIME if (value := getattr(self, name)) is not None), None)
        options = {name: getattr(self, name[2:]) for name in SERVICES}
        of_items = (
            {"--fixed-ms or --per-item-ms": affine} if step is None else {"--per-item-ms": self.per_item_ms}
        )
        given = _once("service", {**options, **of_items, "--weights-ms or --per-token-ms": step})
        of_steps = step is not None or self.per_item_ms is None
        if of_steps and base is not None and isinstance(base.service, bs.StepTime):
            return given if step is None and affine is None else None  # the file's, with these knobs
        if step is not None:
            names = bs.StepTime.__match_args__
            return bs.StepTime(**dict.fromkeys(names[:3], 0) | {
                name: knobs.pop(name) for name in (*names, "ragged") if name in knobs
            })  # fmt: skip
        if affine is None:
            return given
        file_has = base is not None and isinstance(base.service, bs.Affine)
        return None if file_has else bs.Affine(knobs.pop("fixed_ms", 0), knobs.pop("per_item_ms", 0))


def _once(part: str, options: dict[str, Any]) -> Any:
    """Return the value of the one option that is given, if any."""
    given = {option: value for option, value in options.items() if value is not None}
    if len(given) > 1:
        raise ValueError(f"a {part} must be given once, got {' and '.join(given)}")
    return next(iter(given.values()), None)
