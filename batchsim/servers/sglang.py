"""SGLang: `sglang serve`, without its overlap loop."""

from dataclasses import replace
from typing import Any

from batchsim import _check
from batchsim.scenario.rules.continuous import DELAYS, MOST, Continuous, NewTokenRatio
from batchsim.servers import language
from batchsim.servers.formats.command_lines import CommandLine
from batchsim.servers.server import Server, ServerConfig, Words

# Memory below this many GiB: chunked_prefill_size, and the largest batch with a CUDA graph.
BY_MEMORY = ((20, 2048, 8), (35, 4096, 48), (60, 4096, 32), (90, 8192, 256), (160, 8192, 256))
LADDER = (1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16))  # sizes with a CUDA graph below 512
LARGEST, UNKNOWN = (16_384, 512), (4096, 160)
START, LEAST = 0.7, 0.14  # the first ratio, and the part of it to which it decays
FEWEST, MOST_RUNNING = 2048, 4096  # the bounds of the default max_running_requests
CUDA_GIB = 0.5  # used by CUDA itself
SHARES = 1.0, 0.3  # of the conservativeness: of an engine alone, and of those that share the attention


def chunk_of(gpu: Any = None) -> int:
    """Return SGLang's default chunked_prefill_size on a card.

    >>> chunk_of("rtx-4090"), chunk_of("h100"), chunk_of(180.0)
    (4096, 8192, 16384)
    """
    return _by_memory(gpu)[0]


def _by_memory(gpu: Any) -> tuple[int, int]:
    card = language.card_of(gpu)
    if card is None:
        return UNKNOWN
    return next(((chunk, graph) for below, chunk, graph in BY_MEMORY if card.memory_gib < below), LARGEST)


def _blocks(
    model: str | None, gpu: Any, gpus: int, page: int, chunk: int, fraction: float | None
) -> int | None:
    """Return the pages that a model leaves, with SGLang's own estimate of a step's memory reserved."""
    card = language.card_of(gpu)
    if card is None:
        fraction = 1.0 if fraction is None else fraction
    elif fraction is None:
        reserved_mib = 512 + 1.5 * max(chunk, 2048) + 1024 * gpus / 8 + 2 * _by_memory(gpu)[1]
        if card.memory_gib > 60:
            reserved_mib = max(reserved_mib, 10 * 1024)
        fraction = round(1 - reserved_mib / 1024 / card.memory_gib, 3)
    return language.blocks_beside(model, gpu, gpus, page, fraction, CUDA_GIB)


