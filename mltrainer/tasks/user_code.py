"""The user's module: imported from the project, its failures reported by file and line."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from mltrainer import plugins
from mltrainer.errors import InputError, MltrainerError, did_you_mean, notes_of
from mltrainer.workspace import is_of_machine

if TYPE_CHECKING:
    from mltrainer.tasks.task import Task

PACKAGE = Path(__file__).resolve().parents[1]


def user_frame(error: BaseException, root: Path) -> str | None:
    """Return `file:line` of the innermost frame in the project, or None where no frame is the user's.

    Args:
        error: The error.
        root: The project's folder.
    """
    # A file that was never run has no frame in the traceback.
    if isinstance(error, SyntaxError) and error.filename and _is_users(Path(error.filename), root):
        return f"{Path(error.filename).relative_to(root).as_posix()}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_users(Path(f.filename), root)]
    return f"{Path(frames[-1].filename).relative_to(root).as_posix()}:{frames[-1].lineno}" if frames else None


def is_of_layers(error: BaseException) -> bool:
    """Return True where the layers of a library's model, called by a task, raised an error outside of the user's lines."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(PACKAGE)]
    return bool(ours) and ours[-1].name == "forward" and Path(ours[-1].filename) == PACKAGE / "tasks" / "task.py"


def user_line(root: Path, frame: FrameType | None = None) -> str | None:
    """Return `file:line` of the innermost call in the project, or None.

    Args:
        root: The project's folder.
        frame: The innermost call that is looked at; None: the current one.
    """
    frame = frame or sys._getframe(1)
    while frame is not None:
        if _is_users_file(frame.f_code.co_filename, root):
            return f"{Path(frame.f_code.co_filename).relative_to(root).as_posix()}:{frame.f_lineno}"
        frame = frame.f_back
    return None


@functools.cache
def _is_users_file(name: str, root: Path) -> bool:
    return _is_users(Path(name), root)


def _is_users(path: Path, root: Path) -> bool:
    foreign = {".venv", "venv", "site-packages", "dist-packages"}
    return (
        path.is_relative_to(root) and not foreign.intersection(path.relative_to(root).parts) and not path.is_relative_to(PACKAGE)
    )


@contextlib.contextmanager
def user_code(root: Path, what: str) -> Iterator[None]:
    """Turn errors of the user's code into an `InputError` with file and line.

    Args:
        root: The project's folder.
        what: The action, for the message.
    """
    try:
        yield
    except MltrainerError:
        raise
    # SystemExit too: sys.exit() in the user's module would end the run without naming its place.
    except (Exception, SystemExit) as error:
        if is_of_machine(error):
            raise
        text = getattr(error, "msg", None) if isinstance(error, SyntaxError) else str(error)
        raise InputError(
            f"{what}: {type(error).__name__}: {text}{notes_of(error)}",
            where=user_frame(error, root),
            hint="fix your code, then type the same command again",
        ) from error


def make_task(use: str, options: dict[str, Any], root: Path) -> Task:
    """Return the user's task, made from its options.

    Args:
        use: "module.path:ClassName", or the name of a plug-in, as in `task.use`.
        options: Keyword arguments.
        root: The project's folder, from which the module is imported.

    Raises:
        InputError: The module cannot be imported, has no such task, or does not take these options; with the nearest names.
    """
    from mltrainer.tasks.task import Task  # here, because it imports torch, which not every tool uses

    found, (module_name, _, class_name) = import_class(use, root), use.partition(":")
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise _no_such_task(sys.modules[module_name], class_name, found) if class_name else _no_task(use)
    check_options(found, options, "task.options")
    with user_code(root, f"making {found.__name__}"):
        return found(**options)


def import_class(use: str, root: Path) -> Any:
    """Return the class of a task, of the project or a plug-in; None where its module has none of that name.

    Raises:
        InputError: The module cannot be imported.
    """
    class_name = use.partition(":")[2]
    return getattr(import_module(use, root), class_name, None) if class_name else plugins.load("tasks", use, "task.use")


def _no_task(name: str) -> InputError:
    message = f"{plugins.find('tasks', name)} is no class of mltrainer.Task"
    return InputError(message, where="task.use", hint="install a version of it that is")


def import_module(use: str, root: Path, where: str = "task.use") -> ModuleType:
    """Return the module of a "module.path:ClassName", imported from the project; `where` names the config's key.

    Raises:
        InputError: There is no such module, or it fails; the message has the nearest name, or the line.
    """
    name = use.partition(":")[0]
    # First on the path: an installed package of the same name must not take the place of the project's module.
    if str(root) not in sys.path[:1]:
        sys.path.insert(0, str(root))
    # A module that was written moments ago, as in a notebook, may not be in the import system's listing yet.
    importlib.invalidate_caches()
    _refuse_another_project(name, root, where)
    try:
        with user_code(root, f"importing {name}"):
            return importlib.import_module(name)
    except InputError as error:
        cause = error.__cause__
        # Only if the module itself is missing: a missing one that it imports is reported with its line.
        if isinstance(cause, ModuleNotFoundError) and cause.name and (name == cause.name or name.startswith(f"{cause.name}.")):
            hint = f"name one of your project's modules and a class in it, or write {name.replace('.', '/')}.py"
            what = f"there is no module {name!r} in {root.name}{_near_module(name, root)}"
            raise InputError(what, where=where, hint=hint) from cause
        raise


def _refuse_another_project(name: str, root: Path, where: str) -> None:
    """Refuse a module that this process has from elsewhere, although the project has one of that name.

    Raises:
        InputError: There is such a module; the message has the file that it came from.
    """
    top = name.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    has_own = (root / f"{top}.py").is_file() or (root / top).is_dir()
    if file is not None and has_own and not Path(file).resolve().is_relative_to(root.resolve()):
        hint = "use one process (a notebook's kernel) per project"
        raise InputError(f"{top!r} was imported from {file} before, not from {root.name}", where=where, hint=hint)


def _near_module(name: str, root: Path) -> str:
    modules = [".".join(p.relative_to(root).with_suffix("").parts) for p in [*root.glob("*.py"), *root.glob("*/*.py")]]
    return did_you_mean(name, modules)


def _no_such_task(module: ModuleType, name: str, found: Any) -> InputError:
    from mltrainer.tasks.task import Task

    tasks = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, Task) and v is not Task]
    what = f"has no {name!r}" if found is None else f"has {name!r}, but it is no mltrainer.Task"
    hint = f"write the name of one behind {module.__name__}:" if tasks else "write a class of mltrainer.Task there"
    return InputError(f"{module.__name__} {what}; its tasks are: {', '.join(tasks) or 'none'}", where="task.use", hint=hint)


def check_options(kind: Callable[..., Any], options: Mapping[str, Any], where: str, is_whole: bool = True) -> None:
    """Refuse options that a class or a function does not take, and the lack of one that it needs.

    Args:
        kind: The class or the function.
        options: Keyword arguments.
        where: The config's key.
        is_whole: False where others are given later, so that missing ones are not refused.

    Raises:
        InputError: An option is unknown or missing; the message has the nearest name, or the missing ones.
    """
    parameters = inspect.signature(kind).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    known = [name for name, p in parameters.items() if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for name in options:
        if name not in known:
            raise InputError.unknown("option", name, known, of=f"of {kind.__name__}", where=where)
    lacking = [name for name in known if parameters[name].default is inspect.Parameter.empty and name not in options]
    if lacking and is_whole:
        raise InputError(f"{kind.__name__} needs the options {', '.join(lacking)}", where=where, hint="add them to its options")
