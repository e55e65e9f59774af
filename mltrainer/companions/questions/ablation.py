"""`mltrainer ablate`: a config without each of its components, one at a time, over several seeds, beside the whole config.

An ablation reads the records and changes none: it needs only planning's gate, no gate takes it for evidence, and nothing
becomes stale by it. It measures on validation data alone. Its runs are ordinary runs, which are reused and continued.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from typer import Argument, Option

import mltrainer
from mltrainer.cli import completion
from mltrainer.companions.questions.command import command
from mltrainer.companions.questions.variants import (
    FEWEST_SEEDS,
    MOST_SEEDS,
    PHASE,
    TOOL,
    ChangedKey,
    Code,
    Contribution,
    Listed,
    Measured,
    Plan,
    PlannedSwap,
    Row,
    Source,
    Table,
    changed_keys,
    contributions,
    job_of,
    level_of,
    require_one_trainer,
    whole_config,
)
from mltrainer.configs.components import Swap, swaps_of
from mltrainer.configs.loading import as_assignments, as_typed
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.figures.canvas import BLUE, GREY, VERMILLION
from mltrainer.figures.content import Figure
from mltrainer.figures.forest_plot import Compared, forest
from mltrainer.gates.gate import check_gates, gates_before
from mltrainer.gates.statistics import fewest_pairs
from mltrainer.handbook import ABLATION
from mltrainer.phases.present_config import require_no_secret
from mltrainer.records.common import MetricChoice
from mltrainer.records.reading import Record
from mltrainer.reports.terminal import table as text_table
from mltrainer.reports.values import counted, duration, given, number, signed, visible
from mltrainer.runs.launcher import Tools
from mltrainer.search.pool import places
from mltrainer.workspace import LOCK_FILE, Project, locked, write_json, write_text

FOLDER = "optimization"  # the phase whose folder has the page
PAGE, DATA = "ablation.md", "ablation.json"

Asked = Sequence[str | Mapping[str, Any]]


@dataclass(frozen=True)
class Ablation:
    """A prepared comparison.

    Attributes:
        config: The whole config.
        is_final: Whether optimization decided the config; else it is the planned one.
        file: File of the config, relative to the project.
        why: Reason for this config.
        swaps: The swaps.
        seeds: Number of fresh seeds.
        level: Level of the one-sided tests.
        root: The project's folder.
        planning: Planning's record.
        asked: The swaps as they were typed.
    """

    config: TrainingConfig
    is_final: bool
    file: str
    why: str
    swaps: list[Swap]
    seeds: int
    level: float
    planning: Record
    asked: tuple[str, ...]

    def plan(self) -> Plan:
        """Return config, metric, level and number of runs."""
        return Plan(
            config=Source(file=self.file, why=self.why, folds=self.config.split.folds),
            metric=MetricChoice.model_validate(self.config.metric.model_dump()),
            level=self.level,
            runs=self.seeds * (1 + len(self.swaps)),
        )


def components(tools: Tools, *swaps: str | Mapping[str, Any], seeds: int | None = None) -> Listed:
    """Return the swaps of `ablate`, the number of its runs, and its estimated time; nothing is trained.

    Raises:
        GateError: Planning's gate does not hold.
        InputError: A requested swap is not possible.
    """
    ablation = _prepared(tools.project, swaps, seeds)
    each, workers = _seconds_of_a_run(tools.project, ablation), _workers(ablation.config)
    plan = ablation.plan()
    planned = [PlannedSwap(name=swap.name, keys=changed_keys(ablation.config, swap)) for swap in ablation.swaps]
    about = each * plan.runs / workers
    return Listed.of(plan, swaps=planned, seeds=ablation.seeds, run_s=each, workers=workers, about_s=about)


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
        InputError: A swap makes the config invalid, or changes nothing.
        StoppedError: A signal stopped it; the same call continues.

    Examples:
        >>> table = project.ablate("clip", {"model.dropout": 0.3})
        >>> [(row["name"], row["verdict"]) for row in table["rows"]]
        [('gradient clipping', 'no difference shown'), ('model.dropout=0.3', 'is better')]
    """
    project = tools.project
    with locked(project.state_dir / LOCK_FILE, f"the project {project.root.name}"):
        ablation = _prepared(project, swaps, seeds)
        tools.note(f"{ablation.file}: {ablation.why}")
        job = job_of(project.root, ablation.planning, ablation.config, ablation.swaps, ablation.seeds, PHASE)
        table = _table(project, ablation, Measured.model_validate(tools.run(TOOL, job)))
        _write(project, table)
        return table


# --- what is compared -----------------------------------------------------------------------------


def _prepared(project: Project, asked: Asked, seeds: int | None) -> Ablation:
    (planning,) = gates_before(project, "baseline", "an ablation")
    assert planning.record is not None
    require_one_trainer(project, "an ablation")
    config, is_final, file, why = whole_config(project, planning)
    swaps = swaps_of(config, asked)
    require_no_secret([swap.changes for swap in swaps])
    level = level_of(project)
    count = fewest_pairs(level, len(swaps)) if seeds is None else _counted(seeds)
    typed = tuple(text for one in asked for text in ([one] if isinstance(one, str) else ["+".join(as_assignments(one))]))
    return Ablation(config, is_final, file, why, swaps, count, level, planning.record, typed)


def _counted(seeds: int) -> int:
    """Return the number of seeds, checked against the limits.

    Raises:
        InputError: There is nothing to compare, or more than the exact test takes.
    """
    if not FEWEST_SEEDS <= seeds <= MOST_SEEDS:
        raise InputError(f"{FEWEST_SEEDS} to {MOST_SEEDS} seeds expected, found {seeds}", where="seeds")
    return seeds


