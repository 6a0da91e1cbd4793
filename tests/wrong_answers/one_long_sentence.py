WRONG = {
    "11.1": [
        ([128, 512], "three edges, got 2"),
        ([64, 128, 256], "at least the longest sentence"),
        ([32, 64, 512], "from 65 tokens on"),
        ([170, 341, 512], "pads the short ones"),
        ([40, 100, 512], "one edge at a time"),
        ([100, 200, 512], "another seed may judge otherwise"),
    ],
    "11.2": [
        (7000, "in thousands"),
        (16, "makes too many others longer"),
        (2, "A larger limit is, too"),
        (7.4, "whole"),
    ],
}
