"""The base of all exercises, and the server that most of them are about."""

from batchsim.scenario import Affine

# Close to ResNet-50 on an NVIDIA V100 (see notebooks/01-why-batch.ipynb).
SERVICE = Affine(fixed_ms=1.85, per_item_ms=0.15)
SEED = 1


class Exercise:
    """A question about a number: the answer, which is computed and never written down, why, and hints."""

    unit: str
    within = 0.01  # the relative tolerance; 0 for whole numbers

    def near(self, answer: float, other: float) -> bool:
        """Return whether an answer is a certain number, within the tolerance."""
        return abs(answer - other) <= self.within * abs(other)

    def right(self) -> float:
        raise NotImplementedError

    def because(self, right: float) -> str:
        raise NotImplementedError

    def hint(self, answer: float, right: float) -> str:
        raise NotImplementedError
