"""The figure of several seeds: what each gave, beside their mean."""

from __future__ import annotations

from mltrainer.figures.figure import Figure
from mltrainer.figures.series import Series
from mltrainer.figures.svg import line_chart
from mltrainer.questions.seed_variance.findings import SeedVariance
from mltrainer.reports.values import counted, number, visible

FILE = "seeds.svg"


def of_seeds(found: SeedVariance) -> Figure:
    """Return a dot for each seed, and lines for the mean and for the baseline, which has the config's own seed."""
    name = visible(found.metric.name)
    values = [(float(nr), value) for nr, value in enumerate(found.values, 1)]
    ends = (values[0][0], values[-1][0])
    lines = {"mean": found.mean, "the baseline": found.baseline}
    series = [Series("one seed", values, dots=True)]
    series += [Series(what, [(x, value) for x in ends], dashed=True) for what, value in lines.items() if value is not None]
    told = "there is no mean" if found.mean is None else f"mean {number(found.mean)}, deviation {number(found.deviation)}"
    caption = f"{name} of {counted(len(values), 'fresh seed')}: {told}."
    title = "The same config on several seeds"
    chart = line_chart(title, caption, series, x_label="seed", y_label=name)
    return Figure(FILE, title, caption, chart)
