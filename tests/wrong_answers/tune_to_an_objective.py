WRONG = {
    "07.1": [
        (1356, "that is the throughput"),
        (0.6, "How many requests per second is that?"),
        (60, "How many requests per second is that?"),
        (550, "the number of late answers"),
        (1271, "today's wait"),
        (0, "takes milliseconds"),
        (700, "fewer than are in time"),
        (1351 * 2, "1,350 requests per second that arrive, got 2702"),
    ],
    "07.2": [
        (1549, "saturation rate"),
        (1800, "cannot keep up"),
        (1350, "p99 is 23.3 ms, above 20 ms"),
        (900, "p99 is 11.4 ms, within 20 ms. The promise also holds at a higher rate"),
        (1100, "p99 is 14.9 ms, within 20 ms. The promise also holds at a higher rate"),
    ],
    "07.3": [
        (1, "the load is 199%"),
        (2, "just stable"),  # as the capacity alone would ask for
        (4, "Are fewer enough?"),
    ],
}
