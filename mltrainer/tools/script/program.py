"""One job of a program that trains by itself: run under observation in a copy of its folder, its result made of what was seen.

The program knows nothing of it. What it read, computed and left is told by digest; what only it could show stays empty, and the
gates' items that need it do not apply.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mltrainer
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import GateError, InputError, MltrainerError, StoppedError
from mltrainer.records.run import OUTPUTS, sealed
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.secrets import redact
from mltrainer.tools.program import EXIT_CODES, Events
from mltrainer.tools.script.history import Steps, first_nonfinite, history, steps_of
from mltrainer.tools.script.metrics import Told, ended_by, read_metrics
from mltrainer.tools.script.observed import Observed, data_of, observed, rows_of_paths
from mltrainer.tools.unseen import environment_of, switches
from mltrainer.workspace import digest, locked, plain, write_atomic, write_json
from mltrainer.wrap.checking import Check
from mltrainer.wrap.starting import Program

RESULT_FILE = "result.json"
SCRATCH, PRINTED = "scratch", "program.txt"
ERROR_FILE = "error.json"
PROBE = "probe"
NOTE_S = 10.0  # between two notes of how far a program is


def work(job: dict[str, Any], events: Events) -> None:
    """Run one job; the tool's entry point.

    Raises:
        MltrainerError: The program failed, or is not what was planned.
    """
    run_job(job, events, lambda: "SIGTERM" if events.listener_gone else None)


def run_job(job: dict[str, Any], events: Events, stop: Callable[[], str | None]) -> dict[str, Any]:
    """Run what a job describes and return its result, which is also written to `result.json`.

    Args:
        job: As the workflow writes it.
        events: Where progress goes.
        stop: Tells of a signal, where it does not end this process by itself.

    Raises:
        MltrainerError: The program failed, is not what was planned, or a signal stopped it: it begins anew then.
    """
    root = Path.cwd()
    folder = root / job["folder"]
    config = TrainingConfig.model_validate(job["config"])
    _put_first_on_path(Path(sys.executable).parent)
    with locked(folder / "lock", f"run {job['run']}"), _scratch(folder / SCRATCH) as scratch, _noting(folder / ERROR_FILE):
        _require_data(job, root)
        found = _ran(job, config, root, scratch, _pace(events, stop))
        _require_own_packages(found, f"task.script ({config.task.script})")
        result = _result(job, config, found, root, folder)
        if "trace_from" in job:
            result["cause"] = _cause(config, root, scratch / "cause", found.steps, events)
        if job.get("resumable") and config.task.resume is not None:
            result["program"]["resumed"] = _resumed(config, root, scratch / "resumed", events)
        result = sealed(result)
        write_json(folder / RESULT_FILE, result)
    return result


def _put_first_on_path(folder: Path) -> None:
    """Have `python` mean this interpreter, whose packages planning records."""
    before = os.environ.get("PATH", os.defpath)
    if before.partition(os.pathsep)[0] != str(folder):
        os.environ["PATH"] = f"{folder}{os.pathsep}{before}"


def _require_own_packages(found: Observed, command: str) -> None:
    """Refuse a program that ran on other packages than those that planning records.

    Raises:
        InputError: It did.
    """
    if found.judged.prefix and Path(found.judged.prefix).resolve() != Path(sys.prefix).resolve():
        told = f"it ran on the packages of {found.judged.prefix}; those of {sys.prefix}, where mltrainer is, are what is recorded"
        raise InputError(
            told, where=command, mend="install mltrainer where the program runs, or type `python` for its interpreter"
        )


@contextlib.contextmanager
def _scratch(path: Path) -> Any:
    """Give an empty folder, and remove it with all that the program left there."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _noting(path: Path) -> Any:
    """Write the error that ends a block to a file, by which the run is known to have failed."""
    path.unlink(missing_ok=True)
    try:
        yield
    except Exception as error:
        with contextlib.suppress(MltrainerError):
            write_json(path, {"error": str(error)})
        raise


