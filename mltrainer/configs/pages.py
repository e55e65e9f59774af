"""The models of the handbook's front matter: checklists, thresholds, manifests, templates."""

from __future__ import annotations

import functools
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, create_model, field_validator, model_validator

from mltrainer import handbook
from mltrainer.configs import yaml
from mltrainer.configs.items import GradeSettings, phase_settings_model, settings_model
from mltrainer.configs.loading import Strict, flatten, validate, validate_values
from mltrainer.configs.project import ORCHESTRATOR as ORCHESTRATOR
from mltrainer.configs.project import SCRIPT_RUNNER
from mltrainer.errors import InputError, first_repeated
from mltrainer.workspace import PhaseName, phase_folder, read_whole, sha256_bytes, sha256_file

Number = float | int
Capability = Literal[
    "repeat",  # a job ends in the same bits in any fresh process
    "weights_digest",  # the weights at the end, by digest
    "identity",  # data by digest, code by the files that were imported, the environment
    "draws",  # the first numbers of every random generator
    "switches",  # deterministic operations, read back after the training
    "resume",  # an interrupted training goes on to the same bits
    "checkpoints",  # best and last, in the format that resuming, forking and exporting read
    "gradients",  # norms, layer by layer
    "gpu",  # how busy it was
    "options",  # precision, compilation and the like follow the config
    "trace",  # step by step, to find the cause of a difference
]
MINIMUM: tuple[Capability, ...] = ("repeat", "weights_digest", "identity")  # without these nothing of a run can be believed

DEVICES = "tools/planner/devices.md"
NOT_OFFERED = {SCRIPT_RUNNER: "the program does not offer it: "}  # begins the reason why an item does not apply


class Item(Strict):
    """One item of a gate's checklist."""

    id: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="the item's id, which is also its check's name")
    statement: str = Field(description="what must hold, as a sentence")
    waivable: bool = Field(False, description="whether a person may waive it; reproducibility items never")
    settings: dict[str, Number | str | bool] = Field({}, description="the numbers its check reads")
    check: str | None = Field(
        None,
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
        description="of a team's own item: the function in the project's own module that gives the verdict",
    )
    needs: Capability | None = Field(
        None, description="what the tool that trained must be able to show; without it the item does not apply"
    )


class PhasePage(Strict):
    """Front matter of `phases/0N_name/workflow.md`."""

    title: str
    phase: PhaseName
    tool: str = Field(description="id of the tool that the phase runs")
    artifacts: list[str]
    settings: dict[str, Number | str | bool] = Field({}, description="numbers the phase itself reads")
    items: list[Item] = Field(min_length=1)


class Suggestion(Strict):
    """One way to fix a finding."""

    why: str
    targets: Literal["classes", "quantities"] | None = Field(
        None, description="the kind of targets that it is for, where a rule judges both; without it, each"
    )
    set: dict[str, Any] = Field({}, description='config changes by dotted key; "x0.1" scales, "{lr}" is taken from the evidence')


class DiagnosticPage(Strict):
    """Front matter of `diagnostics/<id>.md`."""

    title: str
    diagnostic: str = Field(pattern=r"^[a-z_]+$", description="the module in mltrainer/diagnostics that it is paired with")
    severity: Literal["critical", "warning", "info"]
    thresholds: dict[str, Number]
    sources: list[str] = Field(min_length=1, description="`names - where these thresholds come from`")
    causes: list[str] = Field(min_length=1)
    suggestions: list[Suggestion] = Field(min_length=1)


class ToolPage(Strict):
    """Front matter of `tools/<id>/README.md`: the tool's manifest."""

    title: str
    tool: str
    entry_point: str = Field(
        pattern=r"^[A-Za-z_]\w*(\.\w+)*$", description="the module that is run; of a project's own tool one of the project's"
    )
    capabilities: list[Capability] = Field([], description="what the results of a tool that trains can show")
    phases: list[PhaseName]
    environment: dict[str, str] = Field({}, description="set before the interpreter starts; {threads} is filled in")
    environment_of: str | None = Field(None, description="the tool whose environment is set too")
    inputs: list[str]
    outputs: list[str]
    settings: dict[str, Number] = Field({}, description="the numbers that the tool decides by")


