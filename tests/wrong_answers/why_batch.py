WRONG = {
    "01.1": [
        (12 / 3.65, "per millisecond"),
        (1000 / 3.65, "number of batches per second"),
        (500, "saturation rate one at a time"),
        (6000, "a batch takes longer"),
        (7, "how long a batch of 12 takes"),
    ],
    "01.2": [(10, "3,000 arrive"), (12, "Is it the smallest?"), (10.5, "whole number")],
    "01.3": [(-1, "at least 0 ms"), (0.00281, "seconds"), (1, "shorter"), (4, "longer"), (50, "too long")],
}
