import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before anything imports jax

sys.path.insert(0, str(Path(__file__).parent))  # so that a test can import from oracles/

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of data measured by others, which is not part of the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the shared data folder is not here")
    return SHARED_DATA
