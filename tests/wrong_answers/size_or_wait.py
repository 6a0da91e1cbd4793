WRONG = {
    "04.1": [
        (0.167, "How many percent is it?"),
        (13.3, "share of the requests"),
        (36.5, "were full"),
        (46.8, "had waited long enough"),
        (83.3, "all the others"),
    ],
    "04.2": [
        (1.85, "the first one pays for it"),
        (2, "nobody is in the second's way"),
        (0.15, "waiting pays, and would further apart"),
        (1, "waiting costs"),
        (-1, "later than the first"),
    ],
    "04.3": [
        (0, "the batches are still too small"),
        (0.0043, "seconds"),
        (5, "Would a shorter wait do?"),
        (10, "more than enough"),
        (-2, "at least 0 ms, got -2"),
    ],
}
