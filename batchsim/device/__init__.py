"""Real hardware: small models that JAX compiles, and how long they take."""

from batchsim.device.measure import measure
from batchsim.device.models import Model, load_model
from batchsim.scenario.measurement import Measurement

__all__ = ["Measurement", "Model", "load_model", "measure"]
