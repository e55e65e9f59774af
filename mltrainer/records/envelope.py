"""A whole record: what every phase's has in common, around the phase's own evidence."""

import functools
from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError

from mltrainer.records.baseline import Baseline
from mltrainer.records.common import InputRow, KeyChange, Part, Source
from mltrainer.records.diagnostics import Diagnostics
from mltrainer.records.faults import fault_lines
from mltrainer.records.finalization import Finalization
from mltrainer.records.optimization import Searched, Skipped
from mltrainer.records.planning import Planning, Stopped

E = TypeVar("E")


def _has(found: Any, field: str) -> bool:
    return isinstance(found, dict) and field in found


EVIDENCE: dict[str, Any] = {
    "planning": Annotated[
        Annotated[Planning, Tag("(planned)")] | Annotated[Stopped, Tag("(stopped)")],
        Discriminator(lambda found: "(stopped)" if _has(found, "stopped") else "(planned)"),
    ],
    "baseline": Baseline,
    "diagnostics": Diagnostics,
    "optimization": Annotated[
        Annotated[Skipped, Tag("(skipped)")] | Annotated[Searched, Tag("(searched)")],
        Discriminator(lambda found: "(skipped)" if _has(found, "rule") else "(searched)"),
    ],
    "finalization": Finalization,
}


class ProjectName(Part):
    """The project that a record belongs to."""

    id: str | None
    name: str


class Waiver(Part):
    """An item of an earlier phase that a person waived, with the digest of the record that it was given for."""

    item: str
    reason: str
    by: str
    when: str
    record: str


class FigureRow(Part):
    """A figure that the record binds.

    Attributes:
        file: Where it lies, from the phase's folder.
        title: What it shows.
        caption: What it shows in numbers.
        sha256: Digest of its bytes.
        data_sha256: Digest of the evidence that it was drawn from.
    """

    file: str
    title: str
    caption: str
    sha256: str
    data_sha256: str


class Since(Part):
    """What changed since an earlier version of the phase's report: `of` says which; metrics, and settings of any kind."""

    of: str
    metrics: list[KeyChange]
    settings: list[KeyChange]


class Envelope(Part, Generic[E]):
    """A phase's record.

    Attributes:
        schema_number: Of the record's form; migrations bring older ones to this one.
        mltrainer: The version that made it.
        phase: The phase.
        project: The project that it belongs to.
        previous: Digest of the record of the phase before.
        waived_before: What was waived in the phases before.
        inputs: Files that were read or written.
        policy: The phase's checklist, as its page declared it.
        handbook: For each page and template whose declarations were used, their digest.
        policy_overrides: Those of them that are the project's own.
        policy_changes: Numbers that are not the shipped ones.
        source: The code that ran.
        figures: What was drawn of the evidence; None in records that bound none.
        since: What changed since the committed version of the phase's report, or None where there was none.
        evidence: What was measured.
        seal: Digest of everything else.
    """

    schema_number: int = Field(alias="schema")
    mltrainer: str
    phase: Literal["planning", "baseline", "diagnostics", "optimization", "finalization"]
    project: ProjectName
    previous: str | None
    waived_before: list[Waiver]
    inputs: list[InputRow]
    policy: dict[str, Any]
    handbook: dict[str, str]
    policy_overrides: list[str]
    policy_changes: list[str]
    source: Source
    figures: list[FigureRow] | None = None
    since: Since | None = None
    evidence: E
    seal: str


def is_of_program(evidence: Any) -> bool:
    """Return whether a phase's evidence is about a program that trains by itself: its run or its config tells."""
    run, config = getattr(evidence, "run", None), getattr(evidence, "config", None) or {}
    told = getattr(evidence, "program", None) or getattr(run, "program", None)
    return told is not None or (config.get("task") or {}).get("script") is not None


@functools.cache
def adapter(phase: str) -> TypeAdapter[Any]:
    """Return what validates a phase's evidence, built when a record of the phase is first read."""
    return TypeAdapter(EVIDENCE[phase])


def parsed(content: Mapping[str, Any], phase: str) -> "tuple[Envelope[Any] | None, list[str]]":
    """Return a record as a model, or None, and what it lacks or holds in another form, each by its path.

    The evidence is validated by itself: a model of the whole for each phase would be built anew for each of the five.
    """
    faults: list[str] = []
    evidence: Any = None
    whole: Envelope[Any] | None = None
    try:
        evidence = adapter(phase).validate_python(content.get("evidence"))
    except ValidationError as error:
        faults.extend(fault_lines(error, "evidence"))
    try:
        whole = Envelope.model_validate({**content, "evidence": evidence})
    except ValidationError as error:
        faults.extend(fault_lines(error))
    return (None, faults) if faults else (whole, [])
