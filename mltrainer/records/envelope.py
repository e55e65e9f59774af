"""A whole record: the fields that every phase's record has, around the phase's own evidence."""

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
    """Return the model of planning's evidence; of a planning that stopped, it depends on whether the data was known."""
    if not _has(found, "stopped"):
        return Planning
    return UnsoundData if _has(found, "data") else Stopped


# Tags in brackets: pydantic adds a tag to the location of a fault, and `faults.path` leaves out tags by their bracket.
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
        file: The file's path from the phase's folder.
        title: The subject of the figure.
        caption: The figure's content in numbers.
        sha256: The digest of its bytes.
        data_sha256: The digest of the evidence that it was drawn from.
    """

    file: str
    title: str
    caption: str
    sha256: str
    data_sha256: str


class CustomVerdict(Part):
    """The verdict of a project's custom check when its phase ran: the one verdict that no gate recomputes.

    Attributes:
        item: The item's id.
        check: The function, as `module:function`.
        verdict: The verdict that it returned.
        evidence: The evidence that it returned for its verdict.
        mend: The next step where it failed.
        code: The project's files that it imported or opened.
        evidence_sha256: The digest of the phase's evidence, which it was given.
        settings_sha256: The digest of the item's settings, which it was given.
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
    """Changes since an earlier version of the phase's report, which `of` names: of metrics, and of settings of any kind."""

    of: str
    metrics: list[KeyChange]
    settings: list[KeyChange]


class Envelope(Part, Generic[E]):
    """A phase's record.

    Attributes:
        schema_number: The number of the record's form.
        mltrainer: The version of mltrainer that made it.
        phase: The phase.
        project: The project that it belongs to.
        previous: The digest of the record of the phase before; None of the first phase.
        waived_before: The items that were waived in the phases before.
        inputs: The files that were read or written.
        policy: The phase's checklist, as its page declared it.
        handbook: The digest of each page and template whose declarations were used.
        policy_overrides: The pages and templates that are the project's own.
        policy_changes: The numbers that are not the shipped ones.
        source: The code that ran.
        figures: The figures that were drawn from the evidence.
        since: The changes since the committed version of the phase's report; None where there was none.
        custom_checks: The verdicts of the project's custom checks; None where its page had none.
        tried: The ends of the ledger of tried runs; None where no run was begun.
        evidence: The phase's measurements.
        seal: The digest of everything else.
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
    tried: list[str] | None = None
    evidence: E
    seal: str


def trainer_of(evidence: Any) -> str:
    """Return the shipped tool that trained the run of a phase's evidence, by its run or its config."""
    run, config = getattr(evidence, "run", None), getattr(evidence, "config", None) or {}
    told = getattr(evidence, "program", None) or getattr(run, "program", None)
    return SCRIPT_RUNNER if told is not None or is_opaque(config) else ORCHESTRATOR


@functools.cache
def adapter(phase: str) -> TypeAdapter[Any]:
    """Return the validator of a phase's evidence, built when a record of the phase is first read."""
    if phase in RUN_EVIDENCE:
        Run.model_rebuild()  # first, as the three phases share a finished schema, and each would make an unfinished one again
    return TypeAdapter(EVIDENCE[phase])


def evidence_kind(phase: str, evidence: Any) -> type[Part]:
    """Return the model of a phase's evidence; a planning that stopped and a search that was skipped have models of their own."""
    if phase == "planning":
        return _planning_kind(evidence)
    if phase == "optimization":
        return Skipped if _has(evidence, "rule") else Searched
    kind: type[Part] = EVIDENCE[phase]
    return kind


def partial_record(content: Mapping[str, Any], phase: str) -> Envelope[Any]:
    """Return a record as a model of the fields that it holds, not validated: it may not be sealed yet."""
    evidence = content["evidence"]
    record = partial(Envelope[Any], content)
    return record.model_copy(update={"phase": phase, "evidence": partial(evidence_kind(phase, evidence), evidence)})


def parsed(content: Mapping[str, Any], phase: str) -> "tuple[Envelope[Any] | None, list[str]]":
    """Return a record as a model, or None, and its faults: entries that it lacks or holds in another form, each by its path.

    The evidence is validated by itself: a model of the whole record would have to be built for each of the five phases.
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
