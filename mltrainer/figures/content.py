"""The figures of a run and of its plan, each with a caption that states its content in numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from mltrainer.figures.axes import log_suits
from mltrainer.figures.canvas import FAULT, Mark
from mltrainer.figures.errors import along, calibration, segments
from mltrainer.figures.figure import Figure as Figure
from mltrainer.figures.ridgeline import Ridge, Ridges, ridges
from mltrainer.figures.series import Point, Series
from mltrainer.figures.svg import bars, confusion_matrix, heat_map, line_chart, scatter
from mltrainer.records.run import Distributions, Histogram, HistoryRow, TargetEvaluation, TrainingResult
from mltrainer.reports.values import as_float, counted, number, share, signed, times, visible
from mltrainer.reports.views import confused

Value = Callable[[HistoryRow], Any]
MAX_CLASSES = 60
SHOWN_PAIRS = 6  # pairs of losses in the figure of their gradients


def schedule(points: Sequence[Sequence[float]], name: Any = None) -> Figure | None:
    """The planned learning rate of a run over its epochs; the reductions of a plateau's schedule are not known in advance."""
    if not points:
        return None
    curve = [(float(epoch), float(rate)) for epoch, rate in points]
    (_, first), (_, last), peak = curve[0], curve[-1], max(rate for _, rate in curve)
    caption = f"The learning rate begins at {number(first)}, is {number(peak)} at its highest and ends at {number(last)}."
    if name == "plateau":
        caption = f"{caption[:-1]}, less what plateaus of the metric reduce it by, which only training shows."
    title = "Learning rate, planned"
    chart = line_chart(title, caption, [Series("planned", curve)], x_label="epoch", y_label="learning rate", include=[0.0])
    return Figure("learning_rate.svg", title, caption, chart)


def of_run(run: TrainingResult) -> list[Figure]:
    """Return the figures for which a run's result has the numbers."""
    return [figure for draw in _FIGURES for figure in _drawn(draw(run))]


def _drawn(found: Figure | list[Figure] | None) -> list[Figure]:
    return found if isinstance(found, list) else [] if found is None else [found]


def column(run: TrainingResult, value: Value) -> list[Point]:
    """Return epoch and value of each evaluation that has the value."""
    found = ((as_float(row.epoch), value(row)) for row in run.history)
    return [(epoch, as_float(value)) for epoch, value in found if value is not None and math.isfinite(epoch)]


def _metric(split: Literal["train", "validation"], name: str) -> Value:
    return lambda row: (row.train if split == "train" else row.validation).get(name)


def metric_name(run: TrainingResult) -> str:
    """Return the name of the metric that chose the best checkpoint."""
    return run.metric.name or "metric"