def _require_data(job: dict[str, Any], root: Path) -> None:
    """Refuse data that is not what planning recorded; a reproduction finds out what becomes of it.

    Raises:
        GateError: A file is gone, or changed.
    """
    rows = job.get("data_files") or []
    if job["purpose"] == "reproduction":
        return
    for row, now in zip(rows, rows_of_paths([row["path"] for row in rows], root), strict=True):
        if now != row:
            raise GateError(
                f"the data is not what planning recorded: {row['path']} {'changed' if now['sha256'] else 'is gone'}",
                where=row["path"],
                mend="bring it back, or record the new data with `mltrainer phase run planning`",
            )


def _ran(job: dict[str, Any], config: TrainingConfig, root: Path, scratch: Path, on_step: Callable[[int], None]) -> Observed:
    """Run the program as the job asks, and keep what it printed."""
    is_disturbed = bool(job.get("fill_memory")) or job["purpose"] == "reproduction"
    try:
        return observed(_program(config, root), scratch, job.get("max_steps") or 0, is_disturbed, config.signals, on_step)
    finally:
        with contextlib.suppress(OSError):
            printed = (scratch / "run" / "log.txt").read_text("utf-8", errors="replace")
            write_atomic(scratch.parent / PRINTED, redact(printed).encode())


def _program(config: TrainingConfig, root: Path) -> Program:
    """Return what is run; what it is judged by, and what it delivers, it must write itself in every run."""
    assert config.task.metrics is not None
    return Program(config.task.command(config.seed), root, leaves=(config.task.metrics, *config.task.outputs))


def _pace(events: Events, stop: Callable[[], str | None]) -> Callable[[int], None]:
    """Return what tells how far a program has come, now and then, and ends it on a signal; how far it goes, only it knows."""
    first: tuple[int, float] | None = None
    last = time.monotonic()

    def tell(step: int) -> None:
        nonlocal first, last
        if (cause := stop()) is not None:
            mend = "type the same command again to start afresh"
            raise StoppedError(f"stopped by {cause}", exit_code=EXIT_CODES[cause], mend=mend)
        now = time.monotonic()
        first = first or ((step, now) if step else None)
        if first is not None and step > first[0] and now - last > NOTE_S:
            last = now
            events.send("note", text=f"step {step:,}, {(step - first[0]) / (now - first[1]):.3g} steps/s")

    return tell


# --- the result -----------------------------------------------------------------------------------


def _result(job: dict[str, Any], config: TrainingConfig, found: Observed, root: Path, folder: Path) -> dict[str, Any]:
    """Return a whole result: what was seen of the program, and nothing where nobody knows."""
    seen, is_whole = steps_of(found.signals, found.told), not job.get("max_steps")
    told = _told(config, found) if is_whole else []
    opened = data_of(found.judged, config.task.reads, root)
    outputs = _kept(config, found.place, folder / OUTPUTS, root) if is_whole else []
    chain, divergence = _chain(job, found, seen, root)
    bad = first_nonfinite(seen)
    rows = history(told, seen, found.steps)
    epochs = max(1, math.ceil(rows[-1]["epoch"]))
    result = {
        **_identity(job, config, found, root),
        "data_sha256": digest(_contracted(job, opened, root)),
        "data": _facts(config, opened) if job["purpose"] == PROBE else None,
        "state": "failed" if bad else "finished",
        "stop_reason": "nonfinite" if bad else "epochs" if is_whole else "max_steps",
        "steps": found.steps,
        "epochs": epochs,
        "planned_steps": found.steps,
        "planned_epochs": epochs,
        "batch_size": 0,
        "accumulate": 1,
        "train_samples": 0,
        "measured_samples": {},
        "chain": {"entries": chain.entries, "head": chain.value},
        "interruptions": [],
        "first_divergence": divergence,
        "nonfinite": {"step": bad[0], "epoch": epochs, "what": bad[1], "samples": []} if bad else None,
        **_quality(config, rows, told, seen),
        **_costs(found, seen),
        "program": {
            "command": found.command,
            "processes": found.processes,
            "evaluations": len(told),
            "losses": len(seen.losses),
            "outputs": outputs,
            "read": opened,
            "resumed": None,
        },
    }
    return dict(plain(result))


