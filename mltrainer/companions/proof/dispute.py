"""`mltrainer reproduce RUN --dispute STEP`: two parties whose steps differ find the first operator that differs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from mltrainer.cli.common import tools
from mltrainer.cli.output import show
from mltrainer.companions.proof.audit import audit
from mltrainer.companions.proof.committed import TOOL, committed_run
from mltrainer.companions.proof.findings import CASE_FILE, Dispute, Operator, StepTrace
from mltrainer.errors import InputError
from mltrainer.records.job import DisputeJob
from mltrainer.reproducibility.fingerprint import float_of
from mltrainer.runs.find import find_run
from mltrainer.runs.launcher import Tools
from mltrainer.runs.recorded import keep_out_of_git
from mltrainer.workspace import locked, read_json, write_json

FIRST = "first"
TRACE_FILE = "operators.json"
KINDS = {"operators": "name", "inputs": "inputs", "outputs": "outputs"}  # in this order: each decides the next
VERDICTS = {
    "operators": "the two parties run different operators: their code or their version of PyTorch differs",
    "inputs": "an input differs that no operator of this step computed, such as a weight: dispute the step before",
    "outputs": "equal inputs gave different outputs; to see who is right: mltrainer verify-case FILE",
}


def disputed(
    folder: Path | None, run: str | None, step: str, against: Path | None, checkpoints: Path | None, as_json: bool
) -> int:
    """Take a disputed step again, print what it came to, and return the exit code: 5 if it is not what the run claims."""
    with tools(folder) as running:
        answer = dispute(running, find_run(running.project, run), step, against, checkpoints)
    show(answer, text, as_json)
    return 0 if answer.numbers == answer.claimed and answer.kind is None else 5


def dispute(tools: Tools, run: str, step: str, against: Path | None = None, checkpoints: Path | None = None) -> Dispute:
    """Take a step of a run again and note its operators; with the other party's, find the first one that differs.

    Args:
        tools: The project's tools.
        run: The run's id.
        step: The step's number; `first`: the first one that differs from the run's chain.
        against: The other party's `operators.json` of that step; None: it is not here yet.
        checkpoints: The folder with the run's chain, ledger and checkpoints; None: the run's own.

    Raises:
        InputError: The run has no such step, no step differs, or the other party's file is of another step.
        GateError: One of the run's files was changed.
    """
    project = tools.project
    theirs = None if against is None else _theirs(against)
    number = _step(tools, run, step, checkpoints)
    folder = project.state_dir / "disputes" / f"{run}-{number}"
    committed = committed_run(project, run, folder, checkpoints and checkpoints.absolute())
    if not committed.begun < number <= committed.result.steps:
        message = f"run {run} has the steps {committed.begun + 1} to {committed.result.steps}, not {number}"
        raise InputError(message, where="--dispute", hint="name one of these, or: --dispute first")
    keep_out_of_git(project)
    with locked(folder.with_suffix(".lock"), f"the dispute on {run}"):
        shutil.rmtree(folder, ignore_errors=True)
        job = DisputeJob.model_validate({**committed.replayed(project, folder), "disputed_step": number})
        ours = _traced(tools, job)
        write_json(folder / TRACE_FILE, ours.written())
        return _answer(tools, job, ours, theirs)


def _step(tools: Tools, run: str, step: str, checkpoints: Path | None) -> int:
    if step != FIRST:
        return int(step)
    answer = audit(tools, run, 1.0, "", checkpoints)
    found = [one.first_divergence.step for one in answer.segments if one.first_divergence is not None]
    if not found:
        raise InputError(f"no step of run {run} differs here: there is nothing to dispute", hint="mltrainer reproduce " + run)
    if not min(found):
        message = f"the weights before the first step of run {run} differ here: there is no step to dispute"
        raise InputError(message, hint=f"mltrainer reproduce {run}, which names the tensor that differs")
    return min(found)


def _theirs(path: Path) -> StepTrace:
    try:
        return StepTrace.model_validate(read_json(path))
    except (InputError, ValidationError) as error:
        hint = "ask the other party for the operators.json that mltrainer reproduce --dispute wrote"
        raise InputError("it does not contain the operators of a step", where=str(path), hint=hint) from error


def _traced(tools: Tools, job: DisputeJob) -> StepTrace:
    return StepTrace.model_validate(tools.run(TOOL, job))


def first_unlike(ours: Sequence[Operator], theirs: Sequence[Operator]) -> tuple[int, str] | None:
    """Return the place of the first operator that differs, and its kind as in `Dispute`; None if none does."""
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return number, next(kind for kind, name in KINDS.items() if getattr(one, name) != getattr(other, name))
    return None if len(ours) == len(theirs) else (min(len(ours), len(theirs)), "operators")


def _answer(tools: Tools, job: DisputeJob, ours: StepTrace, theirs: StepTrace | None) -> Dispute:
    found = Dispute(
        run=ours.run,
        step=ours.step,
        numbers=ours.numbers,
        claimed=ours.claimed,
        operators=len(ours.operators),
        trace=f"{job.folder}/{TRACE_FILE}",
        verdict=_next(ours) if theirs is None else _agreed(ours),
    )
    if theirs is None:
        return found
    if (theirs.run, theirs.step, theirs.chain_head) != (ours.run, ours.step, ours.chain_head):
        message = f"the other party's operators are of step {theirs.step} of run {theirs.run}, or its chain differs"
        raise InputError(message, where="--against", hint=f"ask for mltrainer reproduce {ours.run} --dispute {ours.step}")
    unlike = first_unlike(ours.operators, theirs.operators)
    if unlike is None:
        return found
    number, kind = unlike
    longer = max(ours.operators, theirs.operators, key=len)
    case = _case(tools, job, number, theirs) if kind == "outputs" else None
    difference = {"kind": kind, "number": number, "operator": longer[number].name, "case": case, "verdict": VERDICTS[kind]}
    return found.model_copy(update=difference)


def _case(tools: Tools, job: DisputeJob, number: int, theirs: StepTrace) -> str:
    """Take the step once more, write the case of an operator, and return its path."""
    folder = tools.project.root / job.folder / "case"
    kept = {"case_of": number, "there": theirs.operators[number].outputs, "folder": tools.project.relative(folder)}
    _traced(tools, job.model_copy(update=kept))
    return tools.project.relative(folder / CASE_FILE)


# --- in words -----------------------------------------------------------------------------------


def _next(ours: StepTrace) -> str:
    command = f"mltrainer reproduce {ours.run} --dispute {ours.step}"
    ask = f"let the other party type {command}, and give its operators.json to the same command here, with --against FILE"
    # The chain has no number of what follows the gradients: only the operators show a difference of the optimizer.
    return ask if ours.numbers != ours.claimed else f"if the weights after it differ, {ask}"


def _agreed(ours: StepTrace) -> str:
    if ours.numbers == ours.claimed:
        return "both machines compute every operator of the step with the same bits, and so does the run"
    return "both machines compute the same bits, but the run's chain holds different values: they do not come from this step"


def text(answer: Dispute) -> str:
    """Return a dispute's answer for the terminal."""
    same = "the same" if answer.numbers == answer.claimed else "NOT the same"
    lines = [
        f"run {answer.run}, step {answer.step}: loss and gradient norm are {same} as in the run's chain",
        f"  claimed {_numbers(answer.claimed)}, here {_numbers(answer.numbers)}",
        f"  {answer.operators} operators: {answer.trace}",
    ]
    if answer.kind is not None:
        lines.append(f"  first difference: {answer.kind} of operator {answer.number}, {answer.operator}")
    lines += [f"  case: {answer.case}"] if answer.case else []
    return "\n".join([*lines, f"  {answer.verdict}"])


def _numbers(bits: str) -> str:
    return " and ".join(f"{float_of(one):.9g}" for one in bits.split()) or "none"
