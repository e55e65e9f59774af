"""A project in a notebook: gates, runs and state as tables, curves as the figures of reports.

Each is available as HTML, which notebooks prefer, and as Markdown for frontends without HTML.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from mltrainer.figures.content import Figure, of_run
from mltrainer.records.partial import partial
from mltrainer.records.run import TrainingResult
from mltrainer.reports import html
from mltrainer.reports import markdown as md
from mltrainer.reports.runs import RunComparison, RunRow, difference_text, parting, validation_metrics
from mltrainer.reports.values import counted, duration, labelled, number

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
    """Return the figures for which a run's result has the numbers."""
    return Curves(of_run(partial(TrainingResult, result)))


class ShownItem(Protocol):
    """A gate's item with its verdict."""

    @property
    def id(self) -> str:
        """The item's name in the checklist."""

    @property
    def statement(self) -> str:
        """The requirement in a sentence."""

    @property
    def verdict(self) -> str:
        """The verdict on it."""

    @property
    def evidence(self) -> Any:
        """The measured values that decided it."""

    @property
    def mend(self) -> str | None:
        """The next step where it fails; else None."""


def gate_markdown(phase: str, holds: bool, items: Sequence[ShownItem], stale: Iterable[str]) -> str:
    """Return a gate as a table of items with verdict and evidence, and the fixes of those that fail.

    Args:
        phase: The phase's name.
        holds: Whether the next phase may run.
        items: The gate's items.
        stale: The changes since the record was made, in sentences.
    """
    rows = [(md.code(i.id), VERDICTS.get(i.verdict, md.text(i.verdict)), md.evidence(i.evidence)) for i in items]
    next_steps = [f"{md.code(i.id)}: {md.text(i.statement)}; next: {md.code(i.mend)}" for i in items if i.mend]
    return md.document(
        [
            f"**{md.text(phase)}: the gate {'holds' if holds else 'does not hold'}**",
            md.table(("item", "verdict", "measured"), rows) if rows else "",
            md.bullets([*map(md.text, stale), *next_steps]),
        ]
    )


def status_markdown(phases: Sequence[tuple[str, str, Sequence[str]]], why: str | None) -> str:
    """Return a project's state as Markdown: name, state and first reason of each phase, and the next step in words."""
    rows = [(md.text(name), md.text(state), md.text(reasons[0]) if reasons else "") for name, state, reasons in phases]
    return md.document([md.table(("phase", "state", ""), rows), f"next: {md.text(why)}" if why else "All five gates hold."])


def runs_markdown(rows: Sequence[RunRow]) -> str:
    """Return runs as a table: phase, state, steps and metrics of each."""
    cells = [(md.code(r.id), md.text(r.phase), md.text(r.state), number(r.steps), metrics_markdown(r.validation)) for r in rows]
    return md.document([md.table(("run", "phase", "state", "steps", "metrics"), cells, "lllr")])


def predictions_markdown(answers: Sequence[Mapping[str, Any]], drift: Sequence[object]) -> str:
    """Return the first answers as a table, and the differences from training."""
    names = list(answers[0]) if answers else []
    rows = [tuple(md.plain_value(answer[name]) for name in names) for answer in answers[:SHOWN]]
    rest = f"and {len(answers) - SHOWN} more" if len(answers) > SHOWN else ""
    return md.document([md.table(names, rows) if rows else "no answers", rest, md.bullets([md.text(row) for row in drift])])


def metrics_markdown(metrics: Mapping[str, Any]) -> str:
    """Return metrics on one line."""
    return ", ".join(f"{md.text(name)} {number(value)}" for name, value in metrics.items())


def run_markdown(row: RunRow) -> str:
    """Return a run as a table of facts."""
    shown = {**row.written(), "metrics": None}
    facts = [(md.text(key.replace("_", " ")), md.plain_value(value)) for key, value in shown.items() if value is not None]
    return md.document([md.facts([*facts, ("metrics", metrics_markdown(row.validation))])])


def fit_markdown(result: Mapping[str, Any], task: str) -> str:
    """Return an exploration as Markdown: its state, and the metrics of its best evaluation."""
    found = partial(TrainingResult, result)
    epoch, metrics = found.best.epoch if found.best else None, metrics_markdown(validation_metrics(found.metrics))
    facts = [
        ("task", md.code(task)),
        ("state", md.text(found.state)),
        ("trained", f"{counted(found.steps, 'step')} in {duration(found.wall_s)}"),
        ("best evaluation", f"epoch {number(epoch)}: {metrics or 'none'}"),
    ]
    return md.document([EXPLORED, md.facts(facts)])


