"""Views of a record for reports: rows to loop over, and values computed from it."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mltrainer.configs.loading import at
from mltrainer.records.claim import Claim, ClaimAnswer, PlannedClaim
from mltrainer.records.common import Part, Source
from mltrainer.records.diagnostics import Diagnosis, Mistake
from mltrainer.records.envelope import Envelope, Waiver, partial_record
from mltrainer.records.optimization import Searched
from mltrainer.records.partial import partial
from mltrainer.records.planning import Option
from mltrainer.records.references import BoostingPlan, Reference
from mltrainer.records.run import Evaluation, Speed, TargetEvaluation, TaskEvaluation, TrainingResult
from mltrainer.reports import boosting, claims
from mltrainer.reports.decisions import decisions
from mltrainer.reports.gate_items import failing, no_effect, not_passed
from mltrainer.reports.values import NOT_MEASURED, as_float, finite, number, rates, share, visible
from mltrainer.workspace import PROJECT_FILE

Row = dict[str, Any]
Rows = Sequence[Row]
MAX_MISTAKES = 10
SHOWN_LATER = [
    "calibration.svg",
    "residuals_along.svg",
    "segments.svg",
    "weights.svg",
    "activations.svg",
]  # figures of the baseline's run that the diagnostics show
KEPT = {
    "evidence.run.history": "evaluations",
    "evidence.run.layers": "layers",
    "evidence.diagnostics": "diagnostics",
    "evidence.config": "the config",
    "evidence.data.files": "data files",
    "evidence.environment.distributions": "packages",
    "inputs": "files that this phase is bound to",
    "source.files": "code that was imported",
}  # too long for a page
FIGURES_OF = {
    "nan_loss": ["learning_curves.svg"],
    "overfitting": ["gap.svg"],
    "exploding_gradients": ["gradients.svg"],
    "vanishing_gradients": ["gradient_layers.svg"],
    "resource_inefficiency": ["throughput.svg", "data_wait.svg"],
    "input_starvation": ["data_wait.svg", "throughput.svg"],
    "convergence_stall": ["metric.svg"],
}


def of(found: Any, *keys: Any, default: Any = None) -> Any:
    """Return the value under a sequence of keys in nested dicts; unlike in a dotted path, a key may contain dots."""
    for key in keys:
        if not isinstance(found, dict) or str(key) not in found:
            return default
        found = found[str(key)]
    return found


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield dotted keys and values of nested dicts, sorted."""
    for key in sorted(value, key=str):
        path, item = f"{prefix}{key}", value[key]
        if isinstance(item, dict) and item:
            yield from flat(item, f"{path}.")
        else:
            yield path, item


