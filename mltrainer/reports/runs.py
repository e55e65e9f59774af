"""What a report says of one run: how it went, its best and last state, its history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mltrainer.figures.content import Figure, confused, history, metric_name
from mltrainer.figures.heat import evenly
from mltrainer.reports import markdown as md
from mltrainer.reports.values import (
    as_float,
    at,
    counted,
    duration,
    finite,
    given,
    megabytes,
    microseconds,
    number,
    share,
    short,
    signed,
    size,
    times,
)

Run = dict[str, Any]
MAX_ROWS = 200
STOPS = {
    "epochs": "all planned epochs were trained",
    "early_stopping": "early stopping: the metric no longer improved",
    "nonfinite": "a value was not finite",
    "diverged": "it differed from the run it was compared with",
    "signal": "it was asked to stop",
    "max_steps": "the step limit was reached",
}


def outcome(run: Run) -> str:
    """Return what a run came to, as part of a sentence."""
    name, state = metric_name(run), run.get("state")
    best = (
        f"best validation {md.text(name)} {number(at(run, f'best.validation.{name}'))} in epoch {number(at(run, 'best.epoch'))}"
    )
    steps = f"{number(run.get('steps'))} of {number(run.get('planned_steps'))} steps in {duration(run.get('wall_s'))}"
    broken = nonfinite(run)
    return f"Run {md.code(run.get('id'))} {md.text(state)} after {steps}; {best}{f'; {broken}' if broken else ''}."


def nonfinite(run: Run) -> str:
    """Return where a run met a value that is not finite; empty if it never did."""
    found = run.get("nonfinite")
    if not isinstance(found, dict):
        return ""
    samples = md.plain_value(found.get("samples") or [])
    where = f"step {number(found.get('step'))}, epoch {number(found.get('epoch'))}"
    return f"**the {md.text(found.get('what', 'value'))} was not finite at {where}** (samples {samples})"


def done(run: Run) -> list[str]:
    """Return how a run was made and how it went."""
    libraries = run.get("libraries") or {}
    versions = f"PyTorch {md.text(libraries.get('PyTorch', 'not known'))}"
    planned = f"{number(run.get('epochs'))} of {number(run.get('planned_epochs'))}"
    steps = f"{number(run.get('steps'))} of {number(run.get('planned_steps'))}"
    batch = f"batch size {number(run.get('batch_size'))}{_accumulated(run)}"
    timing = at(run, "step_time_us", {})
    rows = [
        ("run", f"{md.code(run.get('id'))}{_parent(run)}"),
        ("state", f"{md.text(run.get('state'))}: {STOPS.get(str(run.get('stop_reason')), md.text(run.get('stop_reason')))}"),
        ("epochs", planned),
        ("steps", f"{steps}, {batch}, {number(run.get('train_samples'))} training samples"),
        ("seed", given(run.get("seed"))),
        ("parameters", number(run.get("parameters"))),
        ("wall time", duration(run.get("wall_s"))),
        ("step time", f"{microseconds(timing.get('median'))} median, {microseconds(timing.get('p95'))} 95th percentile"),
        (
            "memory",
            f"{megabytes(at(run, 'memory.peak_rss_mb'))} peak, on the device {megabytes(at(run, 'memory.device_peak_mb'))}",
        ),
        *_precision(run),
        (
            "machine",
            f"{md.text(run.get('device'))}, {counted(run.get('threads'), 'thread')} per operation, {versions}{_gpu(run)}",
        ),
    ]
    return [md.facts(rows), *_groups(run), *_interruptions(run)]


def _accumulated(run: Run) -> str:
    micro = run.get("accumulate") or 1
    return "" if micro == 1 else f" with {number(micro)} batches to a step"


def _precision(run: Run) -> list[tuple[str, str]]:
    found = run.get("precision")
    return [("precision", f"{md.text(found.get('chosen'))}: {md.text(found.get('reason'))}")] if isinstance(found, dict) else []


def _groups(run: Run) -> list[str]:
    """Return which parameter fell into which group, where there is more than one."""
    groups = run.get("groups") or []
    rows = [
        (number(g.get("lr")), number(g.get("weight_decay")), ", ".join(map(md.code, g.get("parameters") or []))) for g in groups
    ]
    heads = ("share of the learning rate", "weight decay", "parameters")
    return [md.details(f"Parameter groups ({number(len(rows))})", md.table(heads, rows, "rrl"))] if len(rows) > 1 else []


def _parent(run: Run) -> str:
    """Return the baseline that a run goes back to; its own weights begin anew, which a fork's do not."""
    return f", trained anew; its baseline is {md.code(run['parent'])}" if run.get("parent") else ""


