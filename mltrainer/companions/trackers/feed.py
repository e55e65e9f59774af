"""A run's files in a tracker's form: config, numbers of steps and evaluations, machine usage, texts and files."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mltrainer.companions.trackers.sink import Param, Point
from mltrainer.configs.loading import flatten
from mltrainer.configs.project import is_opaque
from mltrainer.follow.log import Log, ShownEvaluation, known, slim
from mltrainer.follow.steps import Steps
from mltrainer.follow.usage import Usage
from mltrainer.gates.gate import Gate
from mltrainer.records.partial import partial
from mltrainer.records.run import RunResult
from mltrainer.redaction import scan_text
from mltrainer.runs.contract import ERROR_FILE, JOB_FILE, RESULT_FILE
from mltrainer.workspace import PHASES, Project, read_if_whole, sha256_file

MOST = 500  # steps in one call, so that no call to a tracker takes long
USAGE_EVERY_S = 2.0
DIGESTS = ("config_sha256", "data_sha256", "code_sha256", "environment_sha256")
OF_AN_EVALUATION = ("epoch", "lr", "train_loss", "samples_per_s", "data_wait", "clipped", "seconds", "memory_mb")
GROUPS = ("train", "validation", "terms")  # groups of an evaluation's numbers; terms: the parts of the steps' loss
SHOWN_FILES = (".md", ".svg", ".json", ".yaml")


@dataclass(frozen=True)
class Sent:
    """The part of a run that a tracker has.

    Attributes:
        id: The tracker's id of the run; None before its start.
        step: The last sent step.
        row: Step of the last sent evaluation.
        back: The number of times that the run had gone back at a spike.
        files: Digests of the files, by name.
    """

    id: str | None = None
    step: int = 0
    row: int = 0
    back: int = 0
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TrackedJob:
    """The entries of a run's job that trackers show."""

    phase: str | None = None
    config: dict[str, Any] | None = None
    contract: dict[str, str] | None = None
    parent: str | None = None


