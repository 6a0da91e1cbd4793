"""A summariser."""

import bentoml


@bentoml.service(resources={"gpu": 1}, traffic={"timeout": 30}, workers=1)
class Summariser:
    def __init__(self) -> None:
        self.model = bentoml.models.get("summariser:latest")

    @bentoml.api(batchable=True, batch_dim=(0, 0), max_batch_size=32, max_latency_ms=1000)
    def summarise(self, texts: list[str]) -> list[str]:
        return self.model.run(texts)

    @bentoml.api
    def health(self) -> str:
        return "well"
