"""A run's result: the source of the phases' records, reports and gates."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from mltrainer.checkpointing.format import Tree
from mltrainer.checkpointing.ranking import best_row
from mltrainer.checkpointing.weights import delivered, weights_sha256, weights_tree_sha256
from mltrainer.errors import GateError, is_out_of_memory
from mltrainer.follow.log import differences_found
from mltrainer.records.common import FileRow
from mltrainer.records.run import Chain, CheckpointRow, Memory, MemoryParts, Precision, Replay, Taught
from mltrainer.redaction import redact
from mltrainer.reproducibility import determinism, seeds
from mltrainer.reproducibility.code import imported_files
from mltrainer.tasks.builtin import BuiltinTask
from mltrainer.tasks.structures import tensors_in
from mltrainer.trainers import result as parts
from mltrainer.trainers.native.costs import costs
from mltrainer.trainers.native.evaluation import evaluate, measured, writes
from mltrainer.trainers.native.optimization.precision import choose
from mltrainer.trainers.native.session import Session
from mltrainer.trainers.native.signals.tokens import token_findings
from mltrainer.trainers.native.stages import Outcome
from mltrainer.workspace import OF_MANY, plain


def build_result(session: Session, outcome: Outcome, started: float) -> dict[str, Any]:
    """Return a run's result; its metrics are those of the best checkpoint, measured again after reading it from the disk.

    Args:
        session: The process's session.
        outcome: The outcome of the training.
        started: The value of `time.perf_counter()` when the process began.
    """
    # Before the checkpoints are verified: that loads the best one's weights into the model, whose digest is taken here.
    trained = {**_identity(session), **_data(session)}
    code = imported_files(session.root)
    tree = weights_tree_sha256(session.model.state_dict(), threads=session.config.threads)
    checked_at = time.perf_counter()
    checkpoints, shown = verify_checkpoints(session)
    now = time.perf_counter()
    optional: parts.Row = {
        **({"delivered_sha256": found} if (found := session.trainer.delivered_sha256) else {}),
        **({"forgotten": len(left_out.rows)} if (left_out := session.task.forgotten) is not None else {}),
        **({"processes": session.ranks.size} if session.ranks.size > 1 else {}),
        **({"splits": [*splits]} if (splits := session.trainer.splits) else {}),
        **({"skipped": outcome.skipped} if outcome.skipped is not None else {}),
        **({"replay": repeated} if (repeated := _replay(session)) is not None else {}),
        **({"ledger": Chain(entries=end.entries, head=end.value)} if (end := session.checkpoints.ledger_end()).entries else {}),
    }
    return parts.built(
        session.job,
        code_files=code,
        head=session.trainer.recorder.head,
        **trained,
        **_course(session, outcome),
        **_quality(session),
        checkpoints=checkpoints,
        **_costs(session, outcome, now - started, now - checked_at),
        **shown,
        **optional,
        weights_tree_sha256=tree,
        signals=session.reporter.signals(outcome.seen),
        earlier_s=session.earlier_s,
        opened=_opened(session, code),
    )


def _identity(session: Session) -> parts.Row:
    config = session.config
    return {
        "numerics_class": session.numerics_class,
        "determinism": determinism.read_back(config.device),
        "precision": Precision(**dataclasses.asdict(choose(config.precision, config.device))),
        "libraries": session.libraries,
        "weights_sha256": weights_sha256(session.model.state_dict()),
        "init_sha256": session.init_sha256,
        "draws": session.draws,
        "rehearsal": session.rehearsal,
    }


def _data(session: Session) -> parts.Row:
    """Return the counts of samples, with planning's record of the data if the job asks for it."""
    return {
        "data_sha256": session.task.data_sha256,
        "data": _facts(session) if session.facts else None,
        "train_samples": len(session.task.split("train")),
        "measured_samples": session.trainer.measured_samples(),
    }


