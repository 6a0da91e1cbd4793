import jax

from batchsim.device.roofline import roofline


def test_a_device_is_measured_once_a_process():
    found = roofline(jax.devices()[0])
    assert roofline(jax.devices()[0]) is found
    # Any processor of this century, and none of the next years.
    assert 1e8 < found.flop_per_s < 1e18
    assert 1e8 < found.bytes_per_s < 1e15
