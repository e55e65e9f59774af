"""`python -P -m mltrainer.gates.apart`: one check of a team's own, in a process that can harm nothing but itself.

In, on standard input: the function's name, the evidence and the settings, as JSON. Out, on standard output: what the function
returned, as JSON, and nothing else; what the team's code prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any


def main() -> None:
    """Answer the question on standard input."""
    asked = json.load(sys.stdin)
    answer = os.dup(1)
    os.dup2(2, 1)  # so that a print of the team's code is no part of the answer
    sys.path.append(str(Path.cwd()))
    module, _, name = asked["check"].partition(":")
    function = getattr(importlib.import_module(module), name)
    found = function(frozen(asked["evidence"]), frozen(asked["settings"]))
    told = json.dumps(thawed(found), allow_nan=False).encode()
    with os.fdopen(answer, "wb") as file:
        file.write(told)


def frozen(value: Any) -> Any:
    """Return plain data of which nothing can be changed: mappings that are read-only, tuples for lists."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: frozen(item) for key, item in value.items()})
    return tuple(frozen(item) for item in value) if isinstance(value, list | tuple) else value


def thawed(value: Any) -> Any:
    """Return frozen data as what JSON can be made of."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in value.items()}
    return [thawed(item) for item in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    main()
