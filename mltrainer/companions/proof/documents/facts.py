"""What the record says on the questions that documents ask, in sentences; None where it says nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mltrainer.companions.proof.documents.answers import Answers
from mltrainer.configs.loading import at
from mltrainer.records.common import Acceptance
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization
from mltrainer.reports.values import counted, duration, measured, times

Record = Envelope[Finalization]
Known = Callable[[Record], str | None]
Said = Callable[[Answers], str | None]


def nothing(_: Record) -> None:
    """Return None: the question is a person's alone."""


def unsaid(_: Answers) -> None:
    """Return None: no other answer of a person is about the question."""


def results(record: Record) -> str:
    """Return the results on the test split, each with its interval, how these were made, and how many runs were tried."""
    evidence, found = record.evidence, record.evidence.test.intervals
    tried = f"{counted(evidence.runs_tried, 'run')} tried in all"
    if not evidence.test.samples:
        return f"the test split was not opened; on validation: {_numbers(evidence.validation, {})}; {tried}."
    bounds = found.bounds if found else {}
    samples = f"{evidence.test.samples} test samples, opened {times(len(evidence.test.openings))}"
    made = (
        f" In brackets: {found.level:.0%} bootstrap intervals over rows, which say nothing of other seeds."
        if found and bounds
        else ""
    )
    return f"{_numbers(evidence.test.metrics, bounds)} on {samples}; {tried}.{made}"


def tested(record: Record) -> str:
    """Return the results, and the outcome of the training's repetition."""
    return f"{results(record)} The final model was {again(record)}"


def _numbers(metrics: Mapping[str, object], bounds: Mapping[str, Sequence[object]]) -> str:
    ends = {name: f" ({measured(low)} to {measured(high)})" for name, (low, high) in bounds.items()}
    return ", ".join(f"{name} {measured(value)}{ends.get(name, '')}" for name, value in sorted(metrics.items())) or "none"


def again(record: Record) -> str:
    """Return the outcome of the training's repetition."""
    found, run = record.evidence.reproduction, record.evidence.run.id
    grade = "the same bits" if found.identical else f"other bits, grade {found.grade}"
    return f"trained twice, the second time in a fresh process: {grade}. `mltrainer reproduce {run}` repeats that."


def inputs(record: Record) -> str:
    """Return the inputs of the training by their digests."""
    run, commit = record.evidence.run, record.source.commit or "none"
    digests = {
        "code": run.code_sha256,
        "config": run.config_sha256,
        "data": run.data_sha256,
        "environment": run.environment_sha256,
    }
    named = ", ".join(f"{name} `{str(sha256)[:16]}`" for name, sha256 in digests.items())
    return f"commit `{commit}`; digests: {named}. The config is in `final_model/config.yaml`."


def machine(record: Record) -> str:
    """Return the machine, and how long the final training took."""
    run, environment = record.evidence.run, record.evidence.environment
    device = ", ".join(sorted({gpu.name for gpu in environment.gpu})) or environment.cpu.model
    took = f"{duration(run.wall_s)} for {counted(run.steps, 'step')}"
    return f"{run.device} ({device}), {counted(run.threads, 'thread')}; the final training took {took}."


def data(record: Record) -> str:
    """Return the size of each split, and the findings about the data."""
    found = record.evidence.data
    if not found.samples:
        return f"read by the program itself: {found.source}."
    splits = ", ".join(f"{split.samples} {name}" for name, split in found.splits)
    return f"{found.source or 'data of the project'}: {splits}. Findings about it: {'; '.join(found.warnings) or 'none'}."


def model(record: Record) -> str:
    """Return the model and its number of parameters."""
    name = at(record.evidence.config, "model.name") or "a model of the project"
    return f"{name}, {record.evidence.run.parameters or 0:,} parameters."


def accepted(record: Record) -> str | None:
    """Return each criterion that was set beforehand, and whether it was met; None where none was set."""
    return "; ".join(map(_criterion, record.evidence.acceptance)) or None


def _criterion(row: Acceptance) -> str:
    return f"{row.metric} {row.criterion}: {'met' if row.met else 'not met'} with {measured(row.value)}"


def answer(name: str) -> Said:
    """Return a person's answer of that name."""
    return lambda answers: getattr(answers, name)


def licenses(answers: Answers) -> str | None:
    """Return the licenses that a person named."""
    found = {"the model": answers.license, "the data": answers.data.license}
    return ", ".join(f"{what}: {text}" for what, text in found.items() if text) or None
