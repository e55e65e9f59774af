"""`mltrainer reproduce RUN --segments SHARE`: a random part of a run trained again from its checkpoints, compared bit for bit."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from mltrainer.checkpointing.ranking import best_row
from mltrainer.cli.common import tools
from mltrainer.cli.output import show
from mltrainer.companions.proof.committed import TOOL, CommittedRun, committed_run
from mltrainer.companions.proof.findings import Audit, Missed, Replay, SegmentReplay
from mltrainer.companions.proof.segments import Segment, drawn, fewest_forged, miss_probability, segments
from mltrainer.configs.project import Metric
from mltrainer.errors import InputError
from mltrainer.records.common import Difference, Metrics
from mltrainer.records.job import AuditJob
from mltrainer.records.run import Run
from mltrainer.reports.terminal import table
from mltrainer.reports.values import counted, duration
from mltrainer.reports.values import share as percent
from mltrainer.runs.find import find_run
from mltrainer.runs.launcher import Tools
from mltrainer.runs.recorded import keep_out_of_git
from mltrainer.runs.reproduce import known_differences
from mltrainer.workspace import Project, canonical, locked

ENDS = ("epochs", "early_stopping")  # which the replay can judge; a signal or a number that was not finite is no claim
ENDED = {"epochs": "is over", "early_stopping": "is stopped by early stopping", "": "would go on"}
FORGED_SHARES = (0.01, 0.05, 0.1, 0.25, 0.5)  # for which the answer has the probability of a miss


def audited(
    folder: Path | None, run: str | None, share: float, nonce: str | None, checkpoints: Path | None, as_json: bool
) -> int:
    """Audit a run, print the answer, and return the exit code."""
    with tools(folder) as running:
        answer = audit(running, find_run(running.project, run), share, nonce, checkpoints)
    show(answer, text, as_json)
    return 0 if answer.holds else 5


def audit(tools: Tools, run: str, share: float, nonce: str | None = None, checkpoints: Path | None = None) -> Audit:
    """Train a share of a run's steps again, and compare chain, weights, whole state and metrics.

    Args:
        tools: The project's tools.
        run: The run's id.
        share: The share of the steps between the first and the last segment, above 0 and at most 1; these two are always trained.
        nonce: The auditor's text, which the author must not have known; None: a random one.
        checkpoints: The folder with the run's chain, ledger and checkpoints; None: the run's own.

    Raises:
        InputError: The run has no ledger, or its files are not there.
        GateError: One of the run's files was changed.
    """
    project = tools.project
    nonce = secrets.token_hex(8) if nonce is None else nonce
    folder = project.state_dir / "audits" / run
    committed = committed_run(project, run, folder, checkpoints and checkpoints.absolute())
    every = segments(committed.begun, committed.checkpoints, committed.result.steps)
    if not every:
        raise InputError(f"run {run} has no step after step {committed.begun}", hint="mltrainer runs show " + run)
    chosen = drawn(every, share, committed.commitment.sha256, nonce)
    differences = known_differences(project, committed.result)
    keep_out_of_git(project)
    with locked(folder.with_suffix(".lock"), f"the audit of {run}"):
        shutil.rmtree(folder, ignore_errors=True)
        replay = Replay.model_validate(tools.run(TOOL, _job(project, committed, chosen, folder)))
    return _answer(committed, every, replay, nonce, [*differences, *_elsewhere(committed.result, replay)])


def _job(project: Project, committed: CommittedRun, chosen: list[Segment], folder: Path) -> AuditJob:
    trained = {step for one in chosen for step in range(one.begin + 1, one.end + 1)}
    evaluated = {row.step for row in committed.result.history}
    best = committed.result.best.step if committed.result.best is not None else None
    return AuditJob.model_validate(
        {
            **committed.replayed(project, folder),
            "segments": [(one.begin, one.end) for one in chosen],
            "measured": sorted(evaluated & {*committed.checkpoints} - trained),
            "best": best if best in committed.checkpoints else None,
        }
    )


def _elsewhere(result: Run, replay: Replay) -> Iterator[Difference]:
    """Yield the differences that only the process that trained could see: other samples, other arithmetic."""
    for kind, what, expected, found in (
        ("data", "samples and splits", result.data_sha256, replay.data_sha256),
        ("environment", "numerics", result.numerics_class, replay.numerics_class),
    ):
        if expected != found:
            yield Difference(kind=kind, what=what, expected=expected[:12], found=found[:12])


def _answer(committed: CommittedRun, every: list[Segment], replay: Replay, nonce: str, differences: list[Difference]) -> Audit:
    result = committed.result
    unlike = [
        *_unlike(result, replay),
        *_unmeasured(result, replay),
        *_ends(committed, replay),
        *_summary(result, committed.job.config.metric),
    ]
    replayed = sum(one.end - one.begin for one in replay.segments)
    count = len(replay.segments)
    return Audit(
        run=result.id,
        identical=not unlike and all(one.first_divergence is None for one in replay.segments),
        record=committed.commitment.record,
        commit=committed.commitment.commit,
        commitment=committed.commitment.sha256,
        nonce=nonce,
        steps=result.steps - committed.begun,
        replayed=replayed,
        of_segments=len(every),
        segments=replay.segments,
        seconds=sum(one.seconds for one in replay.segments),
        recorded_seconds=result.time_s.get("train", 0.0),
        evaluations=len(result.history),
        measured=len({one.step for one in replay.evaluations}),
        unlike=unlike,
        checkpoints=len(committed.checkpoints),
        differences=differences,
        missed=[_missed(every, count, share) for share in FORGED_SHARES],
    )


def _missed(every: list[Segment], replayed: int, share: float) -> Missed:
    forged = fewest_forged(every, share)
    return Missed(share=share, segments=forged, probability=miss_probability(every, replayed, forged))


def _unlike(result: Run, replay: Replay) -> Iterator[str]:
    """Yield a sentence for each number of the run's history that was measured to be different."""
    claimed = {row.step: row for row in result.history}
    for one in replay.evaluations:
        row = claimed.get(one.step)
        if row is None:
            yield f"step {one.step}: the run has no evaluation there"
            continue
        yield from _sentences(one.step, "validation", row.validation, one.validation)
        if one.train is not None:
            yield from _sentences(one.step, "training samples", row.train, one.train)
        written = row.written()
        for name in (name for name, value in one.others.items() if canonical(written.get(name)) != canonical(value)):
            yield f"step {one.step}: {name} is not what the training gives"


