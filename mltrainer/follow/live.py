"""The progress of a running search: the file in which another terminal finds it, and its text in both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltrainer.errors import InputError
from mltrainer.reports.values import measured, time_left
from mltrainer.workspace import read_json

if TYPE_CHECKING:
    from mltrainer.records.event import Running, Study

LIVE_FILE = "live.json"
STUDIES = "studies"


def running_study(state_dir: Path, begun: Path) -> Study | None:
    """Return the last event of the running study; None where it has sent none yet.

    Args:
        state_dir: The project's `.mltrainer` folder.
        begun: The file that was written when the phase began; an older event belongs to an earlier study that was killed.
    """
    from mltrainer.records.event import Study  # imported late: only a running search needs its model

    try:
        times = {path: path.stat().st_mtime for path in state_dir.glob(f"{STUDIES}/*/{LIVE_FILE}")}
        newest = max(times, key=lambda path: times[path], default=None)
        return (
            None
            if newest is None or times[newest] < begun.stat().st_mtime
            else Study.model_validate({"event": "study", **read_json(newest)})
        )
    except (InputError, FileNotFoundError, TypeError, ValueError):  # it ended meanwhile
        return None


def study_words(study: Study) -> list[str]:
    """Return the progress of a study in words: the time left, the best trial so far and its values, as far as known."""
    words = [time_left(study.left_s)] if study.left_s is not None else []
    best = study.best
    if best is None:
        return words
    values = ", ".join(f"{key}={short(value)}" for key, value in best.values.items())
    return [*words, f"best {str(study.metric).replace('_', ' ')} {short(best.value)} of trial {best.nr}", values]


def study_text(study: Study) -> str:
    """Return the progress of a study, in a line."""
    return "; ".join([f"{study.done} of {study.planned} {study.what}", *study_words(study)[:2]])


def running_words(run: Running, metric: str) -> list[str]:
    """Return the progress of a running trial: epoch, metric of its last evaluation, steps per second, as far as known."""
    words = [f"epoch {short(run.epoch)}/{run.epochs}"] if run.epoch is not None else ["starts"]
    words += [f"{metric.replace('_', ' ')} {short(run.value)}"] if run.value is not None else []
    rate = run.steps_per_s
    return [*words, f"{rate:.0f} steps/s"] if isinstance(rate, int | float) and rate > 0 else words


def short(value: Any) -> str:
    """Return a value in short form; a text unchanged."""
    return measured(value) if isinstance(value, float) else str(value)
