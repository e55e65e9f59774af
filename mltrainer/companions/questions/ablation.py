"""`mltrainer ablate`: a config without each of its components, one at a time, over several seeds, beside the whole config.

An ablation reads the records and changes none: it needs only planning's gate, no gate takes it for evidence, and nothing
becomes stale by it. It measures on validation data alone. Its runs are ordinary runs, which are reused and continued.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from typer import Argument, Option

import mltrainer
from mltrainer.cli import completion
from mltrainer.companions.questions.command import command
from mltrainer.companions.questions.findings import Findings, Value, write_page
from mltrainer.companions.questions.variants import (
    FEWEST_SEEDS,
    MOST_SEEDS,
    ChangedKey,
    Contribution,
    Measured,
    Side,
    Source,
    Whole,
    baseline_of,
    changed_keys,
    counted_seeds,
    require_one_trainer,
    swap_text,
    trained,
    value_text,
)
from mltrainer.configs.components import COMMAND, Swap, options_of, swaps_of
from mltrainer.configs.loading import as_assignments, as_typed
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.figures.canvas import BLUE, GREY, VERMILLION
from mltrainer.figures.content import Figure
from mltrainer.figures.forest_plot import Compared, forest
from mltrainer.gates.statistics import fewest_pairs
from mltrainer.handbook import ABLATION
from mltrainer.phases.present_config import require_no_secret
from mltrainer.records.common import MetricChoice
from mltrainer.reports.terminal import table as text_table
from mltrainer.reports.values import counted, duration, given, number, signed, visible
from mltrainer.runs.launcher import Tools
from mltrainer.search.pool import places
from mltrainer.workspace import Project, locked_project, write_json

FOLDER = "optimization"  # the phase whose folder has the page
PAGE, DATA = "ablation.md", "ablation.json"


class Row(Contribution):
    """A contribution with the keys of its swap, and the command that adopts it where it is better."""

    keys: list[ChangedKey]
    command: str | None


class Plan(Findings):
    """A planned comparison: the config, the metric, the level of the one-sided tests, and the number of runs."""

    config: Source
    metric: MetricChoice
    level: Value
    runs: int


class PlannedSwap(Findings):
    """A swap by its name, with the keys that it changes."""

    name: str
    keys: list[ChangedKey]


class SetOption(Findings):
    """An option that the config gives a class of one's own, with its value."""

    key: str
    value: Any


class Listed(Plan):
    """A plan with its swaps, the options that could be swapped too, seconds of a run, runs at a time, and seconds of all."""

    swaps: list[PlannedSwap]
    options: list[SetOption]
    seeds: int
    run_s: Value
    workers: int
    about_s: Value


class Code(Findings):
    """The commit and the digest of the project's code."""

    commit: str | None
    sha256: str


class Table(Plan):
    """An ablation's table, as in the file beside its page.

    Attributes:
        mltrainer: Version of mltrainer that wrote it.
        project: The project's name.
        seeds: The seeds.
        whole: The whole config.
        rows: A row for each swap.
        comparisons: Number of comparisons that the verdicts are corrected for.
        fewest_seeds: Fewest seeds that could show a difference.
        trained_s: Seconds of training in all.
        code: The code that trained.
        command: Command that repeats the ablation.
        page: The page's path.
    """

    mltrainer: str
    project: str
    seeds: list[int]
    whole: Side
    rows: list[Row]
    comparisons: int
    fewest_seeds: int
    trained_s: Value
    code: Code
    command: str
    page: str


