"""`mltrainer seeds`: one config on several fresh seeds, which shows how much of a difference between two runs is luck.

Like an ablation it reads the records and changes none; its runs are ordinary runs, which the next `ablate` reuses.
"""

from __future__ import annotations

import math
from typing import Any

from typer import Option

from mltrainer.companions.questions.command import command
from mltrainer.companions.questions.findings import Value, write_page
from mltrainer.companions.questions.variants import (
    MOST_SEEDS,
    Side,
    Source,
    Whole,
    baseline_of,
    counted_seeds,
    require_one_trainer,
    trained,
)
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.figures.figure import Figure
from mltrainer.figures.series import Series
from mltrainer.figures.svg import line_chart
from mltrainer.records.common import MetricChoice
from mltrainer.reports import markdown as md
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, finite, number, visible
from mltrainer.runs.launcher import Tools
from mltrainer.tasks.statistics import seed_noise
from mltrainer.workspace import Project, locked_project, write_json


class SeedVariance(Side):
    """The metric of a config over seeds.

    Attributes:
        config: The config.
        metric: The metric.
        confidence: Confidence of the mean's interval.
        seeds: The seeds.
        fewest_seeds: Fewest seeds with an interval.
        deviation: Standard deviation of a single run.
        luck: The difference of two runs of one seed each that luck alone exceeds in one of twenty cases: `SeedNoise.least`.
        baseline: Metric of the baseline, which has the config's seed; None without a baseline.
        page: The page's path.
    """

    config: Source
    metric: MetricChoice
    confidence: Value
    seeds: list[int]
    fewest_seeds: int
    deviation: Value | None
    luck: Value | None
    baseline: Value | None
    page: str


SEEDS = 5  # unless asked otherwise
FEWEST_SEEDS = 3  # fewer show no spread
FOLDER, PAGE, DATA = "seeds", "seeds.md", "result.json"


def seeds(tools: Tools, count: int = SEEDS) -> SeedVariance:
    """Train the config on fresh seeds, and return the spread of its metric; the page is in `.mltrainer/seeds/`.

    Args:
        tools: The project's tools.
        count: Number of seeds.

    Raises:
        GateError: Planning's gate does not hold.
        InputError: Too few or too many seeds.
        StoppedError: A signal stopped it; the same call continues.
    """
    counted_seeds(count, FEWEST_SEEDS)
    project = tools.project
    with locked_project(project):
        whole = Whole.of(project, "training on several seeds")
        config, folder = whole.config, project.state_dir / FOLDER
        _require_seeded(project, config)
        tools.note(f"{whole.file}: {whole.why}; {count} seeds")
        measured = trained(tools, whole.planning, config, [], count)
        table = whole.contributions([], measured)
        noise = seed_noise([[float(value) for value in table.whole.values if math.isfinite(value)]])
        variance = SeedVariance.of(
            table.whole,
            config=whole.source,
            metric=whole.metric,
            confidence=1 - 2 * whole.level,
            seeds=measured.seeds,
            fewest_seeds=table.fewest_seeds,
            deviation=noise.deviation if noise else None,
            luck=noise.least if noise else None,
            baseline=_baseline(project),
            page=project.relative(folder / PAGE),
        )
        figure = of_seeds(variance)
        write_json(folder / DATA, variance.written())
        write_page(folder / PAGE, markdown(variance, figure), [figure])
        return variance


def _require_seeded(project: Project, config: TrainingConfig) -> None:
    """Refuse a config that cannot be trained on another seed.

    Raises:
        InputError: The task is a program without a seed argument, or a custom tool trains.
    """
    if not config.task.is_opaque:
        require_one_trainer(project, "training on several seeds")
    elif not config.task.is_seeded:
        message = "the program takes no seed, and would do the same each time"
        raise InputError(message, where="task.script", hint='add one, as in "python train.py --seed {seed}", then mltrainer run')


def _baseline(project: Project) -> float | None:
    """Return the metric of the baseline, which has the config's seed; None without one."""
    run = baseline_of(project)
    value: Any = run.metrics.get(run.metric.name) if run else None
    return value if finite(value) else None


FILE = "seeds.svg"


