"""How far a running search is: the file by which another terminal tells, and the words of both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError
from mltrainer.workspace import read_json

LIVE_FILE = "live.json"
STUDIES = "studies"


def running_study(state_dir: Path, begun: Path) -> dict[str, Any] | None:
    """Return the last event `study` of the running study; None where it has sent none yet.

    Args:
        state_dir: The project's `.mltrainer`.
        begun: The file that was written when the phase began; what a killed study left before is none of this one.
    """
    try:
        told = {path: path.stat().st_mtime for path in state_dir.glob(f"{STUDIES}/*/{LIVE_FILE}")}
        newest = max(told, key=lambda path: told[path], default=None)
        return None if newest is None or told[newest] < begun.stat().st_mtime else dict(read_json(newest))
    except (InputError, FileNotFoundError, TypeError, ValueError):  # it ended meanwhile
        return None


def study_words(state: Mapping[str, Any]) -> list[str]:
    """Return the progress of a study in words: the time left, the best trial so far and its values, where known."""
    words = [f"{_minutes(state['left_s'])} left"] if state.get("left_s") is not None else []
    best = state.get("best")
    if best is None:
        return words
    values = ", ".join(f"{key}={short(value)}" for key, value in best["values"].items())
    return [*words, f"best {state['metric'].replace('_', ' ')} {short(best['value'])} of trial {best['nr']}", values]


def study_text(state: Mapping[str, Any]) -> str:
    """Return the progress of a study, in a line."""
    return "; ".join([f"{state['done']} of {state['planned']} {state['what']}", *study_words(state)[:2]])


def running_words(one: Mapping[str, Any], metric: str) -> list[str]:
    """Return the progress of a running trial: epoch, the metric of its last evaluation, steps per second, where known."""
    words = [f"epoch {short(one['epoch'])}/{one['epochs']}"] if one.get("epoch") is not None else ["starts"]
    words += [f"{metric.replace('_', ' ')} {short(one['value'])}"] if one.get("value") is not None else []
    rate = one.get("steps_per_s")
    return [*words, f"{rate:.0f} steps/s"] if isinstance(rate, int | float) and rate > 0 else words


def short(value: Any) -> str:
    """Return a value with four digits at most."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
