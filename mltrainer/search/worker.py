"""A process that trains one run after the other: torch is imported once, and each run has the bits of a fresh process.

It reads a line for each run, `{"nr": ..., "job": PATH}`, and reports the end of each, `{"nr": ..., "reason": null or text}`;
`beat` in between is its sign of life, with the run's progress. The result is in the run's folder.

Of several processes that train a run together, the first one reports; another one does where it fails.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError, MltrainerError, OutOfMemoryError, StoppedError, is_out_of_memory
from mltrainer.records.job import JobBase, TrainingJob
from mltrainer.tools.program import EXIT_CODES, Events, StopSignals, explained, own_rank
from mltrainer.trainers import run_job_of
from mltrainer.workspace import read_json

BEAT_S = 1.0
PLACE = ("epoch", "epochs", "step", "steps", "steps_per_s")


class Beats(Events):
    """Sends the training's progress at most once a second, in place of each event.

    Args:
        descriptor: The file descriptor of the pipe's write end.
        rank: The rank of this process, from 0; only the first one sends them.
    """

    def __init__(self, descriptor: int, rank: int = 0) -> None:
        super().__init__(descriptor, rank)
        self._at = 0.0
        self._state: dict[str, Any] = {}

    def send(self, event: str, **values: Any) -> None:
        """Take in an event's progress, and send a `beat` where one is due."""
        self._state = {} if event == "start" else {**self._state, **_known(**values)}
        if time.monotonic() - self._at >= BEAT_S:
            self._at = time.monotonic()
            super().send("beat", **self._state)


def _known(validation: Mapping[str, Any] | None = None, metric: str = "", **values: Any) -> dict[str, Any]:
    """Return the progress in an event: the run's place and rate, and the metric of an evaluation."""
    found = {key: values[key] for key in PLACE if key in values}
    return found if validation is None else {**found, "value": validation[metric]}


def work(_job: JobBase, root: Path, events: Events) -> None:
    """Train the runs that standard input names, until it ends.

    Args:
        _job: The study's job, not that of a run.
        root: The project's folder.
        events: The sender to which the ends are reported.

    Raises:
        StoppedError: A signal stopped a run; its state is saved.
    """
    stop, rank = StopSignals(events), own_rank()
    beats, ends = Beats(int(sys.argv[2]), rank), Events(int(sys.argv[2]))
    for line in sys.stdin:
        order = json.loads(line)
        reason = _trained(Path(order["job"]), root, beats, stop)
        if rank == 0 or reason is not None:
            ends.send("end", nr=order["nr"], reason=reason)


def _trained(path: Path, root: Path, beats: Beats, stop: StopSignals) -> str | None:
    """Train one run, and return the reason of a failure by its config or the user's code; None where it was trained."""
    try:
        job = TrainingJob.model_validate(read_json(path))
        result = run_job_of(job.tool)(job, root, beats, stop, is_launched=True)
    except (InputError, OutOfMemoryError) as error:
        return _message(error)
    # A full disk, for example, is no fault of the trial: the next ones would fail, too, so that it ends the search.
    except MltrainerError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            return f"out of memory: {_message(error)}"
        fault = explained(error, root, path.parent)
        if not isinstance(fault, InputError):
            raise
        return _message(fault)
    if result is not None and result.stop_reason == "signal":
        cause = result.interruptions[-1].cause
        raise StoppedError(f"stopped by {cause}", exit_code=EXIT_CODES[cause], hint="type the same command again to go on")
    return None


def _message(error: Exception) -> str:
    return str(error).partition("\n")[0]
