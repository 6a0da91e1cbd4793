WRONG = {
    "10.1": [
        (1 - 0.3125, "wasted"),
        (1 / 0.3125, "Take the inverse"),
        (105 / 480, "uses the median"),
        (2.5, "the number of seats"),
        (7, "from 0 to 1"),
        (0.5, "how many tokens"),
    ],
    "10.2": [
        (8, "ignores others"),
        (9, "a part of the prompt is still left"),
        (1, "is cut"),
        (4000 / 432, "whole"),
        (11, "also makes the first token"),
        (4000, "many tokens of a prompt at once"),
        (12, "how many of the 512"),
    ],
    "10.3": [
        (256, "stay empty"),
        (128, "fewer requests share"),
        (16, "room for more"),
        (41.5, "a multiple of 8"),
    ],
}
