"""The scenario of a command: from options, from a TOML file, or from a file with options over it."""

import re
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

import batchsim as bs
from batchsim import _check, _format
from batchsim._compat import kept
from batchsim._files import INPUT, SCENARIO_BYTES, text_of
from batchsim.cli import output, values
from batchsim.cli.flags import Command, FileTable, Panel
from batchsim.measured import sized_measurement
from batchsim.measured.published import published_source
from batchsim.scenario import Scenario, Service
from batchsim.scenario.knobs import names_of
from batchsim.scenario.toml import KINDS, read_toml
from batchsim.servers.language import NO_MEMORY

if TYPE_CHECKING:
    from batchsim.servers import ServerConfig

_TABLE = re.compile(r"^\s*\[[\w.]+\]", re.MULTILINE)  # only a scenario has such a line
TABLES = ("simulate", "slo", "over")  # the other tables of a file
WORKLOAD, RULE, SERVICE, OTHER = map(Panel, ("Workload", "Rule", "Service time", "Scenario"))
TOKENS, STEPS = map(Panel, ("Token generation", "Continuous batching"))
STEP_TIME = ("weights_ms", "per_token_ms", "per_read_ms", "per_pair_ms", "ragged")
NEEDED = {
    "workload": "a workload by --rate-per-s, --workload, --trace or --clients",
    "service": "a service time by --fixed-ms, --table, --published, --measurement or --service",
}
SERVICES = ("--service", "--table", "--published", "--measurement")  # each a whole service time
_TEXTBOOK = bs.SizeOrWait.parameters()  # the default rule
_FIELDS = {
    field.name: field
    for part in (
        bs.Poisson, bs.ClosedLoop, bs.Tokens, bs.StepTime, bs.Affine, bs.Continuous, bs.SizeOrWait, Scenario
    )
    for field in fields(part)
}  # fmt: skip


class Lacking(ValueError):
    """Parts of a scenario are not given."""


def _about(name: str, default: Any = None) -> str:
    """Return the help of a field that describes itself, with its default, or another one."""
    field = _FIELDS[name]
    it, usual = field.metadata["parameter"], field.default if default is None else default
    text = it.when_none if usual is None else f"{usual:,g}" if isinstance(usual, (int, float)) else usual
    return f"{it.about}." if usual is MISSING else f"{it.about} (default: {text})."


def _one_of(part: str, example: str) -> str:
    return f"Written as in Python: {example}. Kinds: {', '.join(KINDS[part])}."


