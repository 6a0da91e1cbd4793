"""The warm-up of a standby kernel: import, compile and draw what a page begins with.

It runs in the kernel, not in the server, which never loads the explorer.
"""

import gc

from batchsim.view.explorer.session import Session
from batchsim.view.explorer.state import State
from batchsim.view.pictures.live import LivePicture

REQUESTS, SIDE_PX = 1000, 320


def draw() -> None:
    """Draw the explorer's first picture, small, so that it costs no more memory than a page's own."""
    session = Session(State(), REQUESTS, None)
    session.refresh()
    if session.data is not None:
        picture = LivePicture(*session.style._replace(width_px=SIDE_PX, height_px=SIDE_PX))
        picture.show(session.data)
        picture.png()
    del session
    gc.collect()
