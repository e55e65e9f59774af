"""Objects described by options: `class_path` and `init_args`, as in LightningCLI, or `_target_`, as in Hydra.

A named class is imported, like the task's own, and instantiated; nothing else is called.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from mltrainer.errors import InputError
from mltrainer.tasks.user_code import check_options, import_module, user_code

Maker = Callable[[], Any]
DOTTED = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+")
BASES = (nn.Module, Optimizer, LRScheduler, Dataset)
HYDRA = ("_target_", "_args_", "_partial_", "_convert_", "_recursive_")


def maker_of(given: Any, where: str, own: str) -> Maker:
    """Return a function that makes a new object from an option's description; classes are imported now.

    Args:
        given: Value of the option: plain values, with descriptions of objects anywhere in them.
        where: Key of the config.
        own: Top package of the project's module, any class of which may be named.

    Raises:
        InputError: A description names no allowed class, or options that the class does not take.
    """
    if isinstance(given, Mapping) and ("class_path" in given or "_target_" in given):
        return _object_maker(given, where, own)
    if isinstance(given, Mapping):
        makers = {key: maker_of(value, f"{where}.{key}", own) for key, value in given.items()}
        return lambda: {key: make() for key, make in makers.items()}
    if isinstance(given, list):
        items = [maker_of(value, f"{where}.{number}", own) for number, value in enumerate(given)]
        return lambda: [make() for make in items]
    return lambda: given


def _object_maker(given: Mapping[str, Any], where: str, own: str) -> Maker:
    key, keywords, is_partial = _described(given, where)
    kind = _class_of(given[key], f"{where}.{key}", own)
    # An optimizer is made of a model's parameters, a scheduler of an optimizer: without these it is made later.
    lacks = (issubclass(kind, Optimizer) and "params" not in keywords) or (
        issubclass(kind, LRScheduler) and "optimizer" not in keywords
    )
    is_partial = is_partial or (key == "class_path" and lacks)
    values, positional = maker_of(keywords, where, own), maker_of(given.get("_args_", []), where, own)
    if is_partial:
        check_options(kind, keywords, where, is_whole=False)
        return lambda: functools.partial(kind, *positional(), **values())
    if not given.get("_args_"):
        check_options(kind, keywords, where)

    def made() -> Any:
        with user_code(Path.cwd(), f"making {kind.__name__}"):
            return kind(*positional(), **values())

    return made


def _described(given: Mapping[str, Any], where: str) -> tuple[str, dict[str, Any], bool]:
    """Return the key that names the class, the keywords, and whether a partial is requested.

    Raises:
        InputError: The description has unknown keys.
    """
    if "_target_" in given:
        return "_target_", {key: value for key, value in given.items() if key not in HYDRA}, bool(given.get("_partial_"))
    others = [key for key in given if key not in ("class_path", "init_args")]
    if others or not isinstance(given.get("init_args", {}), Mapping):
        what = f"beside class_path, init_args (a mapping) was expected, found {', '.join(others) or 'another value'}"
        raise InputError(what, where=where, hint="write the class's keyword arguments under init_args")
    return "class_path", dict(given.get("init_args", {})), False


def _class_of(name: Any, where: str, own: str) -> type:
    """Return the class of a dotted name.

    Raises:
        InputError: The name is not a class's, or the class is not allowed.
    """
    if not isinstance(name, str) or not DOTTED.fullmatch(name):
        hint = 'write it as "package.file.Class"; names that begin with an underscore are not taken'
        raise InputError(f"{name!r} names no class", where=where, hint=hint)
    module_name, _, class_name = name.rpartition(".")
    cls = getattr(import_module(f"{module_name}:", Path.cwd(), where), class_name, None)
    if not isinstance(cls, type):
        what = f"{name} is a {type(cls).__name__}, and classes alone are made" if cls is not None else f"there is no {name}"
        raise InputError(what, where=where, hint="name a class, or make the object in your module's __init__")
    if not (issubclass(cls, BASES) or _is_own(cls, own)):
        what = f"{name} is no class of your project, and no Module, Optimizer, LRScheduler or Dataset of PyTorch"
        raise InputError(what, where=where, hint="name such a class, or make the object in your module's __init__")
    return cls


def _is_own(kind: type, own: str) -> bool:
    """Return True for a class of a file of the project, or of the package that the module is from."""
    file = Path(getattr(sys.modules[kind.__module__], "__file__", None) or "/").resolve()
    is_in_project = file.is_relative_to(Path.cwd().resolve()) and "site-packages" not in file.parts
    return is_in_project or kind.__module__.partition(".")[0] == own
