"""What a model begins with in place of drawn weights, and which of its parameters are held, until when."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from mltrainer.configs.loading import Strict
from mltrainer.configs.optimizers import pattern

Pattern = Annotated[str, AfterValidator(pattern)]


class Unfreeze(Strict):
    """Held parameters that are trained from an epoch on."""

    epoch: int = Field(ge=2, description="the first epoch in which they are trained; the first epoch of a run is 1")
    match: Pattern = Field(description="a pattern of the parameters' names")


class Start(Strict):
    """Weights that a model begins with: names are mapped strictly, and what is loaded and what not is on the record."""

    weights: str = Field(
        description="a .safetensors file, a torch file (.pt, .pth, .bin, .ckpt), or a folder with one, such as another project's "
        "final_model/; relative to the project"
    )
    rename: dict[Pattern, str] = Field({}, description="pattern of a name in the file: what takes its place, in this order")
    replace_head: bool = Field(False, description="the last layer begins as a new one, as for other classes")
    new: list[Pattern] = Field([], description="patterns of the model's tensors that begin as new ones")
    unused: list[Pattern] = Field([], description="patterns of the file's tensors, renamed, that are not loaded")
    freeze: list[Pattern] = Field([], description="patterns of parameters that are held; norms among them keep their statistics")
    unfreeze: list[Unfreeze] = Field([], description="held parameters that are trained from an epoch on")

    @model_validator(mode="after")
    def _thaws_what_is_frozen(self) -> Self:
        if self.unfreeze and not self.freeze:
            raise ValueError("unfreeze needs freeze: patterns of the parameters that are frozen until then")
        return self
