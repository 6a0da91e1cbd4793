"""vLLM: `vllm serve`, its V1 scheduler."""

import contextlib
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import Any

from batchsim import _check
from batchsim._files import json_of
from batchsim.scenario.rules.continuous import MOST, Continuous
from batchsim.servers import language
from batchsim.servers.formats.command_lines import CommandLine, starts
from batchsim.servers.formats.document import Document, Node, Section, refused
from batchsim.servers.formats.keyed_text import YAML, parse_yaml
from batchsim.servers.server import Format, Server, ServerConfig, Words

MODE, SIZES, MOST_SIZE = "cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size"
MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
LARGE_GIB = 70  # cards with this much memory have the larger defaults, except the A100


def defaults(gpu: Any = None, performance_mode: str = "balanced") -> tuple[int, int]:
    """Return the max_num_batched_tokens and max_num_seqs of `vllm serve` on a card; None: a small one.

    >>> defaults("rtx-4090"), defaults("a100-80gb"), defaults("h100")
    ((2048, 256), (2048, 256), (8192, 1024))
    """
    card = language.card_of(gpu)
    large = card is not None and card.memory_gib >= LARGE_GIB and not card.name.startswith("a100")
    _check.one_of("vLLM's performance_mode", performance_mode, ("balanced", "interactivity", "throughput"))
    tokens, seqs = (8192, 1024) if large else (2048, 256)
    factor = 2 if performance_mode == "throughput" else 1
    return factor * tokens, factor * seqs


def vllm(
    *, max_num_seqs: int | None = None, max_num_batched_tokens: int | None = None,
    enable_chunked_prefill: bool = True, long_prefill_token_threshold: int = 0,
    max_model_len: int | str | None = None, block_size: int = 16, num_gpu_blocks_override: int | None = None,
    performance_mode: str = "balanced", model: str | None = None, gpu: str | float | None = None,
    gpu_memory_utilization: float = 0.9, tensor_parallel_size: int = 1,
) -> Continuous:  # fmt: skip
    """Return the rule of vLLM 0.19's V1 scheduler.

    A step visits the running requests in order of admission, prompts and decodes, and gives each its tokens
    while the budget lasts. Then the next in line join, each if its whole known length has free blocks. If
    blocks run short, the last that joined returns to the head of the queue and recomputes everything.

    `gpu`, a name or GiB, is the card. The defaults of the two limits depend on it, as in `vllm serve`: 2,048
    tokens and 256 requests; 8,192 and 1,024 from 70 GiB, except on an A100. One of the blocks is a
    placeholder. Without num_gpu_blocks_override, `batchsim.kv_blocks` computes what `model` leaves free;
    without a model or gpu, memory is unlimited.

    Not simulated: prefix caching (4 points of the answer's time in the measured run;
    `scenario.replace(prefix_reuse=True)` adds it), async scheduling (0.5 % there),
    and priorities.

    >>> vllm(max_num_seqs=64, num_gpu_blocks_override=2588).kv_blocks
    2587
    >>> vllm(gpu="h100").max_num_seqs
    1024
    """
    tokens = language.maybe_whole("vLLM's max_num_batched_tokens", max_num_batched_tokens)
    seqs = language.maybe_whole("vLLM's max_num_seqs", max_num_seqs)
    fits = max_model_len in ("auto", -1)  # the longest that memory has room for
    length = None if fits else language.maybe_whole("vLLM's max_model_len", max_model_len)
    _check.instance("vLLM's enable_chunked_prefill", enable_chunked_prefill, bool, "True or False")
    usual_tokens, usual_seqs = defaults(gpu, performance_mode)
    most = usual_seqs if seqs is None else seqs
    if tokens is None:
        tokens = usual_tokens
        if length is not None:
            tokens = max(tokens, 0 if enable_chunked_prefill else length)
            tokens = min(tokens, most * length)
    seqs = min(most, tokens) if seqs is None else seqs
    rule = "vLLM's max_num_batched_tokens must be at least"
    if tokens < seqs:
        raise ValueError(f"{rule} max_num_seqs, {seqs}, got {tokens}")
    if not enable_chunked_prefill and tokens < (length or 0):
        raise ValueError(f"{rule} max_model_len, {length}, without chunked prefill, got {tokens}")
    blocks = language.maybe_whole("vLLM's num_gpu_blocks_override", num_gpu_blocks_override, at_least=2)
    if blocks is None:
        gpus = _check.whole("vLLM's tensor_parallel_size", tensor_parallel_size)
        blocks = language.blocks_beside(model, gpu, gpus, block_size, gpu_memory_utilization)
    return Continuous(
        seqs, tokens, chunked=enable_chunked_prefill, kv_blocks=None if blocks is None else blocks - 1,
        block_size=_check.whole("vLLM's block_size", block_size, at_most=MOST),
        long_prefill_token_threshold=_check.whole(
            "vLLM's long_prefill_token_threshold", long_prefill_token_threshold, at_least=0, at_most=MOST
        ),
        max_model_len=length,
    )  # fmt: skip