def _facts(session: Session) -> dict[str, Any]:
    """Return planning's record of the data, with the model's starting weights and findings on its tokens."""
    start = session.task.start
    facts = copy.deepcopy(session.facts) | ({"start": start.written()} if start is not None else {})
    facts["findings"] += [one._asdict() for one in (*session.copies, *session.setup_findings)]
    if session.ranks.size > 1 and not isinstance(session.task.task, BuiltinTask):
        # A model split among processes answers only in all of them together.
        return {**facts, "not_looked_at": [*facts["not_looked_at"], "shifts and padding of tokens: several processes train"]}
    try:
        found = token_findings(session.task, session.model, session.config)
    except Exception as error:
        # The user's loss gets targets that training never has, and may refuse them.
        if isinstance(error, OSError) or is_out_of_memory(error):
            raise
        facts["not_looked_at"].append(f"shifts and padding of tokens: {type(error).__name__}: {redact(str(error))}")
        return facts
    facts["findings"] += [one._asdict() for one in found]
    return facts


def _course(session: Session, outcome: Outcome) -> parts.Row:
    trainer, plan = session.trainer, session.plan
    cut_short = outcome.reason == "epochs" and trainer.step < plan.steps
    return {
        "stop_reason": "max_steps" if cut_short else outcome.reason,
        "steps": trainer.step,
        "epochs": plan.place(trainer.step)[0] + 1 if trainer.step else 0,
        "planned_steps": plan.steps,
        "planned_epochs": plan.epochs,
        "batch_size": plan.batch_size,
        "accumulate": plan.accumulate,
        "interruptions": session.earlier_causes + outcome.interruptions,
        "first_divergence": outcome.divergence,
        "nonfinite": outcome.nonfinite,
    }


def _replay(session: Session) -> Replay | None:
    """Return the steps that all processes of the run computed twice; None if no process did, nor was asked to."""
    asked, compared = session.config.replay, session.earlier_compared + len(session.repeats.compared)
    found = Replay(every=None if asked is None else asked.every, compared=compared, differed=differences_found(session.folder))
    return found if asked or found.compared or found.differed else None


def _quality(session: Session) -> parts.Row:
    trainer = session.trainer
    return {
        "history": trainer.history,
        "best": best_row(trainer.history, session.config.metric),
        "final": trainer.history[-1] if trainer.history else None,
        "layers": trainer.layers,
        "groups": trainer.stepper.groups,
        "first_loss": trainer.recorder.first_loss,
        "parameters": session.task.strategies.size(session.model),
    }


def _costs(session: Session, outcome: Outcome, wall_s: float, verify_s: float) -> parts.Row:
    timings = session.trainer.recorder.timings
    measured = {"train": outcome.train_s, "evaluate": outcome.evaluate_s, "checkpoint": outcome.checkpoint_s, "verify": verify_s}
    return {
        "time_s": {"setup": wall_s - sum(measured.values()), **measured},
        "wall_s": session.earlier_s + wall_s,
        "step_time_us": timings.summary(),
        "step_pace_us": timings.pace_us(session.readers),
        "shortest_step_us": timings.shortest_us(),
        "memory": _memory(session),
        "gpu": session.gpu.summary(),
    }


def _opened(session: Session, code: Sequence[dict[str, Any]]) -> list[FileRow] | None:
    """Return the files that the training opened besides its code and its data; None if opened files were not recorded."""
    if session.opened is None:
        return None
    found = session.opened.rows([*(row["path"] for row in code), *(row.path for row in session.task.files)])
    session.opened.end()
    return found


def _memory(session: Session) -> Memory:
    device = session.config.device
    on_device = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else None
    total = torch.cuda.get_device_properties().total_memory / 2**20 if device == "cuda" else None
    found = Memory(peak_rss_mb=parts.peak_rss_mb(), device_peak_mb=on_device, device_total_mb=total)
    return found.model_copy(update={"parts": _memory_parts(session)}) if session.job.purpose == "probe" else found


