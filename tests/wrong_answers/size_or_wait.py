WRONG = {
    "04.1": [
        (13.3, "share of the requests"),
        (36.5, "were full"),
        (46.8, "had waited long enough"),
        (83.3, "all the others"),
        (25, "batches of up to 32"),
        (68, "a wait of 0 ms"),
        (12, "more than 12 %"),
        (50, "less than 50 %"),
    ],
    "04.2": [
        (1.85, "the first one loses"),
        (2, "the second does not wait"),
        (0.15, "waiting pays, and would pay even further apart"),
        (1, "waiting costs"),
    ],
    "04.3": [
        (0, "the batches are still too small"),
        (2, "it computes 75.5% of the time"),
        (5, "Is a shorter wait enough?"),
        (10, "more than enough"),
    ],
}