class Figure(Strict):
    """A figure of a device, with where and when it was read; blank where it was not."""

    value: Annotated[float, Field(gt=0)] | None = None
    source: str | None = Field(None, description="the address of the page that it was read on, or the command that measured it")
    read: str | None = Field(None, pattern=r"^\d{4}-\d{2}-\d{2}$", description="the date of that")

    @field_validator("read")
    @classmethod
    def _is_a_day(cls, value: str | None) -> str | None:
        if value is not None:
            date.fromisoformat(value)
        return value

    @model_validator(mode="after")
    def _has_a_source(self) -> Self:
        if self.value is not None and not (self.source and self.read):
            raise ValueError(f"{self.value:g} has no source or no date: give source and read, or leave the value out")
        return self


class Utilization(Strict):
    """The shares of a device's peak rate that trainings reached on it, from `low` to `high`, as somebody measured them."""

    low: float = Field(gt=0, le=1)
    high: float = Field(gt=0, le=1)
    source: str
    read: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        return self


class Device(Strict):
    """A device that trainings run on."""

    name: str
    memory_gib: Figure = Field(default_factory=Figure)
    bandwidth_gb_s: Figure = Field(default_factory=Figure, description="of its memory")
    tflops: dict[Literal["fp32", "bf16", "fp16"], Figure] = Field(
        {}, description="the peak rate of matrix products without sparsity, 1e12 operations in a second"
    )
    framework_mb: Figure = Field(
        default_factory=Figure, description="what its driver and libraries take before any tensor, in MiB"
    )
    utilization: Utilization | None = None


class DevicesPage(Strict):
    """Front matter of `tools/planner/devices.md`: devices that the planner knows by name."""

    title: str
    devices: list[Device]

    @model_validator(mode="after")
    def _are_different(self) -> Self:
        names = [device.name for device in self.devices]
        if repeated := first_repeated(names):
            raise ValueError(f"the device {repeated!r} is listed twice")
        return self


class VerificationPage(Strict):
    """Front matter of `reproducibility/verification.md`."""

    title: str
    settings: GradeSettings = Field(default_factory=GradeSettings, description="by what a reproduction is graded")


Any_Page = TypeVar("Any_Page", bound=BaseModel)


def declared(path: str, project: Path | None) -> yaml.Document:
    """Return the parsed YAML of a template, or of a page's front matter.

    Raises:
        InputError: There is no such page, or it is not YAML.
    """
    if path.endswith(".yaml"):
        file, overridden = handbook.locate(path, project)
        return _parsed(read_whole(file), path if overridden else f"handbook {path}", 1)
    page = handbook.read_page(path, project)
    return _parsed(page.meta.encode(), page.name, 2)


@functools.lru_cache(maxsize=128)  # a check reads the same pages for every phase; what is parsed is not changed
def _parsed(raw: bytes, name: str, first_line: int) -> yaml.Document:
    return yaml.parse(raw, name, first_line)


def policy_digest(path: str, project: Path | None) -> str:
    """Return the digest of what a page or template declares; its prose may change freely. A report's template is policy whole.

    Raises:
        InputError: There is no such page, or it is not YAML.
    """
    if path.endswith(".j2"):
        return sha256_file(handbook.locate(path, project)[0])
    return declared(path, project).sha256


def committed_digest(path: str, raw: bytes) -> str:
    """Return the `policy_digest` of a page or template in another version of the project.

    Args:
        path: Its path in the handbook.
        raw: Its bytes there.

    Raises:
        InputError: It is not YAML.
    """
    if path.endswith(".j2"):
        return sha256_bytes(raw)
    if path.endswith(".yaml"):
        return _parsed(raw, path, 1).sha256
    return _parsed(handbook.front_matter(raw, path).encode(), path, 2).sha256


def _read(model: type[Any_Page], path: str, project: Path | None) -> Any_Page:
    return validate(model, declared(path, project))


def page_path(phase: str) -> str:
    """Return the path of a phase's page in the handbook."""
    return f"{phase_folder(phase)}/workflow.md"


def shipped_page(phase: str) -> PhasePage:
    """Return the policy of a phase as this version ships it."""
    return _read(PhasePage, page_path(phase), None)


def read_phase_page(phase: str, project: Path | None) -> PhasePage:
    """Return the policy of a phase, the project's own one if it has one, whatever it leaves out.

    Raises:
        InputError: The page is not valid, or another phase's.
    """
    page = _read(PhasePage, page_path(phase), project)
    if page.phase != phase:
        path = page_path(phase)
        raise InputError("the page's phase", expected=phase, found=page.phase, where=path, hint=f"write phase: {phase}")
    return page


