#!/bin/sh
# One node with eight cards.
# batchsim: max_tokens=64000
TP=8
trtllm-serve serve /models/deepseek --backend pytorch --tensor_parallel_size $TP --ep_size=$TP \
  --max_batch_size 161 --max_num_tokens 1160 --free_gpu_memory_fraction 0.8 \
  --trust_remote_code --enable_chunked_prefill
