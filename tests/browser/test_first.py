"""First contact: from Run, or from the app's address, to the picture, with and without caches."""

import pytest

from browser.servers import running
from browser.share import Share

pytestmark = pytest.mark.alone
PANEL = "import batchsim as bs\npanel = bs.explore()\npanel"
BARS_S = {"lab": (8, 3), "app": (10, 4)}  # with empty caches, and with what that has left: on a free machine
BUSY = 3  # times as long, which even a busy machine must not take


@pytest.mark.parametrize("kind", ["lab", "app"])
def test_from_run_to_the_picture(kind, browser, opened, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "compiled"))
    cells = () if kind == "app" else (PANEL,)
    seconds, free = [], []
    with running(kind, tmp_path / "server") as server:
        for _ in range(2):
            share = Share()
            with opened(server, *cells, alone=True, viewport={"width": 1280, "height": 800}) as panel:
                seconds.append(panel.seconds)
                free.append(share())
    with capsys.disabled():
        bars = "bars: {} s and {} s".format(*BARS_S[kind])
        ours = "{:.0%} and {:.0%} of the processors were ours".format(*free)
        print(f"\n{kind}: {seconds[0]:.1f} s with empty caches, then {seconds[1]:.1f} s ({bars}; {ours})")
    for measured, part, bar in zip(seconds, free, BARS_S[kind], strict=True):
        assert part * measured < BUSY * bar
