"""A whole record: what every phase's has in common, around the phase's own evidence."""

import functools
from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError

from mltrainer.configs.project import ORCHESTRATOR, SCRIPT_RUNNER, is_opaque
from mltrainer.records.baseline import Baseline
from mltrainer.records.common import FileRow, InputRow, KeyChange, Part, Source
from mltrainer.records.diagnostics import Diagnostics
from mltrainer.records.faults import fault_lines
from mltrainer.records.finalization import Finalization
from mltrainer.records.optimization import Searched, Skipped
from mltrainer.records.partial import partial
from mltrainer.records.planning import Planned, Planning, Stopped, UnsoundData
from mltrainer.records.run import Run

E = TypeVar("E")


def _has(found: Any, field: str) -> bool:
    return isinstance(found, dict) and field in found


def _planning_kind(found: Any) -> type[Planned]:
    """Return the model of planning's evidence: of one that stopped, by what it knew."""
    if not _has(found, "stopped"):
        return Planning
    return UnsoundData if _has(found, "data") else Stopped


# Tags in brackets: pydantic puts a tag into the place of a fault, and `faults.path` leaves out what begins so.
EVIDENCE: dict[str, Any] = {
    "planning": Annotated[
        Annotated[Planning, Tag("(Planning)")]
        | Annotated[Stopped, Tag("(Stopped)")]
        | Annotated[UnsoundData, Tag("(UnsoundData)")],
        Discriminator(lambda found: f"({_planning_kind(found).__name__})"),
    ],
    "baseline": Baseline,
    "diagnostics": Diagnostics,
    "optimization": Annotated[
        Annotated[Skipped, Tag("(skipped)")] | Annotated[Searched, Tag("(searched)")],
        Discriminator(lambda found: "(skipped)" if _has(found, "rule") else "(searched)"),
    ],
    "finalization": Finalization,
}
RUN_EVIDENCE = ("baseline", "diagnostics", "finalization")


class ProjectName(Part):
    """The project that a record belongs to."""

    id: str | None
    name: str


class Waiver(Part):
    """An item that a person waived, with the digest of the record that it was given for."""

    item: str
    reason: str
    by: str
    when: str | None = None
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


class CustomVerdict(Part):
    """What a check of the project's own said when its phase ran: the one verdict that no gate recomputes.

    Attributes:
        item: The item's id.
        check: The function, as `module:function`.
        verdict: What it said.
        evidence: What it said that it came from.
        mend: What to do where it failed.
        code: The project's files that it imported or opened.
        evidence_sha256: Digest of the phase's evidence, which it was given.
        settings_sha256: Digest of the item's settings, which it was given.
    """

    item: str
    check: str
    verdict: Literal["pass", "fail", "not_applicable"]
    evidence: dict[str, Any]
    mend: str | None
    code: list[FileRow]
    evidence_sha256: str
    settings_sha256: str


class Since(Part):
    """What changed since an earlier version of the phase's report: `of` says which; metrics, and settings of any kind."""

    of: str
    metrics: list[KeyChange]
    settings: list[KeyChange]


class Envelope(Part, Generic[E]):
    """A phase's record.

    Attributes:
        schema_number: Of the record's form.
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
        figures: What was drawn of the evidence.
        since: What changed since the committed version of the phase's report, or None where there was none.
        custom_checks: What the project's own checks said; None where its page had none.
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
    figures: list[FigureRow]
    since: Since | None = None
    custom_checks: list[CustomVerdict] | None = None
    evidence: E
    seal: str


def trainer_of(evidence: Any) -> str:
    """Return the shipped tool that trains what a phase's evidence is about, by its run or its config."""
    run, config = getattr(evidence, "run", None), getattr(evidence, "config", None) or {}
    told = getattr(evidence, "program", None) or getattr(run, "program", None)
    return SCRIPT_RUNNER if told is not None or is_opaque(config) else ORCHESTRATOR


@functools.cache
def adapter(phase: str) -> TypeAdapter[Any]:
    """Return the validator of a phase's evidence, built when a record of the phase is first read."""
    if phase in RUN_EVIDENCE:
        Run.model_rebuild()  # first, as the three phases share a finished schema, and each would make an unfinished one anew
    return TypeAdapter(EVIDENCE[phase])


def evidence_kind(phase: str, evidence: Any) -> type[Part]:
    """Return the model of a phase's evidence: of a planning that stopped and of a search that was skipped, one of its own."""
    if phase == "planning":
        return _planning_kind(evidence)
    if phase == "optimization":
        return Skipped if _has(evidence, "rule") else Searched
    kind: type[Part] = EVIDENCE[phase]
    return kind


def partial_record(content: Mapping[str, Any], phase: str) -> Envelope[Any]:
    """Return a record as a model of whatever it holds, not validated: it may not be sealed yet."""
    evidence = content["evidence"]
    record = partial(Envelope[Any], content)
    return record.model_copy(update={"phase": phase, "evidence": partial(evidence_kind(phase, evidence), evidence)})


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
