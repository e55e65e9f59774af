"""Strategies: what a training does beside its task, such as to follow a teacher; each a model of its settings."""

from typing import Annotated, Literal

from pydantic import Field

from mltrainer.configs.loading import Strict
from mltrainer.configs.models import ModelConfig


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


Strategy = Annotated[Distillation, Field(description="a strategy, by its name")]