def _unmeasured(result: Run, replay: Replay) -> Iterator[str]:
    """Yield a sentence for each claimed evaluation that the training does not make, and for a best one that nobody measured."""
    measured = {one.step for one in replay.evaluations}
    for row in result.history:
        if row.step not in measured and any(one.begin < row.step <= one.end for one in replay.segments):
            yield f"step {row.step}: the training makes no evaluation there"
    if result.best is not None and result.best.step not in measured:
        yield f"the claimed best evaluation, of step {result.best.step}, was not measured: there is no checkpoint of that step"


def _ends(committed: CommittedRun, replay: Replay) -> Iterator[str]:
    """Yield a sentence for each claimed digest of weights that is not that of the last segment, or of the best checkpoint."""
    result = committed.result
    for what, claimed, found in (
        ("the final weights are", result.weights_sha256, replay.weights_sha256),
        ("the final weights over chunks are", result.weights_tree_sha256, replay.weights_tree_sha256),
        ("the delivered weights are", committed.delivered_sha256, replay.delivered_sha256),
        ("the initial weights are", result.init_sha256, replay.init_sha256),
    ):
        if None not in (claimed, found) and claimed != found:
            yield f"{what} of sha256 {found:.12}, not {claimed:.12} as the run claims"
    if result.stop_reason in ENDS and replay.ended != result.stop_reason:
        yield f"after its last step the training {ENDED[replay.ended]}, and the run claims: {result.stop_reason}"


def _summary(result: Run, metric: Metric) -> Iterator[str]:
    """Yield a sentence for each number in a result's summary that its history does not have."""
    rows = {row.step: row for row in result.history}
    for what, one in (("best", result.best), ("last", result.final)):
        row = rows.get(one.step) if one is not None else None
        if one is not None and (row is None or repr((row.validation, row.train)) != repr((one.validation, one.train))):
            yield f"the {what} evaluation that it claims, of step {one.step}, is not in its history"
    best = best_row(result.history, metric)
    if best is not None and result.best is not None and best.step != result.best.step:
        yield f"the best evaluation is that of step {best.step}, not of step {result.best.step} as the run claims"
    if result.best is not None and repr(result.metrics) != repr(result.best.flat):
        yield "the metrics that it claims are not those of its best evaluation"


def _sentences(step: int, split: str, claimed: Metrics, measured: Metrics) -> Iterator[str]:
    for name in dict.fromkeys([*claimed, *measured]):
        one, other = claimed.get(name), measured.get(name)
        if repr(one) != repr(other):
            yield f"step {step}: {name} on {split} is {other}, not {one} as the run claims"


# --- in words -----------------------------------------------------------------------------------


def text(answer: Audit) -> str:
    """Return an audit's answer for the terminal."""
    verdict = "every bit that was compared is the same" if answer.identical else "NOT the same as recorded"
    parts = f"{counted(len(answer.segments), 'segment')} of {answer.of_segments}"
    steps = f"{answer.replayed} of {answer.steps} steps ({percent(answer.replayed / answer.steps)})"
    times = f"{duration(answer.seconds)}; all steps took {duration(answer.recorded_seconds)}"
    evaluations = f"{answer.measured} of {counted(answer.evaluations, 'evaluation')}"
    lines = [
        f"run {answer.run}: {verdict}",
        f"  trained again: {parts}, {steps} in {times}",
        f"  measured again: {evaluations}; {counted(answer.checkpoints, 'checkpoint')} compared with the ledger",
        f"  selected by nonce {answer.nonce} and {_committed(answer)}",
    ]
    lines += [_of_segment(one) for one in answer.segments if one.first_divergence is not None]
    lines += [f"  {sentence}" for sentence in answer.unlike]
    lines += [f"  {row.words}" for row in answer.differences]
    lines.append("  not compared: test numbers, exports, times; the code of the task is trusted: read it")
    return "\n".join([*lines, "", *_missed_in_words(answer)])


def _committed(answer: Audit) -> str:
    if answer.record is None:
        return "its result; no phase's record contains it, so the author can still change it"
    if answer.commit is None:
        return f"the record of {answer.record}, which is not committed: the author can still change it"
    return f"the record of {answer.record} in commit {answer.commit[:12]}"


def _of_segment(one: SegmentReplay) -> str:
    found = one.first_divergence
    assert found is not None
    where = f"steps {one.begin + 1} to {one.end}: first difference after step {found.step}, {found.what}"
    return f"  {where}: expected {found.expected}, found {found.found}"


def _missed_in_words(answer: Audit) -> list[str]:
    if not any(one.probability for one in answer.missed):
        return ["all segments were trained again, so that no forged one was missed"]
    rows = [[percent(one.share), str(one.segments), percent(one.probability)] for one in answer.missed]
    return [
        table(rows, ["forged share of the steps", "minimum of forged segments", "probability that this audit missed all of them"])
    ]
