"""The models of the three config templates, and how their values join a training config."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, create_model, field_validator, model_validator
from pydantic_core import PydanticCustomError

from mltrainer import handbook
from mltrainer.configs import storage, yaml
from mltrainer.configs.items import ExportSettings
from mltrainer.configs.loading import Strict, assign, each_entry, known_keys, validate, yielding
from mltrainer.configs.pages import declared, phase_page
from mltrainer.configs.project import Criteria, ProjectConfig, TrainingConfig
from mltrainer.configs.pruning import Pruning as Pruning
from mltrainer.errors import InputError
from mltrainer.validation import faults_of
from mltrainer.workspace import read_whole, without_none

BASELINE = "configs/baseline_template.yaml"
TUNING = "configs/tuning_template.yaml"
PRODUCTION = "configs/production_template.yaml"
LIGHTNING = "configs/lightning_template.yaml"
OF_TASKS = {
    "mltrainer.integrations.lightning": LIGHTNING
}  # a task's module: what planning starts from in place of the baseline's

TRAINING_KEYS = tuple(name for name in TrainingConfig.model_fields if name not in ProjectConfig.model_fields)
OPTIONS, ARGUMENTS = "task.options.", "task.arguments."
_PROJECT_SPACE = ("model.", "strategies.", OPTIONS, ARGUMENTS)  # what a search may vary beside the training keys


_FIELDS = {name: TrainingConfig.model_fields[name] for name in TRAINING_KEYS}
_OPTIONAL: dict[str, Any] = {name: (field.annotation, field) for name, field in _FIELDS.items()}

ExportFormat = Literal["safetensors", "onnx", "torch_export", "torchscript", "onnx_int8_dynamic", "onnx_int8_static"]
DYNAMIC, STATIC = "onnx_int8_dynamic", "onnx_int8_static"
QUANTIZED = (DYNAMIC, STATIC)  # judged by what the metric lost: no fp32 tolerance could hold for them
GENETIC = ("nsga2", "nsga3")  # strategies that draw trials by several metrics
FACTORS = "{log_uniform: [0.1, 10.0]}"  # an example: 1 leaves the task's own rate as it is
FORMS = ("choice", "uniform", "log_uniform", "integer", "log_integer")
Choosable = int | float | str | bool | list[int] | None

# Made from the fields of TrainingConfig, so that no key is declared twice.
TrainingChanges: Any = create_model("TrainingChanges", __base__=Strict, **_OPTIONAL)


class Dimension(Strict):
    """The values that one key may take in a search, in exactly one form; `when` says with which values of others it is there."""

    choice: list[Choosable] | None = Field(None, min_length=1, description="each value equally likely")
    uniform: list[float] | None = Field(None, min_length=2, max_length=2, description="[low, high], evenly spread")
    log_uniform: list[float] | None = Field(
        None, min_length=2, max_length=2, description="[low, high], evenly spread in the exponent"
    )
    integer: list[int] | None = Field(None, min_length=2, max_length=2, description="[low, high], whole numbers, both included")
    log_integer: list[int] | None = Field(None, min_length=2, max_length=2, description="the same, evenly spread in the exponent")
    when: dict[str, list[Choosable]] | None = Field(None, description="key: values with which alone this one is searched")

    @model_validator(mode="after")
    def _one_form(self) -> Dimension:
        given = [name for name in FORMS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(FORMS)}; found {', '.join(given) or 'none'}")
        form, bounds = given[0], getattr(self, given[0])
        if form == "choice":
            return self
        if not bounds[0] < bounds[1]:
            raise ValueError(f"the low end {bounds[0]} must be below the high end {bounds[1]}")
        if form.startswith("log_") and bounds[0] <= 0:
            raise ValueError(f"{form} needs a low end above 0, found {bounds[0]}")
        return self


class TrialTemplate(TrainingChanges):
    """What every trial of a search changes: training keys, and how it is trained."""

    processes: int = Field(1, ge=1, le=4096, description="processes that train a trial together, a power of two; the same bits")

    @field_validator("launch", mode="after", check_fields=False)
    @classmethod
    def _one_number(cls, launch: Any) -> Any:
        if launch is not None and launch.processes > 1:
            raise ValueError(f"a search does not read launch.processes: write trial.processes: {launch.processes}")
        return launch


OF_SEARCH = ("processes",)  # keys of `trial` that no training has


class Terminator(Strict):
    """When a search ends before its last trial."""

    patience: int = Field(ge=1, description="trials in a row without a better one, after which no trial begins")


class TuningTemplate(Strict):
    """`configs/tuning_template.yaml`: where to search, and how one trial differs from the baseline."""

    strategy: Literal["random", "grid", "quasi_random", "tpe", "gp", "cma_es", "nsga2", "nsga3"] = Field(
        description="how values are drawn from the space"
    )
    trials: int = Field(ge=1, le=10_000, description="configs to try")
    lag: int = Field(
        4, ge=1, le=1000, description="a trial is chosen by the results of those before it, without this number of the latest"
    )
    pruning: Pruning | None = Field(None, description="how trials that are behind end early; null: none does")
    terminator: Terminator | None = Field(None, description="ends a search that has stopped improving; null: all trials run")
    objectives: dict[str, Literal["max", "min"]] = Field(
        default_factory=dict, description="further metrics, each with its direction; the trial taken is then a compromise"
    )
    constraints: Criteria = Field({}, description='metric: criterion that the best trial must meet, such as recall: ">= 0.9"')
    minutes: float | None = Field(None, gt=0, description="no trial begins later than this; null: what budget.minutes leaves")
    workers: int | None = Field(None, ge=1, le=1000, description="trials at a time; null: one for each core or GPU.")
    silent_minutes: float = Field(30, gt=0, description="a trial whose process says nothing for so long is taken for hung")
    storage: str | None = Field(None, description="the database that all machines of the search use; null: there is one machine")
    space: dict[str, Dimension] = Field(min_length=1, description="dotted key: dimension")
    trial: TrialTemplate = Field(default_factory=TrialTemplate, description="training keys of every trial, and its processes")

    @model_validator(mode="after")
    def _populations_have_every_metric(self) -> TuningTemplate:
        if self.strategy in GENETIC and not self.objectives:
            raise ValueError(f"strategy: {self.strategy} is for several metrics: name further ones in objectives, or take tpe")
        if self.strategy in GENETIC and self.pruning is not None:
            raise ValueError(f"strategy: {self.strategy} needs all metrics of each trial: pruning: null is required")
        return self

    @model_validator(mode="after")
    def _ends_by_one_metric(self) -> TuningTemplate:
        if self.terminator is not None and self.objectives:
            raise ValueError("terminator: it looks at one metric, but objectives name more: remove terminator or objectives")
        return self

    @field_validator("storage")
    @classmethod
    def _no_password(cls, value: str | None) -> str | None:
        if value is not None and (fault := storage.fault_of(value)) is not None:
            # A type of its own, of which `loading` does not show what was found.
            raise PydanticCustomError("secret", "{fault}", {"fault": fault})
        return value

    @field_validator("space")
    @classmethod
    def _keys_exist(cls, value: dict[str, Dimension]) -> dict[str, Dimension]:
        for key in value:
            _check_key(key)
        return value


class Export(Strict):
    """What is written for deployment, and how it is compared with the trained model."""

    formats: list[ExportFormat] = Field(min_length=1, description="the formats to write")
    samples: int = Field(ge=1, description="real inputs on which each exported model is compared")
    tolerance: float | None = Field(None, gt=0, description="largest difference; null: the finalization gate's")
    metric_loss: float | None = Field(
        None, ge=0, lt=1, description="by which share of its value a quantized model's metric may be worse; null: the gate's"
    )
    calibration_samples: int | None = Field(
        None, ge=1, description="training rows by which onnx_int8_static is calibrated; null: the shipped template's"
    )

    @field_validator("formats")
    @classmethod
    def _each_once(cls, value: list[ExportFormat]) -> list[ExportFormat]:
        if len(set(value)) < len(value):
            raise ValueError(f"each format once, found {value}")
        return value


class Combine(Strict):
    """Several models made into one: averaged weights, or an ensemble; it is delivered only where it is better on validation."""

    of: Literal["checkpoints", "trials"] = Field(description="of the final run's kept checkpoints, or of it and the best trials")
    how: Literal["uniform", "greedy", "ensemble"] = Field(
        description="the mean of all weights, of those that make it no worse, or of what those models predict that make it better"
    )
    most: int = Field(5, ge=2, description="the most models, the best on validation")


class ProductionTemplate(TrainingChanges):
    """`configs/production_template.yaml`: what the final training changes, what is made of several models, what is deployed."""

    combine: Combine | None = Field(None, description="several models made into one; null: the final run's own")
    export: Export


class StartTemplate(TrainingChanges):
    """A template that planning starts from in place of the baseline's: training keys; the others are finalization's."""

    combine: Combine | None = None
    export: Export | None = None


OF_FINALIZATION = ("combine", "export")  # keys of the production template that no training has


def _check_key(key: str) -> None:
    """Refuse a key that no training config has, naming the nearest one.

    Raises:
        ValueError: The key does not exist, or is not one that a search may vary.
    """
    if key.startswith((OPTIONS, ARGUMENTS, "optimizer.options.")):
        return
    *parents, last = key.split(".")
    names = known_keys(TrainingConfig, tuple(parents))
    if key.split(".")[0] not in TRAINING_KEYS and not key.startswith(_PROJECT_SPACE):
        others = ", ".join(f"{group}*" for group in _PROJECT_SPACE)
        raise ValueError(f"{key!r} cannot be searched; training keys and {others} can")
    if last not in names:
        close = difflib.get_close_matches(last, names, n=1, cutoff=0.5)
        near = ".".join([*parents, close[0]]) if close else ""
        raise ValueError(f"{key!r} is no key of a training config" + (f"; did you mean {near!r}?" if close else ""))


def _values(model: type[BaseModel], path: str, project: Path | None) -> dict[str, Any]:
    """Return a template's values; what a project's own leaves out and needs is as in the shipped one."""
    document = declared(path, project)
    if project is not None and isinstance(document.value, dict):
        document = replace(document, value=_completed(model, document.value, declared(path, None).value))
    validate(model, document)
    values: dict[str, Any] = document.value
    return values


def _completed(model: type[BaseModel], values: dict[str, Any], shipped: dict[str, Any]) -> dict[str, Any]:
    needed = {name: shipped[name] for name, field in model.model_fields.items() if field.is_required()}
    found = {**needed, **values}
    if isinstance(found.get("export"), dict):
        found["export"] = _completed(Export, found["export"], shipped["export"])
    return found


def _gate_setting(phase: str, item: str, project: Path | None) -> dict[str, Any]:
    """Return the settings of one item of a phase's checklist, where its numbers stand."""
    return next((dict(i.settings) for i in phase_page(phase, project).items if i.id == item), {})


