WRONG = {
    "05.1": [
        (40, "counts a page with two slow answers twice"),
        (1, "share of the photos"),
        (66.9, "all answers are fast"),
        (10, "a probability of 0.99"),
    ],
    "05.2": [
        (3282, "How long does the server need"),
        (469, "at which requests leave"),
        (2182, "how long all of the burst takes"),
        (1500, "how long the burst lasts"),
        (13, "count how many requests wait"),
    ],
    "05.3": [
        (0.00833, "as a closed loop would see it"),
        (2.5, "the queue that it left behind"),
        (2.33, "the queue that it left behind"),
        (96.1, "share of the fast ones"),
        (1.7, "simulate it"),
    ],
}