def sglang(
    *, max_running_requests: int | None = None, max_total_tokens: int | None = None,
    chunked_prefill_size: int | None = None, max_prefill_tokens: int = 16_384,
    schedule_conservativeness: float = 1.0, enable_mixed_chunk: bool = False, page_size: int = 1,
    context_length: int | None = None, mem_fraction_static: float | None = None,
    enable_prefill_delayer: bool = False, prefill_delayer_queue_min_ratio: float = 0,
    prefill_delayer_max_delay_ms: float = 5000, prefill_delayer_token_usage_low_watermark: float = 0,
    model_path: str | None = None, gpu: str | float | None = None, tp_size: int = 1,
) -> NewTokenRatio:  # fmt: skip
    """Return the rule of SGLang 0.5.23's scheduler, policy fcfs; only the SimPy engine runs it.

    Prompts go first, in a step of their own, cut to chunked_prefill_size. A request joins if memory has room
    for its prompt, its answer, and a share of the tokens that running requests may still generate. The share
    decays while memory suffices. If memory runs short, the request with the fewest generated tokens returns
    to the TAIL of the queue, and the share is reset.

    `gpu`, a name or GiB, is the card; the default chunked_prefill_size depends on its memory (2,048 to
    16,384; 4,096 without a gpu; -1: prompts are not cut). Memory holds as many tokens as `model_path` leaves,
    according to `batchsim.kv_blocks`, at most max_total_tokens; without any of these, it is unlimited.

    Not simulated: the radix cache and its policies (lpm, dfs-weight), the overlap loop, which sees outputs a
    step later, priorities, exact look-ahead with ignore_eos, and a delay on which data parallel ranks agree.

    >>> rule = sglang(max_running_requests=64, max_total_tokens=41_000, gpu="rtx-4090")
    >>> rule.kv_blocks, rule.max_num_batched_tokens, rule.init_new_token_ratio
    (41000, 4096, 0.7)
    """
    page = _check.whole("SGLang's page_size", page_size, at_most=MOST)
    chunk = chunk_of(gpu) if chunked_prefill_size is None else chunked_prefill_size
    chunk = _check.whole("SGLang's chunked_prefill_size", chunk, at_least=-1, at_most=MOST)
    whole = chunk <= 0
    if not whole and chunk % page:
        raise ValueError(f"SGLang's chunked_prefill_size must be whole pages of {page}, got {chunk}")
    tokens = language.maybe_whole("SGLang's max_total_tokens", max_total_tokens)
    gpus = _check.whole("SGLang's tp_size", tp_size)
    given = max_prefill_tokens if whole else chunk
    blocks = _blocks(language.known_unless(tokens, model_path), gpu, gpus, page, given, mem_fraction_static)
    if tokens is not None:
        if tokens < page:
            raise ValueError(f"SGLang's max_total_tokens must be at least page_size, {page}, got {tokens}")
        blocks = min(tokens // page, blocks or MOST)
    running = language.maybe_whole("SGLang's max_running_requests", max_running_requests)
    length = language.maybe_whole("SGLang's context_length", context_length)
    if running is None:
        running = FEWEST
        if length is not None and blocks is not None:
            running = max(min(int(blocks * page / length * 512), MOST_RUNNING), FEWEST)
    careful = _check.real("SGLang's schedule_conservativeness", schedule_conservativeness, at_least=0)
    first = min(START * careful, 1.0)
    return NewTokenRatio(
        running, language.UNCUT if whole else chunk, kv_blocks=blocks, block_size=page,
        max_prefill_tokens=_check.whole("SGLang's max_prefill_tokens", max_prefill_tokens, at_most=MOST),
        init_new_token_ratio=first, min_new_token_ratio=first * LEAST, mixed=enable_mixed_chunk,
        max_model_len=length, prefill_delayer=enable_prefill_delayer,
        queue_min_ratio=prefill_delayer_queue_min_ratio, max_delay_ms=prefill_delayer_max_delay_ms,
        token_usage_low_watermark=prefill_delayer_token_usage_low_watermark,
    )  # fmt: skip


def config(
    *, max_queued_requests: int | None = None, dp_size: int = 1, enable_dp_attention: bool = False,
    cuda_graph_bs_decode: list[int] | None = None, cuda_graph_max_bs_decode: int | None = None,
    disable_cuda_graph: bool = False, disable_decode_cuda_graph: bool = False,
    disable_cuda_graph_padding: bool = False, **settings: Any,
) -> ServerConfig:  # fmt: skip
    """Return the meaning of `sglang serve`: the engines of `dp_size` are replicas, each with this limit.

    With `enable_dp_attention` they share the chunk, the running requests and the memory of the cards, and are
    less conservative (server_args.py).

    Steps of decodes are captured up to a size that depends on the card's memory (8 to 512; 160 without a
    gpu): 1, 2, 4, 8, 12, multiples of 8 up to 256, of 16 up to 512, then of 32. If that is more than
    max_running_requests, this number is captured, too (cuda_graph_runner.py).
    """
    limit, given = language.maybe_whole("SGLang's max_queued_requests", max_queued_requests), dict(settings)
    rule = sglang(**settings)
    if enable_dp_attention and dp_size > 1:
        if rule.max_num_batched_tokens < language.UNCUT:
            settings["chunked_prefill_size"] = max(rule.max_num_batched_tokens // dp_size, 1)
        if settings.get("max_running_requests") is not None:
            settings["max_running_requests"] = max(rule.max_num_seqs // dp_size, 1)
        settings["schedule_conservativeness"] = SHARES[True] * settings.get("schedule_conservativeness", 1.0)
        rule = sglang(**settings)
    if enable_dp_attention and dp_size > 1 and rule.kv_blocks:
        # Of all cards, with the memory of a step reserved before the chunk is divided.
        whole = sglang(**given | {"max_total_tokens": None}).kv_blocks or MOST * dp_size
        most = rule.kv_blocks if given.get("max_total_tokens") else MOST
        rule = replace(rule, kv_blocks=max(min(most, whole // dp_size), 1))
    given_most, usual = cuda_graph_max_bs_decode, _by_memory(settings.get("gpu"))[1]
    most = usual if given_most is None else given_most
    most = _check.whole("SGLang's cuda_graph_max_bs_decode", most, at_most=MOST_RUNNING)
    pads = not disable_cuda_graph_padding
    sizes: Any = (*LADDER, *range(512, most + 1, 32)) if pads else range(1, most + 1)
    if disable_cuda_graph or disable_decode_cuda_graph:
        sizes = None
    elif cuda_graph_bs_decode is not None:
        sizes, most = cuda_graph_bs_decode, MOST
    graphs = language.captured("SGLang's cuda_graph_bs_decode", sizes, most, pads, room=rule.max_num_seqs)
    return ServerConfig("sglang", rule, queue_limit=limit, captured=graphs)


def _extras(target: ServerConfig) -> dict[str, Any]:
    rule = target.rule
    assert isinstance(rule, Continuous)
    cut = rule.chunked and rule.max_num_batched_tokens < MOST
    engines = target.settings.get("dp_size", 1) if target.settings.get("enable_dp_attention") else 1
    settings: dict[str, Any] = {
        "max_running_requests": rule.max_num_seqs * engines,  # which they divide
        "max_total_tokens": None if rule.kv_blocks is None else rule.kv_blocks * rule.block_size,
        "context_length": rule.max_model_len,
        "cuda_graph_bs_decode": language.sizes_of(target),
        "chunked_prefill_size": rule.max_num_batched_tokens * engines if cut else -1,
    }
    if isinstance(rule, NewTokenRatio):
        settings |= {
            "page_size": rule.block_size, "max_prefill_tokens": rule.max_prefill_tokens,
            "schedule_conservativeness": _conservativeness(rule.init_new_token_ratio) / SHARES[engines > 1],
            "enable_mixed_chunk": rule.mixed, "enable_prefill_delayer": rule.prefill_delayer,
        } | {f"prefill_delayer_{name}": getattr(rule, name) for name in DELAYS}  # fmt: skip
    return language.without_defaults(
        settings | {"dp_size": engines, "enable_dp_attention": engines > 1}, dp_size=1,
        enable_dp_attention=False, page_size=1, max_prefill_tokens=16_384, schedule_conservativeness=1.0,
        enable_mixed_chunk=False, enable_prefill_delayer=False, prefill_delayer_queue_min_ratio=0,
        prefill_delayer_max_delay_ms=5000, prefill_delayer_token_usage_low_watermark=0,
    )  # fmt: skip


def _conservativeness(ratio: float) -> float:
    """Return the schedule_conservativeness that gives exactly this first ratio, rounded if that does."""
    careful = ratio / START
    near = (careful, round(careful, 12))
    return next((each for each in near[::-1] if min(START * each, 1.0) == ratio), careful)


LINE = CommandLine(
    "sglang", "sglang serve", r"(?:^|[\s/])sglang serve(?=\s|$)|\bsglang\.launch_server\b", "model_path",
    short={
        "--model": "--model-path", "--tensor-parallel-size": "--tp-size", "--tp": "--tp-size",
        "--data-parallel-size": "--dp-size", "--dp": "--dp-size",
    }, refuses={"--is-embedding=True": "SGLang must generate tokens to be simulated, got --is-embedding"},
    dashes=False, sized=frozenset({"--max-total-tokens", "--max-prefill-tokens", "--context-length"}),
    units={
        ending: size**power
        for power, letter in enumerate("kMGT", 1)
        for ending, size in ((letter, 1000), (letter.upper() + "i", 1024))
    },
)  # fmt: skip
SERVER = Server(
    "sglang", "0.5.23", sglang, config,
    ("schedule_policy", "disable_radix_cache", "disable_overlap_schedule"),
    caveats=language.CAVEATS | {"load_balance_method": "the router is the default one"},
    graphs=(
        "cuda_graph_bs_decode", "cuda_graph_max_bs_decode", "disable_cuda_graph", "disable_decode_cuda_graph",
        "disable_cuda_graph_padding",
    ),
    title="SGLang", started=r"\bsglang(_router\b|:)",
    modest=("tp_size", "mem_fraction_static", "context_length", "page_size"),
    words=Words(
        "max_running_requests", replicas="dp_size", queue="max_queued_requests", budget="chunked_prefill_size"
    ),
    extras=_extras, calm={"schedule_conservativeness": 1.0},
    by_card=(("chunked_prefill_size",), (16.0, 24.0, 80.0, 180.0)),
    formats=(
        LINE.format(
            "a command line of SGLang", "sglang-serve.sh",
            r"(?i:sglang)\w*[\"'}]* serve\b|\bsglang\.launch_server\b",
        ),
    ),
)  # fmt: skip