def _told(config: TrainingConfig, found: Observed) -> list[Told]:
    """Return the program's evaluations: those of its metrics file, and before one that only tells the end those of a callback."""
    assert config.task.metrics is not None
    rows = read_metrics(found.place / config.task.metrics, config.task.metrics, config.metric.name)
    return ended_by(found.evaluations, rows[0], found.steps) if len(rows) == 1 else rows


def _kept(config: TrainingConfig, place: Path, folder: Path, root: Path) -> list[dict[str, Any]]:
    """Keep the files that the program left, and return their rows.

    Raises:
        InputError: One is not there.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for name in config.task.outputs:
        if not (place / name).is_file():
            is_folder = (place / name).is_dir()
            told = f"the program left a folder {name}" if is_folder else f"the program left no file {name}"
            mend = "name each of its files" if is_folder else "let it write the file, or take the name away"
            raise InputError(told, where="task.outputs", mend=mend)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(place / name, folder / name)
    return rows_of_paths([str((folder / name).relative_to(root)) for name in config.task.outputs], root)


def _contracted(job: dict[str, Any], opened: list[dict[str, Any]], root: Path) -> list[dict[str, Any]]:
    """Return the data that names the run: what a probe opened, and of a run what planning's probe did."""
    planned = job.get("data_files")
    return opened if planned is None else rows_of_paths([row["path"] for row in planned], root)


def _identity(job: dict[str, Any], config: TrainingConfig, found: Observed, root: Path) -> dict[str, Any]:
    """What the run is, and what its bits are a function of."""
    now = {row["path"]: row["sha256"] for row in found.code}
    wanted = job.get("code_files") or []
    about = found.judged.about
    return {
        "schema": 1,
        **{key: job.get(key) for key in ("phase", "purpose", "parent", "gate")},
        "id": job["run"],
        **job["contract"],
        "numerics_class": environment_of(job),  # all that is known of its arithmetic
        "code_files": found.code,
        "code_as_contracted": all(now.get(row["path"], row["sha256"]) == row["sha256"] for row in wanted),
        "weights_sha256": found.weights_sha256,
        "init_sha256": "",
        "draws": {},
        "determinism": switches(config.model_dump()),
        "seed": config.seed,
        "device": config.device,
        "threads": job["threads"],
        "numerics": config.numerics,
        "precision": {"asked": config.precision, "chosen": config.precision, "reason": "left to the program"},
        "libraries": {"mltrainer": mltrainer.__version__, "Python": about.get("python", ""), "PyTorch": about.get("torch", "")},
        "rehearsal": {"samples": 0, "seconds": 0.0},
    }