@dataclass
class ScenarioFlags(Command):
    """The scenario, named as in Python."""

    _text: str | None = None  # a server's file that has been read
    free: ClassVar[tuple[str, ...]] = ()  # parts that the command does not need

    file: Path | None = typer.Argument(
        None,
        help="Scenario in TOML (`batchsim init`), which options override; - reads it. Or a server's file.",
    )

    rate_per_s: float | None = WORKLOAD("Mean arrival rate: Poisson arrivals, or any workload scaled to it.")
    workload: Any = WORKLOAD.part(_one_of("workload", "'Gamma(800, cv=2)'"))
    clients: int | None = WORKLOAD("Closed loop with this many clients, each waiting for its answer.")
    trace: Path | None = WORKLOAD("Real traffic: arrival times in CSV, JSON lines (.jsonl) or Parquet.")
    column: str | None = WORKLOAD("The trace's column (default: by its name, else the first).")
    unit: str | None = WORKLOAD("The trace's unit: s, ms, us or ns (default: guessed).", metavar="UNIT")
    speedup: float | None = WORKLOAD("Replay the trace this many times faster.", metavar="FACTOR")
    priorities: Any = WORKLOAD(
        "Priority levels, 1 first, and their shares of the requests: 1:0.2,2:0.8.",
        metavar="LEVEL:SHARE,...", parser=values.levels,
    )  # fmt: skip

    sizes: Any = WORKLOAD.part("A size for each request, as 'Lognormal(80, 1, at_most=512)'.")
    oversize_action: str | None = WORKLOAD(_about("oversize_action"), metavar="reject|truncate")

    max_batch_size: int | None = RULE(_about("max_batch_size", "32, or a table's largest"))
    max_wait_ms: float | None = RULE(_about("max_wait_ms") + " inf: without limit.")
    max_batch_units: int | None = RULE(_about("max_batch_units"))
    units: str | None = RULE(_about("units"), metavar="padded|summed")
    rule: Any = RULE.part(_one_of("rule", "'AtLeast(4, 8)'"))
    server_config: Path | None = RULE("A server's file, as app.py: its rule, servers, limits and padding.")
    server: str | None = RULE("Server of that file (default: by its name and content).")
    which: str | None = RULE("Model, function or worker, if the file has several.")

    fixed_ms: float | None = SERVICE(_about("fixed_ms", 0))
    per_item_ms: float | None = SERVICE(_about("per_item_ms", 0))
    table: Any = SERVICE("Times by batch size: 1=2.08,8=3.29.", metavar="SIZE=MS,...", parser=values.table)
    published: Any = SERVICE(
        "Published, such as nnunet/t4/fp16: see `batchsim published`.",
        metavar="NAME",
        parser=published_source,
    )
    measurement: Any = SERVICE(
        "A file that `batchsim measure --save` wrote.", metavar="FILE",
        parser=lambda path: sized_measurement.load(path),
    )  # fmt: skip
    service: Any = SERVICE.part(_one_of("service", "'Affine(5, 0.25).with_noise(0.1)'"))
    weights_ms: float | None = TOKENS(_about("weights_ms"))
    per_token_ms: float | None = TOKENS(_about("per_token_ms"))
    per_read_ms: float | None = TOKENS(_about("per_read_ms"))
    per_pair_ms: float | None = TOKENS(_about("per_pair_ms"))
    ragged: bool | None = TOKENS(
        "Whole batches compute a row until its own end, or padded to the longest.", None, "--ragged/--padded"
    )
    compile_ms: Any = SERVICE(
        "Cold start: extra time of the first batch of each size: 800, or by size 1=300,32=650.",
        metavar="MS", parser=values.by_size,
    )  # fmt: skip

    prompt_tokens: Any = TOKENS.part(
        f"Length of prompts: a number, or {', '.join(KINDS['length'])}, as 'Lognormal(800, 1.2)'."
    )
    output_tokens: Any = TOKENS.part("Length of answers, likewise, as 'Geometric(200)'.")
    token_limit: int | None = TOKENS(_about("limit"))
    tokens: Any = TOKENS.part("All of it, as in Python: 'Tokens.from_csv(\"azure.csv\")'.")

    max_num_seqs: int | None = STEPS(_about("max_num_seqs"))
    max_num_batched_tokens: int | None = STEPS(_about("max_num_batched_tokens"))
    first: str | None = STEPS("Who goes first (default: decode).", metavar="decode|prefill")
    chunked: bool | None = STEPS("Whether a prompt may be cut (default: chunked).")
    reserve: str | None = STEPS("Reserve memory by step, or for life (default: step).", metavar="step|life")
    kv_blocks: Any = STEPS(
        "Blocks of memory of each engine, or unlimited (default: what a --published model leaves free).",
        metavar="N", parser=values.limit,
    )  # fmt: skip
    block_size: int | None = STEPS(_about("block_size"))
    watermark_blocks: int | None = STEPS(_about("watermark_blocks"))
    long_prefill_token_threshold: int | None = STEPS(_about("long_prefill_token_threshold"))
    prefix_reuse: bool | None = STEPS("Whether prompts find their beginning in memory again (default: no).")
    max_model_len: int | None = STEPS("Largest prompt and output together (default: unlimited).")

    servers: int | None = OTHER(_about("servers"))
    devices: int | None = OTHER(_about("devices"))
    host_ms: float | None = OTHER(_about("host_ms"))
    contention: float | None = OTHER(_about("contention"), metavar="FACTOR")
    queue_limit: Any = OTHER(_about("queue_limit"), metavar="N|none", parser=values.limit)
    timeout_ms: float | None = OTHER(_about("timeout_ms"))
    timeout_action: str | None = OTHER(_about("timeout_action"), metavar="reject|delay")
    set_: list[str] | None = OTHER(
        "Any knob by name: workload.cv=2, 'slowdown={1: 1, 2: 1.8}'. Repeatable.", None, "--set",
        metavar="KNOB=VALUE",
    )  # fmt: skip

    def scenario(self) -> tuple[bs.Scenario, dict[str, FileTable]]:
        """Return the scenario, and the file's `TABLES`; a missing one is empty."""
        source = self._source()
        base, content = (None, {}) if source is None else read_toml(Scenario, source, TABLES)
        tables = {name: FileTable(f"{self.file}, [{name}]", content.get(name, {})) for name in TABLES}
        knobs = self._knobs()
        parts = {
            "workload": self._workload(base, knobs), "rule": self.rule,
            "service": self._service(base, knobs), "tokens": self._tokens(base, knobs),
        }  # fmt: skip
        if (config := self.config) is not None:
            from batchsim.servers.cards import on_card, on_device

            config = on_card(config, on_device(getattr(self.published, "name", "")))
            parts["rule"] = _once("rule", {"--rule": self.rule, "--server-config": config}).rule
        changes = {name: part for name, part in parts.items() if part is not None}
        if base is None:
            base, changes = self._new(changes, knobs), {}
        if config is not None:
            if {"devices", "slowdown"} & knobs.keys():  # these set how servers share devices
                config = replace(config, devices=None)
            config = replace(config, queue_limit=knobs.get("queue_limit", config.queue_limit))
            silent = bool({"host_ms", "contention"} & knobs.keys()) or "service" in self.free
            base, changes = config.apply(base.replace(changes), silent=silent), {}
        scenario = base.replace(changes | knobs)
        if self.lacks_memory(scenario) and self.published is not None:
            scenario = self._with_memory(scenario, self.published.name)
        for note in () if config is None else config.notes:
            if getattr(scenario.rule, "kv_blocks", None) is not None:  # from elsewhere
                note = note.removeprefix(NO_MEMORY).removeprefix("; ")
            if note:
                _check.warn(f"{self.server_config}: {note}")
        return scenario, tables

    def lacks_memory(self, scenario: Scenario) -> bool:
        """Return whether a scenario's engines have unlimited memory that nobody asked for."""
        said = any(name.endswith("kv_blocks") for name in self._knobs())
        return getattr(scenario.rule, "kv_blocks", 0) is None and not said

    def _with_memory(self, scenario: Scenario, name: str) -> Scenario:
        """Return a scenario with the blocks that a published model leaves free, if these are known."""
        from batchsim.servers.cards import blocks

        found = blocks(name, scenario.rule.block_size)  # type: ignore[attr-defined]
        if found is None:
            return scenario
        typer.echo(
            f"kv_blocks: {found.blocks:,}, what {found.model.name} leaves on {found.card.name}", err=True
        )
        return scenario.replace(kv_blocks=found.blocks)

    def _source(self) -> Path | str | None:
        """Return the scenario's file or text; a server's file in its place becomes `server_config`."""
        source, has_server = self.file, self.server_config is not None
        if source is None or source.suffix == ".toml" or (has_server and source != INPUT):
            return source
        if not source.suffix:  # its text tells which it is
            text = text_of(source, SCENARIO_BYTES)
            if has_server or not text.strip() or _TABLE.search(text):
                return f"{text}\n" if source == INPUT else source
            self._text = text.replace("\r\n", "\n")
        self.file, self.server_config = None, source
        return None

    @kept
    def config(self) -> "ServerConfig | None":
        """The server's file, or None. Keys of it that are not simulated or are unknown are reported."""
        if self.server_config is None:
            if (self.server, self.which) != (None, None):
                raise ValueError("--server and --which must come with a server's file, got none")
            return None
        from batchsim import servers

        config = servers.read(self.server_config, self.server, self.which, text=self._text)
        if config.unused:
            unused = _format.several([*config.unused], 20)
            output.echo(f"{self.server_config}: not simulated: {unused}", err=True)
        for key, nearest in config.unknown.items():
            hint = f"; did you mean {nearest!r}?" if nearest else ""
            _check.warn(f"{self.server_config}: {config.server} does not have {key}{hint}")
        return config

    def _new(self, parts: dict[str, Any], knobs: dict[str, Any]) -> bs.Scenario:
        """Return a scenario from options alone. This removes its rule's knobs from `knobs`."""
        needed = dict(NEEDED)
        if of_steps := any(isinstance(part, bs.StepTime | bs.Continuous) for part in parts.values()):
            needed["tokens"] = "lengths by --prompt-tokens and --output-tokens or --tokens"
        service: Any = bs.StepTime(1, 0, 0) if of_steps else bs.Affine(1, 0)
        stand_in: Any = {"workload": bs.Constant(1), "service": service, "tokens": bs.Tokens(1, 1)}
        parts |= {name: stand_in[name] for name in needed if name in self.free and name not in parts}
        if lacking := [text for name, text in needed.items() if name not in parts]:
            raise Lacking(f"{_format.listed(lacking)} must be given, or a scenario in TOML, got none")
        if "rule" not in parts and "tokens" in parts and not _TEXTBOOK.keys() & knobs.keys():
            parts["rule"] = bs.Continuous(**_taken(names_of(bs.Continuous), knobs))
        if "rule" not in parts:
            largest, service = bs.SizeOrWait().max_batch_size, parts["service"]
            if isinstance(service, Service):  # Scenario refuses anything else
                largest = int(min(largest, service.largest_batch)) or largest
            parts["rule"] = bs.SizeOrWait(**{"max_batch_size": largest} | _taken(_TEXTBOOK, knobs))
        if "sizes" in knobs:
            parts["workload"] = replace(parts["workload"], sizes=knobs.pop("sizes"))
        return bs.Scenario(**parts)

    def _knobs(self) -> dict[str, Any]:
        """Return the knobs that have an option of their own, and those of --set."""
        given = {name: getattr(self, name) for name in KNOBS if getattr(self, name) is not None}
        knobs = {name: None if value is values.NO_LIMIT else value for name, value in given.items()}
        for text in self.set_ or ():
            name, value = values.setting(text)
            if name in knobs:
                raise ValueError(f"{name} must be given once, got it again by --set {text}")
            knobs[name] = value
        return knobs

    def _workload(self, base: bs.Scenario | None, knobs: dict[str, Any]) -> Any:
        """Return a new workload, None to keep the file's. This removes the knobs it uses from `knobs`."""
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
        """Return new lengths, None to keep the file's. This adds changes of single lengths to `knobs`."""
        options = {"prompt": self.prompt_tokens, "output": self.output_tokens, "limit": self.token_limit}
        given = {name: value for name, value in options.items() if value is not None}
        if self.tokens is not None or not given:
            _once("length of tokens", {"--tokens": self.tokens, "--prompt-tokens": given or None})
            return self.tokens
        if base is not None and base.kind == "tokens":
            knobs.update({f"tokens.{name}": value for name, value in given.items()})
            return None
        for name in ("prompt", "output"):
            if name not in given:
                raise ValueError(f"--{name}-tokens must be given too, with prompts and outputs, got none")
        return bs.Tokens(**given)

    def _service(self, base: bs.Scenario | None, knobs: dict[str, Any]) -> Any:
        """Return a new service time, None to keep the file's. This removes the knobs it uses from `knobs`."""
        affine = self.fixed_ms if self.fixed_ms is not None else self.per_item_ms
        step = next((value for name in STEP_TIME if (value := getattr(self, name)) is not None), None)
        options = {name: getattr(self, name[2:]) for name in SERVICES}
        for name in ("published", "measurement"):
            options[f"--{name}"] = getattr(getattr(self, name), "service", None)
        options["--per-item-ms" if step is not None else "--fixed-ms or --per-item-ms"] = (
            self.per_item_ms if step is not None else affine
        )
        given = _once("service", options | {"--weights-ms or --per-token-ms": step})
        if step is None and affine is None:
            return given
        if base is not None and base.kind == "tokens" and self.per_item_ms is None:
            return None
        if step is not None:
            names = bs.StepTime.__match_args__
            return bs.StepTime(**dict.fromkeys(names[:3], 0) | _taken((*names, "ragged"), knobs))
        file_has = base is not None and isinstance(base.service, bs.Affine)
        return None if file_has else bs.Affine(knobs.pop("fixed_ms", 0), knobs.pop("per_item_ms", 0))


# The options that are knobs of a scenario: those with the name of a field, but of a whole part.
KNOBS = [
    each.name for each in fields(ScenarioFlags) if each.name in _FIELDS.keys() - {*NEEDED, "rule", "tokens"}
]


def _taken(names: Iterable[str], knobs: dict[str, Any]) -> dict[str, Any]:
    """Remove those of the knobs, and return them."""
    return {name: knobs.pop(name) for name in names if name in knobs}


def _once(part: str, options: dict[str, Any]) -> Any:
    """Return the value of the one option that is given, if any."""
    given = {option: value for option, value in options.items() if value is not None}
    if len(given) > 1:
        raise ValueError(f"a {part} must be given once, got {' and '.join(given)}")
    return next(iter(given.values()), None)
