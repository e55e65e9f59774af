"""`mltrainer claim`."""

from __future__ import annotations

from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Folder, group, one_of, open_project
from mltrainer.cli.output import emit, say

app = group()


@app.command(epilog='Example: mltrainer claim "Dropout helps" --least 0.01')
def claim(
    hypothesis: Annotated[str | None, typer.Argument(metavar="TEXT", help="The hypothesis, in words.")] = None,
    least: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="The least mean improvement of the metric over the baseline.")
    ] = None,
    metric: Annotated[str | None, typer.Option(metavar="NAME", help="The metric (default: the project's).")] = None,
    direction: Annotated[
        str | None, typer.Option(metavar="max|min", parser=one_of(("max", "min")), help="Which values are better.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="Seeds of the comparison (default: as the gate asks for).")
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Say beforehand what the search is to reach over the baseline; without TEXT, show the claim and its answer.

    It is written to claim.json and sealed; the next `phase run planning` binds it: make it before the first baseline.
    Optimization compares the best config with the baseline on at least these seeds. Its report and finalization's answer in
    their first lines: it holds, does not hold, or is undecided. A claim that was made, changed or removed after a baseline is
    called so, and not answered. Every earlier baseline, search or finalization of the project counts, on any data or split, and
    also if it failed or was deleted: phases/tried_runs.txt names it.
    """
    from mltrainer.errors import InputError
    from mltrainer.gates.claims import CLAIM_FILE, MAKE, read_claim
    from mltrainer.project.claim import answered, make_claim
    from mltrainer.reports.claims import answer_text, asked

    project = open_project(folder)
    if hypothesis is None:
        found, fixed = answered(project), read_claim(project)
        if as_json:
            emit({"claim": fixed and fixed.written(), "answer": found and found.written()})
        elif found is not None:
            say(f"{found.verdict}: {answer_text(found)}")
        elif fixed is not None:
            say(f"{fixed.hypothesis}: {asked(fixed)}; not answered yet: mltrainer run")
        else:
            say(f"no claim was made: {MAKE}")
        return 0
    if least is None:
        raise InputError(expected="the least improvement that counts", found="none", where="--least", hint=MAKE)
    made, known = make_claim(project, hypothesis, least, seeds, metric, direction)
    if as_json:
        emit({"claim": made.written(), "known": known})
        return 0
    say(f"{made.hypothesis}: {asked(made)}, by the {made.rule} at level {made.level}")
    if known:
        say(f"numbers are known already ({known[0]}): the reports will say so, and will not answer the claim")
    say(f"written to {CLAIM_FILE}; next: git add {CLAIM_FILE} && git commit -m Claim, then mltrainer run")
    return 0
