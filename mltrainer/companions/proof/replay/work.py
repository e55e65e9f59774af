"""The process of an audit, a dispute or a referee: a session goes on from a run's checkpoints, or weights are measured."""

from __future__ import annotations

from pathlib import Path

from mltrainer.companions.proof.replay.scoring import scored
from mltrainer.companions.proof.replay.segments import audited
from mltrainer.companions.proof.replay.step import disputed
from mltrainer.records.job import AuditJob, DisputeJob, ScoreJob
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.tools.program import Events, StopSignals
from mltrainer.trainers.native.session import Session
from mltrainer.trainers.native.spikes import spike_row
from mltrainer.workspace import write_json


def work(job: AuditJob | DisputeJob | ScoreJob, root: Path, events: Events) -> int:
    """Do a job, and write what was found to `result.json` in its folder.

    Raises:
        InputError: The disputed step cannot be compared.
        StoppedError: A signal stopped it.
        GateError: A checkpoint is damaged.
    """
    folder = root / job.folder
    if isinstance(job, ScoreJob):
        write_json(folder / RESULT_FILE, scored(job, root).written())
        return 0
    saved = root / job.saved
    session = Session(job, folder, events, StopSignals(events), root)
    # The last spike of a run that had too many left no step out.
    session.spikes = [spike_row(one) for one in job.spikes if one.first is not None]
    session.prepare()
    # Before the first step: the run's own files are the records, and these steps are compared with them.
    session.trainer.recorder.keep_nothing()
    found = audited(session, job, saved) if isinstance(job, AuditJob) else disputed(session, job, saved)
    write_json(folder / RESULT_FILE, found.written())
    session.task.close()
    return 0
