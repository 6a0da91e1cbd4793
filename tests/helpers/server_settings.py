"""Random settings of every server."""

import math

from hypothesis import strategies as st

from batchsim import servers

SIZES = st.integers(1, 500)
SECONDS = st.one_of(st.just(0.0), st.floats(1e-6, 1e3), st.integers(0, 100))
MICROS = st.integers(0, 10**9)

# Any settings that a server takes, by their names; size and what must be there first.
SETTINGS = {
    "textbook": ({}, {"max_batch_size": SIZES, "max_wait_ms": SECONDS | st.just(math.inf)}),
    "triton": (
        {"max_batch_size": st.integers(20, 500)},
        {
            "max_queue_delay_microseconds": MICROS, "count": st.integers(1, 9),
            "preferred_batch_size": st.lists(st.integers(1, 20), min_size=1, max_size=4, unique=True),
            "max_queue_size": st.integers(0, 10**6), "default_timeout_microseconds": MICROS,
            "timeout_action": st.just("REJECT"), "preserve_ordering": st.booleans(),
            "allow_timeout_override": st.booleans(),
        },
    ),
    "tf_serving": (
        {"max_batch_size": st.just(64)},
        {
            "batch_timeout_micros": MICROS, "num_batch_threads": st.integers(1, 64),
            "max_enqueued_batches": st.integers(1, 10**6), "pad_variable_length_inputs": st.booleans(),
            "allowed_batch_sizes": st.sets(st.integers(1, 63)).map(lambda sizes: [*sorted(sizes), 64]),
        },
    ),
    "torchserve": (
        {"batchSize": SIZES},
        {
            "maxBatchDelay": st.integers(1, 10**6), "minWorkers": st.integers(1, 99),
            "maxWorkers": st.integers(1, 99), "job_queue_size": st.integers(1, 10**6),
            "responseTimeout": st.integers(1, 10**4),
        },
    ),
    "mosec": (
        {},
        {
            "max_batch_size": SIZES, "max_wait_time": st.integers(0, 10**6), "num": st.integers(1, 99),
            "capacity": st.integers(1, 10**6), "timeout": st.integers(1, 10**6),
            "env": st.just([{"A": "b"}]), "start_method": st.sampled_from(["spawn", "fork"]),
        },
    ),
    "kserve": (
        {}, {"maxBatchSize": SIZES, "maxLatency": st.integers(1, 10**6), "timeout": st.integers(1, 10**4)},
    ),
    "ray_serve": (
        {"max_ongoing_requests": st.integers(1, 10**6)},
        {
            "max_batch_size": SIZES, "batch_wait_timeout_s": SECONDS, "num_replicas": st.integers(1, 9),
            "max_concurrent_batches": st.integers(1, 9),
            "handler": st.sampled_from(["async", "blocking"]),
        },
    ),
    "tei": (
        {},
        {
            "max_batch_tokens": st.integers(1, 10**6), "max_batch_requests": SIZES,
            "max_concurrent_requests": st.integers(1, 10**4), "padded_model": st.booleans(),
            "auto_truncate": st.booleans(), "max_client_batch_size": st.integers(1, 99),
        },
    ),
    "bentoml": (
        {},
        {
            "max_batch_size": SIZES, "max_latency_ms": st.integers(1, 10**6), "workers": st.integers(1, 9),
            "batch_dim": st.just(1),
        },
    ),
    "litserve": (
        {},
        {
            "max_batch_size": SIZES, "batch_timeout": SECONDS, "workers_per_device": st.integers(1, 9),
            "devices": st.integers(1, 9), "timeout": st.floats(0.1, 1e4) | st.just(False),
            "accelerator": st.sampled_from(["cpu", "auto"]), "stream": st.booleans(),
            "api_path": st.sampled_from(["/predict", "/it's \"quoted\""]),
        },
    ),
    "batched": (
        {}, {"batch_size": SIZES, "timeout_ms": SECONDS, "small_batch_threshold": st.integers(1, 99)},
    ),
    "clipper": (
        {"batch_size": SIZES | st.just(-1)},
        {"slo_micros": st.integers(1, 99_999), "default_output": st.text()},
    ),
}  # fmt: skip