def _facts(config: TrainingConfig, opened: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what planning records of the data: the files; which samples they hold, only the program knows."""
    sha256 = digest(opened)
    return {
        "sha256": sha256,
        "samples": 0,
        "source": config.task.script,
        "kind": "program",
        "files": opened,
        "fingerprinted": 0,
        "splits": {name: {"samples": 0, "sha256": sha256} for name in ("train", "validation", "test")},
        **dict.fromkeys(("classes", "class_counts", "columns", "target", "shape")),
        "findings": [*_findings(opened)],
        "duplicates_across_splits": 0,
    }


def _findings(opened: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    yield {"severity": "info", "what": "which samples train and which validate, only the program knows"}
    if not opened:
        told = "it was seen to open no file of data: name those that a library's C code opens in task.reads"
        yield {"severity": "warning", "what": told}


def _chain(job: dict[str, Any], found: Observed, seen: Steps, root: Path) -> tuple[fingerprint.Head, dict[str, Any] | None]:
    """Write the chain of fingerprints anew, and return its head and the first step that differs from a run's to compare with."""
    entries = []
    for entry in found.entries:
        ids = found.samples.get(entry.step, fingerprint.NO_IDS)
        norm, loss = seen.norms.get(entry.step, math.nan), seen.losses.get(entry.step, math.nan)
        bits = digest([entry.optimizer, entry.gradients, entry.weights, entry.whole])
        entries += [fingerprint.step_entry(entry.step, ids, loss, norm), fingerprint.weights_entry(entry.step, bits)]
    entries += [fingerprint.weights_entry(found.steps, other) for other in (*found.others, found.weights_sha256)]
    head, lines = fingerprint.extend(fingerprint.Head(), entries)
    path = root / job["folder"] / fingerprint.CHAIN_FILE
    path.unlink(missing_ok=True)
    fingerprint.append(path, lines)
    if job.get("compare") is None:
        return head, None
    return head, fingerprint.first_divergence(fingerprint.read(root / job["compare"] / fingerprint.CHAIN_FILE), lines)


def _quality(config: TrainingConfig, rows: list[dict[str, Any]], told: list[Told], seen: Steps) -> dict[str, Any]:
    """What was learned; judged by the end, because that is what the program leaves."""
    parts = ("epoch", "step", "validation", "train")
    last = {key: rows[-1][key] for key in parts} if told else None
    metrics = {**last["validation"], **{f"train_{name}": value for name, value in last["train"].items()}} if last else {}
    return {
        "metric": config.metric.model_dump(),
        "saved": config.checkpoint.model_dump(),
        "best": last,
        "final": last,
        "metrics": metrics,
        "history": rows,
        "layers": seen.names,
        "groups": [],
        "first_loss": seen.losses.get(1),
        "parameters": seen.parameters,
        "checkpoints": [],
        "evaluation": None,
    }


def _costs(found: Observed, seen: Steps) -> dict[str, Any]:
    """What it took."""
    times = [seen.times[step] for step in sorted(seen.times)]
    paces = [(after - before) / 1000 for before, after in itertools.pairwise(times)]
    paces = paces or [found.seconds / found.steps * 1e6]
    return {
        "time_s": {"train": found.seconds},
        "wall_s": found.seconds,
        "step_time_us": {"median": statistics.median(paces), "p95": sorted(paces)[int(0.95 * (len(paces) - 1))]},
        "step_pace_us": statistics.fmean(paces),
        "shortest_step_us": min(paces),
        "memory": {"peak_rss_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, "device_peak_mb": None},
        "gpu": None,
    }


# --- why, and whether it resumes ------------------------------------------------------------------


def _cause(config: TrainingConfig, root: Path, scratch: Path, steps: int, events: Events) -> dict[str, Any] | None:
    """Return why the program's steps do not repeat, as records hold it; None where they do now."""
    check = Check(_program(config, root), scratch, lambda event: events.send(**event))
    verdict = check.repeats(steps)
    if verdict.cause is None:
        return None
    cause, step = verdict.cause, verdict.difference.step if verdict.difference else 0
    calls = [{"kind": line.kind, "call": line.call, "where": line.where, "function": line.text} for line in cause.lines]
    return {"kind": cause.kind, "step": cause.step or step, "what": cause.shown or "the steps", "calls": calls}


def _resumed(config: TrainingConfig, root: Path, scratch: Path, events: Events) -> dict[str, Any]:
    """Return whether the program, killed in mid-run and gone on with, ends in the bits of the undisturbed run."""
    events.send("note", text="trained to its end, and once more killed and gone on with: does it end in the same bits?")
    check = Check(_program(config, root), scratch, lambda event: events.send(**event))
    found = dataclasses.asdict(check.resumes(config.task.resuming(config.seed)))
    return {key: found[key] for key in ("same", "steps", "killed_after", "went_on_after", "step", "what")}