def _seconds_of_a_run(project: Project, ablation: Ablation) -> float:
    """Return the estimated seconds of a run, by the baseline's time per epoch, or by planning's estimate."""
    baseline = check_gates(project)[1].record
    run = baseline.typed.evidence.run if baseline and baseline.typed else None
    if run is not None and run.epochs and run.wall_s:
        return float(run.wall_s) / int(run.epochs) * ablation.config.epochs
    return 60 * float(ablation.planning.trusted.evidence.estimate.minutes)


def _workers(config: TrainingConfig) -> int:
    """Return the number of runs trained at a time; 1 on GPUs without CUDA_VISIBLE_DEVICES, for counting them takes torch."""
    is_counted = config.device == "cpu" or "CUDA_VISIBLE_DEVICES" in os.environ
    return len(places(None, config.device, config.threads)) if is_counted else 1


# --- its table ------------------------------------------------------------------------------------


def _table(project: Project, ablation: Ablation, measured: Measured) -> Table:
    judged = contributions(ablation.swaps, measured.sides, measured.seeds, ablation.config.metric.mode, ablation.level)
    source = ablation.planning.trusted.source
    return Table.of(
        ablation.plan(),
        mltrainer=mltrainer.__version__,
        project=ablation.config.name,
        seeds=measured.seeds,
        whole=judged.whole,
        rows=[_row(ablation, row, swap) for row, swap in zip(judged.rows, ablation.swaps, strict=True)],
        comparisons=judged.comparisons,
        fewest_seeds=judged.fewest_seeds,
        trained_s=sum(run.wall_s or 0.0 for runs in measured.sides for run in runs),
        code=Code(commit=source.commit, sha256=source.sha256),
        command=shlex.join(["mltrainer", "ablate", *ablation.asked, "--seeds", str(ablation.seeds)]),
        page=project.relative(project.phase_dir(FOLDER) / PAGE),
    )


def _row(ablation: Ablation, row: Contribution, swap: Swap) -> Row:
    return Row.of(row, keys=changed_keys(ablation.config, swap), command=_command(ablation, swap, row.verdict))


def _command(ablation: Ablation, swap: Swap, verdict: str) -> str | None:
    """Return the command that adopts a swap with a better metric; None for any other verdict."""
    phase = "finalization" if ablation.is_final else "planning"
    return f"mltrainer phase run {phase} {as_typed(swap.changes)}" if verdict in ("hurts", "is better") else None


def _write(project: Project, table: Table) -> None:
    """Write a table as data, as a figure and as a page that shows both; the page comes last."""
    folder, figure = project.phase_dir(FOLDER), of_ablation(table)
    write_json(folder / DATA, table.written())
    write_text(folder / figure.file, figure.content)
    write_text(folder / PAGE, markdown(table, replace(figure, content="")))


SURE = ("helps", "hurts", "is worse", "is better")


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
    of_rows = list(zip(rows, table.rows, strict=True))
    names = {
        "table": table.written(),
        "figure": figure,
        "rows": rows,
        "shown": [row for row, of in of_rows if of.verdict in SURE],
        "failed": [row for row, of in of_rows if of.failed],
    }
    return templates.filled(templates.frame(ABLATION), {**names, **asdict(_words(table))})


def _words(table: Table) -> Words:
    return Words(
        better="larger" if table.metric.mode == "max" else "smaller",
        folds=f", each on one of {table.config.folds} folds in turn" if table.config.folds else "",
        confidence=f"{number(100 * (1 - 2 * table.level), 2)} %",
        by_luck=f"{number(100 * 2 * table.level, 2)} %",
        parameters_change=any(row.parameters not in (None, table.whole.parameters) for row in table.rows),
        pace_changes=any(row.pace is not None for row in table.rows),
    )


def said(row: Row) -> str:
    """Return a row's verdict with its reason."""
    return f"{row.verdict}: {row.why}" if row.why else row.verdict


def swap_text(keys: Sequence[ChangedKey]) -> str:
    """Return the swapped keys, each with old and new value."""
    return "; ".join(f"{row.key}: {_value(row.before)} → {_value(row.after)}" for row in keys)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(item)}" for key, item in value.items()) or "none"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else given(value)


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
        *(f"next, {_with(row)}: {row.command}" for row in table.rows if row.command),
    ]
    return "\n".join(lines)


def _with(row: Row) -> str:
    return f"without {row.name}" if row.takes_out else f"with {row.name}"


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
    extra = [number(row.parameters)] * words.parameters_change + [_pace(row.pace)] * words.pace_changes
    mean = "-" if row.mean is None else number(row.mean)
    return [row.name, swap_text(row.keys), mean, change, *counts, *extra, said(row)]


def _pace(pace: float | None) -> str:
    return "" if pace is None else f"x {number(pace)}"


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
        ]
    )


FILE = "ablation.svg"
COLOURS = {"helps": BLUE, "is worse": BLUE, "hurts": VERMILLION, "is better": VERMILLION}


def of_ablation(table: Table) -> Figure:
    """Return a figure with a row for each swap: each seed's value, the mean and its interval; blue marks a worse swap."""
    name, rows = visible(table.metric.name), table.rows
    shown = sum(row.verdict in COLOURS for row in rows)
    confidence = number((1 - 2 * table.level) * 100, 2)
    better = "larger" if table.metric.mode == "max" else "smaller"
    caption = (
        f"Change of {name} by {counted(len(rows), 'swap')}, {better} is better: "
        f"a dot for each of {given(len(table.seeds))} seeds, the mean, and its {confidence} % interval where there is one. "
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
