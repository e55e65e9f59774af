"""A referee's verdict on a project: what its record says, beside what somebody else measured."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, ValidationError

from mltrainer.errors import GateError, InputError
from mltrainer.records.common import Difference, Metrics, Number, Part
from mltrainer.records.faults import fault_lines
from mltrainer.workspace import is_sealed

VERDICT_FILE = "verdict.json"
HELD_COUNT = "held rows that were judged"
HELD_METRIC = "{} on the held rows, as on validation"
HELD_CRITERION = "acceptance of {} on the held rows"
TRAINED_PART = ", trained again"
Outcome = Literal["same", "within", "met", "no"]


class Checked(Part):
    """A value of the author's record beside what the referee found.

    Attributes:
        what: The value, in words.
        recorded: The value in the record.
        found: The referee's value.
        outcome: `same`: to the last bit; `within`: another value, and the record's is within the referee's interval; `met`: a
            criterion is; `no`: none of these.
        interval: The referee's interval, by its two ends; None where there is none.
    """

    what: str
    recorded: str
    found: str
    outcome: Outcome
    interval: list[Number] | None = None


class HeldRows(Part):
    """The model on the rows that its author never had.

    Attributes:
        by: Who holds them.
        samples: Their number; `sha256`: the digest of their file.
        metrics: The metrics on them; `intervals`: the interval of each, by its two ends.
        level: The confidence of the intervals.
    """

    by: str
    samples: int
    sha256: str
    metrics: Metrics
    intervals: dict[str, list[Number]]
    level: Number


class Sample(Part):
    """The part of a run that was trained again, where not all of it was.

    Attributes:
        steps: The steps of the run; `replayed`: those that were trained again.
        nonce: The referee's text, which selected them.
        missed: The probability that one forged segment was missed.
    """

    steps: int
    replayed: int
    nonce: str
    missed: Number


class Verdict(Part):
    """A referee's verdict.

    Attributes:
        project: The project's name; `commit`: the commit that was judged, None without git.
        record: The seal of finalization's record, which the verdict is on; `run`: its run.
        made: The day of the verdict.
        version: The version of mltrainer that judged.
        open: Why the training was not closed off; None: it saw the recipe and the data alone, and no network.
        foreign: The project's own code that ran, whose numbers they are, too; None: none ran.
        sample: The part that was trained again; None: all of it.
        checked: The values that were compared.
        held: The model on the held rows; None: there are none, or they were not measured.
        unchecked: What was not compared, with the reason.
        differences: What differs here from what the run was trained with.
        seconds: The time of the referee's training; `recorded_seconds`: that of the author's.
        seal: The digest of everything else.
    """

    schema_number: Literal[1] = Field(1, alias="schema")
    project: str
    commit: str | None
    record: str
    run: str
    made: str
    version: str
    open: str | None
    foreign: str | None
    sample: Sample | None
    checked: list[Checked]
    held: HeldRows | None
    unchecked: list[str]
    differences: list[Difference]
    seconds: Number
    recorded_seconds: Number
    seal: str

    @property
    def holds(self) -> bool:
        """Whether every value that was compared holds."""
        return all(row.outcome != "no" for row in self.checked)


WRITTEN = "give the file that mltrainer referee wrote"


def verdict_of(content: Any, where: str) -> Verdict:
    """Return a file's content as a verdict.

    Raises:
        InputError: It is none.
        GateError: It was edited, or what it says of the model is not what it compared.
    """
    try:
        found = Verdict.model_validate(content)
    except ValidationError as error:
        raise InputError(f"it is no verdict: {'; '.join(fault_lines(error)[:5])}", where=where, hint=WRITTEN) from error
    if not is_sealed(content):
        raise GateError("it was edited: its content does not match its digest", where=where, hint="ask the referee for the file")
    if faults := [*_disagreements(found)]:
        raise GateError(f"it contradicts itself: {faults[0]}", where=where, hint="ask the referee for the file")
    return found


def _disagreements(found: Verdict) -> Iterator[str]:
    """Yield each contradiction between a verdict's compared values and its other fields."""
    rows = {row.what: row for row in found.checked}
    if not rows:
        yield "it compared no value"
    if any(what.endswith(TRAINED_PART) for what in rows) is not (found.sample is not None):
        yield "what was trained again is not what was compared"
    held = found.held
    if held is None:
        return
    if not any(HELD_METRIC.format(name) in rows or HELD_CRITERION.format(name) in rows for name in held.metrics):
        yield "the model was measured on held rows, and no value on them was compared"
    if HELD_COUNT in rows and rows[HELD_COUNT].found != str(held.samples):
        yield f"{held.samples} held rows, and {rows[HELD_COUNT].found} compared"
    for name, value in held.metrics.items():
        ends = held.intervals.get(name)
        for words, interval in ((HELD_METRIC, None), (HELD_CRITERION, ends)):  # the first one's is of validation's rows, too
            row = rows.get(words.format(name))
            if row is not None and (row.found != repr(value) or interval not in (None, row.interval)):
                yield f"{name} on the held rows is {value!r}, and {row.found} compared"
