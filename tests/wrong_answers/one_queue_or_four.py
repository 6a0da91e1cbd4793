WRONG = {
    "12.1": [
        (3200, "equal long before"),
        (19_248, "of all four"),
        (4812, "of one replica"),
        (400, "try a higher rate"),
        (1000, "try a lower rate"),
        (20, "look between"),
    ],
    "12.2": [
        (3, "a quarter of the traffic"),
        (0.75, "fewer requests, not more"),
        (2.5, "size of a batch"),
        (9, "to how many queues?"),
    ],
    "12.3": [
        (33.6, "still runs"),
        (37.5, "Does its p99 keep the promise?"),
        (10, "mean_replicas"),
        (0.664, "as a fraction"),
    ],
}
