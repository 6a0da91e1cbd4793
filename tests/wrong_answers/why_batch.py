def played(gap_ms):
    """Return a game in which somebody presses Send at this interval."""

    def game(asked):
        from batchsim.teaching import be_the_batcher

        return be_the_batcher(asked.name).play([gap_ms * i / 1000 for i in range(int(200 / gap_ms))])

    return game


def of_everybody(asked):
    from batchsim.teaching import be_the_batcher

    return be_the_batcher().play([0.1])


WRONG = {
    "01.1": [
        (1000 / 3.65, "number of batches per second"),
        (500, "saturation rate one at a time"),
        (6000, "a batch takes longer"),
        (7, "how long does a batch of 12 take"),
    ],
    "01.2": [(10, "3,000 arrive"), (12, "Is it the smallest?"), (1, "3,000 arrive")],
    "01.3": [(1, "shorter"), (2.71, "shorter"), (2.46, "by how much"), (5, "longer"), (50, "too long")],
    "01.4": [
        (played(150), "hardly sent"),
        (played(25), "server is idle"),
        (of_everybody, "requests of another"),
    ],
}
