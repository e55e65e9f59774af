"""Optimizers: their options and the field's defaults, and how parameters fall into groups."""

import re
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, core_schema

from mltrainer import plugins
from mltrainer.configs.loading import Strict, needs_plugins

Fraction = Annotated[float, Field(ge=0, lt=1)]


def pattern(value: str) -> str:
    """Return a regular expression as it was given.

    Raises:
        ValueError: It is none.
    """
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression: {error}") from error
    return value


class Group(Strict):
    """Parameters whose names match a pattern; of several groups that match, the first counts."""

    match: str = Field(description="regular expression, searched for in the parameter's name, such as ^encoder or bias$")
    lr: float = Field(1.0, ge=0, description="share of the learning rate")
    weight_decay: float | None = Field(None, ge=0, description="instead of the optimizer's; null: the optimizer's")

    @field_validator("match")
    @classmethod
    def _compiles(cls, value: str) -> str:
        return pattern(value)


class Sam(Strict):
    """Sharpness-aware minimization: the gradient is taken at the worst point nearby; it costs a second forward and backward."""

    rho: float = Field(0.05, gt=0, description="how far the point is away (Foret et al., 2021, arXiv 2010.01412)")
    adaptive: bool = Field(False, description="distance relative to each weight's size (Kwon et al., 2021, arXiv 2102.11600)")


class Lookahead(Strict):
    """Slow weights that follow the optimizer's every few steps; they are what is measured and delivered."""

    k: int = Field(5, ge=1, description="steps between two moves of the slow weights (Zhang et al., 2019, arXiv 1907.08610)")
    alpha: float = Field(0.5, gt=0, le=1, description="how far the slow weights move towards the others")


class _Optimizer(Strict):
    """What every optimizer has."""

    sam: Sam | None = Field(None, description="sharpness-aware minimization over this optimizer, such as {rho: 0.05}")
    lookahead: Lookahead | None = Field(None, description="slow weights over this optimizer, such as {k: 5, alpha: 0.5}")
    decay_norms_and_biases: bool = Field(True, description="false: no weight decay on parameters of one dimension or none")
    layer_decay: float = Field(1.0, gt=0, le=1, description="each block below the last learns at so much of the rate above it")
    groups: list[Group] = Field([], description="parameters with a learning rate or decay of their own")

    @model_validator(mode="after")
    def _one_wrapper(self) -> Self:
        if self.sam is not None and self.lookahead is not None:
            raise ValueError("sam and lookahead do not go together: give one of them")
        return self


class _Adam(_Optimizer):
    """What Adam and its kin have."""

    lr: float = Field(1.0e-3, gt=0, description="learning rate")
    betas: list[Fraction] = Field(
        default_factory=lambda: [0.9, 0.999], min_length=2, max_length=2, description="decay of the two moments"
    )
    eps: float = Field(1.0e-8, gt=0, description="added to the denominator")


class Sgd(_Optimizer):
    """Stochastic gradient descent with momentum (defaults: the usual ones for image classifiers)."""

    name: Literal["sgd"] = "sgd"
    lr: float = Field(0.1, gt=0, description="learning rate")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum")
    nesterov: bool = Field(False, description="Nesterov's form of momentum")
    weight_decay: float = Field(1.0e-4, ge=0, description="L2 penalty")

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov is a form of momentum: give a momentum above 0, such as 0.9")
        return self


class Adam(_Adam):
    """Adam (Kingma and Ba, 2015, arXiv 1412.6980)."""

    name: Literal["adam"] = "adam"
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty")


class AdamW(_Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019, arXiv 1711.05101)."""

    name: Literal["adamw"] = "adamw"
    weight_decay: float = Field(0.01, ge=0, description="decoupled weight decay")


class NAdam(_Adam):
    """Adam with Nesterov's momentum (Dozat, 2016, ICLR workshop)."""

    name: Literal["nadam"] = "nadam"
    lr: float = Field(2.0e-3, gt=0, description="learning rate")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty")


class RAdam(_Adam):
    """Adam with a rectified variance (Liu et al., 2020, arXiv 1908.03265)."""

    name: Literal["radam"] = "radam"
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty")


