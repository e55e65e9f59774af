"""Strategies: what a training does beside its task, such as to follow a teacher; each a model of its settings."""

from typing import Annotated, Literal

from pydantic import Field

from mltrainer.configs.loading import Strict
from mltrainer.configs.models import ModelConfig
from mltrainer.configs.starting import Pattern


class Teacher(Strict):
    """A trained model whose outputs are followed; the digests of its files are part of the data's."""

    weights: str = Field(
        description="a .safetensors file, a torch file (.pt, .pth, .bin, .ckpt), or a folder with one, such as another project's "
        "final_model/; relative to the project"
    )
    model: ModelConfig | None = Field(
        None, description="the teacher's built-in model; null: the student's own. A task of your own writes teacher(self)"
    )


class Distillation(Strict):
    """The outputs of a teacher as soft targets (Hinton et al., 2015, arXiv 1503.02531)."""

    name: Literal["distillation"]
    teacher: Teacher
    temperature: float = Field(2.0, gt=0, le=100, description="what the outputs of both are divided by before the softmax")
    weight: float = Field(0.5, gt=0, le=1, description="the teacher's share of the loss; the rest is the task's own")


class Lora(Strict):
    """Low-rank adapters beside held layers (Hu et al., 2021, arXiv 2106.09685); the model that is delivered has them added in."""

    name: Literal["lora"]
    layers: list[Pattern] | None = Field(
        None, min_length=1, description="patterns of the modules' names that get an adapter; null: each linear layer that can"
    )
    rank: int = Field(8, ge=1, le=1024, description="columns of an adapter's first matrix, and rows of its second")
    alpha: float | None = Field(None, gt=0, description="an adapter's product counts alpha / rank times; null: once")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of an adapter's inputs that training leaves out")
    dora: bool = Field(False, description="length and direction are adapted apart (Liu et al., 2024, arXiv 2402.09353)")
    train: list[Pattern] = Field(
        [],
        description="patterns of parameters that are trained whole, such as norms; those that begin as new ones are too",
    )


Strategy = Annotated[Distillation | Lora, Field(discriminator="name", description="a strategy, by its name")]
