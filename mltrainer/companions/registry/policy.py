"""A registry's own file, which the team writes: its stages, and what a version needs to get into each."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mltrainer.companions.registry.changes import Name
from mltrainer.configs import yaml
from mltrainer.configs.loading import Strict, validate

POLICY_FILE = "registry.yaml"


class Asked(Strict):
    """What a stage asks of a version, beside gates that hold."""

    verdict: bool = Field(False, description="a referee's verdict on its record, in which every value holds")
    keys: list[Annotated[str, Field(pattern="BEGIN PUBLIC KEY")]] = Field(
        [], description="public keys (PEM): one of them must have signed its gates, its model and its verdict"
    )


class Policy(Strict):
    """The stages of a registry."""

    stages: dict[Name, Asked] = Field({"staging": Asked(), "production": Asked()}, min_length=1, description="what each asks")


def policy_of(text: bytes | None, where: str) -> Policy:
    """Return the policy that a registry's file holds; without a file, of two stages that ask for gates that hold.

    Raises:
        InputError: The file has faults.
    """
    return Policy() if text is None else validate(Policy, yaml.parse(text, where))