@dataclass(frozen=True)
class Ablation:
    """A prepared comparison: the whole config, its swaps, the number of fresh seeds, and the swaps as they were typed."""

    whole: Whole
    swaps: list[Swap]
    seeds: int
    typed: tuple[str, ...]

    @classmethod
    def of(cls, project: Project, asked: Sequence[str | Mapping[str, Any]], seeds: int | None) -> Ablation:
        """Return the comparison that is asked for."""
        whole = Whole.of(project, "an ablation")
        require_one_trainer(project, "an ablation")
        swaps = swaps_of(whole.config, asked)
        require_no_secret([swap.changes for swap in swaps])
        count = fewest_pairs(whole.level, len(swaps)) if seeds is None else counted_seeds(seeds, FEWEST_SEEDS)
        return cls(whole, swaps, count, tuple(one if isinstance(one, str) else "+".join(as_assignments(one)) for one in asked))

    def plan(self) -> Plan:
        """Return config, metric, level and number of runs."""
        return Plan(
            config=self.whole.source,
            metric=self.whole.metric,
            level=self.whole.level,
            runs=self.seeds * (1 + len(self.swaps)),
        )

    def table(self, project: Project, measured: Measured) -> Table:
        """Return the comparison's table."""
        judged, source = self.whole.contributions(self.swaps, measured), self.whole.planning.trusted.source
        return Table.of(
            self.plan(),
            mltrainer=mltrainer.__version__,
            project=self.whole.config.name,
            seeds=measured.seeds,
            whole=judged.whole,
            rows=[self._row(row, swap) for row, swap in zip(judged.rows, self.swaps, strict=True)],
            comparisons=judged.comparisons,
            fewest_seeds=judged.fewest_seeds,
            trained_s=sum(run.wall_s or 0.0 for runs in measured.sides for run in runs),
            code=Code(commit=source.commit, sha256=source.sha256),
            command=shlex.join(["mltrainer", "ablate", *self.typed, "--seeds", str(self.seeds)]),
            page=project.relative(project.phase_dir(FOLDER) / PAGE),
        )

    def _row(self, row: Contribution, swap: Swap) -> Row:
        phase = "finalization" if self.whole.is_final else "planning"
        adopts = f"mltrainer phase run {phase} {as_typed(swap.changes)}" if row.verdict in ("hurts", "is better") else None
        return Row.of(row, keys=changed_keys(self.whole.config, swap), command=adopts)


def components(tools: Tools, *swaps: str | Mapping[str, Any], seeds: int | None = None) -> Listed:
    """Return the swaps of `ablate`, the number of its runs, and its estimated time; nothing is trained.

    Raises:
        GateError: Planning's gate does not hold.
        InputError: A requested swap is not possible.
    """
    ablation = Ablation.of(tools.project, swaps, seeds)
    config, plan = ablation.whole.config, ablation.plan()
    each, workers = _seconds_of_a_run(tools.project, ablation.whole), _workers(config)
    planned = [PlannedSwap(name=swap.name, keys=changed_keys(config, swap)) for swap in ablation.swaps]
    options = [SetOption(key=key, value=value) for key, value in options_of(config).items()]
    about = each * plan.runs / workers
    return Listed.of(plan, swaps=planned, options=options, seeds=ablation.seeds, run_s=each, workers=workers, about_s=about)


def ablate(tools: Tools, *swaps: str | Mapping[str, Any], seeds: int | None = None) -> Table:
    """Compare the config with each swapped one on the same fresh seeds, and write the table as a page with its figure.

    The page is `phases/04_optimization/ablation.md`. No gate and no record changes; earlier runs are reused.

    Args:
        tools: The project's tools.
        *swaps: Swaps, each a component's key, to take it out; `KEY=VALUE`, several of one change joined by `+`; or values by
            dotted key. By default each component of the config is taken out, one at a time.
        seeds: Number of seeds; by default the fewest that can show a difference of each swap: 5 for one, 8 for up to twelve.

    Raises:
        GateError: Planning's gate does not hold.
        InputError: A swap makes the config invalid, or changes nothing; or all trainings with a swap failed, and an earlier page
            stays.
        StoppedError: A signal stopped it; the same call continues.

    Examples:
        >>> table = project.ablate("clip", {"model.dropout": 0.3})
        >>> [(row["name"], row["verdict"]) for row in table["rows"]]
        [('gradient clipping', 'no difference shown'), ('model.dropout=0.3', 'is better')]
    """
    project = tools.project
    with locked_project(project):
        ablation = Ablation.of(project, swaps, seeds)
        whole, folder = ablation.whole, project.phase_dir(FOLDER)
        tools.note(f"{whole.file}: {whole.why}")
        table = ablation.table(project, trained(tools, whole.planning, whole.config, ablation.swaps, ablation.seeds))
        _require_trained(table)
        figure = of_ablation(table)
        write_json(folder / DATA, table.written())
        write_page(folder / PAGE, markdown(table, replace(figure, content="")), [figure])
        return table


def _require_trained(table: Table) -> None:
    """Refuse a table that shows nothing, which must not take the place of an earlier one.

    Raises:
        InputError: All trainings with a swap failed; the message has the first one's reason.
    """
    if any(len(row.failed) < len(row.values) for row in table.rows):
        return
    first, count = table.rows[0], sum(len(row.failed) for row in table.rows)
    raise InputError(
        f"all {count} trainings with a swap failed: {first.failed[0].reason}",
        where=f"{COMMAND} {first.name}",
        hint=f"give other values; an earlier {PAGE} stays as it is",
    )


