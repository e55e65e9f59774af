"""Optimizers: their options and the field's defaults, and how parameters fall into groups."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from mltrainer.configs.loading import Strict

Fraction = Annotated[float, Field(ge=0, lt=1)]


class Group(Strict):
    """Parameters whose names match a pattern; of several groups that match, the first counts."""

    match: str = Field(description="regular expression, searched for in the parameter's name, such as ^encoder or bias$")
    lr: float = Field(1.0, ge=0, description="share of the learning rate")
    weight_decay: float | None = Field(None, ge=0, description="instead of the optimizer's; null: the optimizer's")

    @field_validator("match")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"{value!r} is not a regular expression: {error}") from error
        return value


class _Optimizer(Strict):
    """What every optimizer has."""

    decay_norms_and_biases: bool = Field(True, description="false: no weight decay on parameters of one dimension or none")
    groups: list[Group] = Field(default_factory=list, description="parameters with a learning rate or decay of their own")


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


Optimizer = Annotated[Sgd | Adam | AdamW | NAdam | RAdam | Adamax | RmsProp | Adagrad, Field(discriminator="name")]
