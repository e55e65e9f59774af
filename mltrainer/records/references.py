"""Plain models measured beside a run, on the same rows."""

from typing import Literal

from mltrainer.records.common import Measured, Metrics, Number, Part
from mltrainer.records.equations import Between, Equal, Equation, not_negative, shares, values


def _verdict(lead: list[Number] | None) -> str | None:
    """Return the verdict on a run beside a model, by both ends of its lead; None where the lead is not known."""
    return None if lead is None else "ahead" if lead[0] > 0 else "behind" if lead[1] < 0 else "level"


LEAD: tuple[Equation, ...] = (Equal("verdict", lambda row: _verdict(row.lead)), Between("lead.0", None, "lead.1"))


class Reference(Part):
    """A plain model on a run's own splits; one that could not be measured has a `reason` in place of metrics.

    Attributes:
        name: The model's name, one word.
        title: The model's name for a report.
        rows: The number of training rows that it was fitted on.
        seconds: The CPU time of fitting it and of predicting the rows that it is measured on.
        metrics: Its metrics on those rows.
        interval: The interval of the run's metric, lower and upper end.
        lead: The run's lead over this model in that metric, lower and upper end; above zero where the run is better.
        verdict: The run's verdict beside this model, from its lead.
        reason: The reason for no metrics; None where there are some.
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
    """The run's best checkpoint, measured again beside the plain models."""

    metrics: Metrics
    interval: list[Number] | None


def _holds(place: str) -> tuple[Equation, ...]:
    """Return the equations by which the interval of each model at a path holds its metric."""

    def measured(found: "References") -> list[Measured | None]:
        models = found.rows if "*" in place else [found.network] if found.network else []
        return [model.metrics.get(found.metric) for model in models if model.interval]

    return Between(f"{place}.interval.0", None, measured), Between(f"{place}.interval.1", measured)


class References(Part):
    """Plain models on the run's own splits.

    Attributes:
        metric: The name of the run's metric.
        samples: The number of rows on which all are measured: of validation, or of the test split once it was opened.
        train_samples: The number of training rows.
        level: The confidence level of the intervals.
        resamples: The number of bootstrap resamples behind each interval.
        network: The run's best checkpoint; None where it was not measured.
        rows: The plain models, the weakest kind first.
        reason: The reason for no comparison; None where there is one.
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
        split: The split's name.
        samples: The number of its rows.
        value: Boosting's value of the run's metric.
        network: The run's value of it.
        lead: The run's lead over boosting, lower and upper end; below zero where boosting is better.
        verdict: The run's verdict beside boosting, from its lead.
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
        title: The name of the model or of its library.
        metric: The name of the run's metric.
        level: The confidence level of the leads' intervals.
        seconds: The CPU time of its training.
        beside: The comparison on validation, and on the test rows once they were opened.
        command: The command that begins a project with it; None where the data are no file.
    """

    title: str
    metric: str
    level: Number
    seconds: Measured
    beside: list[BoostingBeside]
    command: str | None

    equations = (*shares("level"), *not_negative("seconds"))


class PlainFigure(Part):
    """A plain model's value of the run's metric, and the CPU time that it took."""

    title: str
    value: Number
    seconds: Measured

    equations = not_negative("seconds")


class BoostingPlan(Part):
    """Gradient boosting before any network was trained, beside the better of the smooth models, which stand in for a network.

    Attributes:
        metric: The name of the config's metric.
        samples: The number of validation rows, on which both are measured.
        level: The confidence level of the interval.
        boosting: Boosting's result.
        smooth: The smooth model's result.
        lead: The smooth model's lead over boosting, lower and upper end; below zero where boosting is better.
        likely: The kind that is likely at least as good as the other; None where that is open until the baseline.
        command: The command that begins a project with boosting; None where the data are no file.
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
        field: The name of the field of the phase's evidence that holds them.
    """
    samples = "test.samples" if field.startswith("tested") else "run.measured_samples.validation"
    return (
        Equal(f"{field}.metric", "run.metric.name"),
        Equal(f"{field}.samples", lambda found: _compared(found, field, samples)),
        Equal(f"{field}.train_samples", lambda found: _compared(found, field, "run.train_samples")),
    )


def _compared(found: Part, field: str, path: str) -> int | None:
    """Return the number of samples at a path; None where no model was compared, or there is none."""
    references, numbers = getattr(found, field), values(found, path)
    return numbers[0][1] if references and references.rows and numbers else None
