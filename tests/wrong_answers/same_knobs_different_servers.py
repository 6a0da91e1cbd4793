WRONG = {
    "09.1": [
        (-3.43, "which of the two is slower?"),
        (8.33, "on Triton. How much higher"),
        (11.75, "on TorchServe. How much lower"),
        (1.41, "that is the ratio"),
        (5, "the whole wait"),
        (2, "to_frame()"),
    ],
    "09.2": [
        (2.149, "2,000 requests per second"),
        (1, "too short"),
        (1.71, "the load is 1.010: it is too short"),
        (1.739, "the load is 1.00026: it is too short"),
        (3, "a shorter wait is enough"),
    ],
    "09.3": [
        (3007, "but only 5 requests fit inside"),
        (492, "one at a time"),
        (1918, "each waits"),
        (500, "has to be computed, too"),
        (79.3, "batches per second"),
        (5, "stay inside"),
    ],
}
