"""Which trackers a project's runs are shown in: they read what a run writes, and decide nothing of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from mltrainer import plugins
from mltrainer.configs.loading import Strict, needs_plugins
from mltrainer.configs.storage import secrets_of

VARIABLE = re.compile(r"\$\{(\w+)\}")
_ADDRESS = re.compile(r"(?:https?|sqlite|postgresql|mysql)(?:\+\w+)?://")


def _address(url: str) -> str:
    """Refuse what is no address of MLflow, or holds a password; what is refused is not repeated."""
    if not (VARIABLE.fullmatch(url) or _ADDRESS.match(url)):
        message = "an address begins with sqlite:///, http://, https://, postgresql:// or mysql://, or is ${NAME} alone"
        raise PydanticCustomError("secret", message)
    if any(VARIABLE.sub("", secret) for secret in secrets_of(url)):
        message = "the address contains a password, and files are committed: write ${NAME}, and set that variable"
        raise PydanticCustomError("secret", message)
    return url


class Tracker(Strict):
    """The keys of every tracker."""

    every_n_steps: int = Field(1, ge=1, description="one of this number of steps is sent; every evaluation is")
    wait_s: float = Field(
        30,
        gt=0,
        le=600,
        description="seconds without an answer after which it is given up, and for what is left when a phase ends",
    )


class TensorBoard(Tracker):
    """Event files in a folder."""

    folder: str = Field(".mltrainer/tensorboard", description="where a folder for each run is made; relative to the project")


class MLflow(Tracker):
    """A database or a server of MLflow's."""

    uri: Annotated[str, AfterValidator(_address)] = Field(
        "sqlite:///.mltrainer/mlflow.db",
        description="a database file, relative to the project, or a server; ${NAME} is the value of an environment variable",
    )
    experiment: str | None = Field(None, description="in which runs are shown; null: the project's name")


class Wandb(Tracker):
    """Weights & Biases; its key stands in the environment, WANDB_API_KEY, or where `wandb login` keeps it."""

    mode: Literal["offline", "online"] = Field("offline", description="offline: files, which `wandb sync` sends; online: at once")
    project: str | None = Field(None, description="in which runs are shown; null: the project's name")
    entity: str | None = Field(None, description="whose project it is; null: the account's own")
    folder: str = Field(".mltrainer", description="where a folder wandb is made for its files; relative to the project")


class Trackio(Tracker):
    """Hugging Face's Trackio, on this machine."""

    folder: str = Field(".mltrainer/trackio", description="where its database and files are; relative to the project")
    project: str | None = Field(None, description="in which runs are shown; null: the project's name")


class PluginTracker(Tracker):
    """A tracker that an installed distribution adds: see docs/PLUGINS.md."""

    options: dict[str, Any] = Field({}, description="the plug-in's own options")


class Tracking(Strict):
    """The trackers; each that is not named is off. A further name is that of a plug-in's."""

    model_config = ConfigDict(extra="allow")
    # By this annotation pydantic validates the keys beyond those below; without it they would be taken as they are.
    __pydantic_extra__: dict[str, PluginTracker]

    tensorboard: TensorBoard | None = None
    mlflow: MLflow | None = None
    wandb: Wandb | None = None
    trackio: Trackio | None = None

    @model_validator(mode="before")
    @classmethod
    def _are_there(cls, given: Any, info: ValidationInfo) -> Any:
        names = [name for name in given if name not in cls.model_fields] if isinstance(given, dict) else []
        if needs_plugins(info) and (unknown := [name for name in names if plugins.find("trackers", str(name)) is None]):
            faults = [InitErrorDetails(type=_not_installed(str(name)), loc=(name,), input=given[name]) for name in unknown]
            # Several may be missing, and a ValueError has one fault, at the place of the whole.
            raise ValidationError.from_exception_data(cls.__name__, faults)
        return given

    def named(self) -> Iterator[tuple[str, Tracker]]:
        """Yield the trackers that are on, by name."""
        given = {**{name: getattr(self, name) for name in type(self).model_fields}, **self.__pydantic_extra__}
        yield from ((name, tracker) for name, tracker in given.items() if tracker is not None)


def _not_installed(name: str) -> PydanticCustomError:
    message = plugins.unknown("trackers", name, list(Tracking.model_fields))
    return PydanticCustomError("not_installed", "{message}", {"message": message})


def _spelled_out(given: Any) -> Any:
    """Return names alone as the mapping that they mean."""
    if isinstance(given, list) and all(isinstance(name, str) for name in given):
        return {name: {} for name in given} or None
    if isinstance(given, str):
        raise ValueError("a list of trackers was expected, such as [tensorboard], or each with its options")
    return given


TrackingKey = Annotated[Tracking | None, BeforeValidator(_spelled_out, json_schema_input_type=Tracking | list[str] | None)]