def _gpu(run: Run) -> str:
    gpu = run.get("gpu")
    if not gpu:
        return ""
    busy = f"{number(gpu.get('utilization_p95'))} % (95th percentile of {number(gpu.get('samples'))} samples)"
    return f"; GPU {md.text(gpu.get('name'))}, utilization {busy}"


def _interruptions(run: Run) -> list[str]:
    rows = run.get("interruptions") or []
    if not rows:
        return []
    places = ", ".join(f"step {number(row.get('step'))} ({md.text(row.get('cause'))})" for row in rows)
    return [f"The run was interrupted and resumed {times(len(rows))}: {places}."]


def result(run: Run, figures: Sequence[Figure]) -> list[str]:
    """Return a run's measurements: best and last state, figures, checkpoints, history."""
    parts = [states(run), *(figure.markdown for figure in figures)]
    if not any(figure.file == "learning_curves.svg" for figure in figures):
        parts.append("There is no learning curve: the run ended before its first evaluation.")
    return [*parts, *_mistakes(run), *_spread(run), checkpoints(run), *tables(run)]


def states(run: Run) -> str:
    """Return the metrics of the best and of the last evaluation, training beside validation."""
    rows = []
    for state in ("best", "final"):
        found = run.get(state) or {}
        for name in sorted({*(found.get("validation") or {}), *(found.get("train") or {})}):
            train, validation = at(found, f"train.{name}"), at(found, f"validation.{name}")
            gap = signed(as_float(validation) - as_float(train)) if finite(train) and finite(validation) else number(None)
            place = (
                f"{'best' if state == 'best' else 'last'} (epoch {number(found.get('epoch'))}, step {number(found.get('step'))})"
            )
            rows.append((place, md.text(name), number(train, 5), number(validation, 5), gap))
    extra = md.plain_value(run.get("metrics") or {})
    of = "Metrics of the best checkpoint, on validation but for `train_`"
    first = f"First loss {number(run.get('first_loss'), 5)}. {of}: {extra}."
    table = md.table(("evaluation", "metric", "training", "validation", "difference"), rows, "llrrr")
    return "\n\n".join([table, first, *_measured_on(run), *_averaged(run)])


def _measured_on(run: Run) -> list[str]:
    """Return on how many samples the metrics were measured; of the training split it may be a part."""
    found = run.get("measured_samples")
    if not isinstance(found, dict):
        return []
    part, whole, held_out = (number(n) for n in (found.get("train"), run.get("train_samples"), found.get("validation")))
    spread = "" if part == whole else ", spread evenly"
    return [f"Measured on {part} of the {whole} training samples{spread}, and on {held_out} of validation."]


def _averaged(run: Run) -> list[str]:
    """Return what the trained weights reach, where averaged ones are measured and delivered."""
    trained = at(run, "best.trained")
    if not isinstance(trained, dict):
        later = any("trained" in row for row in history(run))
        return ["The best weights are trained ones, from before the average began; they are delivered."] if later else []
    shown = ", ".join(f"{md.text(name)} {number(value, 5)}" for name, value in trained.items())
    return [f"Averaged weights are measured and delivered; the trained ones they average reach, on validation: {shown}."]


def _mistakes(run: Run) -> list[str]:
    if at(run, "evaluation.kind") != "classification":
        return []
    wrong = confused(run["evaluation"])[:10]
    if not wrong:
        return []
    rows = [(md.text(true), md.text(predicted), number(count)) for true, predicted, count in wrong]
    return [md.details("Most frequent mistakes, validation split", md.table(("true class", "predicted", "samples"), rows, "llr"))]


def _spread(run: Run) -> list[str]:
    if at(run, "evaluation.kind") != "regression":
        return []
    names = ("5 %", "25 %", "50 %", "75 %", "95 %")
    values = [number(value) for value in at(run, "evaluation.residual_quantiles") or []]
    return (
        [md.table(("quantile of the residual", *names), [("prediction - target", *values)], "lrrrrr")] if len(values) == 5 else []
    )


