"""The golden cases of token generation: what is simulated, and what must come out."""


def traffic(requests, seed, gap_ms, prompts, outputs):
    """Arrival times in seconds, and (prompt, output) each, from a generator that any language has."""
    state, at_us, arrivals_s, lengths = seed, 0, [], []

    def uniform():
        nonlocal state
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        return (state >> 32) / 2**32

    for _ in range(requests):
        gap_us = int(uniform() * 2000 * gap_ms)
        arrivals_s.append(at_us / 1e6)
        at_us += gap_us  # to the next
        lengths.append(tuple(low + int(uniform() * (high - low + 1)) for low, high in (prompts, outputs)))
    return arrivals_s, lengths


EASY, REAL = (2, 8, 0.1, 0.001, 0.00001), (6.88, 9.997, 0.09631, 1.922e-4, 1.225e-6)
FOUR = ([0.0] * 4, [(10, output) for output in (2, 4, 8, 16)])
WHOLE = {"largest": 4, "enough": 4, "wait_s": 0.0, "ragged": False}
HEAVY = {"seats": 64, "budget": 512, "kv_blocks": 300}

# name: cost, rule, traffic (a number: clients), TTFT ms each, answer ms each, steps, preemptions
SMALL = {
    "G1": (EASY, {}, ([0.0], [(100, 5)]), [12.0505], [52.4605], 5, 0),
    "G2": (EASY, {"budget": 64}, ([0.0], [(100, 5)]), [20.0505], [60.4605], 6, 0),
    "G3": (EASY, {}, ([0.0, 0.015], [(40, 6), (100, 3)]), [10.0082, 17.2417], [62.5767, 37.5317], 6, 0),
    "G6": (EASY, {"kv_blocks": 9, "block_size": 8}, ([0.0] * 3, [(20, 12)] * 3),
           [10.0063] * 3, [120.6683, 120.6683, 190.84255], 19, 1),
    "G8": (EASY, WHOLE, FOUR, [10.0022] * 4, [161.0822] * 4, 16, 0),
    "G9": (EASY, {}, FOUR, [10.0022] * 4, [20.0462, 40.1212, 80.2452, 160.4172], 16, 0),
}  # fmt: skip
# name: cost, rule, traffic (a number: clients), mean TTFT, TPOT, answer ms, end s, steps, preemptions,
# tokens recomputed
LARGE = {
    "G10": (REAL, {"seats": 64}, (400, 7, 60, (20, 600), (5, 160)),
            75.4140412, 34.40534847, 2878.591963, 25.71337002, 801, 0, 0),
    "G13": (REAL, HEAVY, (300, 11, 12, (1, 900), (1, 120)),
            20211.50926, 22.77000551, 21559.32916, 48.3055092, 2124, 31, 13010),
    "G17": (REAL, {}, 8, 238.8481517, 18.97223097, 2648.321484, 52.99220553, 2582, 0, 0),
    "G19": ((10, 0, 0, 0, 0), {"seats": 10**6, "budget": 10**6}, (20000, 3, 2, (1, 1), (1, 79)),
            15.01367725, 10.0, 406.3311773, 40.58, 4058, 0, 0),
}  # fmt: skip
CLIENTS = [(512, 128)] * 160  # of G17
