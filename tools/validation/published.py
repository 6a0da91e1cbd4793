"""What others measured on real servers, with where it stands."""

from typing import NamedTuple

# nnU-Net on Triton, one instance, batches of up to 4, no wait; each client sends one item and waits for
# its answer. NVIDIA DeepLearningExamples (Apache-2.0), "Online scenario", FP16; the static tables are from
# the same page's "Offline scenario".
NNUNET_SOURCE = (
    "https://github.com/NVIDIA/DeepLearningExamples/blob/729963dd47e7c8bd462ad10bfac7a7b0b604e6dd/"
    "PyTorch/Segmentation/nnUNet/triton/README.md"
)
NNUNET_STATIC_MS = {
    "V100-32GB": {1: 49.188, 2: 79.247, 4: 139.634},
    "T4": {1: 109.417, 2: 208.026, 4: 409.599},
}
NNUNET_MEAN_LATENCY_MS = {  # of 1, 2, ... 8 clients
    "V100-32GB": (49.237, 98.007, 127.986, 158.03, 188.428, 218.327, 248.425, 278.207),
    "T4": (109.369, 218.099, 316.861, 415.617, 524.943, 633.209, 725.186, 817.849),
}

# Triton's conceptual guide, part 2: one A100, batches of up to 8 items, no delay, requests of 2 items,
# clients that wait for their answer: (items per second, 95th percentile of the latency in microseconds) of
# as many clients as GUIDE_CLIENTS says.
GUIDE_SOURCE = (
    "https://github.com/triton-inference-server/tutorials/tree/main/"
    "Conceptual_Guide/Part_2-improving_resource_utilization"
)
GUIDE_CLIENTS = (2, 4, 6, 8, 10, 12, 14, 16)
GUIDE_NO_BATCHING = (
    (955.708, 4311),
    (977.314, 8497),
    (973.367, 12799),
    (974.623, 16977),
    (975.859, 21199),
    (976.191, 25519),
    (966.07, 29913),
    (975.048, 34035),
)
GUIDE_BATCHING = (
    (998.141, 4140),
    (1765.66, 4750),
    (2518.48, 5148),
    (3095.85, 5565),
    (3182.83, 7632),
    (3181.3, 7956),
    (3184.54, 10357),
    (3187.76, 10567),
)
GUIDE_TWO_INSTANCES = (
    (1446.26, 3108),
    (1926.1, 5491),
    (2695.12, 5710),
    (3224.69, 6268),
    (3380.49, 6932),
    (3982.13, 7233),
    (4027.74, 7879),
    (4134.09, 8244),
)

# FastPitch on Triton, two instances on one GPU, batches of up to 8, no delay: 1, 2, ... 16 clients that send
# one item and wait for its answer; items per second. The static tables (ms, one client) are of the same page.
FASTPITCH_SOURCE = (
    "https://github.com/NVIDIA/DeepLearningExamples/blob/729963dd47e7c8bd462ad10bfac7a7b0b604e6dd/"
    "PyTorch/SpeechSynthesis/FastPitch/triton/README.md"
)
# fmt: off
FASTPITCH_STATIC_MS = {
    "A40/FP16": {
        1: 12.22, 2: 12.199, 4: 12.674, 8: 13.491,
    },
    "A100-80GB/FP16": {
        1: 6.561, 2: 6.703, 4: 7.435, 8: 9.482,
    },
    "A100-80GB/FP32": {
        1: 6.668, 2: 7.336, 4: 8.6, 8: 10.669,
    },
    "V100-32GB/FP32": {
        1: 9.278, 2: 12.565, 4: 19.456, 8: 32.091,
    },
}
FASTPITCH_PER_S = {  # of 1, 2, ... 16 clients
    "A40/FP16": (
        82.1, 127.6, 134.6, 173, 212.6, 246.1, 290.9, 320.3, 344.5, 378.8, 413.1, 427.2, 465.1, 537.1, 536,
        560.8,
    ),
    "A100-80GB/FP16": (
        152.4, 209.1, 209, 268.8, 329.3, 381.2, 437.7, 480.5, 526.9, 574.2, 607.3, 642.4, 661.1, 709, 738.8,
        775.8,
    ),
    "A100-80GB/FP32": (
        148.4, 196.1, 203.3, 249.6, 305.7, 351.1, 390.1, 434.2, 459.2, 494.5, 542.4, 563, 597.9, 619.4, 657,
        674.9,
    ),
    "V100-32GB/FP32": (
        110.6, 119.4, 118.3, 140, 159.3, 165.4, 180.8, 192.2, 200.5, 208.7, 214.3, 215.7, 222.5, 228.2, 234,
        236,
    ),
}
# fmt: on

