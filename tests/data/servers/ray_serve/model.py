"""A text classifier."""

import numpy as np
from ray import serve
from starlette.requests import Request

BATCH = 16


@serve.deployment(
    num_replicas=2,
    max_ongoing_requests=4 * BATCH,
    ray_actor_options={"num_gpus": 1},
)
class Classifier:
    def __init__(self, path: str):
        self.model = np.load(path)

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=0.02)
    async def classify(self, texts: list[str]) -> list[str]:
        return [self.model[len(text)] for text in texts]

    async def __call__(self, request: Request) -> str:
        return await self.classify(await request.json())


app = Classifier.bind("model.npy")