def _memory_parts(session: Session) -> MemoryParts:
    """Return the memory of model and optimizer in this process; each storage counts once."""
    stepper = session.trainer.stepper
    own = stepper.partition.own.values()
    states = [tensor for entry in stepper.optimizer.state.values() for tensor in tensors_in(entry)]
    return MemoryParts(
        weights_mb=_held_mb([*session.model.parameters(), *own]),
        buffers_mb=_held_mb(session.model.buffers()),
        gradients_mb=_held_mb(p.grad for p in own if p.grad is not None),
        optimizer_mb=_held_mb(states),
        start_mb=session.start_mb,
    )


def _held_mb(tensors: Iterable[torch.Tensor]) -> float:
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values()) / 2**20


def verify_checkpoints(session: Session) -> tuple[list[CheckpointRow], dict[str, Any]]:
    """Read the kept checkpoints back from the disk, and measure the best one again.

    Returns:
        One row per checkpoint, and for the best model `evaluation` (confusion matrix or residuals) and `errors`. A checkpoint is
        `verified` only if its files match and, for the best one, its step is the run's best step and the measured metrics equal
        the recorded ones bit for bit.
    """
    shown: dict[str, Any] = {}
    if session.job.purpose != "train":
        return [], shown
    rows, described = [], best_row(session.trainer.history, session.config.metric)
    for row in session.checkpoints.rows(session.root):
        try:
            tree, _ = session.checkpoints.load(row.step)
        except GateError:
            rows.append(row)
            continue
        verified = tree["step"] == row.step
        if "best" in row.roles:
            same, shown = _measure_again(session, tree)
            verified = verified and same and row.step == (described and described.step)
        rows.append(row.model_copy(update={"verified": verified}))
    return rows, shown


def _measure_again(session: Session, tree: Tree) -> tuple[bool, dict[str, Any]]:
    trainer, task = session.trainer, session.task
    session.model.load_state_dict(delivered(tree), strict=True)
    samples, hold = task.split("validation"), writes(task.task, "evaluation")
    found = measured(task, session.model, samples, "validation", hold=hold)
    recorded = next(row.validation for row in trainer.history if row.step == tree["step"])
    evaluation = task.task.evaluation(found.outputs, found.targets) if hold else None
    session.model.eval()
    # Compared as text: a float's text is exact, and NaN equals itself as text.
    same = repr(found.metrics) == repr(recorded)
    is_alone = session.job.phase not in OF_MANY
    taught = _taught(session, tree) if is_alone else {}
    if not isinstance(task.task, BuiltinTask):
        return same, {"evaluation": evaluation, **taught}
    errors = task.task.errors(found.outputs, found.targets, np.asarray(samples.ids)) if hold and is_alone else None
    return same, {"evaluation": {**(evaluation or {}), **task.task.shown(session.model)} or None, "errors": errors, **taught}


def _taught(session: Session, tree: Tree) -> dict[str, Any]:
    """Return the record of the teacher, measured on the same samples as the model that learned from it; {} without a teacher."""
    task, config = session.task, session.config
    if (followed := task.strategies.teacher()) is None:
        return {}
    about_teacher, teacher = followed
    with seeds.kept():
        model = task.task.model()  # the task's own, which is delivered, and not one that a strategy changed
    model.load_state_dict(delivered(tree), strict=True)
    task.strategies.load_state_dict(tree.get("strategies", {}))  # the teacher's state at this checkpoint
    own, of_teacher = costs(task, config, [model.to(config.device), teacher])
    metrics = evaluate(task.task, teacher, config, task.split("validation"), "validation").metrics
    found = {"teacher": about_teacher, "metrics": plain(metrics), "cost": of_teacher, "own_cost": own}
    return {"taught": Taught(**found, untaught_sha256=task.untaught_sha256)}