def evenly(count: int, limit: int) -> list[int]:
    """Return at most `limit` evenly spaced positions of `count`, the first and the last among them."""
    if count <= limit:
        return list(range(count))
    return [nr * (count - 1) // (limit - 1) for nr in range(limit)]


def kept(record: Mapping[str, Any]) -> list[Row]:
    """Return the lists that only the record shows: name, key in `record.json`, and number of entries."""
    rows = [{"what": what, "key": key, "count": len(at(record, key) or ())} for key, what in KEPT.items()]
    return [row for row in rows if row["count"]]


# --- code that ran ------------------------------------------------------------------------------


def restore_commands(source: Source) -> list[str]:
    """Return the commands that restore the recorded tree beside the working one."""
    commands = [f"git worktree add --detach ../restored {shlex.quote(visible(source.commit))}"]
    if source.dirty and source.snapshot:
        commands.append(f"git -C ../restored read-tree -u --reset {shlex.quote(visible(source.snapshot))}")
    return commands


def restore_and_run(record: Envelope[Any]) -> list[str]:
    """Return the commands that run a record's phase again from the recorded code, with the config that is here."""
    folder = "phases/01_planning"
    # The digests of these two are in the record; the commit of the code may have others, or none.
    configs = [f"cp {PROJECT_FILE} ../restored/", f"mkdir -p ../restored/{folder}", f"cp {folder}/*.yaml ../restored/{folder}/"]
    again = f"mltrainer run --until {shlex.quote(visible(record.phase))}"
    return [*restore_commands(record.source), *configs, "cd ../restored", again]


# --- a run --------------------------------------------------------------------------------------


def run_ends(run: Mapping[str, Any]) -> TrainingResult:
    """Return a run with only its first and last evaluation: reading many thousands takes longer than the report itself."""
    history = run.get("history") or []
    return partial(TrainingResult, {**run, "history": [*history[:1], *history[-1:]]})


def record_of(content: Mapping[str, Any]) -> Envelope[Any]:
    """Return a record as a model, its run without evaluations, for the same reason."""
    evidence = content["evidence"]
    run = {**evidence["run"], "history": []} if evidence.get("run") else None
    return partial_record({**content, "evidence": {**evidence, "run": run}}, content["phase"])


def states(run: TrainingResult) -> list[Row]:
    """Return a row for each metric of the best evaluation, then the chosen metric and the loss of a later last one.

    A program is judged by its last evaluation alone.
    """
    if run.program or run.best is None:
        return _rows("last", run.final, ())
    later = run.final if run.final is not None and run.final.step != run.best.step else None
    return [*_rows("best", run.best, ()), *_rows("last", later, (run.metric.name, "loss"))]


def _rows(which: str, end: Evaluation | None, names: Sequence[str]) -> list[Row]:
    """Return a row for each metric of an evaluation, or for the named ones; a log loss that equals the loss has none."""
    if end is None:
        return []
    known = {*end.validation, *end.train}
    losses = [as_float(end.validation.get(name)) for name in ("log_loss", "loss")]
    alike = {"log_loss"} if math.isclose(*losses, rel_tol=1e-6) else set()
    return [
        {"which": which, "epoch": end.epoch, "step": end.step, "metric": name, **_sides(end, name)}
        for name in sorted(known & {*names} if names else known - alike)
    ]


def _sides(end: Evaluation, metric: str) -> Row:
    train, validation = end.train.get(metric), end.validation.get(metric)
    whole = finite(train) and finite(validation)
    return {"train": train, "validation": validation, "gap": as_float(validation) - as_float(train) if whole else None}


def standing(rows: Sequence[Reference]) -> list[tuple[str, list[str]]]:
    """Return the plain models that a run is behind, level with and ahead of, in groups that are not empty."""
    groups = {verdict: [row.title for row in rows if row.verdict == verdict] for verdict in ("behind", "level", "ahead")}
    return [(verdict, titles) for verdict, titles in groups.items() if titles]


def clashing(runtimes: str) -> bool:
    """Return True if the OpenMP runtimes of Intel and of LLVM are both loaded: together they hang or crash on Linux.

    Two of one family do not (https://github.com/joblib/threadpoolctl/blob/master/multiple_openmp.md).
    """
    return {"libiomp", "libomp"} <= set(re.findall(r"\blib(?:i|g)?omp", runtimes))


def confused(found: TargetEvaluation) -> list[tuple[str, str, int]]:
    """Return true class, predicted class and count of each confusion, the most frequent first."""
    labels, counts = found.labels, found.confusion
    pairs = [(str(labels[t]), str(labels[p]), n) for t, row in enumerate(counts) for p, n in enumerate(row) if n and t != p]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))


def mistakes_of(found: TaskEvaluation) -> list[Mistake] | None:
    """Return the most frequent mistakes of a classifier; None for another model."""
    if found.kind != "classification" or not found.confusion:
        return None
    pairs = confused(found)[:MAX_MISTAKES]
    return [Mistake(true=true, predicted=taken, samples=count) for true, taken, count in pairs]


def speed_words(found: Speed) -> str:
    """Return a speed in words: samples, tokens and operations in a second, share of the peak rate, each where it is known."""
    words = rates(found.samples_per_s, found.tokens_per_s)
    words += [f"{number(found.flops_per_s / 1e12)} TFLOPS"] if found.flops_per_s else []
    words += [f"{share(found.utilization)} of the peak rate (MFU)"] if found.utilization else []
    return ", ".join(words) or NOT_MEASURED


