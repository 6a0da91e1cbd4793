docker run --gpus all -p 8080:80 -v "$PWD/data:/data" ghcr.io/huggingface/text-embeddings-inference:1.9 \
  --model-id acme/Our-embeddings --max-batch-tokens 8192 --max-batch-requests 64 --max-client-batch-size 128
