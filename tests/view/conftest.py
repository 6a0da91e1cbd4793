import pytest

import batchsim as bs


@pytest.fixture
def panel():
    return bs.explore(requests=300)