class Adamax(_Adam):
    """Adam with the infinity norm (Kingma and Ba, 2015, arXiv 1412.6980)."""

    name: Literal["adamax"] = "adamax"
    lr: float = Field(2.0e-3, gt=0, description="learning rate")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty")


class RmsProp(_Optimizer):
    """Gradients divided by a running mean of their size (Hinton, 2012, Coursera lecture 6e)."""

    name: Literal["rmsprop"] = "rmsprop"
    lr: float = Field(1.0e-3, gt=0, description="learning rate; PyTorch's default, 0.01, is too large for most networks")
    alpha: float = Field(0.99, ge=0, lt=1, description="decay of the running mean")
    eps: float = Field(1.0e-8, gt=0, description="added to the denominator")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty")


class Adagrad(_Optimizer):
    """Gradients divided by the root of the sum of their squares (Duchi, Hazan and Singer, 2011, JMLR 12)."""

    name: Literal["adagrad"] = "adagrad"
    lr: float = Field(0.01, gt=0, description="learning rate")
    eps: float = Field(1.0e-10, gt=0, description="added to the denominator")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty")


class Lamb(_Adam):
    """Adam with a trust ratio for each parameter, for large batches (You et al., 2020, arXiv 1904.00962)."""

    name: Literal["lamb"] = "lamb"
    lr: float = Field(2.0e-3, gt=0, description="learning rate")
    eps: float = Field(1.0e-6, gt=0, description="added to the denominator")
    weight_decay: float = Field(0.01, ge=0, description="decoupled weight decay, within the update that the trust ratio scales")


class Lars(_Optimizer):
    """Momentum with a trust ratio for each matrix, for large batches (You, Gitman and Ginsburg, 2017, arXiv 1708.03888)."""

    name: Literal["lars"] = "lars"
    lr: float = Field(3.2, gt=0, description="learning rate; it is multiplied by the trust coefficient")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum")
    nesterov: bool = Field(False, description="Nesterov's form of momentum")
    trust_coefficient: float = Field(1.0e-3, gt=0, description="share of a weight's norm that an update may have")
    weight_decay: float = Field(1.0e-4, ge=0, description="L2 penalty")


class Lion(_Optimizer):
    """The sign of an interpolated momentum (Chen et al., 2023, arXiv 2302.06675)."""

    name: Literal["lion"] = "lion"
    lr: float = Field(3.0e-4, gt=0, description="learning rate; a third to a tenth of AdamW's")
    betas: list[Fraction] = Field(
        default_factory=lambda: [0.9, 0.99], min_length=2, max_length=2, description="interpolation and decay of the momentum"
    )
    weight_decay: float = Field(0.1, ge=0, description="decoupled weight decay; three to ten times AdamW's")


class Ranger(_Adam):
    """RAdam with Lookahead and centralized gradients (Wright, 2019; Yong et al., 2020, arXiv 2004.01461)."""

    name: Literal["ranger"] = "ranger"
    betas: list[Fraction] = Field(
        default_factory=lambda: [0.95, 0.999], min_length=2, max_length=2, description="decay of the two moments"
    )
    eps: float = Field(1.0e-5, gt=0, description="added to the denominator")
    k: int = Field(6, ge=1, description="steps between two moves of the slow weights")
    alpha: float = Field(0.5, gt=0, le=1, description="how far the slow weights move")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay")

    @model_validator(mode="after")
    def _has_its_own(self) -> Self:
        if self.lookahead is not None:
            raise ValueError("ranger includes a lookahead: set k and alpha")
        return self


class ScheduleFree(_Adam):
    """AdamW whose averaged weights need no schedule (Defazio et al., 2024, arXiv 2405.15682).

    The averaged weights are what is measured and delivered.
    """

    name: Literal["schedule_free"] = "schedule_free"
    lr: float = Field(2.5e-3, gt=0, description="learning rate; the schedule should be constant, with a warm-up")
    weight_decay: float = Field(0.0, ge=0, description="weight decay")

    @model_validator(mode="after")
    def _averages_itself(self) -> Self:
        if self.lookahead is not None or self.sam is not None:
            raise ValueError("schedule_free is evaluated at averaged weights: it cannot be combined with sam or lookahead")
        if self.betas[0] == 0:
            raise ValueError("schedule_free needs a first beta above 0")
        return self


