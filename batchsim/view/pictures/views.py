"""The views of each kind of run, and a picture made of some of them."""

from collections.abc import Collection, Sequence
from typing import TypeVar

from batchsim.view.canvas.picture import Box, Picture
from batchsim.view.pictures.batches import BatchView
from batchsim.view.pictures.breakdown import BreakdownView, TokenBreakdownView
from batchsim.view.pictures.data import PARTS, ViewData
from batchsim.view.pictures.heat_map import HeatMapView, TokenHeatMapView
from batchsim.view.pictures.latency import LatencyView
from batchsim.view.pictures.load import LoadView, TokenLoadView
from batchsim.view.pictures.replicas import ReplicasView
from batchsim.view.pictures.seats import SeatsView
from batchsim.view.pictures.sizes import SizesView
from batchsim.view.pictures.steps import StepsView
from batchsim.view.pictures.timeline import TimelineView
from batchsim.view.pictures.token_latency import TokenLatencyView
from batchsim.view.pictures.view import View

# By `Scenario.kind`, in the order of the small views. To add one, write its file and name it here.
VIEWS: dict[str, tuple[type[View], ...]] = {
    "requests": (
        LatencyView, HeatMapView, LoadView, TimelineView, BreakdownView, BatchView, ReplicasView, SizesView,
    ),
    "tokens": (
        TokenLatencyView, TokenHeatMapView, TokenLoadView, SeatsView, TokenBreakdownView, StepsView,
        ReplicasView,
    ),
}  # fmt: skip


def views_of(kind: str, parts: Collection[str] = ()) -> dict[str, type[View]]:
    """Return the views of a kind of run by their keys; `parts`: what a run has of `PARTS`."""
    return {view.KEY: view for view in VIEWS[kind] if view.NEEDS not in PARTS or view.NEEDS in parts}


NAMES = {kind: {key: view.NAME for key, view in views_of(kind, PARTS).items()} for kind in VIEWS}


AnyView = TypeVar("AnyView", bound=View)


class RunPicture(Picture):
    """A picture made of views of one run."""

    views: tuple[View, ...] = ()
    data: ViewData | None = None

    def add_views(self, places: Sequence[tuple[type[View], Box, bool]], line_px: float) -> None:
        """Add views: the class, the box, and whether it is large."""
        with self.styled():
            self.views = tuple(kind(self, box, line_px, large) for kind, box, large in places)

    def view(self, kind: type[AnyView]) -> AnyView:
        return next(view for view in self.views if isinstance(view, kind))

    def show(self, data: ViewData) -> None:  # type: ignore[override]  # Figure.show is pyplot's
        self.data = data
        for view in self.views:
            view.show(data)

    def release(self) -> bool:
        """Let the axes shrink to the present data; return whether a redraw is necessary."""
        if self.data is not None:
            for view in self.views:
                view.release(self.data)
        return any(tile.stale for tile in self.tiles)

    @property
    def words(self) -> str:
        return self.describe(self.data) if self.data is not None else ""

    def describe(self, data: ViewData) -> str:
        """Return a description of the picture in sentences: everything that the eye can see."""
        return " ".join(
            sentence for view in self.views if not view.lacks(data) for sentence in view.describe(data)
        )