def _whole(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    return [point for point in points if math.isfinite(point[1])]


def _epoch(value: float) -> str:
    return number(int(value)) if value == int(value) else number(value)


def _place(point: tuple[float, float]) -> str:
    return f"{number(point[1])} (epoch {_epoch(point[0])})"


def _marks(run: TrainingResult) -> list[Mark]:
    marks = []
    if run.best and math.isfinite(best := as_float(run.best.epoch)):
        marks.append(Mark(best, f"best: epoch {_epoch(best)}"))
    if run.nonfinite and math.isfinite(epoch := as_float(run.nonfinite.epoch)):
        what, step = visible(run.nonfinite.what or "value"), number(run.nonfinite.step)
        marks.append(Mark(epoch, f"{what} not finite: step {step}", FAULT))
    return marks


def _lines(run: TrainingResult, wanted: Sequence[tuple[str, Value, bool]]) -> list[Series]:
    series = [Series(name, column(run, value), dashed) for name, value, dashed in wanted]
    return [one for one in series if one.points]


def _gap_note(series: Sequence[Series]) -> str:
    broken = sum(1 for one in series for _, y in one.points if not math.isfinite(y))
    return f" {number(broken)} values are not finite (red crosses)." if broken else ""


def _chart(
    run: TrainingResult,
    file: str,
    title: str,
    series: list[Series],
    caption: str,
    y_label: str,
    include: Sequence[float] = (),
    log_y: bool | None = None,
) -> Figure | None:
    """Return a line chart over epochs, or None without points; a wide range of positive values gets a log axis."""
    if not series:
        return None
    log = log_suits(y for one in series for _, y in one.points) if log_y is None else log_y
    caption += _gap_note(series)
    axis = f"{y_label} (log scale)" if log else y_label
    content = line_chart(title, caption, series, x_label="epoch", y_label=axis, log_y=log, marks=_marks(run), include=include)
    return Figure(file, title, caption, content)


def _trend(points: Sequence[tuple[float, float]], what: str, best: Callable[..., Any]) -> str:
    """Return a sentence on a curve's first, best and last value."""
    whole = _whole(points)
    if not whole:
        return f"{what} was never finite."
    top = best(whole, key=lambda point: point[1])
    return f"{what} began at {_place(whole[0])}, was best at {_place(top)} and ended at {_place(whole[-1])}."


def _train_loss(row: HistoryRow) -> Any:
    return row.train_loss


def learning_curves(run: TrainingResult) -> Figure | None:
    """Training and validation loss over the epochs."""
    wanted = [
        ("training", _metric("train", "loss"), False),
        ("validation", _metric("validation", "loss"), False),
        ("training, mean over the steps", _train_loss, True),
    ]
    series = _lines(run, wanted)
    measured = column(run, _metric("validation", "loss"))
    what = "Validation loss" if measured else "Training loss, mean over the steps,"
    caption = _trend(measured or column(run, _train_loss), what, min)
    return _chart(run, "learning_curves.svg", "Learning curves: loss", series, caption, "loss")


def metric(run: TrainingResult) -> Figure | None:
    """The chosen metric on the training sample and on the validation split."""
    name = metric_name(run)
    if name == "loss" or (run.is_without_steps and len(run.history) == 1):  # a point is no curve, and of no epoch
        return None
    series = _lines(run, [("training", _metric("train", name), False), ("validation", _metric("validation", name), False)])
    best = min if run.metric.mode == "min" else max
    caption = _trend(column(run, _metric("validation", name)), f"Validation {visible(name)}", best)
    return _chart(run, "metric.svg", f"Learning curves: {visible(name)}", series, caption, visible(name), log_y=False)


def loss_terms(run: TrainingResult) -> Figure | None:
    """The terms of a loss, each the mean over the steps, before its share."""
    names = dict.fromkeys(name for row in run.history for name in row.terms or {})
    series = _lines(run, [(visible(name), _term(name), False) for name in names])
    ends = [f"{one.name} {_number(one.points[0][1])} to {_number(one.points[-1][1])}" for one in series]
    caption = f"The terms of the loss, means over the steps before each evaluation and before their shares: {', '.join(ends)}."
    return _chart(run, "loss_terms.svg", "Terms of the loss", series, caption, "term of the loss")


def _term(name: str) -> Value:
    return lambda row: (row.terms or {}).get(name)


def gradient_conflict(run: TrainingResult) -> Figure | None:
    """The cosines between the gradients of the terms of a task's loss, for the pairs that end lowest."""
    names = dict.fromkeys(name for row in run.history if row.signals for name in row.signals.cosines or {})
    series = _lines(run, [(visible(name), _cosine(name), False) for name in names])
    lowest = sorted(series, key=lambda one: one.points[-1][1])[:SHOWN_PAIRS]
    ends = [f"{one.name} {_number(one.points[0][1])} to {_number(one.points[-1][1])}" for one in lowest]
    caption = (
        "Cosines between the gradients of two losses on training samples, below 0 where they pull the same weights in opposite "
        f"directions: {'; '.join(ends)}."
    )
    return _chart(run, "gradient_conflict.svg", "Conflict of gradients", lowest, caption, "cosine", include=[0.0], log_y=False)


def _cosine(name: str) -> Value:
    return lambda row: ((row.signals.cosines if row.signals else None) or {}).get(name)


def gap(run: TrainingResult) -> Figure | None:
    """The generalization gap: the difference by which the model is worse on validation than on training data."""
    names = list(dict.fromkeys(["loss", metric_name(run)]))
    series = [Series(f"gap of {visible(name)}", _difference(run, name)) for name in names]
    series = [one for one in series if one.points]
    ends = [f"{one.name} {signed(one.points[-1][1])}" for one in series]
    caption = f"At the last evaluation: {', '.join(ends)}; above zero, validation is worse than training."
    return _chart(run, "gap.svg", "Generalization gap", series, caption, "worse on validation by", include=[0.0], log_y=False)


def _difference(run: TrainingResult, name: str) -> list[tuple[float, float]]:
    """Return the gap of a metric at each evaluation, positive where validation is worse."""
    larger_is_better = name != "loss" and name == metric_name(run) and run.metric.mode == "max"
    validation = dict(column(run, _metric("validation", name)))
    sign = -1.0 if larger_is_better else 1.0
    return [(x, sign * (validation[x] - y)) for x, y in column(run, _metric("train", name)) if x in validation]


def gradients(run: TrainingResult) -> Figure | None:
    """The norm of all gradients together, before clipping."""
    wanted: list[tuple[str, Value, bool]] = [
        ("largest", lambda row: row.grad_norm.max, True),
        ("median", lambda row: row.grad_norm.median, False),
        ("smallest", lambda row: row.grad_norm.min, True),
    ]
    series = _lines(run, wanted)
    largest, middle, _ = (_whole(column(run, value)) for _, value, _ in wanted)
    top = max((y for _, y in largest), default=math.nan)
    if not middle:
        caption = "The median gradient norm was never finite."
    else:
        ends = f"from {_place(middle[0])} to {_place(middle[-1])}"
        caption = f"The median gradient norm went {ends}; the largest of any step was {_number(top)}."
    return _chart(run, "gradients.svg", "Gradient norm before clipping", series, caption, "L2 norm")


def _number(value: float) -> str:
    return number(value if math.isfinite(value) else repr(value))


def _heat(
    run: TrainingResult, measured: Callable[[HistoryRow], Sequence[Any]], file: str, title: str, what: str
) -> Figure | None:
    found = [measured(row) for row in run.history]
    if not run.layers or not any(found):
        return None
    rows = [(name, [as_float(row[nr]) if nr < len(row) else math.nan for row in found]) for nr, name in enumerate(run.layers)]
    last = [(name, values[-1]) for name, values in rows]
    whole = [pair for pair in last if math.isfinite(pair[1])]
    caption = f"No layer's {what} was finite at the last evaluation."
    if whole:
        low, high = min(whole, key=lambda pair: pair[1]), max(whole, key=lambda pair: pair[1])
        ends = f"between {number(low[1])} ({visible(low[0])}) and {number(high[1])} ({visible(high[0])})"
        same = f"{number(low[1])} in every layer"
        caption = f"At the last evaluation the {what} was {same if low[1] == high[1] else ends}; {counted(len(rows), 'layer')}."
    epochs = [as_float(row.epoch) for row in run.history]
    content = heat_map(title, caption, rows, epochs, x_label="epoch", scale_label=what)
    return Figure(file, title, caption, content)


def gradient_layers(run: TrainingResult) -> Figure | None:
    """The median gradient norm of each layer over the epochs."""
    return _heat(run, lambda row: row.layer_norms, "gradient_layers.svg", "Gradient norm per layer", "gradient norm")


def update_layers(run: TrainingResult) -> Figure | None:
    """The size of an update relative to the weights, for each layer over the epochs."""
    return _heat(
        run, lambda row: row.update_ratios, "update_layers.svg", "Update relative to weight, per layer", "update / weight"
    )


def weights(run: TrainingResult) -> Figure | None:
    """The distributions of some layers' weights, from before the first step on."""
    return _distributions(run, lambda seen: seen.weights, "weights.svg", "Weights over time")


def activations(run: TrainingResult) -> Figure | None:
    """The distributions of some layers' outputs, from before the first step on."""
    return _distributions(run, lambda seen: seen.activations, "activations.svg", "What layers give, over time")


def _distributions(
    run: TrainingResult, kind: Callable[[Distributions], Mapping[str, Histogram]], file: str, title: str
) -> Figure | None:
    seen = [("start", run.signals.start.model.distributions)] if run.signals else []
    seen += [(_epoch(as_float(row.epoch)), row.signals.validation.distributions) for row in run.history if row.signals]
    times = [(time, kind(found)) for time, found in seen if found and kind(found)]
    names = dict.fromkeys(name for _, found in times for name in found)
    panels = [Ridges(name, [_ridge(time, found[name]) for time, found in times if name in found]) for name in names]
    if not panels:
        return None
    moved = [(spread[-1] / spread[0], name) for name in names if (spread := _spreads(times, name))[0] > 0]
    caption = f"The middle 99 % of the values, for {counted(len(panels), 'layer')} at {counted(len(times), 'time')}"
    if moved:
        # By the logarithm: a tenth of the range is as large a change as ten times the range.
        factor, name = max(moved, key=lambda pair: abs(math.log(pair[0])) if pair[0] > 0 else math.inf)
        caption += f"; that of {visible(name)} has changed most: its range is {number(factor)} times the first"
    return Figure(file, title, f"{caption}.", ridges(title, f"{caption}.", panels, time="evaluation"))


def _ridge(time: str, found: Histogram) -> Ridge:
    return Ridge(time, as_float(found.low), as_float(found.high), found.counts)


def _spreads(times: Sequence[tuple[str, Mapping[str, Histogram]]], name: str) -> list[float]:
    return [as_float(found[name].high) - as_float(found[name].low) for _, found in times if name in found]


def throughput(run: TrainingResult) -> Figure | None:
    """Samples trained per second; None for a program, whose samples in a step are not known."""
    if run.program is not None:
        return None
    points = column(run, lambda row: row.samples_per_s)
    whole = [y for _, y in _whole(points)] or [math.nan]
    middle, low, high = statistics.median(whole), min(whole), max(whole)
    caption = f"Training went at {_number(middle)} samples/s (median), between {_number(low)} and {_number(high)}."
    series = [Series("training", points)] if points else []
    return _chart(run, "throughput.svg", "Throughput", series, caption, "samples/s", include=[0.0], log_y=False)


def data_wait(run: TrainingResult) -> Figure | None:
    """Share of the training time spent waiting for data."""
    points = [(x, y * 100) for x, y in column(run, lambda row: row.data_wait)]
    clipped = [(x, y * 100) for x, y in column(run, lambda row: row.clipped)]
    series = [one for one in (Series("waiting for data", points), Series("steps clipped", clipped)) if one.points]
    if not points or run.program is not None:
        return None
    worst = max(_whole(points), key=lambda point: point[1], default=(math.nan, math.nan))
    shown = share(worst[1] / 100) if math.isfinite(worst[1]) else "not finite"
    caption = f"At most {shown} of an epoch's training time went into waiting for data."
    return _chart(
        run, "data_wait.svg", "Waiting for data, and clipped steps", series, caption, "share (%)", include=[0.0], log_y=False
    )


def time_spent(run: TrainingResult) -> Figure | None:
    """The run's time by activity."""
    if len(run.time_s) < 2:
        return None
    items = sorted((name, as_float(value)) for name, value in run.time_s.items())
    total = math.fsum(value for _, value in items if math.isfinite(value))
    top = max(items, key=lambda item: item[1] if math.isfinite(item[1]) else -1.0)
    part = share(top[1] / total) if total > 0 and math.isfinite(top[1]) else "an unknown share"
    caption = f"{visible(top[0])} took {part} of the {number(total)} s that were timed."
    return Figure("time.svg", "Where the time went", caption, bars("Where the time went", caption, items, unit="seconds"))


def evaluation(run: TrainingResult) -> list[Figure]:
    """The confusion matrix of a classifier or the residuals of a regression, for each of several targets."""
    found = run.task_evaluation
    drawn = [_evaluation(one) for one in (found.targets if found.kind == "targets" else [found])]
    return [figure for figure in drawn if figure is not None]


def _evaluation(found: TargetEvaluation) -> Figure | None:
    draw = {"classification": confusion, "regression": residuals}.get(str(found.kind))
    return draw(found) if draw else None


def _of_target(found: TargetEvaluation, file: str, title: str) -> tuple[str, str]:
    """Return a figure's file and title; with the target's name where it is one of several."""
    if not found.word:
        return f"{file}.svg", title
    return f"{file}_{found.word}.svg", f"{title}: {visible(found.name or found.word)}"


def confusion(found: TargetEvaluation) -> Figure | None:
    """The confusion matrix; None for more classes than a figure can show."""
    labels, counts = [str(name) for name in found.labels], found.confusion
    total = sum(sum(row) for row in counts)
    right = sum(row[nr] for nr, row in enumerate(counts))
    if not total or len(labels) > MAX_CLASSES:
        return None
    wrong = confused(found)
    worst = f"; most often {visible(wrong[0][0])} was taken for {visible(wrong[0][1])} ({times(wrong[0][2])})" if wrong else ""
    caption = f"{number(right)} of {number(total)} validation samples are on the diagonal, {share(right / total)}{worst}."
    file, title = _of_target(found, "confusion", "Confusion matrix, validation split")
    return Figure(file, title, caption, confusion_matrix(title, caption, labels, counts))


def residuals(found: TargetEvaluation) -> Figure | None:
    """Predictions against targets."""
    pairs = [(as_float(target), as_float(prediction)) for target, prediction in found.pairs]
    if not pairs:
        return None
    quantiles = found.residual_quantiles
    spread = (
        f"; half of all residuals lie between {number(quantiles[1])} and {number(quantiles[3])}" if len(quantiles) == 5 else ""
    )
    caption = f"{number(len(pairs))} validation samples, prediction against target{spread}."
    file, title = _of_target(found, "residuals", "Predictions and targets, validation split")
    return Figure(file, title, caption, scatter(title, caption, pairs, x_label="target", y_label="prediction"))


_FIGURES: tuple[Callable[[TrainingResult], Figure | list[Figure] | None], ...] = (
    learning_curves,
    metric,
    loss_terms,
    gradient_conflict,
    gap,
    evaluation,
    calibration,
    along,
    segments,
    gradients,
    gradient_layers,
    update_layers,
    weights,
    activations,
    throughput,
    data_wait,
    time_spent,
)
