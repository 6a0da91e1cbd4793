docker run --gpus all -p 30000:30000 lmsysorg/sglang:v0.5.23 \
  python3 -m sglang.launch_server --model-path acme/Our-7B --host 0.0.0.0 \
    --max-running-requests 64 --max-queued-requests 200 --max-total-tokens 64000 \
    --chunked-prefill-size 8192 --schedule-conservativeness 0.8 --schedule-policy fcfs --dp 2
