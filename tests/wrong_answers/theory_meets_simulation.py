WRONG = {
    "06.1": [
        (2 / 3, "How many requests per second is that?"),
        (250, "there the mean latency is 3.00 ms, less than twice 2.00 ms"),
        (500, "there is no mean"),
    ],
    "06.2": [
        (40_000, "40,000 requests are too few"),
        (200_000, "square root"),
        (25, "how many times as many"),
        (160_000, "± 2.50%"),
        (4_000_000, "± 0.50%"),
    ],
    "06.3": [
        (lambda asked: -asked.right(), "compare(a, b) gives b - a"),
        (lambda asked: 5 * asked.right(), "the same seed"),
        (0, "some requests find the server idle"),
        (1, "the whole wait"),
        (3.44, "one of the two"),
        (2.14, "in percent"),
    ],
}