def baseline_template(project: Path | None) -> dict[str, Any]:
    """Return every training key with its baseline value.

    Args:
        project: The project's folder, whose own template is read if it has one; None outside a project.

    Raises:
        InputError: The template is not valid; with file, line and key of every fault.
    """
    shipped = _values(TrainingChanges, BASELINE, None)
    return shipped if project is None else {**shipped, **_values(TrainingChanges, BASELINE, project)}


def template_of(use: str | None) -> str:
    """Return the template that planning starts from where none is named, by the task's class; the baseline's for most."""
    return OF_TASKS.get((use or "").partition(":")[0], BASELINE)


def shipped_template(use: str | None) -> dict[str, Any]:
    """Return every training key with the value that a task's class begins with outside a project."""
    path, baseline = template_of(use), baseline_template(None)
    return baseline if path == BASELINE else overlay(baseline, _values(StartTemplate, path, None))


def start_template(name: str, project: Path) -> tuple[str, dict[str, Any]]:
    """Return a template's path and every training key: the baseline template's values under its own.

    Args:
        name: A path in the project, or a short name: `production` stands for `configs/production_template.yaml`, and `vision`
            for the project's own `configs/vision_template.yaml` or `configs/vision.yaml`.
        project: The project's folder.

    Raises:
        InputError: There is no such template in the project, or it is not valid.
    """
    path, baseline = template_path(name, project), baseline_template(project)
    if path == BASELINE:
        return path, baseline
    shipped = path in handbook.page_paths()
    document = declared(path, project) if shipped else yaml.parse(read_whole(project / path), path)
    validate(StartTemplate, document)
    return path, overlay(baseline, {key: value for key, value in (document.value or {}).items() if key not in OF_FINALIZATION})