def config(
    *, cudagraph_capture_sizes: list[int] | None = None, max_cudagraph_capture_size: int | None = None,
    enforce_eager: bool = False, optimization_level: int = 2, compilation_config: Any = None, **settings: Any,
) -> ServerConfig:  # fmt: skip
    """Return the meaning of `vllm serve`, with its captured sizes (`_set_cudagraph_sizes` of config/vllm.py).

    By default they are 1, 2, 4, multiples of 8 below 256, and then of 16, up to twice max_num_seqs, at most
    512. Graphs of decodes are recorded for sizes up to max_num_seqs only, so 100 seats leave steps of 97 to
    100 sequences without one. In the mode FULL_AND_PIECEWISE, the default, these and steps with prompts
    consist of pieces: they take at least `beyond_ms`, too, and their padding is not simulated.
    """
    rule = vllm(**settings)
    given = _keys_of(compilation_config)
    usual = {0: "NONE", 1: "PIECEWISE"}.get(optimization_level, "FULL_AND_PIECEWISE")
    mode = _check.one_of("vLLM's cudagraph_mode", str(given.get(MODE, usual)).upper(), MODES)
    sizes = given.get(SIZES) if cudagraph_capture_sizes is None else cudagraph_capture_sizes
    most = given.get(MOST_SIZE) if max_cudagraph_capture_size is None else max_cudagraph_capture_size
    most = language.maybe_whole(f"vLLM's {MOST_SIZE}", most)
    if sizes is None:
        top = min(rule.max_num_batched_tokens, min(2 * rule.max_num_seqs, 512) if most is None else most)
        sizes = [1, 2, 4, *range(8, min(top + 1, 256), 8), *range(256, top + 1, 16)]
        most = top
    elif most is not None and _check.listed(sizes) and most != max(sizes, default=0):
        raise ValueError(
            f"vLLM's {MOST_SIZE} must be the largest of {SIZES}, {max(sizes, default=0)}, got {most}"
        )
    most = min(rule.max_num_batched_tokens, math.inf if most is None else most)
    off, prompts = enforce_eager is True or mode == "NONE", mode in ("PIECEWISE", "FULL")
    captured = language.captured(f"vLLM's {SIZES}", None if off else sizes, most, prompts=prompts)
    told = compilation_config is None or not given.keys().isdisjoint((MODE, SIZES, MOST_SIZE))
    unused = {} if told else {"compilation_config": compilation_config}
    return ServerConfig("vllm", rule, captured=captured, unused=unused)


def _keys_of(text: Any) -> Mapping[str, Any]:
    """Return the keys of a JSON object; none for anything else."""
    with contextlib.suppress(ValueError):
        text = json_of(text, "vLLM's compilation_config") if isinstance(text, str) else text
    return text if isinstance(text, Mapping) else {}


def remarks(settings: Mapping[str, Any]) -> list[str]:
    """Return a warning if vLLM might not start with these settings."""
    if settings.get("enable_chunked_prefill") is not False or "max_model_len" in settings:
        return []
    budget = f"{settings['max_num_batched_tokens']:,}"
    return [f"Without chunked prefill vLLM starts only if max_model_len is at most {budget}."]


