docker run --gpus all --shm-size 1g -e ATTENTION=paged -e PREFILL_CHUNKING=0 -p 8080:80 \
  ghcr.io/huggingface/text-generation-inference:3.3.6 --model-id acme/Our-7B --sharded false \
  --max-batch-size 64 --max-batch-prefill-tokens 8192 --max-batch-total-tokens 64000 \
  --waiting-served-ratio 0.5 --max-waiting-tokens 10 --max-concurrent-requests 256