def template_path(name: str, project: Path) -> str:
    """Return a template's path, relative to the project or to the handbook.

    Raises:
        InputError: It is none of the handbook's and none of the project's; those that there are are named.
    """
    known = [path for path in handbook.page_paths() if path.startswith("configs/") and path.endswith(".yaml")]
    own = sorted(path.relative_to(project).as_posix() for path in project.glob("configs/*.yaml"))
    root = project.resolve()
    for path in (name, f"configs/{name}_template.yaml", f"configs/{name}.yaml"):
        places = (place.resolve() for place in (Path(path), root / path))  # as typed here, and as seen from the project
        inside = next((place for place in places if place.is_file() and place.is_relative_to(root)), None)
        if inside is not None:
            return inside.relative_to(root).as_posix()
        if path in known:
            return path
    raise InputError.unknown(
        "template",
        name,
        dict.fromkeys([*own, *known]),
        where="--template",
        hint="copy the file into the project's configs/, so that whoever clones it has it too",
    )


def tuning_template(project: Path | None) -> dict[str, Any]:
    """Return `strategy`, `trials`, `space`, `trial`, and as `comparison` the gate's `seeds` and `level`.

    Raises:
        InputError: The template or the optimization page is not valid.
    """
    values = _values(TuningTemplate, TUNING, project)
    return {"trial": {}, **values, "comparison": _gate_setting("optimization", "improvement_validated", project)}


