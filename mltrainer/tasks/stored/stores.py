"""The stores that fsspec reaches: the file system of an address, and its errors in messages that name the address."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mltrainer.errors import InputError, MltrainerError
from mltrainer.workspace import machine_faults

BRING = "bring it back, or change data.source"


def store_of(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it.

    Raises:
        InputError: fsspec, or its package for this kind of address, is not installed, or the address is not valid.
    """
    if "::" in address:
        hint = "name the file itself, or bring it here"
        raise InputError("an address of several steps, joined by `::`; one step was expected", where=address, hint=hint)
    try:
        import fsspec
    except ImportError as error:
        hint = "pip install 'mltrainer[data]'"
        raise InputError("an address is reached by fsspec, which is not installed", where=address, hint=hint) from error
    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        package = backend_of(address)
        hint = f"pip install {package}" if package else "install what it names"
        raise InputError(f"not reachable by fsspec: {error}", where=address, hint=hint) from error
    except Exception as error:
        raise _unanswered(error, address) from error
    return found


def backend_of(address: str) -> str | None:
    """Return the package by which fsspec reaches an address, such as s3fs; None where it needs none, or knows no such kind."""
    from fsspec.registry import known_implementations

    kind = known_implementations.get(address.partition("://")[0], {"class": "fsspec"})
    package = str(kind["class"]).partition(".")[0]
    return None if package == "fsspec" else package


def is_folder_here(address: str) -> bool:
    """Return True if an address names a folder or file of this machine's."""
    return address.startswith(("file:", "local:"))


@contextlib.contextmanager
def answering(address: str, bring: str = BRING) -> Iterator[None]:
    """Name the address in a store's errors, whose types differ by the kind of store; of a folder here they are the machine's."""
    try:
        with machine_faults(address) if is_folder_here(address) else contextlib.nullcontext():
            yield
    except MltrainerError:
        raise
    except FileNotFoundError as error:
        raise InputError("no such file", where=address, hint=bring) from error
    except Exception as error:
        raise _unanswered(error, address) from error


def _unanswered(error: Exception, address: str) -> InputError:
    hint = "check the address, the network and what the store asks for, such as keys in the environment, then type it again"
    return InputError(f"fsspec failed with {type(error).__name__}: {error}", where=address, hint=hint)
