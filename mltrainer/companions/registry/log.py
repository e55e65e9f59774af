"""Reads and continues the logs of a registry, in a folder or an object store."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from mltrainer.companions.registry.changes import ENTRY, NAME, Added, Change, Entry, Model, replayed, written
from mltrainer.companions.registry.policy import POLICY_FILE, Policy, policy_of
from mltrainer.configs import yaml
from mltrainer.errors import GateError, InputError, InUseError
from mltrainer.leftovers import scratch
from mltrainer.project.object_store import ObjectStore
from mltrainer.project.stored_files import PHASES_DIR, Listed
from mltrainer.reproducibility.repository import identity
from mltrainer.tasks.stored.location import is_remote
from mltrainer.workspace import machine_faults

VARIABLE = "MLTRAINER_REGISTRY"
MODELS = "models"
TRIES = 50  # others' changes of one model, one after the other, while one change of ours is made
MOST_OF_ENTRY = 1 << 24  # bytes: 80,000 files of a version, at 200 each; the digits example has 61
AGAIN = "remove this object, and add the model again from a project that has it"
_REFERENCE = re.compile(rf"(?P<model>{NAME})(?::(?P<version>[1-9]\d{{0,8}})|@(?P<name>{NAME}))?")


def opened(place: str | None) -> Registry:
    """Return the registry in a folder, or at the address of an object store.

    Raises:
        InputError: None is named, or it cannot be reached.
    """
    if not place:
        hint = f"--registry FOLDER_OR_URL, or once: export {VARIABLE}=FOLDER_OR_URL"
        raise InputError("no registry is named", where="--registry", hint=hint)
    return Registry(place if is_remote(place) else f"file://{Path(place).resolve()}")


def _unmoved(_count: int) -> None:
    """Take the progress of a copy, and show nothing."""


class Registry:
    """A registry.

    Args:
        address: The address of its store, as fsspec reads it.
    """

    def __init__(self, address: str) -> None:
        self.store = ObjectStore(address, AGAIN)
        self.address = self.store.address

    def command(self, *words: str) -> str:
        """Return a command on this registry, as a person types it."""
        return shlex.join(["mltrainer", "registry", *words, "--registry", self.address.removeprefix("file://")])

    # --- logs ---------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of its models."""
        found = self.store.names(MODELS, f"{NAME}/{ENTRY}")
        return list(dict.fromkeys(path.partition("/")[0] for path in found))

    def models(self, names: Iterable[str] = ()) -> tuple[list[Model], list[str]]:
        """Return the models of these names, or all, whose log is whole, and a line for each whose log is broken.

        Raises:
            InputError: There is no model of a name.
        """
        whole, broken = [], []
        for name in [*names] or self.names():
            try:
                whole.append(self.known(name))
            except GateError as error:
                broken.append(error.placed_message)
        return whole, broken

    def model(self, name: str) -> Model:
        """Return a model as its log leads to it; one without versions where it has no log.

        Raises:
            InputError: It is no name.
            GateError: An entry of the log was cut off, edited, removed or put in.
        """
        if not re.fullmatch(NAME, name):
            raise InputError(f"{name!r:.80} cannot be a model's name", hint="letters, digits and . _ -, such as digits")
        folder = f"{MODELS}/{name}"
        files = self.store.names(folder, ENTRY)
        texts = ((f"{folder}/{file}", self.store.text(f"{folder}/{file}", MOST_OF_ENTRY) or b"") for file in files)
        return replayed(name, [(f"{self.address}/{place}", text) for place, text in texts])

    def known(self, name: str) -> Model:
        """Return a model that has versions.

        Raises:
            InputError: There is none of that name.
            GateError: Its log is broken.
        """
        model = self.model(name)
        if not model.versions:
            raise InputError.unknown("model", name, self.names(), where=self.address, hint=self.command("list"))
        return model

    def version(self, reference: str) -> tuple[Model, Added]:
        """Return the version that a reference names, such as `digits:3` or `digits@production`, with its model.

        Raises:
            InputError: It is no reference, or names nothing that is there.
            GateError: The model's log is broken.
        """
        found = _REFERENCE.fullmatch(reference)
        if found is None or not (found["version"] or found["name"]):
            hint = f"{reference or 'digits'}:1, or a stage or alias: {reference or 'digits'}@production"
            raise InputError(f"{reference!r:.80} names no version", hint=hint if found else "NAME:VERSION or NAME@STAGE")
        model = self.known(found["model"])
        # An alias that was there before the team gave its name to a stage must not give out what the stage does not hold.
        is_stage = found["name"] is not None and found["name"] in self.policy().stages
        pointers = model.stages if is_stage else {**model.aliases, **model.stages}
        number = int(found["version"]) if found["version"] else pointers.get(found["name"])
        if number is None or number not in model.versions:
            there = ", ".join([*(f":{nr}" for nr in model.versions), *(f"@{name}" for name in sorted(pointers))])
            hint = self.command("show", model.name)
            raise InputError(f"there is no {reference} (there are: {there})", where=self.address, hint=hint)
        return model, model.versions[number]

    def holder(self, sha256: str) -> str | None:
        """Return the first version that has a file of a digest, as `NAME:VERSION`; None where none has."""
        versions = ((model.name, one) for model in self.models()[0] for one in model.versions.values())
        return next((f"{name}:{one.version}" for name, one in versions if sha256 in one.digests.values()), None)

    def change(self, name: str, decide: Callable[[Model], Change | None], root: Path) -> tuple[Model, Entry | None]:
        """Add a change to a model's log, and return the model after it, with its new entry.

        Args:
            name: The model's name.
            decide: A function from the model as it is to the change, or to None where there is nothing to change. It is called
                again where somebody else changed the model meanwhile.
            root: A folder whose git knows who makes the change.

        Raises:
            InputError: The entry would be too large for anybody to read.
            InUseError: Others change the model all the time.
        """
        by = identity(root)
        self.store.sweep()
        for _ in range(TRIES):
            model = self.model(name)
            change = decide(model)
            if change is None:
                return model, None
            text = written(model, change, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), by)
            if len(text) > MOST_OF_ENTRY:
                most, found = (f"{size:,} bytes" for size in (MOST_OF_ENTRY, len(text)))
                hint = f"register a project with fewer files in {PHASES_DIR}/"
                raise InputError("the list of files is too long", expected=f"at most {most}", found=found, where=name, hint=hint)
            if self.store.create(f"{MODELS}/{name}/{len(model.entries) + 1:06d}.json", text):
                model = self.model(name)
                return model, model.entries[-1]
        raise InUseError(f"others change {name} all the time", where=self.address, hint="type the same command again")

    # --- files --------------------------------------------------------------------------------------

    def send(self, root: Path, files: Mapping[str, Listed]) -> None:
        """Send files that are not there yet; a damaged one is sent again.

        Raises:
            ChangedError: One changes meanwhile.
        """
        for row, path in {row.sha256: (row, path) for path, row in files.items()}.values():
            if not self.store.holds(row):
                self.store.send(root / path, row, _unmoved)

    def fetch(self, files: Mapping[str, Listed], root: Path) -> None:
        """Write files of a version into a folder, each compared with its digest first.

        Args:
            files: The files by their path in the folder.
            root: The folder.

        Raises:
            GateError: One is missing or damaged in the registry.
            InputError: The store does not answer.
        """
        with scratch("registry-") as arriving:
            for path, row in files.items():
                arrived = self._arrived(path, row, arriving)
                with machine_faults(path):
                    (root / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(arrived, root / path)

    def _arrived(self, path: str, row: Listed, folder: Path) -> Path:
        try:
            return self.store.fetch(row, path, folder, _unmoved)
        except InputError as error:
            if self.store.holds(row):  # what failed is the store, not the file
                raise
            raise GateError(f"{path} is missing or damaged in the registry", where=error.where, hint=AGAIN) from error

    def damaged(self, added: Added) -> list[str]:
        """Return the paths of a version's files that are missing or damaged; all are read."""
        return [path for path, row in added.files.items() if not self.store.holds(row)]

    # --- policy -------------------------------------------------------------------------------------

    def policy(self) -> Policy:
        """Return the conditions of its stages.

        Raises:
            InputError: The team's file has faults.
        """
        return policy_of(self.store.text(POLICY_FILE, yaml.MAX_BYTES), f"{self.address}/{POLICY_FILE}")


def require_free(model: Model, name: str, there: Registry) -> None:
    """Require that a name can be an alias: it is a name, and no stage's, since a stage has conditions.

    Raises:
        InputError: It cannot.
    """
    if not re.fullmatch(NAME, name):
        raise InputError(f"{name!r:.80} cannot be an alias", hint="letters, digits and . _ -, such as champion")
    if name in there.policy().stages or name in model.held:
        message = f"{name} is a stage, which a version gets into by promotion alone"
        raise InputError(message, hint=there.command("promote", f"{model.name}:VERSION", "--stage", name))


def require_no_alias(model: Model, stage: str, there: Registry) -> None:
    """Require that a stage's name is no alias of the model, from before the team made it a stage.

    Raises:
        InputError: It is one.
    """
    if (version := model.aliases.get(stage)) is not None:
        hint = there.command("alias", f"{model.name}:{version}", stage, "--remove")
        raise InputError(f"{stage} is an alias of {model.name}, too, which names version {version}", hint=hint)


def stage_before(model: Model, stage: str, there: Registry) -> int:
    """Return the version that a stage named before the present one.

    Raises:
        GateError: There is none.
    """
    held = model.held.get(stage, [])
    if len(held) < 2:
        what = f"{stage} has named version {held[0]} alone" if held else f"no version was promoted to {stage}"
        raise GateError(f"there is no earlier version to go back to: {what}", hint=there.command("show", model.name))
    return held[-2]
