"""`mltrainer verify-case FILE`: a disputed operator computed again by a third party, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, group, path_name
from mltrainer.cli.output import emit, say
from mltrainer.companions.proof.findings import Recomputed

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
    from mltrainer.companions.proof.replay.cases import recomputed

    found = recomputed(file)
    emit({**found.written(), "right": found.right}) if as_json else say(text(found))
    return 5 if found.right == "neither" else 0


def text(found: Recomputed) -> str:
    """Return the answer for the terminal."""
    case = found.case
    lines = [
        f"{case.operator}, operator {case.number} of step {case.step} of run {case.run}: {RIGHT[found.right]}",
        *(f"  {name:<11}{' '.join(outputs)}" for name, outputs in _parties(found).items()),
    ]
    if found.numerics_class != case.numerics_class:
        lines.append(f"  this machine has different numerics: {case.numerics_class} -> {found.numerics_class}")
    return "\n".join(lines)


def _parties(found: Recomputed) -> dict[str, list[str]]:
    return {"here": found.case.here, "there": found.case.there, "recomputed": found.outputs}
