"""What others measured on real servers, with where it stands."""

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

# MLPerf Inference v3.0, ResNet-50 on one L4, NVIDIA's submission: Server is Poisson arrivals, batches of
# up to 16, a wait of 2 ms, and two streams on the one device; single and multi-stream give a batch of 1 and
# of 8.
MLPERF_SOURCE = "https://github.com/mlcommons/inference_results_v3.0 (closed/NVIDIA, L4, resnet50)"
MLPERF_RATE_PER_S = 12_198
MLPERF_SERVER_MS = {
    "mean_latency_ms": 3.951,
    "p50_ms": 3.509,
    "p90_ms": 6.050,
    "p99_ms": 10.527,
    "p99.9_ms": 16.294,
}
MLPERF_STREAM_MS = {1: 0.3555, 8: 0.7988}
