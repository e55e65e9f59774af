"""`mltrainer verify-case FILE`: a disputed operator computed again by a third party, in seconds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, group, path_name
from mltrainer.cli.output import emit, say
from mltrainer.companions.proof.findings import Recomputed
from mltrainer.errors import InputError
from mltrainer.executors.sandbox import CPU_FILES, Isolation, Limits, interpreter_paths, run, unavailable

LIMITS = Limits(seconds=600, memory=1 << 38, output=1 << 22)  # chosen by us: an operator takes seconds

app = group()
RIGHT = {
    "here": "the party that wrote the case is right: the output is the same",
    "there": "the other party is right: the output is the same",
    "neither": "the output is neither party's",
}


@app.command(name="verify-case", epilog="Example: mltrainer verify-case case.safetensors")
def verify_case(
    file: Annotated[Path, typer.Argument(metavar="FILE", parser=path_name, help="The case that a dispute wrote.")],
    as_json: AsJson = False,
) -> int:
    """Compute a disputed operator again and say which party is right; exit 5 if the output is neither party's.

    It needs no project. Nothing of the file is executed: it names one of PyTorch's own operators, and holds its arguments.
    """
    found = recomputed(file)
    emit({**found.written(), "right": found.right}) if as_json else say(text(found))
    return 5 if found.right == "neither" else 0


def recomputed(file: Path) -> Recomputed:
    """Return a case computed again in a process of its own, closed off where this machine can: the file may be a stranger's.

    Raises:
        InputError: The file is no case, or its operator cannot be computed.
    """
    path, hint = file.resolve(), "ask for the file that mltrainer reproduce --dispute wrote"
    if not path.exists():
        raise InputError("no such file", where=str(file), hint=hint)
    command = [sys.executable, "-P", "-m", "mltrainer.companions.proof.replay.cases", str(path)]
    isolation = Isolation((*interpreter_paths(), *CPU_FILES, str(path))) if unavailable() is None else None
    ended = run(command, b"", LIMITS, Path("/"), isolation)
    answer = json.loads(ended.out) if ended.code == 0 and ended.out.startswith(b"{") else {}
    if "error" in answer or not answer:
        message = answer.get("error") or f"its operator ended the process with exit code {ended.code}: {ended.last_words}"
        raise InputError(message, where=str(file), hint=hint)
    return Recomputed.model_validate(answer)


def text(found: Recomputed) -> str:
    """Return the answer for the terminal."""
    case = found.case
    lines = [
        f"{case.operator}, operator {case.number} of step {case.step} of run {case.run}: {RIGHT[found.right]}",
        *(f"  {name:<11}{' '.join(outputs)}" for name, outputs in _parties(found).items()),
        "  compare the inputs with those of this operator in both parties' operators.json",
    ]
    now = {"numerics": found.numerics_class, **found.libraries}
    then = {"numerics": case.numerics_class, **case.libraries}
    lines += [
        f"  this machine differs: {name}: {then.get(name)} -> {now.get(name)}" for name in now if now[name] != then.get(name)
    ]
    return "\n".join(lines)


def _parties(found: Recomputed) -> dict[str, list[str]]:
    return {"inputs": found.case.inputs, "here": found.case.here, "there": found.case.there, "recomputed": found.outputs}