def _extras(target: ServerConfig) -> dict[str, Any]:
    rule = target.rule
    assert isinstance(rule, Continuous)
    settings = {
        "max_num_seqs": rule.max_num_seqs, "max_num_batched_tokens": rule.max_num_batched_tokens,
        "enable_chunked_prefill": rule.chunked, "block_size": rule.block_size,
        "max_model_len": rule.max_model_len,
        "long_prefill_token_threshold": rule.long_prefill_token_threshold,
        "num_gpu_blocks_override": None if rule.kv_blocks is None else rule.kv_blocks + 1,  # a placeholder
        SIZES: language.sizes_of(target),
    }  # fmt: skip
    return language.without_defaults(
        settings, enable_chunked_prefill=True, long_prefill_token_threshold=0, block_size=16
    )


# What starts vLLM on a CPU, and the sequences of each process there (get_batch_defaults of arg_utils.py).
ON_CPU = re.compile(r"(?m)\bVLLM_CPU_(KVCACHE|OMP|NUM_OF|SGL|MOE)|^[^-=\s][^=\s]{0,99}vllm[^=\s]{0,99}-cpu\b")
OLD_IMAGE = re.compile(r"(?m)^[^-=\s][^=\s]{0,99}vllm-openai:v?(0\.[0-7])\b")


def _complete(document: Document, words: str, text: str) -> None:
    words = "\n".join([words, *re.findall(r"\bimage\s*:[\s'\"]*(\S+)", text)])
    if old := OLD_IMAGE.search(words):
        document.note(f"of vLLM {old[1]}, the rule is that of 0.19; before 0.8, prompts run first and whole")
    if not ON_CPU.search(words):
        return
    document.note("on a CPU, max_num_seqs is by default 128 for each process in parallel")
    given = document.unused | document.settings
    ways = [given.get(f"{name}_parallel_size", 1) for name in ("tensor", "pipeline")]
    if {"max_num_seqs", "max_num_batched_tokens"} & {*document.pending} or {*map(type, ways)} != {int}:
        return
    count = math.prod(ways)
    if count > 1 and given.get("enable_chunked_prefill") is not False:
        document.settings.setdefault("max_num_batched_tokens", 2048 * count)
    tokens = document.settings.get("max_num_batched_tokens")
    most = min(128 * count, tokens if type(tokens) is int else MOST)
    document.settings = {"max_num_seqs": most, "enforce_eager": True} | document.settings  # without graphs


POOLING = ["--runner=pooling"]  # which generate no token
POOLING += [f"--convert={each}" for each in ("embed", "classify", "reward")]
POOLING += [f"--task={each}" for each in ("embed", "embedding", "classify", "score", "reward")]
LINE = CommandLine(
    "vllm", "vllm serve",
    starts("vllm serve", "vllm-openai")
    + r"|\bvllm\.entrypoints\.(?:(?:openai\.)?api_server|cli\.main serve)\b"
    r"|^(?:huggingface|vLLM)(?=\s|$)",  # a format of models in KServe
    "model", positional=True,
    short={
        "-tp": "--tensor-parallel-size", "-dp": "--data-parallel-size", "-pp": "--pipeline-parallel-size",
        "-q": "--quantization", "-n": "--nnodes", "-r": "--node-rank", "-O": "--optimization-level",
        # KServe's own (huggingfaceserver/__main__.py, 2025)
        "--model-id": "--model", "--model-dir": "--model", "--model-name": "--served-model-name",
    },
    refuses={
        "VLLM_USE_V1=0": f"VLLM_USE_V1 must be 1, got 0{_check.removed('vllm_v0')}",
        "--backend=huggingface": "--backend must be one that batches continuously, got huggingface",
        "--backend=triton": "--backend must be one that batches continuously, got triton",
    } | {each: f"vLLM must generate tokens to be simulated, got {each}" for each in POOLING},
    glued="-O", complete=_complete,
    sized=frozenset({"--max-num-batched-tokens", "--max-model-len", "--kv-cache-memory-bytes"}),
    units={letter: 1000**power for power, letter in enumerate("kmgt", 1)}
    | {letter: 1024**power for power, letter in enumerate("KMGT", 1)},
)  # fmt: skip


