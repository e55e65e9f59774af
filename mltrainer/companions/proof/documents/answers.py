"""What no record knows and documents ask for: a person's answers, in a file of the project."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from mltrainer.configs import yaml
from mltrainer.configs.loading import Strict, read_text, validate


class DataAnswers(Strict):
    """What a person says of the data."""

    name: str | None = Field(None, description="the data's name")
    url: str | None = Field(None, description="where it can be had")
    license: str | None = Field(None, description="its license, as an address or an SPDX id")
    creator: str | None = Field(None, description="who made it")
    published: str | None = Field(None, description="since when, such as 2026-11-29")
    citation: str | None = Field(None, description="how to cite it")
    description: str | None = Field(None, description="what it holds")
    collection: str | None = Field(None, description="how it was collected")
    biases: str | None = Field(None, description="who or what is over- or underrepresented")
    personal: str | None = Field(None, description="personal or sensitive information in it, or: none")
    uses: str | None = Field(None, description="what it is fit for")
    limitations: str | None = Field(None, description="what it is not fit for")


class Answers(Strict):
    """What a person says of the model; None: not answered yet."""

    license: str | None = Field(None, description="the model's license, as an SPDX id such as Apache-2.0")
    creator: str | None = Field(None, description="who answers for the model")
    published: str | None = Field(None, description="the day of publication, such as 2026-11-29")
    base_model: str | None = Field(
        None, description="the model that it was adapted from, as the hub names it, where there is one"
    )
    datasets: list[str] = Field(default_factory=list, description="the data sets, as the hub names them, in brackets")
    users: str | None = Field(None, description="for whom it is")
    intended_use: str | None = Field(None, description="what it is for")
    limitations: str | None = Field(None, description="what it is not for, and where it fails")
    risks: str | None = Field(None, description="what harm it could do, and to whom")
    written: dict[str, str] = Field(default_factory=dict, description="your texts for neurips.md and annex_iv.md, by place")
    data: DataAnswers = Field(default_factory=DataAnswers)

    @property
    def blanks(self) -> list[str]:
        """The names of the questions without an answer; not every model has a base model."""
        own = [name for name, value in self if value is None and name != "base_model"]
        return [*own, *(f"data.{name}" for name, value in self.data if value is None)]


def read_answers(path: Path, name: str) -> Answers:
    """Return a person's answers; `name` is the file's path in messages.

    Raises:
        InputError: The file has faults; the message has file, line and key of each.
    """
    return validate(Answers, yaml.parse(read_text(path, "the answers"), name))


def blank_answers() -> str:
    """Return the text of a file without answers, with a line for each question."""
    own = {name: field for name, field in Answers.model_fields.items() if name != "data"}
    lines = ["# What no record knows. A question without an answer stays blank in the documents.", *map(_line, own, own.values())]
    data = DataAnswers.model_fields
    return "\n".join([*lines, "data:", *(f"  {_line(name, field)}" for name, field in data.items())]) + "\n"


def _line(name: str, field: object) -> str:
    value = {"datasets": "[]", "written": "{}"}.get(name, "null")
    return f"{name}: {value}  # {getattr(field, 'description', '')}"