# TFT (electricity) on Triton, two instances on one GPU, batches of up to 1,024 items, no delay: 8, 16, ...
# 256 clients that send 16 items and wait for the answer; items per second. Static tables as FastPitch's.
TFT_SOURCE = (
    "https://github.com/NVIDIA/DeepLearningExamples/blob/729963dd47e7c8bd462ad10bfac7a7b0b604e6dd/"
    "PyTorch/Forecasting/TFT/triton/README.md"
)
# fmt: off
TFT_STATIC_MS = {
    "A30, PyTorch, FP16": {
        1: 7.9, 2: 8.5, 4: 9.2, 8: 9.3, 16: 9.1, 32: 10, 64: 10.2, 128: 13.9, 256: 22.5, 512: 41.3,
        1024: 79.6,
    },
    "A100-80GB, NVIDIA TensorRT, FP16": {
        1: 1.5, 2: 2.3, 4: 2.4, 8: 2.6, 16: 2.8, 32: 3, 64: 3.6, 128: 5.2, 256: 7.3, 512: 10.3, 1024: 18.9,
    },
    "A100-80GB, PyTorch, FP16": {
        1: 4.9, 2: 5, 4: 5.1, 8: 5.2, 16: 5.2, 32: 5.5, 64: 6, 128: 8.4, 256: 12.9, 512: 22.1, 1024: 40.6,
    },
}
TFT_PER_S = {  # of 8, 16, ... 256 clients
    "A30, PyTorch, FP16": (
        5528, 9120, 10384, 11076.9, 11328, 11296, 11440, 11600, 11316.7, 11664, 11472, 11760, 11840, 11728,
        11796.2, 12272, 11680, 11408, 11456, 11444.6, 11040, 11536, 11136, 11376, 11840, 11680, 11280,
        11152, 10848, 11088, 10485.5, 11168,
    ),
    "A100-80GB, NVIDIA TensorRT, FP16": (
        18304, 20448, 24448, 25312, 23232, 25296, 26560, 26848, 27632, 27808, 29152, 26352, 31824, 34992,
        34496, 36784, 36912, 32672, 36576, 37824, 35536, 35488, 33744, 38032, 39632, 34400, 31712, 38016,
        37168, 40832, 38272, 33472,
    ),
    "A100-80GB, PyTorch, FP16": (
        8080, 12275.7, 15072, 17616, 19024, 19312, 20848, 21456, 21600, 22192, 22304, 22176, 22416, 22096,
        22320, 22544, 22704, 22224, 22992, 23328, 22448, 22640, 22937.1, 23768.2, 23584, 23192.8, 22873.1,
        23360, 23152, 22384, 22608, 22320,
    ),
}
# fmt: on

# MLPerf Inference v3.0, closed division, Server: Poisson arrivals, and one GPU. `window_ms` is what NVIDIA's
# harness waits for a batch to fill; `streams` compute on the one GPU; single and multi-stream give a batch of
# 1 and of 8 in ms, offline the items per second at saturation. Derived, not verified by MLCommons.
MLPERF_SOURCE = "https://github.com/mlcommons/inference_results_v3.0"
MLPERF_KEYS = ("mean_latency_ms", "p50_ms", "p90_ms", "p99_ms", "p99.9_ms")


class MLPerf(NamedTuple):
    where: str  # in the source
    max_batch_size: int
    window_ms: float
    streams: int
    rate_per_s: float
    single_ms: float
    multi_8_ms: float
    offline_per_s: float
    latency_ms: tuple[float, ...]  # of MLPERF_KEYS


MLPERF = {
    "A30, retinanet": MLPerf(
        "closed/Dell/results/XR4520c_A30x1_TRT_DATACENTER/retinanet",
        12, 30, 1, 279.82, 4.2905, 24.2765, 341.488,
        (46.543614, 46.09953, 62.339508, 79.626809, 94.86844),
    ),
    "L4, retinanet": MLPerf(
        "closed/NVIDIA/results/L4x1_TRT/retinanet", 2, 30, 2, 154.90, 6.104579, 49.258402, 179.492,
        (28.104822, 23.361121, 49.890013, 87.410751, 121.426175),
    ),
    "L4, resnet50": MLPerf(
        "closed/NVIDIA/results/L4x1_TRT/resnet50", 16, 2, 2, 12198.48, 0.355504, 0.79877, 13157.8,
        (3.950973, 3.50921, 6.049972, 10.526892, 16.293665),
    ),
}  # fmt: skip
