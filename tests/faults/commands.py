"""The commands that are disturbed, each with the project that it starts from; and what must hold afterwards."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from mltrainer.leftovers import TEMPORARY
from mltrainer.workspace import PHASES, Project, sha256_file
from tests.companions.serving.conftest import ROW, TABLE, deliver
from tests.faults.images import Disk
from tests.faults.injector import Call, Injector, calls
from tests.faults.worker import Ended, Worker, program
from tests.projects import results, write_rings

TASK = '''
import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset
import mltrainer


class Rings(mltrainer.Task):
    """Two rings that overlap; dropout draws in every step."""

    def samples(self):
        draws, ring = np.random.default_rng(7), np.arange(160) % 2
        angle, radius = draws.uniform(0, 6.28, 160), 1 + ring + draws.normal(0, 0.3, 160)
        points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
        return TensorDataset(torch.tensor(points, dtype=torch.float32), torch.tensor(ring))

    def model(self):
        return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def metrics(self, outputs, targets):
        return {"accuracy": (outputs.argmax(1) == targets).float().mean().item()}
'''
SEARCH = {
    "strategy": "random",
    "trials": 2,
    "lag": 1,
    "pruning": None,
    "space": {"optimizer.lr": {"log_uniform": [0.01, 0.05]}},
    "trial": {"epochs": 4},
}
FORGOTTEN, ANSWERED = (4, 5, 6), "answered"
SHORT = ("epochs=8", "early_stopping=null", "optimizer.lr=0.02", "checkpoint.every_n_epochs=3", "accumulate=2", "batch_size=32")
PLAN = ("phase", "run", "planning", *(word for one in SHORT for word in ("--set", one)))


def rings(case: Path, accuracy: str = ">= 0.7") -> None:
    """Write the project: with the given accuracy its baseline is deployed, with a higher one a search follows."""
    root = case / "project"
    root.mkdir(exist_ok=True)
    write_rings(root, TASK, task={"use": "my_task:Rings", "options": {}}, acceptance={"accuracy": accuracy})
    (root / "configs/tuning_template.yaml").write_text(yaml.safe_dump(SEARCH))


def ambitious(case: Path) -> None:
    """The same with a criterion that no model meets."""
    rings(case, ">= 0.999")


def emptied(case: Path) -> None:
    """Leave what a clone has."""
    shutil.rmtree(case / "project/.mltrainer")
    for path in (case / "project/phases/05_finalization/final_model").iterdir():
        if path.suffix in (".safetensors", ".onnx", ".pt2", ".pt"):  # as .gitignore names them
            path.unlink()


def rows_to_forget(case: Path) -> None:
    """Write the numbers of three training samples, as a person does who was asked to forget them."""
    (case / "project/rows.txt").write_text("".join(f"{number}\n" for number in FORGOTTEN))


def delivered(case: Path) -> None:
    """Write a delivered model, which is served."""
    deliver(case / "project/model", TABLE)


def served(case: Path) -> int:
    """Serve the model, ask it some times, and stop the server; return its exit code. What was answered is told."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    url = f"sqlite:///{case}/project/served.sqlite"
    server = os.fork()
    if server == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os._exit(program("serve", "model", "--allow-unchecked", "--port", port, "--database", url)())
    body = json.dumps({"rows": [ROW, ROW]}).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/predict", body, {"Content-Type": "application/json"})
    end, answers = time.monotonic() + 30, 0
    while answers < 3 and time.monotonic() < end and not os.waitid(os.P_PID, server, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        try:
            with urllib.request.urlopen(asked, timeout=10) as said:
                print(ANSWERED, json.loads(said.read())["id"], flush=True)
                answers += 1
        except (OSError, http.client.HTTPException) as error:
            answers += isinstance(error, urllib.error.HTTPError)  # it says so where it cannot keep an answer
            time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.kill(server, signal.SIGINT)
    code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
    if code < 0:
        os.kill(os.getpid(), -code)
    return code


def kept(case: Path, said: str) -> list[str]:
    """Return the answers that were sent and are not in the database."""
    answered = [line.split()[1] for line in said.splitlines() if line.startswith(ANSWERED)]
    if not answered:
        return []
    with contextlib.closing(sqlite3.connect(case / "project/served.sqlite")) as connection:
        found = {row[0] for row in connection.execute("SELECT id FROM served_predictions")}
    return [f"the answer {one} was sent and is not kept" for one in answered if one not in found]


@dataclass(frozen=True)
class Command:
    """A command to disturb.

    Attributes:
        name: Its row in the published table.
        after: The row whose end it starts from; empty: an empty folder.
        arguments: What is typed in the project's folder; `{case}` stands for the folder that holds project and store.
        write: Writes files before.
        run: In place of arguments: a function that does the work in a case's folder, and returns the exit code.
        check: Returns what of the folder contradicts what the command said.
        setup: Command lines that are typed before.
        once: Whether it is refused, with exit code 1, where its work is done.
        is_dated: Whether it writes the day, which another clock changes.
    """

    name: str
    after: str
    arguments: tuple[str, ...]
    write: Callable[[Path], None] = lambda _: None
    run: Callable[[Path], int] | None = None
    check: Callable[[Path, str], list[str]] = lambda _, __: []
    setup: tuple[tuple[str, ...], ...] = ()
    once: bool = False
    is_dated: bool = False

    def work(self, case: Path) -> Callable[[], int]:
        """Return what is done in a case's folder."""
        if self.run is not None:
            return partial(self.run, case)
        return program(*(word.replace("{case}", str(case)) for word in self.arguments))


WAIVE = ("gate", "waive", "optimization", "improvement_validated", "--reason", "a test")
COMMANDS = {
    row.name: row
    for row in (
        Command("init", "", ("init", "{case}/project", "--example", "digits"), once=True),
        Command("planning", "", PLAN, rings),
        Command("baseline", "planning", ("phase", "run", "baseline")),
        Command("baseline --processes 2", "planning", ("phase", "run", "baseline", "--processes", "2")),
        Command("diagnostics", "baseline", ("phase", "run", "diagnostics")),
        Command(
            "checkpoints export", "baseline", ("checkpoints", "export", "baseline", "--format", "safetensors", "--to", "out")
        ),
        Command("runs tag", "baseline", ("runs", "tag", "baseline", "--name", "first")),
        Command("finalization", "diagnostics", ("phase", "run", "finalization"), setup=(("phase", "run", "optimization"),)),
        Command("store push", "finalization", ("store", "push", "file://{case}/store")),
        Command("store pull", "store push", ("store", "pull", "file://{case}/store"), emptied),
        Command("registry add", "finalization", ("registry", "add", "rings", "--registry", "{case}/store")),
        Command(
            "registry promote",
            "registry add",
            ("registry", "promote", "rings:1", "--stage", "production", "--registry", "{case}/store"),
        ),
        Command(
            "optimization --workers 2",
            "",
            ("phase", "run", "optimization", "--workers", "2"),
            ambitious,
            setup=(PLAN, ("run", "--until", "diagnostics")),
        ),
        Command("gate waive", "optimization --workers 2", WAIVE, is_dated=True),
        Command("serve", "", (), delivered, served, kept),
        Command("checkpoints prune", "optimization --workers 2", ("checkpoints", "prune")),
        Command("forget", "finalization", ("forget", "--rows", "rows.txt"), rows_to_forget),
    )
}


@dataclass(frozen=True)
class Reference:
    """A command that was not disturbed.

    Attributes:
        before: A copy of the folder before it; `after`: behind it.
        files: The digest of each file behind it; None of one that is another each time.
        old: The phases' states before it; `new`: behind it.
        bits: What each run's training came to.
        ended: How it ended.
        calls: Its calls on files.
    """

    before: Path
    after: Path
    files: dict[str, str | None]
    old: dict[str, str]
    new: dict[str, str]
    bits: dict[str, Any]
    ended: Ended
    calls: list[Call]


def typed(worker: Worker, command: tuple[str, ...], case: Path) -> Ended:
    """Type a command line in a project's folder, undisturbed."""
    (case / "project").mkdir(exist_ok=True)
    return worker.run(program(*(word.replace("{case}", str(case)) for word in command)), case / "project")


def copied(source: Path | None, case: Path) -> None:
    """Put a copy of a folder in a case's place."""
    shutil.rmtree(case, ignore_errors=True)
    if source is None:
        (case / "project").mkdir(parents=True)
    else:
        shutil.copytree(source, case, symlinks=True)


def build(worker: Worker, injector: Injector, base: Path, command: Command) -> Reference:
    """Run a command twice undisturbed, once counting its calls, and keep what is before and behind it."""
    case, slug = base / "case", command.name.replace(" ", "_")
    before, after, log = base / f"{slug}.before", base / f"{slug}.after", base / f"{slug}.log"
    copied(base / f"{command.after.replace(' ', '_')}.after" if command.after else None, case)
    command.write(case)
    for line in command.setup:
        ended = typed(worker, line, case)
        assert "Traceback" not in ended.said, ended
    copied(case, before)
    old = states(worker, case)
    log.unlink(missing_ok=True)
    with injector.counting(case, log):
        ended = worker.run(command.work(case), case / "project")
    assert ended.code in (0, 4), ended
    assert not ended.hung, ended
    copied(case, after)
    first = digests(case)
    new, bits = states(worker, case), trained(case)
    copied(before, case)
    time.sleep(1.1)  # a file that holds the time, to the second, then differs, and is not compared
    again = worker.run(command.work(case), case / "project")
    assert again.code == ended.code, again
    second = digests(case)
    files = {path: first[path] if first[path] == second[path] else None for path in first.keys() & second.keys()}
    return Reference(before, after, files, old, new, bits, ended, calls(log))


# --- what is compared ---------------------------------------------------------------------------------


PERIODIC = "/checkpoints/step-"  # a run that was interrupted keeps the step at which it was; the gate asks for best and last
NOTES = "/opened/"  # a run's notes of the files it opened: read by nothing once its result is written
VOLATILE = ("log.txt", "store/manifest.json", "cache/", ".mltrainer/probe/", "__pycache__/", "store/objects/", ".git/")


def digests(case: Path) -> dict[str, str]:
    """Return the digest of each file below a case's folder, but for caches, locks, probes, and objects named by their content."""
    files = (path for path in sorted(case.rglob("*")) if path.is_file())
    named = {path.relative_to(case).as_posix(): path for path in files}
    return {
        name: sha256_file(path)
        for name, path in named.items()
        if not any(part in name for part in VOLATILE) and not name.endswith("lock")
    }


def states(worker: Worker, case: Path) -> dict[str, str]:
    """Return the phases' states as `status` tells them; empty where there is no project."""
    if not (case / "project/mltrainer.yaml").exists():
        return {}
    ended = typed(worker, ("status", "--json"), case)
    assert ended.code == 0, ended
    return {row["name"]: row["state"] for row in json.loads(ended.said)["phases"]}


def trained(case: Path) -> dict[str, Any]:
    """Return the bits that each run's training came to."""
    return {
        run: (found["state"], found["steps"], found["weights_sha256"], found["chain"])
        for run, found in results(Project(case / "project")).items()
    }


def faults_now(worker: Worker, case: Path, reference: Reference, command: Command) -> list[str]:
    """Return what is wrong right after a disturbance."""
    if not (case / "project/mltrainer.yaml").exists():
        return []
    found = []
    status, verify = (typed(worker, words, case) for words in (("status", "--json"), ("checkpoints", "verify")))
    now = {row["name"]: row["state"] for row in json.loads(status.said)["phases"]} if status.code == 0 else {}
    of_verify = {0, 4} if now.get("finalization") == "stale" and is_delivered_alone(verify.said) else {0}
    for what, ended, codes in (("status", status, {0}), ("checkpoints verify", verify, of_verify)):
        found += [f"{what}: {fault}" for fault in told_badly(ended, codes)]
    if now:
        found += [
            f"{phase} is {now[phase]}: before it was {reference.old.get(phase)}, then {reference.new[phase]}"
            for phase in PHASES
            if now[phase] not in (reference.old.get(phase), reference.new[phase], *BETWEEN)
        ]
    return found


def is_delivered_alone(said: str) -> bool:
    """Return True if all that `checkpoints verify` calls damaged is the delivered model, which finalization was writing."""
    damaged = [line for line in said.splitlines() if line.startswith("DAMAGED")]
    return all(line.split()[1].endswith("/final_model") for line in damaged)


BETWEEN = ("stale", "locked", "ready")  # of these none is a gate that holds, and no record that does not fit its files is one


def faults_later(worker: Worker, case: Path, reference: Reference, command: Command) -> list[str]:
    """Return what is wrong when the same command is typed again, undisturbed."""
    ended = worker.run(command.work(case), case / "project")
    codes = {reference.ended.code, *((1,) if command.once else ())}
    found = [f"again: {fault}" for fault in told_badly(ended, codes)]
    if found:
        return found
    return [*found, *differences(worker, case, reference)]


def differences(worker: Worker, case: Path, reference: Reference) -> list[str]:
    """Return how a folder differs from the one behind the undisturbed command."""
    found, now = [], digests(case)
    found += [f"missing: {name}" for name in sorted(reference.files.keys() - now.keys()) if PERIODIC not in name]
    found += [f"left over: {name}" for name in sorted(now.keys() - reference.files.keys()) if not may_stay(name, reference)]
    found += [f"other content: {name}" for name, digest in reference.files.items() if digest and now.get(name, digest) != digest]
    if (bits := trained(case)) != reference.bits:
        found.append(f"other bits: {bits}, expected {reference.bits}")
    if (new := states(worker, case)) != reference.new:
        found.append(f"phases: {new}, expected {reference.new}")
    return found


def may_stay(name: str, reference: Reference) -> bool:
    """Return whether a file is one that may be there after an interruption, and else not.

    The next phase removes what a killed `init` left: that has no project before it, and sweeps no folder of a person's. The error
    of a run that has a result is read by nothing.
    """
    is_init, last = not reference.old, name.rpartition("/")[2]
    return any(part in name for part in (PERIODIC, NOTES, "/error.json")) or (is_init and last.startswith(TEMPORARY))


def told_badly(ended: Ended, codes: set[int]) -> list[str]:
    """Return what is wrong with how a command ended."""
    found = [f"it hung: {ended.hung}"] if ended.hung else []
    if ended.code not in codes:
        found.append(f"exit code {ended.code}, expected {sorted(codes)}")
    found += [f"it said {word!r}" for word in ("Traceback", "a fault of mltrainer's own") if word in ended.said]
    return [f"{one}: ...{ended.said[-600:]}" for one in found]


def cut_off(worker: Worker, base: Path, command: Command, reference: Reference, number: int) -> tuple[list[str], str]:
    """Go on from an image of the disk that a power cut may leave after some of a command's calls; return what that broke."""
    case = base / "case"
    disk = Disk(case, reference.before)
    for call in reference.calls[:number]:
        disk.apply(call)
    shutil.rmtree(case)
    disk.image(case, random.Random(f"{command.name} {number}"))
    (case / "project").mkdir(exist_ok=True)
    found = [*faults_now(worker, case, reference, command), *faults_later(worker, case, reference, command)]
    return found, "power cut"


REASONS = ("Input/output error", "Permission denied")


def disturbed(
    worker: Worker, injector: Injector, base: Path, command: Command, reference: Reference, number: int, way: str
) -> tuple[list[str], str]:
    """Disturb a command at a call; return what it broke, and the call that was disturbed."""
    case = base / "case"
    copied(reference.before, case)
    with injector.failing(case, number, way):
        ended = worker.run(command.work(case), case / "project")
    fired = injector.fired
    codes = {reference.ended.code, 7, *((-9,) if way == "kill" else ())}
    if any(reason in ended.said for reason in REASONS):  # an input that cannot be read, or a gate whose file cannot
        codes |= {1, 4}
    faults = [f"disturbed: {fault}" for fault in told_badly(ended, codes)]
    faults += command.check(case, ended.said)
    faults += faults_now(worker, case, reference, command)
    faults += faults_later(worker, case, reference, command)
    return faults, fired


def at_once(worker: Worker, base: Path, command: Command, reference: Reference) -> tuple[list[str], str]:
    """Type a command twice at once, then once more; return what that broke."""
    case = base / "case"
    copied(reference.before, case)
    both = worker.run_together([command.work(case), command.work(case)], case / "project")
    found = [f"at once: {fault}" for ended in both for fault in told_badly(ended, {reference.ended.code, 0, *REFUSED})]
    if all(ended.code in REFUSED for ended in both):
        found.append("at once: neither did its work")
    return found + faults_later(worker, case, reference, command), "at once"


REFUSED = (1, 6)  # it is done already, such as a waiver that is given; another process is at it