def _seconds_of_a_run(project: Project, whole: Whole) -> float:
    """Return the estimated seconds of a run, by the baseline's time per epoch, or by planning's estimate."""
    run = baseline_of(project)
    if run is not None and run.epochs and run.wall_s:
        return float(run.wall_s) / int(run.epochs) * whole.config.epochs
    return 60 * float(whole.planning.trusted.evidence.estimate.minutes)


def _workers(config: TrainingConfig) -> int:
    """Return the number of runs trained at a time; 1 on GPUs without CUDA_VISIBLE_DEVICES, for counting them takes torch."""
    is_counted = config.device == "cpu" or "CUDA_VISIBLE_DEVICES" in os.environ
    return len(places(None, config.device, config.threads)) if is_counted else 1


# --- the page -------------------------------------------------------------------------------------


FILE = "ablation.svg"
COLOURS = {"helps": BLUE, "is worse": BLUE, "hurts": VERMILLION, "is better": VERMILLION}  # of verdicts that are sure


@dataclass(frozen=True)
class Words:
    """Words about a whole table.

    Attributes:
        better: Better direction of the metric: "larger" or "smaller".
        folds: Note that each seed is measured on one fold, or nothing.
        confidence: Confidence of the intervals.
        by_luck: Probability of a shown difference without a real one.
        parameters_change: Whether a swap changes the number of parameters.
        pace_changes: Whether a swap changes the time of a step.
    """

    better: str
    folds: str
    confidence: str
    by_luck: str
    parameters_change: bool
    pace_changes: bool


def markdown(table: Table, figure: Figure) -> str:
    """Return the page; identical tables give identical bytes."""
    from mltrainer.reports import templates

    rows = [{**row.written(), "swap": swap_text(row.keys)} for row in table.rows]
    parts = {
        "rows": rows,
        "shown": [row for row in rows if row["verdict"] in COLOURS],
        "failed": [row for row in rows if row["failed"]],
    }
    return templates.filled(
        templates.frame(ABLATION), {"table": table.written(), "figure": figure, **parts, **asdict(_words(table))}
    )


def _words(table: Table) -> Words:
    return Words(
        better="larger" if table.metric.mode == "max" else "smaller",
        folds=f", each on one of {table.config.folds} folds in turn" if table.config.folds else "",
        confidence=f"{number(100 * (1 - 2 * table.level), 2)} %",
        by_luck=f"{number(100 * 2 * table.level, 2)} %",
        parameters_change=any(row.parameters not in (None, table.whole.parameters) for row in table.rows),
        pace_changes=any(row.pace is not None for row in table.rows),
    )


# --- the terminal ---------------------------------------------------------------------------------


def text(table: Table) -> str:
    """Return the table as text for the terminal, with notes on reading it."""
    metric, whole, count = table.metric.name, table.whole, len(table.seeds)
    words = _words(table)
    mean = f"{metric} {number(whole.mean)}{_interval(whole.interval)}"
    where = f"{table.config.file} ({table.config.why})"
    change = f"mean difference to the whole config on the same seeds, and its {words.confidence} interval"
    lines = [
        f"{where}: {mean} on validation, mean of {counted(count, 'fresh seed')}{words.folds}; {words.better} is better",
        "",
        text_table([_cells(row, words) for row in table.rows], _heads(metric, words)).rstrip("\n"),
        "",
        f"change: {change}, not corrected for being several",
        _corrected(table, words),
        f"wrote {table.page}, with its figure and its numbers",
        *(f"next, {'without' if row.takes_out else 'with'} {row.name}: {row.command}" for row in table.rows if row.command),
    ]
    return "\n".join(lines)


def _corrected(table: Table, words: Words) -> str:
    if not table.comparisons:
        return "verdict: nothing could be compared"
    several = f"{counted(table.comparisons, 'comparison')} (Holm)"
    return (
        f"verdict: exact sign-flip test, corrected for {several}: if no swap made a difference, one would be shown with a "
        f"probability of at most {words.by_luck}"
    )


def _heads(metric: str, words: Words) -> list[str]:
    extra = ["parameters"] * words.parameters_change + ["step time"] * words.pace_changes
    return ["component", "swap", metric, "change", "worse", "better", *extra, "verdict"]