def trial_changes(template: dict[str, Any]) -> dict[str, Any]:
    """Return the training keys that every trial changes, from a tuning template's plain values."""
    return {key: value for key, value in template["trial"].items() if key not in OF_SEARCH}


def production_template(project: Path | None) -> dict[str, Any]:
    """Return the training keys that the final training changes, `combine` (None where nothing is combined), and `export`.

    `export.tolerance` and `export.metric_loss` are the template's, or where it gives none, the finalization gate's.

    Raises:
        InputError: The template or the finalization page is not valid.
    """
    values = _values(ProductionTemplate, PRODUCTION, project)
    given = _gate_setting("finalization", "exports_agree", project)
    # The gate compares with its own numbers: an export that used another one would agree here and fail there.
    limits = ExportSettings(**given).model_dump() if given else {"tolerance": None}
    chosen = without_none(**values["export"])
    if "calibration_samples" not in chosen:
        shipped = _values(ProductionTemplate, PRODUCTION, None)["export"]
        chosen = {**chosen, "calibration_samples": shipped["calibration_samples"]}
    return {**values, "combine": values.get("combine"), "export": {**limits, **chosen}}


def overlay(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a config with some keys changed; a group that changes its `name` whole; of keys that exclude one another, the new.

    Args:
        config: Nested values, such as a full training config.
        changes: Nested values that take their place, such as a template's training keys.
    """
    return {**config, **{key: _joined(key, config.get(key), value) for key, value in changes.items()}}


def _joined(key: str, old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    is_renamed = old.get("name") != new.get("name", old.get("name"))
    return new if is_renamed else overlay(yielding(key, old, new), new)


def applicable_space(space: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Return the dimensions whose key the config has: a linear model has no dropout to search.

    So is a range of rates where the config's is a factor of the task's own. An option of a custom task need not stand in
    the config: its class has a default, and refuses what it does not know. Of a program, its declared arguments are searched.

    Args:
        space: Dotted key to dimension, as in the tuning template.
        config: A full training config.
    """
    present, is_own = set(each_entry(config)), bool(config["task"]["use"])
    if config["task"].get("script") is not None:
        present = {key for key in present if key.startswith(ARGUMENTS)}
    if config["optimizer"]["name"] == "own" and not _is_factor(space.get("optimizer.lr")):
        present.discard("optimizer.lr")
    searched = {key for key in space if key in present}
    return {
        key: dimension
        for key, dimension in space.items()
        if key in present or (is_own and key.startswith(OPTIONS)) or searched & set(dimension.get("when") or ())
    }


def why_left_out(key: str, config: Mapping[str, Any]) -> str:
    """Return the reason why a dimension does not apply to a config, as the end of a sentence.

    Args:
        key: Its key, which `applicable_space` left out.
        config: A full training config.
    """
    if key not in each_entry(config):
        return "the config has no such key"
    if config["task"].get("script") is not None:
        return f"of a program only its own arguments are searched ({ARGUMENTS}NAME)"
    return f"it is a factor of the task's own rate here, and its range is one of rates; one of factors is {FACTORS}"


def _is_factor(dimension: dict[str, Any] | None) -> bool:
    """Return True if a learning-rate dimension is a range of factors: 1 is within it."""
    given = [value for form in FORMS for value in (dimension or {}).get(form) or []]
    return bool(given) and min(given) <= 1 <= max(given)


def misfits(space: dict[str, Any], config: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the choices that do not go with other keys, by dimension: a width that the model's heads cannot share.

    A value that no config could have is not among them: it is reported to whoever wrote it.

    Args:
        space: Dotted key to dimension; its keys apply to the config.
        config: A full training config, valid as it is.
    """
    wrong = {key: [value for value in dim.get("choice") or [] if _collides(config, key, value)] for key, dim in space.items()}
    return {key: values for key, values in wrong.items() if values}


def _collides(config: dict[str, Any], key: str, value: Any) -> bool:
    """Return True if a value passes its own bounds and fails a rule over several keys, which raises ValueError."""
    try:
        TrainingConfig.model_validate(assign(config, [(key, value)]))
    except ValidationError as error:
        return all(fault.type == "value_error" for fault in faults_of(error))
    return False
