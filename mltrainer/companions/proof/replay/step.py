"""One step of a run taken again, with each of its operators."""

from __future__ import annotations

from pathlib import Path

from mltrainer.companions.proof.findings import CASE_FILE, Case, StepTrace
from mltrainer.companions.proof.replay.cases import write_case
from mltrainer.companions.proof.replay.operators import Operators, StepOperators
from mltrainer.companions.proof.replay.resuming import go_back, train_until
from mltrainer.errors import InputError
from mltrainer.records.job import DisputeJob
from mltrainer.reproducibility import fingerprint
from mltrainer.trainers.native.session import Session


def disputed(session: Session, job: DisputeJob, saved: Path) -> StepTrace:
    """Take a job's step again and return its operators; one that the job names is written to `case.safetensors`.

    Raises:
        InputError: A step before it differs already, a spike left it without an update, or the model is compiled, so that no
            operator of it is seen.
        StoppedError: A signal stopped it.
    """
    if session.config.compile:
        hint = "plan with compile=false, and dispute the same step of that run"
        raise InputError("a compiled model does not show its operators", where="compile", hint=hint)
    step, trainer = job.disputed_step, session.trainer
    if spikes := [one.step for one in job.spikes if one.step == step or one.leaves_out(step)]:
        what = f"step {step} changed nothing, because of the spike in step {spikes[0]}"
        raise InputError(what, hint=f"dispute a step with an update, or train all again: mltrainer reproduce {job.run}")
    begin = max((saved_at for saved_at in job.compared if saved_at < step), default=trainer.step)
    if begin > trainer.step:
        go_back(session, begin, saved)
    if begin < step - 1 and (found := train_until(session, step - 1).divergence) is not None:
        raise InputError(f"the earlier step {found.step} already differs ({found.what})", hint=f"dispute step {found.step}")
    operators = Operators(job.case_of)
    observer = StepOperators(step, operators)
    trainer.observers = [*trainer.observers, observer]
    train_until(session, step)
    if job.case_of is not None and job.case_of < len(operators.rows):
        write_case(session.folder / CASE_FILE, _case(session, job, operators), operators.arguments, operators.results)
    chain = fingerprint.read(saved / fingerprint.CHAIN_FILE)
    claimed = next((line.split() for line in chain if line.startswith(f"{step} ")), [])
    return StepTrace(
        run=job.run,
        step=step,
        chain_head=chain[-1].rpartition(" ")[2],
        numbers=observer.numbers,
        claimed=" ".join(claimed[2:4]),
        numerics_class=session.numerics_class,
        operators=operators.rows,
    )


def _case(session: Session, job: DisputeJob, operators: Operators) -> Case:
    assert job.case_of is not None
    kept = operators.rows[job.case_of]
    return Case(
        run=job.run,
        step=job.disputed_step,
        number=job.case_of,
        operator=kept.name,
        threads=job.threads,
        inputs=kept.inputs,
        here=kept.outputs,
        there=job.there,
        numerics_class=session.numerics_class,
        libraries=session.libraries,
    )