# --- as HTML --------------------------------------------------------------------------------------


def gate_html(phase: str, holds: bool, items: Sequence[ShownItem], stale: Iterable[str]) -> str:
    """Return a gate, folded away where it holds: its items with verdict and evidence, and the fixes of those that fail."""
    rows = [(html.code(i.id), html.pill(i.verdict), _evidence(i.evidence)) for i in items]
    next_steps = [f"{html.code(i.id)}: {html.escaped(i.statement)} next: {html.code(i.mend)}" for i in items if i.mend]
    counts = Counter(item.verdict.replace("_", " ") for item in items)
    title = f"{html.pill('holds' if holds else 'does not hold')} <b>{html.escaped(phase)}</b> "
    title += ", ".join(f"{count} {html.escaped(verdict)}" for verdict, count in counts.items())
    bullets = html.bullets([*map(html.escaped, stale), *next_steps])
    return html.folded(title, bullets, html.table(("item", "verdict", "measured"), rows) if rows else "", is_open=not holds)


def _evidence(values: Any) -> str:
    if not isinstance(values, dict):
        return html.words(values)
    rows = (labelled(key, value, html.words) for key, value in values.items())
    return "<br>".join(f"{html.escaped(label)}: {shown}" for label, shown in rows)


def status_html(phases: Sequence[tuple[str, str, Sequence[str]]], why: str | None) -> str:
    """Return a project's state as HTML: name, state and reasons of each phase, and the next step in words."""
    rows = [(html.escaped(name), html.pill(state), "<br>".join(map(html.escaped, reasons))) for name, state, reasons in phases]
    after = html.paragraph("next:", html.escaped(why)) if why else html.paragraph("All five gates hold.")
    return html.whole(html.table(("phase", "state", ""), rows), after)


def runs_html(rows: Sequence[RunRow]) -> str:
    """Return runs as a table in HTML: phase, state, steps and validation metrics of each."""
    cells = [
        (html.code(r.id), html.words(r.phase), html.pill(str(r.state)), html.words(r.steps), _metrics(r.validation)) for r in rows
    ]
    return html.whole(html.table(("run", "phase", "state", "steps", "metrics"), cells))


def _metrics(metrics: Mapping[str, Any]) -> str:
    return ", ".join(f"{html.escaped(name)} {number(value)}" for name, value in metrics.items())


def run_html(row: RunRow, figures: Curves) -> str:
    """Return a run as HTML: its metrics on training and validation, its curves, and, folded away, its inputs."""
    rows = [(html.escaped(name), number(row.training[name]), number(value)) for name, value in row.validation.items()]
    facts = [(html.escaped(key.replace("_", " ")), html.words(value)) for key, value in row.written().items() if key != "metrics"]
    return html.whole(
        html.paragraph(f"run {html.code(row.id)}", html.pill(str(row.state)), html.words(row.phase)),
        html.table(("metric", "training", "validation"), rows) if rows else "",
        html.folded("curves", *(figure.content for figure in figures)) if figures else "",
        html.folded("what it was made from", html.table(("", ""), facts)),
    )


def comparison_html(found: RunComparison) -> str:
    """Return the differences between two runs as a table in HTML, with the first divergent step."""
    rows = [(html.code(d.what), html.words(d.first), html.words(d.second)) for d in found.differences]
    table = html.table(("", found.first, found.second), rows) if rows else html.paragraph("no difference")
    return html.whole(table, html.paragraph(html.escaped(_summary(found))))


def comparison_markdown(found: RunComparison) -> str:
    """Return the differences between two runs as a table in Markdown, with the first divergent step."""
    rows = [(md.code(d.what), md.plain_value(d.first), md.plain_value(d.second)) for d in found.differences]
    heads = ("", md.code(found.first), md.code(found.second))
    return md.document([md.table(heads, rows) if rows else "no difference", md.text(_summary(found))])


def _summary(found: RunComparison) -> str:
    return "; ".join(filter(None, (difference_text(found.metric), parting(found))))
