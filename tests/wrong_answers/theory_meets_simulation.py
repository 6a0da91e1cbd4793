WRONG = {
    "06.1": [
        (2 / 3, "How many requests per second is that?"),
        (250, "there the mean latency is 3.00 ms, less than twice 2.00 ms"),
        (500, "there is no mean"),
    ],
    "06.2": [
        (40_000, "40,000 requests are too few"),
        (lambda asked: (asked.requests * asked.right()) ** 0.5, "square root"),
        (160_000, "± 2.71%"),
        (4_000_000, "± 0.54%"),
    ],
    "06.3": [
        (lambda asked: -asked.right(), "compare(a, b) gives b - a"),
        (lambda asked: 5 * asked.right(), "the same seed"),
        (0, "simulate it"),
        (1, "simulate it"),
    ],
}