def recorded_page(policy: Any) -> PhasePage | None:
    """Return a record's policy as a phase's page; None if it is not a valid one."""
    try:
        return PhasePage.model_validate(policy)
    except ValidationError:
        return None


def missing_items(page: PhasePage, asked: PhasePage) -> list[Item]:
    """Return the items that one page asks for and another leaves out."""
    own = {item.id for item in page.items}
    return [item for item in asked.items if item.id not in own]


def require_items(page: PhasePage, asked: PhasePage) -> None:
    """Refuse a page of a project's own that is weaker than the one it takes the place of.

    Raises:
        InputError: It leaves an item out, lets one be waived that the other does not, or gives one another check.
    """
    path = page_path(page.phase)
    if missing := missing_items(page, asked):
        item = missing[0]
        hint = f"add what the shipped page has: {yaml.dump([item.model_dump(exclude_defaults=True)]).strip()}"
        raise InputError(f"the item {item.id!r} is missing; a project's page keeps every item", where=path, hint=hint)
    own = {item.id: item for item in page.items}
    for item in asked.items:
        if own[item.id].waivable and not item.waivable:
            raise InputError(f"the item {item.id!r} can never be waived", where=path, hint="remove waivable: true")
        if own[item.id].check != item.check:
            hint = "remove check:, and add a custom item under another id"
            raise InputError(f"the item {item.id!r} is computed by mltrainer alone", where=path, hint=hint)
    # A need that the trainer does not meet makes an item not applicable: adding one would be a way around it.
    needed = {item.id: item.needs for item in asked.items}
    for item in page.items:
        if item.id in needed and item.needs not in (None, needed[item.id]):
            message = f"the item {item.id!r} needs {needed[item.id] or 'no capability'}, not {item.needs}"
            raise InputError(message, where=path, hint="remove its needs:")


def phase_page(phase: str, project: Path | None) -> PhasePage:
    """Return the policy of a phase: the handbook's page, or the project's own, which may add items and change numbers.

    Raises:
        InputError: The project's page leaves an item out, lets one be waived that the handbook does not, gives a shipped item
            a check of its own, or has a setting that is unknown or out of its bounds.
    """
    page = read_phase_page(phase, project)
    require_items(page, shipped_page(phase))
    _require_settings(page, project)
    for item in page.items:
        if item.check is None:
            validate_values(settings_model(item.id), item.settings, f"{page_path(phase)}, settings of {item.id}")
    return page


def _require_settings(page: PhasePage, project: Path | None) -> None:
    """Refuse a setting of a phase that is missing, unknown or out of its bounds, by file, line and key."""
    document = declared(page_path(page.phase), project)
    validate(_declaring(page.phase), yaml.Document({"settings": page.settings}, document.lines, document.name))


@functools.cache
def _declaring(phase: str) -> type[BaseModel]:
    """Return the model of what a phase's page declares of its settings."""
    return create_model("Declaring", settings=(phase_settings_model(phase), ...))


def verification_page(project: Path | None) -> VerificationPage:
    """Return the grading of a reproduction, from the handbook's page or the project's own.

    Raises:
        InputError: The project's page has a setting that is unknown or out of its bounds.
    """
    return _read(VerificationPage, "reproducibility/verification.md", project)


def devices_page(project: Path | None) -> DevicesPage:
    """Return the devices that are known by name, from the handbook's page or the project's own.

    Raises:
        InputError: The page is not valid; by file, line and key.
    """
    return _read(DevicesPage, DEVICES, project)


def peak_flops_per_s(device: str, precision: str, project: Path | None) -> float | None:
    """Return the operations in a second that a device can do at most; None where the page of devices does not say.

    Args:
        device: The device's name, as PyTorch gives it.
        precision: The precision of the matrix products.
        project: The project's folder, which may have its own page.
    """
    page = next((one for one in devices_page(project).devices if one.name == device), None)
    rates = {} if page is None else {str(known): figure.value for known, figure in page.tflops.items()}
    peak = rates.get(precision)
    return None if peak is None else peak * 1e12


def diagnostic_page(name: str, project: Path | None) -> DiagnosticPage:
    """Return the rule of a diagnostic, by its page's name."""
    return _read(DiagnosticPage, f"diagnostics/{name}.md", project)


def tool_path(tool: str) -> str:
    """Return the path of a tool's manifest, in the handbook or in a project."""
    return f"tools/{tool}/README.md"