def of_seeds(variance: SeedVariance) -> Figure:
    """Return a dot for each seed, and lines for the mean and for the baseline, which has the config's own seed."""
    name = visible(variance.metric.name)
    values = [(float(nr), value) for nr, value in enumerate(variance.values, 1)]
    ends = (values[0][0], values[-1][0])
    lines = {"mean": variance.mean, "the baseline": variance.baseline}
    series = [Series("one seed", values, dots=True)]
    series += [Series(what, [(x, value) for x in ends], dashed=True) for what, value in lines.items() if value is not None]
    summary = (
        "there is no mean" if variance.mean is None else f"mean {number(variance.mean)}, deviation {number(variance.deviation)}"
    )
    caption = f"{name} of {counted(len(values), 'fresh seed')}: {summary}."
    title = "The same config on several seeds"
    chart = line_chart(title, caption, series, x_label="seed", y_label=name)
    return Figure(FILE, title, caption, chart)


OURS = "Weights, order of samples and every other draw differ with the seed; the split stays.", "`mltrainer ablate`"
A_PROGRAM_S = "What differs with the seed, only the program knows.", "a search (`mltrainer phase run optimization`)"


def rows(variance: SeedVariance) -> list[tuple[str, str]]:
    """Return the statistics over seeds as pairs of label and value, in words."""
    ends, share = variance.interval, f"{number(100 * variance.confidence, 2)} % interval of the mean"
    return [
        ("mean", "none: a run failed" if variance.mean is None else number(variance.mean)),
        (share, _without(variance) if ends is None else f"{number(ends[0])} to {number(ends[1])}"),
        ("deviation of a single run", number(variance.deviation)),
        ("two runs differ by luck alone by up to", f"{number(variance.luck)} (19 of 20 times)"),
        ("the baseline, on the config's own seed", "not measured" if variance.baseline is None else number(variance.baseline)),
        *((f"failed on seed {row.seed}", row.reason) for row in variance.failed),
    ]


def _without(variance: SeedVariance) -> str:
    """Return the reason for a missing interval."""
    return "none: a run failed" if variance.mean is None else f"none: it takes {counted(variance.fewest_seeds, 'seed')} at least"


def text(variance: SeedVariance) -> str:
    """Return the values as text for the terminal, with the path of the page."""
    head = f"{variance.config.file} on {counted(len(variance.seeds), 'fresh seed')}: {variance.metric.name} on validation"
    values = table([list(row) for row in rows(variance)], ["what", "measured"]).rstrip("\n")
    return "\n".join([head, "", values, "", f"page: {variance.page}, with its figure"])


def markdown(variance: SeedVariance, figure: Figure) -> str:
    """Return the page; identical numbers give identical bytes."""
    count, config = counted(len(variance.seeds), "fresh seed"), variance.config
    differs, compares = A_PROGRAM_S if config.program else OURS
    about = (
        f"{md.code(config.file)} ({md.text(config.why)}), trained on {count}; "
        f"{md.code(variance.metric.name)} on validation data. {differs} A change of the config that gains less than two runs "
        f"differ by luck has shown nothing: train both on the same seeds with {compares}. The interval of the mean is exact for "
        "few seeds (Hartigan, 1969); the spread that other samples would bring is no part of it."
    )
    values = md.table(["what", "measured"], [[md.text(name), md.text(value)] for name, value in rows(variance)])
    each = md.table(
        ["seed", variance.metric.name, "run"],
        [
            [md.text(seed), md.text(number(value, 6)), md.code(run)]
            for seed, value, run in zip(variance.seeds, variance.values, variance.runs, strict=True)
        ],
        "lrl",
    )
    return md.document(
        ["# Several seeds", about, values, f"![{figure.title}]({figure.file})", f"*{md.text(figure.caption)}*", each]
    )


app = command(
    seeds,
    text,
    name="seeds",
    help="Train the config on several fresh seeds: the spread of its metric, and the difference of two runs that is luck.\n\n"
    "Its runs are kept and reused, by `ablate` too; no gate and no record changes. The page is in .mltrainer/seeds/.",
    example="mltrainer seeds --seeds 8",
    count=Option("--seeds", min=FEWEST_SEEDS, max=MOST_SEEDS, metavar="N", help="Number of seeds."),
)
