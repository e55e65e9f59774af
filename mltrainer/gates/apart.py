"""`python -P -m mltrainer.gates.apart`: one check of a team's own, in a process that can harm nothing but itself.

In, on standard input: the function's name, the evidence and the settings, as JSON. Out, on standard output: what the function
returned, as JSON, and nothing else; what the team's code prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path

from pydantic_core import to_jsonable_python

from mltrainer.records.envelope import adapter


def main() -> None:
    """Answer the question on standard input."""
    asked = json.load(sys.stdin)
    answer = os.dup(1)
    os.dup2(2, 1)  # so that a print of the team's code is no part of the answer
    sys.path.append(str(Path.cwd()))
    module, _, name = asked["check"].partition(":")
    function = getattr(importlib.import_module(module), name)
    try:
        found = function(adapter(asked["phase"]).validate_python(asked["evidence"]), asked["settings"])
        told = json.dumps(to_jsonable_python(found), allow_nan=False).encode()
    except Exception as error:
        traceback.print_exc()
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")  # on one line, which is what the gate shows
    with os.fdopen(answer, "wb") as file:
        file.write(told)


if __name__ == "__main__":
    main()