class AdamW8bit(_Adam):
    """AdamW whose moments take 8 bits a number, where bitsandbytes is installed (Dettmers et al., 2022, arXiv 2110.02861)."""

    name: Literal["adamw_8bit"] = "adamw_8bit"
    weight_decay: float = Field(0.01, ge=0, description="decoupled weight decay")


class OwnOptimizer(_Optimizer):
    """The optimizer that a task of one's own makes, such as a Lightning module's `configure_optimizers`."""

    name: Literal["own"] = "own"
    lr: float = Field(1.0, gt=0, description="factor of the task's own learning rates")

    @model_validator(mode="after")
    def _is_all_the_tasks(self) -> Self:
        fields = _Optimizer.model_fields.items()
        if given := [name for name, field in fields if getattr(self, name) != field.get_default()]:
            raise ValueError(f"the task's own optimizer takes no {', '.join(given)}: write it where the task makes the optimizer")
        return self


class PluginOptimizer(_Optimizer):
    """An optimizer that an installed distribution adds: see docs/PLUGINS.md."""

    name: str = Field(description="its entry point in the group mltrainer.optimizers", pattern=plugins.NAME)
    lr: float = Field(gt=0, description="learning rate")
    weight_decay: float = Field(0.0, ge=0, description="weight decay, in the plug-in's own form")
    options: dict[str, Any] = Field({}, description="the plug-in's own options")

    @field_validator("options")
    @classmethod
    def _complete(cls, options: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Return the options with the plug-in's defaults, which then stand in the config and decide as all others do."""
        if not (needs_plugins(info) and "name" in info.data):
            return options
        try:
            return dict(plugins.made("optimizers", info.data["name"], options, "optimizer.options", ("build",)).model_dump())
        except ValueError as error:
            raise PydanticCustomError("plugin_options", "{told}", {"told": str(error)}) from None


BuiltIn = Annotated[
    Sgd
    | Adam
    | AdamW
    | NAdam
    | RAdam
    | Adamax
    | RmsProp
    | Adagrad
    | Lamb
    | Lars
    | Lion
    | Ranger
    | ScheduleFree
    | AdamW8bit
    | OwnOptimizer,
    Field(discriminator="name"),
]
BUILT_IN = tuple(kind.model_fields["name"].default for kind in get_args(get_args(BuiltIn)[0]))


class _ByName:
    """Validates an optimizer as the built-in one of its name, else as a plug-in's."""

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # Dumped as what it is: by the schema of the built-in ones, pydantic would warn of every plug-in's.
        as_it_is = core_schema.simple_ser_schema("any")
        return core_schema.with_info_wrap_validator_function(_by_name, handler.generate_schema(BuiltIn), serialization=as_it_is)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        plugin = PluginOptimizer.model_json_schema()
        # Else a fault in a built-in one's keys would pass: as a plug-in of that name.
        plugin["properties"]["name"]["not"] = {"enum": list(BUILT_IN)}
        return {"anyOf": [handler(schema), _without_references(plugin, plugin.pop("$defs"))]}


def _without_references(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return a JSON schema with its definitions where it refers to them, as they cannot join those of another."""
    if isinstance(schema, list):
        return [_without_references(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _without_references(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {key: _without_references(value, definitions) for key, value in schema.items()}


def _by_name(value: Any, built_in: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    if not isinstance(name, str) or name in BUILT_IN:
        return built_in(value)
    if needs_plugins(info) and plugins.find("optimizers", name) is None:
        known = ", ".join(map(repr, (*BUILT_IN, *plugins.installed("optimizers"))))
        # pydantic's own error for a wrong tag, for which `loading` suggests the nearest name.
        raise PydanticKnownError("union_tag_invalid", {"discriminator": "'name'", "tag": name, "expected_tags": known})
    return PluginOptimizer.model_validate(value, context=info.context)


Optimizer = Annotated[BuiltIn | PluginOptimizer, _ByName()]
