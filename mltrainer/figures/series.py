"""The series of a run, prepared once for SVG, terminal and browser.

A series is points in the order of x. Values that cannot be drawn stay among them as breaks, and thinning keeps every break and
every peak. The charts of a running run are named here, so that terminal and browser show the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from mltrainer.figures.axes import drawable

Point = tuple[float, float]
ABBREVIATIONS = ("rmse", "mae", "roc", "auc")
MAX_POINTS = 400
MOST_LAYERS = 8  # layers with a line each
TERMS = "means over the steps before each evaluation, before their shares"


@dataclass(frozen=True)
class Series:
    """One line of a chart.

    Attributes:
        name: The name in the legend.
        points: The x and y of each point; a y that is not finite leaves a marked gap.
        dashed: Whether it is drawn dashed, for a secondary line.
        dots: Whether its points are drawn without a line between them.
    """

    name: str
    points: Sequence[Point]
    dashed: bool = False
    dots: bool = False


# --- points -------------------------------------------------------------------------------------


def thin(points: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """Return about `limit` points with the last; each stretch keeps its smallest, largest and one value that is not finite."""
    if len(points) <= limit:
        return list(points)
    # Up to four points of each stretch are kept.
    width = -(-len(points) * 4 // limit)
    kept: list[Point] = []
    for start in range(0, len(points), width):
        kept += _extremes(points[start : start + width])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _extremes(stretch: Sequence[Point]) -> list[Point]:
    whole = [place for place, point in enumerate(stretch) if drawable(point[1])]
    broken = [place for place in range(len(stretch)) if not drawable(stretch[place][1])]

    def height(place: int) -> float:
        return stretch[place][1]

    chosen = {0, *broken[:1]} | ({min(whole, key=height), max(whole, key=height)} if whole else set())
    return [stretch[place] for place in sorted(chosen)]


def segments(points: Sequence[Point], drawn: Callable[[float], bool]) -> list[list[Point]]:
    """Return the stretches of points between those that cannot be drawn."""
    found: list[list[Point]] = [[]]
    for point in points:
        if drawn(point[1]):
            found[-1].append(point)
        elif found[-1]:
            found.append([])
    return [stretch for stretch in found if stretch]


# --- the charts of a run that is followed -------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A line of a chart, by the path to its values.

    Attributes:
        name: The name in the legend.
        path: The keys that lead to its values: in an evaluation, or after "steps" in the values of every step.
        is_beside: Whether it accompanies the chart's main line, and is drawn fainter.
    """

    name: str
    path: tuple[str | int, ...]
    is_beside: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart of a run that is followed.

    Attributes:
        name: The chart's short name.
        title: The chart's title.
        curves: The chart's lines.
        note: A note on the lines.
        alone: The lines where the run is shown alone, if they differ; each in its own colour.
        alone_note: A note on these lines.
        can_log: Whether it can have a log axis.
        is_log: Whether it has a log axis by default.
        is_wide: Whether it gets the whole width.
        group: The group of charts it belongs to: `quality`, `training` or `machine`.
    """

    name: str
    title: str
    curves: tuple[Curve, ...]
    note: str = ""
    alone: tuple[Curve, ...] = ()
    alone_note: str = ""
    can_log: bool = False
    is_log: bool = False
    is_wide: bool = False
    group: str = "quality"


def followed(metric: str, layers: Sequence[str], terms: Iterable[str] = (), measured: Iterable[str] = ()) -> tuple[Chart, ...]:
    """Return the charts of a run: loss, chosen metric, further metrics, then training and machine.

    Args:
        metric: The name of the metric that chooses the best checkpoint.
        layers: The names of its layers.
        terms: The names of its loss's terms, where it has some.
        measured: The names of all metrics of its evaluations.
    """
    loss = (Curve("training", ("steps", "loss")), Curve("validation", ("validation", "loss"), is_beside=True))
    others = [name for name in dict.fromkeys(measured) if name not in ("loss", metric)]
    parts = tuple(Curve(name, ("terms", name)) for name in terms)
    of_terms = Chart("terms", "Terms of the loss", parts, TERMS, parts, TERMS, can_log=True)
    return (
        Chart("loss", "Loss", loss, "each step, and at evaluations", can_log=True, is_wide=True),
        _measured("metric", metric),
        *(_measured(f"metric:{name}", name) for name in others),
        *([of_terms] if parts else []),
        *(replace(chart, group="training") for chart in _of_steps(layers)),
        *(replace(chart, group="machine") for chart in _OF_THE_MACHINE),
    )


def _measured(name: str, metric: str) -> Chart:
    curves = Curve("training", ("train", metric), is_beside=True), Curve("validation", ("validation", metric))
    words = [word.upper() if word in ABBREVIATIONS else word for word in metric.split("_")]
    title = " ".join(words)
    return Chart(name, f"{title[:1].upper()}{title[1:]}", curves, "training and validation")


def _of_steps(layers: Sequence[str]) -> tuple[Chart, ...]:
    each = tuple(Curve(layer, ("update_ratios", nr)) for nr, layer in enumerate(layers)) if len(layers) <= MOST_LAYERS else ()
    norm, updates = (Curve("norm", ("steps", "norm")),), (Curve("median layer", ("update_ratios",)),)
    return (
        Chart("norm", "Gradient norm", norm, "each step, before clipping", can_log=True, is_log=True),
        Chart("update", "Update / weight", updates, "median over layers", each, "each layer", can_log=True, is_log=True),
        Chart("lr", "Learning rate", (Curve("rate", ("lr",)),)),
        Chart("clipped", "Clipped steps", (Curve("share", ("clipped",)),), "share of the steps before each evaluation"),
        Chart("loss_scale", "Loss scale", (Curve("scale", ("loss_scale",)),), "at evaluations", can_log=True),
    )


_OF_THE_MACHINE = (
    Chart("rate", "Samples per second", (Curve("samples/s", ("samples_per_s",)),)),
    Chart("wait", "Waiting for data", (Curve("share", ("data_wait",)),), "share of a step's time"),
    Chart("memory", "Memory", (Curve("MiB", ("memory_mb",)),), "MiB, at evaluations"),
)
