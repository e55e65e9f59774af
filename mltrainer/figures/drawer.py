"""The one place that says who draws: every figure goes through these five kinds, so that the drawer can be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mltrainer.figures import svg
from mltrainer.figures.axes import Point
from mltrainer.figures.canvas import Mark, Series


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
    ) -> str:
        """Return a grid of values on a log colour scale."""


class _Svg:
    """Our own: ten figures in tens of milliseconds, of a few kB each, without a dependency."""

    line_chart = staticmethod(svg.line_chart)
    bars = staticmethod(svg.bars)
    scatter = staticmethod(svg.scatter)
    confusion_matrix = staticmethod(svg.confusion_matrix)
    heat_map = staticmethod(svg.heat_map)


DRAWER: Drawer = _Svg()
