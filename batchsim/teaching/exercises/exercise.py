"""What an exercise is, and the server that all of them are about."""

from batchsim.scenario import Affine

# What the lessons compute with: near to ResNet-50 on an NVIDIA V100 (see notebooks/01-why-batch.ipynb).
SERVICE = Affine(fixed_ms=1.85, per_item_ms=0.15)
SEED = 1


class Exercise:
    """What is right, computed and never written down; why; and what helps when it is not."""

    unit: str
    within = 0.01  # relative; 0 for what is counted

    def near(self, answer: float, other: float) -> bool:
        """Return whether an answer is another number, as nearly as it need be right."""
        return abs(answer - other) <= self.within * abs(other)

    def right(self) -> float:
        raise NotImplementedError

    def because(self, right: float) -> str:
        raise NotImplementedError

    def hint(self, answer: float, right: float) -> str:
        raise NotImplementedError
