"""An autoscaler's arithmetic: how many replicas it asks for, and for how long it holds them."""

from batchsim import Autoscale


def test_whole_numbers_stay_whole_however_their_quotients_round():
    one = Autoscale("queue", target=1, most=64)
    for up in range(1, 33):
        assert [one.wanted(up, up, float(all_ / up), 1) for all_ in range(2 * up, 65)] == [*range(2 * up, 65)]
    for every_s in (0.1, 0.7, 1.4, 2 / 3, 15):
        held = [Autoscale(every_s=every_s, hold_s=times * every_s).held for times in range(100)]
        assert held == [*range(1, 101)]
        assert Autoscale(every_s=every_s, hold_s=0.999 * every_s).held == 1
    assert Autoscale(every_s=0.1, hold_s=0.3).held == 4


def test_a_signal_at_exactly_a_tenth_from_its_target_changes_nothing():
    for target in range(1, 200):
        auto = Autoscale("queue", target=target, most=100)
        assert auto.wanted(50, 50, 1.1 * target, 1) == auto.wanted(50, 50, 0.9 * target, 1) == 50
        assert auto.wanted(50, 50, 1.101 * target, 1) == 56
        assert auto.wanted(50, 50, 0.899 * target, 1) == 45
