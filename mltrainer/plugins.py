"""Plug-ins: trackers, optimizers, tasks, questions, exporters and executors of installed distributions, by entry points.

The package's own companions, the folders of `mltrainer/companions`, are found like plug-ins: the `__init__.py` of each lists the
commands and parts that it adds, and the core imports none of them by name.

Looking for an installed plug-in reads the distributions' metadata only; `load` imports it. A distribution in a project's folder
is ignored: the project's sender could run code by it. Built-in names come first, so that no plug-in replaces them.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from mltrainer.errors import InputError
from mltrainer.validation import faults_of

if TYPE_CHECKING:
    from importlib.metadata import Distribution

    from pydantic import ValidationError

PLACE = "site-packages/"  # begins a plug-in's file in records, which hold no path of this machine
PROJECT_FILE = "mltrainer.yaml"
NAME = r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$"  # not \w: counted up to 63 times, every letter of Unicode takes 40 ms to compile
GROUPS = "mltrainer."  # begins the names of the entry-point groups


class Plugin(NamedTuple):
    """A plug-in: an entry point of a distribution.

    Attributes:
        kind: The kind: "trackers", "optimizers", "tasks", "questions", "exporters" or "executors", of the group
            `mltrainer.<kind>`.
        name: The name in a config or on a command line.
        value: The object that it names, as `module:attribute`.
        distribution: The distribution's name.
        version: The distribution's version.
        metadata: The distribution's metadata.
    """

    kind: str
    name: str
    value: str
    distribution: str
    version: str
    metadata: Distribution

    def __str__(self) -> str:
        return f"{self.name} of {self.distribution} {self.version}"

    @property
    def summary(self) -> str:
        """The one-line summary of its distribution."""
        return self.metadata.metadata["Summary"] or str(self)

    @property
    def packages(self) -> set[str]:
        """The top-level modules of its distribution."""
        files = (file for file in self.metadata.files or () if file.suffix == ".py")
        return {self.value.partition(":")[0].partition(".")[0], *(file.parts[0].removesuffix(".py") for file in files)}


class Command(NamedTuple):
    """A command of the program.

    Attributes:
        name: The name to type.
        module: The module whose `app` has it.
        help: The help text, one line.
        section: The title of its section in the program's help.
        after: The command after which it is listed there; empty: it is the first; None: the last.
    """

    name: str
    module: str
    help: str
    section: str
    after: str | None = None


# The sections of the program's help that companions add to.
ASK = "Ask one question of any training program, without a project"
TRAIN, LOOK, EXPLORE = "Train, phase by phase", "Look at what was trained", "Explore, without a trace in the project"

_loaded: dict[tuple[str, str], Plugin] = {}  # loaded in this process: their files are part of a run's code


# --- companions -----------------------------------------------------------------------------------------


@functools.cache
def companions() -> tuple[ModuleType, ...]:
    """Return the package's companions, sorted by name.

    Each may have `COMMANDS`, a tuple of `Command`, and `PARTS`, which maps a kind of part to `module:attribute` by name, as in an
    entry point. Its `__init__.py` imports nothing heavy: every command of the program reads it.
    """
    folder = Path(__file__).with_name("companions")
    names = sorted(entry.name for entry in folder.iterdir() if (entry / "__init__.py").is_file())
    return tuple(importlib.import_module(f"mltrainer.companions.{name}") for name in names)


def commands() -> tuple[Command, ...]:
    """Return the companions' commands."""
    return tuple(command for companion in companions() for command in getattr(companion, "COMMANDS", ()))


def scratch_folders() -> frozenset[str]:
    """Return the names of the folders in a project's state folder that are of no later use."""
    return frozenset[str]().union(*(getattr(companion, "SCRATCH", ()) for companion in companions()))


@functools.cache
def parts(kind: str) -> Mapping[str, str]:
    """Return the companions' parts of a kind: `module:attribute` by name."""
    return {name: value for companion in companions() for name, value in getattr(companion, "PARTS", {}).get(kind, {}).items()}