def _cells(row: Row, words: Words) -> list[str]:
    change = f"{signed(row.difference)}{_interval(row.difference_interval)}" if row.difference is not None else "-"
    counts = [str(row.worse), str(row.better)] if row.difference is not None else ["-", "-"]
    pace = "" if row.pace is None else f"x {number(row.pace)}"
    extra = [number(row.parameters)] * words.parameters_change + [pace] * words.pace_changes
    mean = "-" if row.mean is None else number(row.mean)
    verdict = f"{row.verdict}: {row.why}" if row.why else row.verdict
    return [row.name, swap_text(row.keys), mean, change, *counts, *extra, verdict]


def _interval(ends: Sequence[float] | None) -> str:
    return f" [{number(ends[0])}, {number(ends[1])}]" if ends else ""


def listed_text(listed: Listed) -> str:
    """Return the planned swaps as a table, and the estimated time of all runs."""
    rows = [[row.name, swap_text(row.keys)] for row in listed.swaps]
    about = f"about {duration(listed.about_s)}, {counted(listed.workers, 'run')} at a time, each {duration(listed.run_s)}"
    many = f"the whole config and {counted(len(rows), 'swap')} on {counted(listed.seeds, 'seed')}"
    return "\n".join(
        [
            f"{listed.config.file} ({listed.config.why})",
            "",
            text_table(rows, ["component", "swap"]).rstrip("\n"),
            "",
            f"{counted(listed.runs, 'run')}: {many}; {about}",
            *_options_text(listed.options),
        ]
    )


def _options_text(options: Sequence[SetOption]) -> list[str]:
    """Return the options of classes of one's own, and how another value is tried; nothing without any."""
    if not options:
        return []
    rows = [[row.key, value_text(row.value)] for row in options]
    how = f"Only your class knows what its options do. Compare another value: {COMMAND} {options[0].key}=VALUE"
    return ["", text_table(rows, ["option", "value"]).rstrip("\n"), "", how]


def of_ablation(table: Table) -> Figure:
    """Return a figure with a row for each swap: each seed's value, the mean and its interval; blue marks a worse swap."""
    name, rows, words = visible(table.metric.name), table.rows, _words(table)
    shown = sum(row.verdict in COLOURS for row in rows)
    caption = (
        f"Change of {name} by {counted(len(rows), 'swap')}, {words.better} is better: "
        f"a dot for each of {given(len(table.seeds))} seeds, the mean, and its {words.confidence} interval where there is one. "
        f"A difference is shown for {given(shown) if shown else 'none'}."
    )
    title = "Ablation"
    chart = forest(title, caption, [_compared(row) for row in rows], unit=f"change of {name} by the swap")
    return Figure(FILE, title, caption, chart)


def _compared(row: Row) -> Compared:
    colour = COLOURS.get(row.verdict, GREY)
    if row.difference is None:
        return Compared(row.name, [], None, None, colour, f"{row.verdict}: {row.why}")
    ends = row.difference_interval
    return Compared(row.name, row.differences, row.difference, (ends[0], ends[1]) if ends else None, colour)


def _asked(tools: Tools, swaps: Sequence[str] = (), *, seeds: int | None = None, only_list: bool = False) -> Listed | Table:
    return components(tools, *swaps, seeds=seeds) if only_list else ablate(tools, *swaps, seeds=seeds)


app = command(
    _asked,
    lambda answer: listed_text(answer) if isinstance(answer, Listed) else text(answer),
    name="ablate",
    help="Train the config without each of its components, one at a time, and the whole one, on the same fresh seeds.\n\n"
    "The table, with intervals and verdicts, is phases/04_optimization/ablation.md. No gate and no record changes.",
    example="mltrainer ablate clip model.dropout=0.3 optimizer.name=sgd+optimizer.lr=0.1",
    swaps=Argument(
        metavar="[SWAP]...",
        autocompletion=completion.swaps,
        help="KEY: take that component out; KEY=VALUE: swap it, several keys of one change joined by +; "
        "default: take out each component in turn.",
    ),
    seeds=Option(
        min=FEWEST_SEEDS,
        max=MOST_SEEDS,
        metavar="N",
        help="Number of seeds; default: the fewest that can show a difference of each swap, 5 to 9.",
    ),
    only_list=Option("--list", help="Show the planned swaps and the estimated time; train nothing."),
)
