"""The real thing: small models that JAX compiles, and how long they take."""

from batchsim.device.measure import Measurement, measure
from batchsim.device.models import Model, load_model

__all__ = ["Measurement", "Model", "load_model", "measure"]