def part(kind: str, name: str) -> Any:
    """Import a companion's part and return it.

    Raises:
        KeyError: No companion has a part of that kind and name.
    """
    module, _, attribute = parts(kind)[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


# --- looking for them -----------------------------------------------------------------------------------


def installed(kind: str) -> dict[str, tuple[Plugin, ...]]:
    """Return the plug-ins of a kind by name, sorted; several of one name where distributions conflict."""
    rows = [plugin for plugin in _all(tuple(sys.path)) if plugin.kind == kind]
    return {name: tuple(row for row in rows if row.name == name) for name in sorted({row.name for row in rows})}


@functools.lru_cache(maxsize=8)
def _all(path: tuple[str, ...]) -> tuple[Plugin, ...]:
    """Return the plug-ins of the distributions on a path, without those in a project's folder."""
    from importlib.metadata import distributions  # here, because its import takes as long as to check a gate

    found: dict[tuple[str, str, str], Plugin] = {}
    for distribution in distributions(path=[entry for entry in path if not _is_in_project(entry or os.getcwd())]):
        if GROUPS in (distribution.read_text("entry_points.txt") or ""):
            for plugin in _of_distribution(distribution):  # the first on the path is the one that is imported
                found.setdefault((plugin.kind, plugin.name, plugin.distribution), plugin)
    return tuple(found.values())


def _of_distribution(distribution: Distribution) -> Iterator[Plugin]:
    for point in distribution.entry_points:
        if point.group.startswith(GROUPS):
            kind, value = point.group.removeprefix(GROUPS), point.value.replace(" ", "")
            yield Plugin(kind, point.name, value, distribution.name, distribution.version, distribution)


def _is_in_project(entry: str) -> bool:
    """Return True for a folder in a project, by its path or its resolved path, except the interpreter's environment there."""
    places = {Path(os.path.abspath(entry)), Path(os.path.realpath(entry))}
    return any(os.path.lexists(folder / PROJECT_FILE) for place in places for folder in _above(place))


def _above(place: Path) -> Iterator[Path]:
    """Yield a folder and those above it, up to the interpreter's environment."""
    environment = {Path(sys.prefix), Path(os.path.realpath(sys.prefix))}
    for folder in (place, *place.parents):
        if folder in environment and folder != place:
            return
        yield folder


def find(kind: str, name: str) -> Plugin | None:
    """Return the plug-in of a name; None where no installed distribution has one.

    Raises:
        InputError: Two distributions have a plug-in of that name.
    """
    found = installed(kind).get(name, ())
    # An error rather than the first one: the order depends on the path.
    if len(found) > 1:
        named = " and ".join(f"{each.distribution} {each.version}" for each in found)
        raise InputError(f"{name!r} of {kind} is in {named}: no one of them is taken", hint="uninstall all but one of them")
    return found[0] if found else None


def unknown(kind: str, name: str, built_in: Collection[str]) -> str:
    """Return the sentence about a name that is neither built in nor installed, with the nearest existing name."""
    import difflib  # here, because names are rarely mistyped

    names = installed(kind)
    close = difflib.get_close_matches(name, [*built_in, *names], n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else "pip install the package that adds it"
    listed = f"built in: {', '.join(built_in)}; installed: {', '.join(names) or 'none'}"
    return f"there is no {name!r} among the {kind} ({listed}); {hint}"


# --- using them -----------------------------------------------------------------------------------------


def load(kind: str, name: str, where: str) -> Any:
    """Import a plug-in and return the object that its entry point names.

    Args:
        kind: The plug-in's kind.
        name: The plug-in's name.
        where: The place that names it, such as a config's key, for messages.

    Raises:
        InputError: The plug-in is not installed, two distributions have it, or it cannot be imported.
    """
    plugin = find(kind, name)
    if plugin is None:
        raise InputError(f"{name!r} of {kind} is not installed", where=where, hint="pip install the package that adds it")
    module, _, attribute = plugin.value.partition(":")
    try:
        __import__(module)
        found = functools.reduce(getattr, filter(None, attribute.split(".")), sys.modules[module])
    except Exception as error:  # another author's package may raise anything
        message = f"{plugin} cannot be imported: {type(error).__name__}: {error}"
        raise InputError(message, where=where, hint=f"pip install a version of {plugin.distribution} that works here") from error
    # Only once it is imported: a plug-in that fails has no part in the run's code.
    _loaded[kind, name] = plugin
    return found


def made(kind: str, name: str, options: Mapping[str, Any], where: str, methods: tuple[str, ...]) -> Any:
    """Return an instance of a plug-in that is a pydantic model of its options.

    Args:
        kind: The plug-in's kind.
        name: The plug-in's name.
        options: The values of its options.
        where: The place that names it, such as a config's key, for messages.
        methods: The names of the methods that it must have.

    Raises:
        InputError: The plug-in cannot be loaded, see `load`; or it is no such model, or lacks a method.
        ValueError: The options are not valid; the message has each fault with its option.
    """
    import pydantic  # here, because a command that only looks for a plug-in validates nothing

    model = load(kind, name, where)
    for method in ("model_validate", *methods):
        if not callable(getattr(model, method, None)):
            expected = f"a pydantic model of its options with {' and '.join(methods)} was expected"
            raise InputError(f"{find(kind, name)}: {expected}; {method} is missing", where=where, hint="see docs/PLUGINS.md")
    # Checked before pydantic, which by default drops unknown options.
    for option in options:
        if option not in model.model_fields:
            raise ValueError(f"{name} has no option {option!r}; its options: {', '.join(model.model_fields) or 'none'}")
    try:
        return model.model_validate(dict(options))
    except pydantic.ValidationError as error:
        raise ValueError("; ".join(_faults(error, model))) from None


def _faults(error: ValidationError, model: Any) -> Iterator[str]:
    """Yield the faults of options in the words of a config's messages, without pydantic's links."""
    is_hidden = model.model_config.get("hide_input_in_errors", False)
    for fault in faults_of(error):
        # A fault of the whole would show all options, with any key or password among them.
        shown = "" if is_hidden or not fault.place or fault.type == "missing" else f"; found {fault.input!r}"[:200]
        yield f"{fault.place and f'{fault.place}: '}{fault.msg.removeprefix('Value error, ')}{shown}"


# --- their files ----------------------------------------------------------------------------------------


def imported() -> dict[str, Path]:
    """Return the files of the plug-ins that this process has loaded and imported, by their path in records."""
    packages = set[str]().union(*(plugin.packages for plugin in _loaded.values()))
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in packages]
    files = {str(file) for module in modules if (file := getattr(module, "__file__", None))}
    bases = {name: base for name in packages if (base := _base(name))}
    return {_named(Path(file), bases): Path(file) for file in sorted(files)}


def _named(file: Path, bases: Mapping[str, Path]) -> str:
    base = next((base for base in bases.values() if file.is_relative_to(base)), file.parent)
    return f"{PLACE}{file.relative_to(base).as_posix()}"


def _base(package: str) -> Path | None:
    """Return the folder of a top-level module, found without importing it; None where there is none."""
    import importlib.util

    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if found is None:
        return None
    places = [Path(each) for each in found.submodule_search_locations or ()] or [Path(found.origin or ".")]
    return places[0].parent


def is_file_of_plugin(path: str) -> bool:
    """Return True for a plug-in file's path in records."""
    return path.startswith(PLACE)


def located(root: Path, path: str) -> Path:
    """Return the path on this machine of a file in a record: in the project, or where a plug-in is installed."""
    name = path.removeprefix(PLACE)
    if not is_file_of_plugin(path) or ".." in name.split("/"):  # a stranger's record may name any file
        return root / path
    base = _base(name.partition("/")[0].removesuffix(".py"))
    return (base or root / PLACE) / name
