"""The one place that says who draws: every figure goes through these kinds, so that the drawer can be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mltrainer.figures import svg, trial_figures
from mltrainer.figures.axes import Scale
from mltrainer.figures.canvas import Mark
from mltrainer.figures.forest_plot import Compared, forest
from mltrainer.figures.reliability import Bin, reliability
from mltrainer.figures.ridgeline import Ridges, ridges
from mltrainer.figures.series import Point, Series
from mltrainer.figures.trial_figures import Curve, Marked, Panel


class Drawer(Protocol):
    """Draws a figure as SVG text; the same numbers give the same bytes on every machine."""

    def line_chart(
        self,
        title: str,
        description: str,
        series: Sequence[Series],
        *,
        x_label: str,
        y_label: str,
        log_x: bool = False,
        log_y: bool = False,
        marks: Sequence[Mark] = (),
        include: Sequence[float] = (),
    ) -> str:
        """Return lines over a common axis."""

    def bars(self, title: str, description: str, items: Sequence[tuple[str, float]], *, unit: str, sign: bool = False) -> str:
        """Return horizontal bars that start at zero."""

    def scatter(self, title: str, description: str, pairs: Sequence[Point], *, x_label: str, y_label: str) -> str:
        """Return points around the diagonal."""

    def confusion_matrix(self, title: str, description: str, classes: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
        """Return counts of true against predicted class."""

    def heat_map(
        self,
        title: str,
        description: str,
        rows: Sequence[tuple[str, Sequence[float]]],
        columns: Sequence[float],
        *,
        x_label: str,
        scale_label: str,
        terrain: bool = False,
    ) -> str:
        """Return a grid of values on a log colour scale."""

    def small_multiples(self, title: str, description: str, panels: Sequence[Panel], y: Scale, *, y_label: str) -> str:
        """Return a panel for each dimension, all with the same vertical axis."""

    def plane(
        self, title: str, description: str, points: Sequence[Marked], x: Scale, y: Scale, *, x_label: str, y_label: str
    ) -> str:
        """Return trials over two dimensions, coloured by rank."""

    def parallel(
        self, title: str, description: str, axes: Sequence[tuple[str, Scale]], curves: Sequence[tuple[Sequence[float], float]]
    ) -> str:
        """Return a line through all dimensions for each trial."""

    def bundle(
        self, title: str, description: str, curves: Sequence[Curve], x: Scale, y: Scale, *, x_label: str, y_label: str
    ) -> str:
        """Return many trials' curves."""

    def forest(self, title: str, description: str, rows: Sequence[Compared], *, unit: str) -> str:
        """Return means with their intervals, beside a line at zero."""

    def reliability(self, title: str, description: str, bins: Sequence[Bin], *, x_label: str, y_label: str) -> str:
        """Return frequencies over predicted probabilities."""

    def ridges(self, title: str, description: str, panels: Sequence[Ridges], *, time: str) -> str:
        """Return ridgelines of distributions over time, a panel each."""


class _Svg:
    """Our own: ten figures in tens of milliseconds, of a few kB each, without a dependency."""

    line_chart = staticmethod(svg.line_chart)
    bars = staticmethod(svg.bars)
    scatter = staticmethod(svg.scatter)
    confusion_matrix = staticmethod(svg.confusion_matrix)
    heat_map = staticmethod(svg.heat_map)
    small_multiples = staticmethod(trial_figures.small_multiples)
    plane = staticmethod(trial_figures.plane)
    parallel = staticmethod(trial_figures.parallel)
    bundle = staticmethod(trial_figures.bundle)
    forest = staticmethod(forest)
    ridges = staticmethod(ridges)
    reliability = staticmethod(reliability)


DRAWER: Drawer = _Svg()
