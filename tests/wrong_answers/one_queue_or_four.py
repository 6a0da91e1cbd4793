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
        (1, "the queue grows"),
        (3, "above the promise"),
        (6, "fewer are enough"),
        (100, "far too many"),
    ],
}