WHOLE, SHARE = st.integers(1, 5000), st.sampled_from([0.5, 0.85, 0.9, 1.0])
CARDS, NAMES = st.sampled_from(["h100", "rtx-4090", 48.0]), st.sampled_from(["llama-3.1-8b", "acme/a b's"])
BLOCKS = {"block_size": st.sampled_from([1, 16, 32]), "num_gpu_blocks_override": st.integers(2, 10**6)}
OF_VLLM = {
    **BLOCKS, "max_num_seqs": st.integers(1, 256), "max_num_batched_tokens": st.integers(256, 65_536),
    "model": NAMES, "gpu_memory_utilization": SHARE, "max_model_len": st.integers(200, 256),
}  # fmt: skip
# A card comes with the number of blocks, because not every model's data sheet is known.
TOKEN_SETTINGS = {
    "vllm": {
        **OF_VLLM,
        "enable_chunked_prefill": st.booleans(),
        "long_prefill_token_threshold": st.integers(0, 99),
        "data_parallel_size": st.integers(1, 4),
        "performance_mode": st.sampled_from(["balanced", "throughput"]),
        "tensor_parallel_size": st.integers(1, 4),
        "async_scheduling": st.booleans(),
        "scheduling_policy": st.just("priority"),
    },
    "sglang": {
        "max_running_requests": WHOLE,
        "max_total_tokens": st.integers(100, 10**6),
        "chunked_prefill_size": st.sampled_from([-1, 512, 8192]),
        "max_prefill_tokens": WHOLE,
        "page_size": st.sampled_from([1, 64]),
        "context_length": st.integers(100, 10**5),
        "schedule_conservativeness": st.sampled_from([0, 0.1, 0.3, 1.0, 1.3]),
        "enable_mixed_chunk": st.booleans(),
        "enable_prefill_delayer": st.booleans(),
        "prefill_delayer_queue_min_ratio": st.sampled_from([0, 0.25]),
        "prefill_delayer_max_delay_ms": st.sampled_from([0, 350, 5000]),
        "model_path": NAMES,
        "mem_fraction_static": SHARE,
        "dp_size": st.integers(1, 4),
        "max_queued_requests": WHOLE,
        "schedule_policy": st.just("lpm"),
    },
    "tgi": {
        "max_batch_size": WHOLE,
        "max_batch_prefill_tokens": WHOLE,
        "waiting_served_ratio": st.floats(0, 9),
        "max_batch_total_tokens": st.integers(1000, 10**6),
        "max_waiting_tokens": st.integers(0, 99),
        "max_total_tokens": st.integers(100, 10**5),
        "prefill_chunking": st.booleans(),
        "attention": st.sampled_from(["paged", "flashinfer"]),
        "model_id": NAMES,
        "num_shard": st.integers(1, 4),
        "max_concurrent_requests": WHOLE,
    },
    "tensorrt_llm": {
        "max_batch_size": WHOLE,
        "max_num_tokens": WHOLE,
        "max_seq_len": st.integers(100, 10**5),
        "max_tokens": st.integers(1000, 10**6),
        "tokens_per_block": st.sampled_from([16, 32]),
        "free_gpu_memory_fraction": SHARE,
        "enable_chunked_prefill": st.just(True),
        "capacity_scheduler_policy": st.sampled_from(["GUARANTEED_NO_EVICT", "MAX_UTILIZATION"]),
        "batch_wait_timeout_iters": st.integers(0, 20),
        "batch_wait_max_tokens_ratio": st.sampled_from([0, 0.25, 1]),
        "batch_wait_timeout_ms": st.sampled_from([0, 2.5]),
        "disable_overlap_scheduler": st.booleans(),
        "model": NAMES,
        "tensor_parallel_size": st.integers(1, 4),
    },
}
MEMORY = {"num_gpu_blocks_override", "max_total_tokens", "max_batch_total_tokens", "max_tokens"}


@st.composite
def configs(draw, names=()):
    server = draw(st.sampled_from(names or [*SETTINGS, *TOKEN_SETTINGS]))
    needed, optional = SETTINGS.get(server) or ({}, TOKEN_SETTINGS[server])
    drawn = draw(st.fixed_dictionaries(needed, optional=optional))
    if server in TOKEN_SETTINGS and MEMORY & drawn.keys() and draw(st.booleans()):
        drawn["gpu"] = "h100" if server == "sglang" else draw(CARDS)  # it reserves much of a small card
        drawn.pop("mem_fraction_static", None)  # a half of some cards is too small for the model
    return servers.config(server, **drawn)
