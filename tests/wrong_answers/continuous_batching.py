WRONG = {
    "10.1": [
        (31.25, "in per cent"),
        (1 - 0.3125, "wasted"),
        (1 / 0.3125, "Turn it round"),
        (105 / 480, "middle answer"),
        (2.5, "how many seats"),
    ],
    "10.2": [
        (6, "how long it takes alone"),
        (1, "is cut"),
        (3000 / 432, "whole"),
        (8, "no other is needed"),
        (3000, "token by token"),
    ],
    "10.3": [(256, "stay empty"), (128, "fewer share"), (16, "room for more")],
}