def tool_page(tool: str, project: Path | None) -> ToolPage:
    """Return the manifest of a tool: a shipped one, or one of the project's own.

    Raises:
        InputError: There is no such tool; a shipped one is given another program; one takes the environment of a tool that is
            not there; or one of the project's own runs mltrainer's code, or cannot show what none may lack.
    """
    path = tool_path(tool)
    page = _with_environment(_read(ToolPage, path, project), project)
    if path not in handbook.page_paths():
        _require_minimum(page, path)
        return page
    shipped = _read(ToolPage, path, None)
    if page.entry_point != shipped.entry_point:
        message, hint = f"{page.tool} is {shipped.entry_point}, not {page.entry_point}", "give a custom tool another name"
        raise InputError(message, where=f"{path}, key entry_point", hint=hint)
    return page.model_copy(update={"capabilities": shipped.capabilities})  # what the same program can show is not a policy


def _with_environment(page: ToolPage, project: Path | None) -> ToolPage:
    """Return a manifest with the variables of the tool that it names, below its own.

    Raises:
        InputError: There is no such tool.
    """
    if page.environment_of is None:
        return page
    path = tool_path(page.environment_of)
    if not handbook.exists(path, project):
        where = f"{tool_path(page.tool)}, key environment_of"
        hint = f"name one of the tools that `mltrainer guide` lists, such as {ORCHESTRATOR}"
        raise InputError(f"there is no tool {page.environment_of!r}", where=where, hint=hint)
    return page.model_copy(update={"environment": {**_read(ToolPage, path, project).environment, **page.environment}})


def _require_minimum(page: ToolPage, path: str) -> None:
    """Refuse a tool of a project's own that runs mltrainer's code, or cannot show what none may lack."""
    if page.entry_point.partition(".")[0] == "mltrainer":
        hint = "name a module of your project with a function `work`"
        raise InputError("a custom tool is the project's code", where=f"{path}, key entry_point", hint=hint)
    if missing := [name for name in MINIMUM if name not in page.capabilities]:
        message = f"a tool that trains must have {', '.join(MINIMUM)}; it lacks {', '.join(missing)}"
        raise InputError(message, where=f"{path}, key capabilities", hint="make its trainings so, then add them")


def trainer_of(tool: str, shipped: str) -> str:
    """Return the tool that trains where a phase's page names one: its own, or in place of the shipped one the task's."""
    return shipped if tool == ORCHESTRATOR else tool


def trained_by(phase: str, project: Path | None, shipped: str) -> ToolPage:
    """Return the manifest of the tool that trained what a phase's evidence is about; a diagnosis is about the baseline.

    Args:
        phase: The phase.
        project: The project's folder, whose own pages count.
        shipped: The shipped tool that trains the task (`Task.trainer`).
    """
    named = read_phase_page("baseline" if phase == "diagnostics" else phase, project).tool
    return tool_page(trainer_of(named, shipped), project)


def tool_pages(phase: str) -> list[str]:
    """Return the manifests of the tools that a phase runs, but for that of programs: what is set before Python starts."""
    manifests = (path.split("/") for path in handbook.page_paths() if path.startswith("tools/"))
    tools = sorted(parts[1] for parts in manifests if parts[2:] == ["README.md"] and parts[1] != SCRIPT_RUNNER)
    return [f"tools/{tool}/README.md" for tool in tools if phase in tool_page(tool, None).phases]


def policy_changes(page: PhasePage, shipped: PhasePage) -> list[str]:
    """Return a phase page's deviations from the shipped page, `key: shipped -> own`, for its report."""
    own, usual = numbers(page), numbers(shipped)
    keys = sorted(own.keys() | usual.keys())
    return [f"{key}: {usual.get(key)} -> {own.get(key)}" for key in keys if own.get(key) != usual.get(key)]


def numbers(page: PhasePage) -> dict[str, Any]:
    """Return a phase page's policy as one flat table: its tool, its settings with defaults, and those of each item."""
    own = {item.id: {"check": item.check} for item in page.items if item.check}
    tool = {"tool": page.tool}
    items = {item.id: {"waivable": item.waivable, **item.settings, **own.get(item.id, {})} for item in page.items}
    fields = phase_settings_model(page.phase).model_fields
    unsaid = {name: field.default for name, field in fields.items() if not field.is_required()}
    return flatten({**tool, "settings": {**unsaid, **page.settings}, **items})
