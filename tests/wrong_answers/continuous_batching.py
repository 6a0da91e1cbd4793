WRONG = {
    "10.1": [
        (1 - 0.3125, "wasted"),
        (1 / 0.3125, "Turn it round"),
        (105 / 480, "middle answer"),
        (2.5, "how many seats"),
        (7, "from 0 to 1"),
        (0.5, "how many tokens"),
    ],
    "10.2": [
        (6, "how long it takes alone"),
        (1, "is cut"),
        (3000 / 432, "whole"),
        (8, "no other is needed"),
        (3000, "token by token"),
        (12, "how many of the 512"),
    ],
    "10.3": [(256, "stay empty"), (128, "fewer share"), (16, "room for more"), (41.5, "whole")],
}
