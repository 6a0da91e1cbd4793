WRONG = {
    "05.1": [
        (40, "counts a page with two slow answers twice"),
        (1, "share of the photos"),
        (66.9, "all answers are fast"),
        (0.331, "How many percent is it?"),
        (10, "a probability of 0.99"),
    ],
    "05.2": [
        (0.682, "seconds"),
        (3282, "How long does the server need"),
        (469, "at which requests leave"),
        (2182, "how long all of the burst takes"),
        (1500, "how long the burst lasts"),
    ],
    "05.3": [
        (0.00833, "as a closed loop would see it"),
        (2.5, "the queue that it left behind"),
        (0.039, "How many percent is it?"),
        (96.1, "share of the fast ones"),
        (1.7, "simulate it"),
    ],
}