def column(rows: Rows, key: str) -> list[Any]:
    """Return the values under a key of a history's rows, without those that have none."""
    return [value for row in rows if (value := row.get(key)) is not None]


def most_skipped(rows: Rows) -> float:
    """Return the largest share of an interval's steps that were skipped."""
    return max(map(as_float, column(rows, "skipped")), default=0.0)


def scaled(rows: Rows) -> dict[str, float] | None:
    """Return the last loss scale and the largest share of gradients that were 0; None where no loss was scaled."""
    scales, zero = column(rows, "loss_scale"), max(map(as_float, column(rows, "zero_gradients")), default=0.0)
    return {"scale": as_float(scales[-1]), "zero": zero} if scales else None


# --- figures ------------------------------------------------------------------------------------


def figure_rows(figures: Mapping[str, Row], shown: Sequence[str] = ()) -> list[Row]:
    """Return the figures that are not in `shown`, in the order of the record."""
    return [row for name, row in figures.items() if name not in shown]


def figures_of(row: Diagnosis) -> list[str]:
    """Return the names of the figures that show a diagnostic's finding."""
    return list(dict.fromkeys([*row.figures, *FIGURES_OF.get(row.id, [])]))


def ratio(option: Option, key: str) -> float:
    """Return the cost under a key with an option, divided by that without it."""
    return as_float(getattr(option.with_option, key)) / (as_float(getattr(option.without, key)) or math.nan)


def fired(rows: Rows) -> list[Row]:
    """Return the diagnostics that fired."""
    return [row for row in rows if row["state"] == "fired"]


def gains(search: Searched) -> list[Row]:
    """Return a row for each seed: baseline, candidate, and the candidate's gain, above 0 where it is better."""
    found, sign = search.comparison, -1.0 if search.metric.mode == "min" else 1.0
    pairs = zip(found.seeds, found.baseline, found.candidate, strict=False)
    rows = ((seed, base, new, sign * (as_float(new) - as_float(base))) for seed, base, new in pairs)
    return [
        {"seed": seed, "baseline": base, "candidate": new, "gain": gain if math.isfinite(gain) else repr(gain)}
        for seed, base, new, gain in rows
    ]


def of_model(kind: type[Part], show: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter of a template's plain data that reads it as a model."""
    return lambda found, *arguments: show(partial(kind, found), *arguments)


def of_models(kind: type[Part], show: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter of a template's rows that reads each as a model."""
    return lambda rows: show([partial(kind, row) for row in rows])


def _of_run(show: Callable[[TrainingResult], Any]) -> Callable[[Mapping[str, Any]], Any]:
    return lambda run: show(run_ends(run))


FILTERS: dict[str, Callable[..., Any]] = {
    "fired": fired,
    "command_line": shlex.join,
    "failing": failing,
    "not_passed": not_passed,
    "no_effect": of_model(Waiver, no_effect),
    "restore_commands": of_model(Source, restore_commands),
    "restore_and_run": of_model(Envelope[Any], restore_and_run),
    "states": _of_run(states),
    "clashing": clashing,
    "kept": kept,
    "standing": of_models(Reference, standing),
    "mistakes": of_model(TargetEvaluation, lambda found: confused(found)[:MAX_MISTAKES]),
    "most_skipped": most_skipped,
    "scaled": scaled,
    "speed": of_model(Speed, speed_words),
    "unverified": _of_run(lambda run: sum(not kept.verified for kept in run.checkpoints)),
    "averaged": lambda rows: any("trained" in row for row in rows),
    "ratio": of_model(Option, ratio),
    "rows": figure_rows,
    "figures_of": of_model(Diagnosis, figures_of),
    "decisions": decisions,
    "boosting_likely": of_model(BoostingPlan, boosting.likely),
    "boosting_figures": of_model(BoostingPlan, boosting.figures),
    "asked": of_model(Claim, claims.asked),
    "told": of_model(ClaimAnswer, claims.answer_text),
    "late": of_model(PlannedClaim, claims.late),
}
