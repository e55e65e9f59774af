"""Admission of a model: its files and gates hold, or every answer says that they were not checked. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from mltrainer.checkpointing.deployment import CHECKSUMS_FILE, INTERFACE, MANIFEST_FILE, PREPROCESS, checksum_faults
from mltrainer.errors import GateError, InputError
from mltrainer.gates.gate import why_closed
from mltrainer.gates.machine import asked, derive
from mltrainer.runs.predict import delivered
from mltrainer.workspace import (
    MODEL_CARD,
    MODEL_FOLDER,
    Project,
    find_project,
    read_if_whole,
    read_json,
    read_whole,
    sha256_file,
)

LOOPBACK = ("127.0.0.1", "localhost", "::1")  # this machine's names, where no token is needed
UNCHECKED = "--allow-unchecked accepts it, and notes it wherever the model is named"


class Identity(BaseModel):
    """Identity of the model that gave an answer.

    Attributes:
        name: Name of its project, or of its folder outside a project.
        mltrainer: Version of mltrainer that delivered it.
        run: Id of the run that trained it.
        weights_sha256: Digest of its weights.
        config_sha256: Digest of its training's config.
        data_sha256: Digest of its training's data.
        code_sha256: Digest of the task's code.
        files_sha256: Digest of `SHA256SUMS`, the list of its files' digests; None without such a list.
        card: Address of its model card.
        card_sha256: Digest of the card; None without one.
        checks: `held` if files and gates hold, `unchecked` if faults were passed over.
        unchecked: Faults that were passed over.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    mltrainer: str | None
    run: str | None
    weights_sha256: str | None
    config_sha256: str | None
    data_sha256: str | None
    code_sha256: str | None
    files_sha256: str | None
    card: str = "/card"
    card_sha256: str | None
    checks: Literal["held", "unchecked"]
    unchecked: list[str] = []


@dataclass(frozen=True)
class Admitted:
    """A model that may be served.

    Attributes:
        folder: Folder of its files.
        spec: Content of `inference.json`: its inputs and outputs.
        identity: Identity that every answer names.
        project: The project that delivered it; None for a folder outside a project.
        card: Text of its card.
    """

    folder: Path
    spec: dict[str, Any]
    identity: Identity
    project: Project | None
    card: str


def admitted(given: Path, allow_unchecked: bool = False) -> Admitted:
    """Return the model in a project, or in the folder of a delivered one.

    Args:
        given: A project's folder or one below it; or a copy of `final_model` anywhere.
        allow_unchecked: Admit a model whose checksums or gates fail, or cannot be checked in its folder.

    Raises:
        InputError: There is no delivered model, or it cannot be served.
        GateError: A file differs from the delivered one, or a gate fails.
    """
    project, folder = _places(given)
    faults = [] if project else list(_of_copy(folder))
    if project:
        faults += _of_project(project)
    if faults and not allow_unchecked:
        error = faults[0].error
        raise GateError(error.message, where=error.where, hint=f"{error.hint}; or {UNCHECKED}")
    spec = _interface(folder, is_intact=not any(fault.is_of_files for fault in faults))
    card = folder / MODEL_CARD
    # Read once: every request gets the card of the time of admission.
    text = read_whole(card).decode(errors="replace") if card.is_file() else "This model came without a card.\n"
    return Admitted(folder, spec, _identity(folder, project, [fault.error.placed_message for fault in faults]), project, text)


@dataclass(frozen=True)
class _Fault:
    error: GateError
    is_of_files: bool = True


def _places(given: Path) -> tuple[Project | None, Path]:
    """Return the project that delivered the model, if any, and the model's folder."""
    if not given.is_dir():
        raise InputError("no such folder", where=str(given), hint="name a project, or a folder final_model")
    is_model = (given / INTERFACE).is_file()
    try:
        project = find_project(given)
    except InputError:
        if is_model:
            return None, given.resolve()
        raise
    folder = project.phase_dir("finalization") / MODEL_FOLDER
    return (None, given.resolve()) if is_model and given.resolve() != folder.resolve() else (project, folder)


def _of_copy(folder: Path) -> Iterator[_Fault]:
    """Yield the faults of a model's folder outside a project."""
    for fault in checksum_faults(folder):
        yield _Fault(GateError(fault, where=str(folder / CHECKSUMS_FILE), hint="copy the delivered folder again"))
    message = "the folder is outside its project, so that the gates of its training cannot be checked"
    yield _Fault(GateError(message, where=str(folder), hint="serve it from its project"), is_of_files=False)


def _of_project(project: Project) -> Iterator[_Fault]:
    """Yield the faults of a project's delivered model: changed or added files, and gates that fail.

    Raises:
        InputError: Nothing was delivered.
    """
    try:
        delivered(project)
    except GateError as error:
        hint = error.hint or "mltrainer gate check finalization"
        yield _Fault(GateError(error.message, where=error.where, hint=hint))
    for gate in (state.gate for state in asked(derive(project))):
        if not gate.holds:
            yield _Fault(GateError(why_closed(gate), hint=f"mltrainer gate check {gate.phase}"), is_of_files=False)


def _interface(folder: Path, is_intact: bool) -> dict[str, Any]:
    """Return the model's own description of its inputs and outputs.

    Raises:
        InputError: The description is missing or empty; or the folder differs from the delivered one, and a file of it can
            hold code that would run.
    """
    hint = "copy the delivered folder again; a model in another format is asked with mltrainer predict FILE"
    spec = read_json(folder / INTERFACE, hint)
    if not isinstance(spec, dict):
        raise InputError("expected an object that describes the model's inputs", where=str(folder / INTERFACE), hint=hint)
    from mltrainer.checkpointing.inference_script import ONNX  # imports NumPy, which a refusal above does not need

    # PyTorch unpickles parts of an exported program: it can hold code.
    by_torch = find_spec("onnxruntime") is None or not any((folder / name).is_file() for name in ONNX)
    code = [*([spec[PREPROCESS]] if PREPROCESS in spec else []), *(["model.pt2"] if by_torch else [])]
    if code and not is_intact:
        message = f"{' and '.join(code)} would run, but the folder differs from the delivered one"
        raise InputError(message, where=str(folder), hint="restore the delivered files: changed code is never run")
    return spec


def _identity(folder: Path, project: Project | None, faults: list[str]) -> Identity:
    manifest = read_if_whole(folder / MANIFEST_FILE)
    contract = manifest.get("contract") if isinstance(manifest.get("contract"), dict) else {}

    def digest(name: str) -> str | None:
        return sha256_file(folder / name) if (folder / name).is_file() else None

    def texts(values: Any, *names: str) -> dict[str, str | None]:
        return {name: value if isinstance(value := values.get(name), str) else None for name in names}

    return Identity(
        name=project.root.name if project else folder.name,
        **texts(manifest, "mltrainer", "run", "weights_sha256"),
        **texts(contract, "config_sha256", "data_sha256", "code_sha256"),
        files_sha256=digest(CHECKSUMS_FILE),
        card_sha256=digest(MODEL_CARD),
        checks="unchecked" if faults else "held",
        unchecked=faults,
    )
