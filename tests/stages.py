"""A film's stage, and where requests stand on it, for the tests of films."""

import math

import numpy as np

from batchsim.view.canvas.picture import Box, Picture
from batchsim.view.canvas.theme import THEMES
from batchsim.view.film.stage import Stage


def staged(size, theme="light"):
    """Return a picture of (width, height, pixels of its letters), and the stage that fills it."""
    width_px, height_px, font_px = size
    picture = Picture(width_px, height_px, 1.0, THEMES[theme], font_px)
    with picture.styled():
        return picture, Stage(picture, Box(0, 0, width_px, height_px))


def places_of(crowds):
    """Where each request is, those that are lost or have left included."""
    seen = crowds.coming, crowds.waiting, crowds.computing, crowds.finished
    return {
        int(request): corner
        for crowd in seen
        for request, corner in zip(crowd.requests, crowd.corners, strict=True)
    }


def assert_nobody_jumps(film, stage, begin_s, until_s):
    """Whatever happens at an instant, everybody stands where they stood; return how many were followed."""
    stage.fit(film, (begin_s, until_s))
    instants = film.instants()
    followed = 0
    for time_s in instants[(instants > begin_s) & (instants < until_s)].tolist():
        before, after = (
            places_of(stage.choreography.at(film.snapshot(moment)))
            for moment in (math.nextafter(time_s, 0), time_s)
        )
        for request in before.keys() & after.keys():
            assert np.hypot(*(before[request] - after[request])) < 0.6, (request, time_s)
            followed += 1
    return followed
