#!/bin/sh
# Two engines on the four cards of a node.
# batchsim: gpu='h100'
export HF_HOME=/models
vllm serve meta-llama/Llama-3.1-8B-Instruct --host 0.0.0.0 --port 8000 \
  --tensor-parallel-size 2 --data-parallel-size=2 --gpu-memory-utilization 0.85 \
  --max-num-seqs 128 --max-num-batched-tokens 4k \
  --enable-prefix-caching --no-enable-log-requests \
  --served-model-name llama llama-8b
