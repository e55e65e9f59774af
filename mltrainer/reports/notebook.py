"""What a notebook shows of a project: gates, runs and where it stands as Markdown tables, curves as the figures of reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mltrainer.figures.content import Figure, of_run
from mltrainer.reports import markdown as md
from mltrainer.reports.values import counted, duration, number

VERDICTS = {"pass": "✅ pass", "fail": "❌ fail", "not_applicable": "⚪ not applicable", "waived": "⚠️ waived"}
SHOWN = 20  # rows of predictions
EXPLORED = "**Exploration: no evidence for any gate.**"


class Curves(tuple[Figure, ...]):
    """The figures of a training; a notebook shows them one below the other."""

    def __repr__(self) -> str:
        return f"Curves({', '.join(figure.title for figure in self)})"

    def _repr_html_(self) -> str:
        return "\n".join(figure.content for figure in self) or "<p>nothing was recorded that could be drawn</p>"


def curves(result: Mapping[str, Any]) -> Curves:
    """Return the figures that a run's result has the numbers for."""
    return Curves(of_run(dict(result)))


def gate_markdown(phase: str, holds: bool, items: Sequence[Mapping[str, Any]], stale: Iterable[str]) -> str:
    """Return a gate as a table of items with verdict and evidence, and what mends those that fail.

    Args:
        phase: The phase's name.
        holds: Whether the next phase may run.
        items: The gate's items, as `gate check --json` shows them.
        stale: What changed since.
    """
    rows = [(md.code(i["id"]), VERDICTS.get(i["verdict"], md.text(i["verdict"])), md.evidence(i["evidence"])) for i in items]
    mends = [f"{md.code(i['id'])}: {md.text(i['statement'])}; next: {md.code(i['mend'])}" for i in items if i["mend"]]
    return md.document(
        [
            f"**{md.text(phase)}: the gate {'holds' if holds else 'does not hold'}**",
            md.table(("item", "verdict", "measured"), rows) if rows else "",
            md.bullets([*map(md.text, stale), *mends]),
        ]
    )


def status_markdown(phases: Sequence[tuple[str, str, Sequence[str]]], why: str | None) -> str:
    """Return where a project stands: name, state and reasons of each phase, and what comes next in words."""
    rows = [(md.text(name), md.text(state), md.text(reasons[0]) if reasons else "") for name, state, reasons in phases]
    return md.document([md.table(("phase", "state", ""), rows), f"next: {md.text(why)}" if why else "All five gates hold."])


def runs_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return runs as a table: what each was for, how far it came, and its metrics."""
    cells = [
        (md.code(r["id"]), md.text(r["phase"]), md.text(r["state"]), number(r["steps"]), metrics_text(r["metrics"])) for r in rows
    ]
    return md.document([md.table(("run", "phase", "state", "steps", "metrics"), cells, "lllr")])


def predictions_markdown(answers: Sequence[Mapping[str, Any]], drift: Sequence[object]) -> str:
    """Return the first answers as a table, and what is not as it was in training."""
    names = list(answers[0]) if answers else []
    rows = [tuple(md.plain_value(answer[name]) for name in names) for answer in answers[:SHOWN]]
    rest = f"and {len(answers) - SHOWN} more" if len(answers) > SHOWN else ""
    return md.document([md.table(names, rows) if rows else "no answers", rest, md.bullets([md.text(row) for row in drift])])


def metrics_text(metrics: Any) -> str:
    """Return the validation metrics of a run on one line."""
    known = metrics if isinstance(metrics, dict) else {}
    return ", ".join(f"{md.text(name)} {number(value)}" for name, value in known.items() if not name.startswith("train_"))


def run_markdown(row: Mapping[str, Any]) -> str:
    """Return a run as a table of facts."""
    shown = {**row, "metrics": None}
    facts = [(md.text(key.replace("_", " ")), md.plain_value(value)) for key, value in shown.items() if value is not None]
    return md.document([md.facts([*facts, ("metrics", metrics_text(row["metrics"]))])])


def fit_markdown(result: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return an exploration: how it ended, and the metrics of its best evaluation."""
    best = result.get("best") or {}
    facts = [
        ("task", md.code(config["task"]["use"] or config["task"]["kind"])),
        ("state", md.text(result["state"])),
        ("trained", f"{counted(result['steps'], 'step')} in {duration(result['wall_s'])}"),
        ("best evaluation", f"epoch {number(best.get('epoch'))}: {metrics_text(result['metrics']) or 'none'}"),
    ]
    return md.document([EXPLORED, md.facts(facts)])