def _pair(name: str, value: Any) -> str:
    off, flag = value is False, name.replace("_", "-")
    return YAML.pair(f"no-{flag}" if off else flag, YAML.literal(off or value))


def _read_yaml(document: Document, text: str, which: str | None) -> None:
    """Fill a document with the file of `vllm serve --config`: flags without their dashes."""
    root = parse_yaml(text)[0]
    if not isinstance(root.value, dict):
        raise refused(f"a vLLM YAML must have keys, got {root.value!r}", (1, 1))
    pairs = Section(LINE.has, _pair, lambda text, name, new: YAML.added(text, root, new))
    values = replace(pairs, literal=lambda name, value: YAML.literal(value))
    document.sections.append(pairs)
    for key, node in root.items.items():
        flag, off = LINE.flag_of(f"--{key}")
        if isinstance(node.value, dict) and not LINE.has(flag[2:]):  # another program's file
            must = f"a vLLM YAML must have flags of vllm serve alone, got {key} with keys of its own"
            raise refused(f"{must}: read the part with the flags", document.place(node))
        if node.value is False:  # vLLM skips such a key
            document.note(f"{key}: false has no effect in vLLM; write no-{key}: true")
        elif node.value is True:
            LINE.put(document, flag, Node(not off, node.at, (node.at, node.span[1])), pairs)
        elif node.value is not None:
            if isinstance(node.value, str):  # vLLM parses each value as a word of its command line
                node.value = LINE.value(flag, node.value)
            LINE.put(document, flag, node, values)


IGNORED = ("async_scheduling", "enable_prefix_caching", "scheduling_policy")
_KEYS = "|".join(
    name.replace("_", "[-_]")
    for name in (*signature(vllm).parameters, "data_parallel_size", *IGNORED)
    if LINE.has(name)
)
# The engines of `data_parallel_size` are replicas. A request goes to the one with the shortest queue, as the
# coordinator last heard of it: every 100 ms, which `stale_ms=100` of the scenario simulates. Each of vLLM's
# API servers also counts what it has sent since then; with `stale_ms` a router does not.
SERVER = Server(
    "vllm", "0.19.0", vllm, config, ignored=IGNORED,
    graphs=(SIZES, MOST_SIZE, "enforce_eager", "optimization_level", "compilation_config"),
    caveats=language.CAVEATS | {
        "scheduler_cls": "the rule is that of vLLM's own scheduler",
        "max_num_partial_prefills": "one prompt is cut at a time",
    },
    modest=("tensor_parallel_size", "gpu_memory_utilization", "max_model_len", "block_size"),
    title="vLLM", started=r"(?i)\bvllm", routing="shortest_queue",
    words=Words("max_num_seqs", replicas="data_parallel_size", budget="max_num_batched_tokens"),
    extras=_extras, remarks=remarks, calm={"long_prefill_token_threshold": 0},
    by_card=(("max_num_seqs", "max_num_batched_tokens"), (24.0, 96.0)),
    formats=(
        LINE.format(
            "a command line of vLLM", "vllm-serve.sh",
            r"(?i:vllm)\w*[\"'}]* serve\b|\bvllm\.entrypoints\.|[\w.}-]/vllm-openai"
            r"|\A(?![\s\S]*\bbatcher\b)[\s\S]*\bmodelFormat\s*:[\s{]*name\s*:[\s'\"]*(huggingface|vLLM)\b",
        ),
        Format(
            "a YAML of vLLM", "vllm.yaml", (".yaml", ".yml"),
            rf"\A(?![\s\S]*^[ \t-]*({language.OPTIONS}|image|kind)\s*:)[\s\S]*^(no[-_])?({_KEYS})\s*:",
            _read_yaml, "",
        ),
    ),
)  # fmt: skip