class Feed:
    """A run's files, followed as they grow.

    Args:
        project: The project.
        run: The run.
        every_n_steps: Distance between sent steps.
    """

    def __init__(self, project: Project, run: str, every_n_steps: int = 1) -> None:
        self.folder, self._every = project.runs_dir / run, every_n_steps
        self._job = known(TrackedJob, read_if_whole(self.folder / JOB_FILE))
        self._config = dict(self._job.config or {})
        self._steps, self._log = Steps(self.folder), Log(self.folder, slim)
        self._usage = Usage(self.folder / "lock", str(self._config.get("device")))
        self._used_at = -USAGE_EVERY_S

    @property
    def name(self) -> str:
        """The project's name."""
        return str(self._config.get("name"))

    @property
    def phase(self) -> str:
        """The phase that trains the run."""
        return str(self._job.phase)

    def params(self) -> dict[str, Param]:
        """Return the config by dotted key, without values that look like secrets."""
        return {key: param(key, value) for key, value in flatten(self._config).items() if not key.startswith("tracking")}

    def tags(self) -> dict[str, str]:
        """Return the run's id, phase, digests and parent, and after its end the digest of its weights."""
        result = read_if_whole(self.folder / RESULT_FILE)
        digests = {**(self._job.contract or {}), **result}
        named = {key: str(digests[key]) for key in (*DIGESTS, "weights_sha256", "weights_tree_sha256") if digests.get(key)}
        parent = {"parent": str(self._job.parent)} if self._job.parent else {}
        spans = [f"{first} to {last}" for first, last in dict.fromkeys(self._log.left_out)]
        left_out = {"left_out": f"steps {', '.join(spans)}"} if spans else {}
        return {"run": self.folder.name, "phase": self.phase, **named, **parent, **left_out}

    def state(self) -> str:
        """Return the state of an ended run: its result's, else "failed" or "interrupted"."""
        return self._result.state or _without_result(self.folder)

    @property
    def _result(self) -> RunResult:
        return partial(RunResult, read_if_whole(self.folder / RESULT_FILE))

    def poll(self) -> None:
        """Read the files' new lines."""
        self._steps.poll()
        self._log.poll()

    def after(self, sent: Sent) -> tuple[list[Point], Sent]:
        """Return the points behind those sent, of `MOST` steps, and the state once they are sent; equal when there are none."""
        now, left_out = time.time(), self._log.left_out
        for first, _ in left_out[sent.back :]:
            # The evaluations in these steps are made again. The steps are not: the tracker keeps those that it has.
            sent = replace(sent, step=min(sent.step, first - 1), row=min(sent.row, first - 1))
        # From the first recorded step: a fork's is not 1, and a range before it would be empty.
        steps = self._steps.exact(sent.step + 1, max(sent.step + 1, self._steps.first) + MOST - 1)
        rows = [row for row in self._rows() if row.step > sent.row]
        taken = [one for one in steps if not any(first <= one[0] <= last for first, last in left_out)]
        chosen = [(nr, loss, norm) for nr, loss, norm in taken if nr % self._every == 0 or nr == self._steps.first]
        points = [Point(nr, now, self._of_step(loss, norm)) for nr, loss, norm in chosen]
        points += [Point(row.step, now, numbers(row)) for row in rows]
        last, row = steps[-1][0] if steps else sent.step, rows[-1].step if rows else sent.row
        return points, replace(sent, step=last, row=row, back=len(left_out))

    def _of_step(self, loss: float, norm: float) -> dict[str, float]:
        """Return the numbers of a step; the norm of a program's is not among them."""
        return {"step/loss": loss} if is_opaque(self._config) else {"step/loss": loss, "step/grad_norm": norm}

    def _rows(self) -> list[ShownEvaluation]:
        """Return the evaluations; for a program, which has no event log, its result's."""
        if not is_opaque(self._config):
            return self._log.rows
        return [known(ShownEvaluation, vars(row)) for row in self._result.history]

    @property
    def last(self) -> int:
        """The last step that the run has written."""
        return self._steps.last

    def usage(self) -> list[Point]:
        """Return the machine's usage by the run's process now, as one point, at most every `USAGE_EVERY_S`; else none."""
        now = time.monotonic()
        if now - self._used_at < USAGE_EVERY_S or (sample := self._usage.sample()) is None:
            return []
        self._used_at = now
        busy = {} if sample.processors is None else {"system/processors": sample.processors}
        gpus = {f"system/gpu{nr}_{key}": float(value) for nr, gpu in enumerate(sample.gpus) for key, value in asdict(gpu).items()}
        return [Point(max(self.last, 0), time.time(), {"system/memory_mb": sample.memory_mb, **busy, **gpus})]


def numbers(row: ShownEvaluation) -> dict[str, float]:
    """Return the numbers of an evaluation by the names that trackers show."""
    own = {key: value for key in OF_AN_EVALUATION if not _is_nan(value := getattr(row, key))}
    groups = {f"{group}/{key}": value for group in GROUPS for key, value in getattr(row, group).items()}
    return {key: float(value) for key, value in {**own, **groups}.items() if value is not None}


def _is_nan(value: Any) -> bool:
    """Return True where a record's value is NaN, which JSON has as text."""
    return isinstance(value, float | str) and math.isnan(float(value))


def param(key: str, value: Any) -> Param:
    """Return a config's value in a tracker's form; a value that looks like a secret is left out."""
    if isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    return "[removed]" if scan_text(json.dumps({key: value}), "") else text


def verdicts(gates: Sequence[Gate]) -> dict[str, str]:
    """Return the verdict of each gate whose phase has run, as tags."""
    return {f"gate.{gate.phase}": _verdict(gate) for gate in gates if gate.record is not None}


def _verdict(gate: Gate) -> str:
    if gate.holds:
        return "skipped" if gate.skipped else "holds"
    if gate.stale:
        return "stale"
    return f"does not hold: {', '.join(item.id for item in gate.failing)}"


def files_upto(project: Project, phase: str) -> Iterator[tuple[str, Path, str]]:
    """Yield reports, figures and records of the phases up to one: name, path, digest."""
    for name in PHASES[: PHASES.index(phase) + 1]:
        for path in sorted(project.phase_dir(name).glob("[!.]*")):
            if path.suffix in SHOWN_FILES and path.is_file():
                yield project.relative(path), path, sha256_file(path)


def _without_result(folder: Path) -> str:
    return "failed" if (folder / ERROR_FILE).exists() else "interrupted"
