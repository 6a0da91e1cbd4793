WRONG = {
    "05.1": [
        (40, "counts pages with two slow answers twice"),
        (1, "share of the photos"),
        (66.9, "all answers are fast"),
        (10, "a probability of 0.99"),
    ],
    "05.2": [
        (3282, "How long does the server need"),
        (469, "at the saturation rate"),
        (2182, "from the start of the burst"),
        (1500, "the duration of the burst"),
        (13, "how many requests wait when the burst ends"),
    ],
    "05.3": [
        (0.00833, "as a closed loop reports it"),
        (2.5, "the queue that it left behind"),
        (2.33, "before the stall ended"),
        (96.1, "share of the fast requests"),
        (1.7, "simulate it"),
    ],
}
