"""The views of each kind of run."""

from collections.abc import Collection, Iterable

from batchsim.view.pictures.batches import BatchView
from batchsim.view.pictures.breakdown import BreakdownView, TokenBreakdownView
from batchsim.view.pictures.costs import CostView
from batchsim.view.pictures.data import PARTS, ViewData
from batchsim.view.pictures.heat_map import HeatMapView
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
        CostView,
    ),
    "tokens": (
        TokenLatencyView, HeatMapView, TokenLoadView, SeatsView, TokenBreakdownView, StepsView,
        ReplicasView, CostView,
    ),
}  # fmt: skip


def views_of(kind: str, parts: Collection[str] = ()) -> dict[str, type[View]]:
    """Return the views of a kind of run by their keys; `parts`: what a run has of `PARTS`."""
    return {view.KEY: view for view in VIEWS[kind] if view.NEEDS not in PARTS or view.NEEDS in parts}


NAMES = {kind: {key: view.NAME for key, view in views_of(kind, PARTS).items()} for kind in VIEWS}


def in_words(views: Iterable[View], data: ViewData) -> str:
    """Return what views show in sentences: everything that the eye can see."""
    return " ".join(sentence for view in views if not view.lacks(data) for sentence in view.describe(data))
