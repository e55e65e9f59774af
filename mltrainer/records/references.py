"""What plain models reach beside a run, on the same rows."""

from typing import Literal

from mltrainer.records.common import Measured, Metrics, Number, Part
from mltrainer.records.equations import Between, Equal, Equation, not_negative, shares, values


def _verdict(lead: list[Number] | None) -> str | None:
    """Return the verdict on a run beside a model, by both ends of its lead; None where that is not known."""
    return None if lead is None else "ahead" if lead[0] > 0 else "behind" if lead[1] < 0 else "level"


LEAD: tuple[Equation, ...] = (Equal("verdict", lambda row: _verdict(row.lead)), Between("lead.0", None, "lead.1"))


class Reference(Part):
    """A plain model on a run's own splits; one that could not be measured has a `reason` in place of metrics.

    Attributes:
        name: What it is, in one word.
        title: The same for a report.
        rows: How many training rows it was fitted on.
        seconds: CPU time of that, with predicting the rows that it is measured on.
        metrics: Of those rows.
        interval: Of the run's own metric, lower and upper end.
        lead: The run's over this model in that metric, likewise; above zero where the run is better.
        verdict: How the run stands to it.
        reason: Why there are no metrics.
    """

    name: str
    title: str
    rows: int
    seconds: Measured
    metrics: Metrics
    interval: list[Number] | None
    lead: list[Number] | None
    verdict: Literal["ahead", "level", "behind"] | None
    reason: str | None

    equations = (*LEAD, *not_negative("rows", "seconds"))


class Network(Part):
    """The run's best checkpoint, measured again beside them."""

    metrics: Metrics
    interval: list[Number] | None


def _holds(place: str) -> tuple[Equation, ...]:
    """Return the equations by which the interval of each model at a place holds its metric."""

    def measured(found: "References") -> list[Measured | None]:
        models = found.rows if "*" in place else [found.network] if found.network else []
        return [model.metrics.get(found.metric) for model in models if model.interval]

    return Between(f"{place}.interval.0", None, measured), Between(f"{place}.interval.1", measured)


class References(Part):
    """What plain models reach on the run's own splits.

    Attributes:
        metric: The run's own.
        samples: Rows, on which all are measured: of validation, or of the test split once it was opened.
        train_samples: Training rows.
        level: Of the intervals.
        resamples: Behind each interval.
        network: The run.
        rows: The plain models, the weakest kind first.
        reason: Why there is no comparison.
    """

    metric: str
    samples: int
    train_samples: int
    level: Number
    resamples: int
    network: Network | None
    rows: list[Reference]
    reason: str | None

    equations = (
        *shares("level"),
        *not_negative("samples", "train_samples", "resamples"),
        Between("rows.*.rows", 0, "train_samples"),
        *_holds("network"),
        *_holds("rows.*"),
    )


class BoostingBeside(Part):
    """Gradient boosting beside a run on the rows of one split.

    Attributes:
        split: Which.
        samples: How many rows.
        value: What it reaches in the run's own metric.
        network: What the run reaches.
        lead: The run's over it, lower and upper end; below zero where boosting is better.
        verdict: How the run stands to it.
    """

    split: Literal["validation", "test"]
    samples: int
    value: Measured
    network: Measured
    lead: list[Number] | None
    verdict: Literal["ahead", "level", "behind"] | None

    equations = (*LEAD, Between("samples", 1))


class BoostingAhead(Part):
    """Gradient boosting that a run is behind, on one split or both.

    Attributes:
        title: The library's, or what it is.
        metric: The run's own.
        level: Of the intervals of the leads.
        seconds: CPU time of its training.
        beside: On validation, and on the test rows once they were opened.
        command: What begins a project with it; None where the data are no file.
    """

    title: str
    metric: str
    level: Number
    seconds: Measured
    beside: list[BoostingBeside]
    command: str | None

    equations = (*shares("level"), *not_negative("seconds"))


class PlainFigure(Part):
    """What a plain model reaches in the run's own metric, and the CPU time that it took."""

    title: str
    value: Number
    seconds: Measured

    equations = not_negative("seconds")


class BoostingPlan(Part):
    """Gradient boosting before any network was trained, beside the better of the smooth models, which stand for one.

    Attributes:
        metric: The config's own.
        samples: Validation rows, on which both are measured.
        level: Of the interval.
        boosting: What boosting reaches.
        smooth: What the smooth model reaches.
        lead: The smooth model's over boosting, lower and upper end; below zero where boosting is better.
        likely: What is likely at least as good as the other; None where that is open until the baseline.
        command: What begins a project with boosting; None where the data are no file.
    """

    metric: str
    samples: int
    level: Number
    boosting: PlainFigure
    smooth: PlainFigure
    lead: list[Number] | None
    likely: Literal["network"] | None
    command: str | None

    equations = (*shares("level"), Between("lead.0", None, "lead.1"))


def of_references(field: str) -> tuple[Equation, ...]:
    """Return the equations by which plain models were compared with the run beside them, on its rows.

    Args:
        field: Of the phase's evidence.
    """
    samples = "test.samples" if field.startswith("tested") else "run.measured_samples.validation"
    return (
        Equal(f"{field}.metric", "run.metric.name"),
        Equal(f"{field}.samples", lambda found: _compared(found, field, samples)),
        Equal(f"{field}.train_samples", lambda found: _compared(found, field, "run.train_samples")),
    )


def _compared(found: Part, field: str, path: str) -> int | None:
    """Return a number of samples; None where no model was compared, and there are none."""
    references, numbers = getattr(found, field), values(found, path)
    return numbers[0][1] if references and references.rows and numbers else None
