VLLM_USE_V1=0 python3 -m vllm.entrypoints.openai.api_server --model acme/Our-7B \
  --max-num-seqs 64 --max-model-len 4096 --num-gpu-blocks-override 4000 --disable-log-requests