def checkpoints(run: Run) -> str:
    """Return the kept checkpoints with their digests."""
    rows = [
        (
            number(kept.get("step")),
            number(kept.get("epoch")),
            md.text(", ".join(kept.get("roles") or [])),
            md.code(kept.get("path")),
            "yes" if kept.get("verified") is True else "**no**",
            "<br>".join(
                f"{md.code(str(f['path']).rsplit('/', 1)[-1])} {md.code(short(f.get('sha256')))} {size(f.get('size'))}"
                for f in kept["files"]
            ),
        )
        for kept in run.get("checkpoints") or []
    ]
    if not rows:
        return "**No checkpoint was kept.**"
    return md.details(
        f"Checkpoints ({number(len(rows))})", md.table(("step", "epoch", "kept as", "folder", "verified", "files"), rows, "rr")
    )


def tables(run: Run) -> list[str]:
    """Return the history in two folded tables: learning, and what it cost."""
    rows = history(run)
    if not rows:
        return []
    chosen = [rows[place] for place in evenly(len(rows), MAX_ROWS)]
    note = "" if len(chosen) == len(rows) else f" ({number(len(chosen))} of {number(len(rows))}, evenly; the record holds all)"
    learned = md.details(f"Learning, evaluation by evaluation{note}", _learning(chosen, metric_name(run)))
    cost = md.details(f"Gradients and cost, evaluation by evaluation{note}", _cost(chosen))
    return [learned, cost, *_layer_table(run, rows)]


def _learning(rows: Sequence[dict[str, Any]], metric: str) -> str:
    names = list(dict.fromkeys(["loss", metric, *_names(rows)]))
    paths = ["epoch", "step", "lr", "train_loss", *(f"{split}.{name}" for name in names for split in ("train", "validation"))]
    heads = [
        "epoch",
        "step",
        "learning rate",
        "mean training loss",
        *(f"{split} {md.text(name)}" for name in names for split in ("train", "validation")),
    ]
    return md.table(heads, [[number(at(row, path)) for path in paths] for row in rows], "r" * len(paths))


def _names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return sorted({name for row in rows for split in ("train", "validation") for name in row.get(split) or {}})


def _cost(rows: Sequence[dict[str, Any]]) -> str:
    heads = ("epoch", "gradient norm: smallest", "median", "largest", "steps clipped", "time", "samples/s", "waiting for data")
    cells = [
        (
            number(row.get("epoch")),
            *(number(at(row, f"grad_norm.{name}")) for name in ("min", "median", "max")),
            share(row.get("clipped")),
            duration(row.get("seconds")),
            number(row.get("samples_per_s")),
            share(row.get("data_wait")),
        )
        for row in rows
    ]
    return md.table(heads, cells, "r" * len(heads))


def _layer_table(run: Run, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return each layer's gradient norm and update ratio at the first and at the last evaluation."""
    names = run.get("layers") or []
    if not names:
        return []
    ends = (rows[0], rows[-1])
    cells = [
        (md.code(name), *(number(_nth(row.get(key), nr), 3) for key in ("layer_norms", "update_ratios") for row in ends))
        for nr, name in enumerate(names)
    ]
    heads = ("layer", "gradient norm, first", "last", "update / weight, first", "last")
    return [md.details(f"Layers ({number(len(names))})", md.table(heads, cells, "lrrrr"))]


def _nth(values: Any, nr: int) -> Any:
    return values[nr] if isinstance(values, list) and nr < len(values) else None


def findings(run: Run) -> list[str]:
    """Return what a reader should look at in a run, from its numbers alone."""
    found = [f"{nonfinite(run)}."] if nonfinite(run) else []
    unverified = [kept for kept in run.get("checkpoints") or [] if kept.get("verified") is not True]
    if unverified:
        found.append(f"{number(len(unverified))} checkpoints did not verify.")
    skipped = [as_float(row.get("skipped", 0.0)) for row in history(run)]
    if any(skipped):
        most = share(max(skipped))
        found.append(f"Steps were skipped because gradients overflowed under the loss scale: at most {most} of an interval's.")
    best, last = at(run, "best.epoch"), at(run, "final.epoch")
    if finite(best) and best == last and run.get("stop_reason") == "epochs":
        found.append(f"The last epoch ({number(last)}) was the best: training longer may still help.")
    return found
