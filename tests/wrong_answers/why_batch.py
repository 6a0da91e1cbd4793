WRONG = {
    "01.1": [
        (1000 / 3.65, "number of batches per second"),
        (500, "saturation rate one at a time"),
        (6000, "a batch takes longer"),
        (7, "how long does a batch of 12 take"),
    ],
    "01.2": [(10, "3,000 arrive"), (12, "Is it the smallest?"), (1, "3,000 arrive")],
    "01.3": [(1, "shorter"), (4, "longer"), (50, "too long")],
}
