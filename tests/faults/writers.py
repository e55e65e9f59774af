"""What writes the files that all rests on, each as a few lines: what is before, the change, and what a reader finds."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fsspec.implementations.local import LocalFileSystem
from sqlalchemy.exc import SQLAlchemyError

from mltrainer.checkpointing import ledger
from mltrainer.checkpointing.format import load, newest_intact, save, snapshot
from mltrainer.checkpointing.ledger import Entry
from mltrainer.checkpointing.manifest import MANIFEST_FILE
from mltrainer.cli.faults import reported
from mltrainer.companions.serving.store import PREDICTIONS, Store
from mltrainer.errors import MachineError
from mltrainer.follow.log import read_lines
from mltrainer.leftovers import sweep_below
from mltrainer.project.object_store import ObjectStore
from mltrainer.project.stored_files import Listed, Manifest
from mltrainer.records.tried import read as read_tried
from mltrainer.reproducibility.fingerprint import Head, append, cut, extend, verify
from mltrainer.reproducibility.fingerprint import read as read_chain
from mltrainer.runs.tried import note_tried
from mltrainer.workspace import Project, append_json_lines, new_whole, sha256_bytes, sha256_file, write_atomic, write_json
from tests.faults.commands import told_badly
from tests.faults.images import Disk
from tests.faults.injector import Call, Injector, calls
from tests.faults.worker import Ended, Worker

SIZE = 5000  # bytes of a content, more than one block


@dataclass(frozen=True)
class Writer:
    """A writer of one kind of file.

    Attributes:
        before: Writes the old state into a folder.
        act: Changes it to the new one.
        state: Returns `old` or `new`, which a reader finds; anything else is a broken promise.
        lasts: Whether the new state is on the disk once `act` has returned.
    """

    before: Callable[[Path], None]
    act: Callable[[Path], object]
    state: Callable[[Path], str]
    lasts: bool = True


def _of(found: Any, old: Any, new: Any) -> str:
    return "old" if found == old else "new" if found == new else f"neither: {found!r:.300}"


def _content(name: str) -> Callable[[Path], str]:
    def state(folder: Path) -> str:
        path = folder / name
        return _of(path.read_bytes() if path.exists() else b"", b"o" * SIZE if (folder / "was").exists() else b"", b"n" * SIZE)

    return state


def _old_file(folder: Path) -> None:
    (folder / "was").touch()
    (folder / "file").write_bytes(b"o" * SIZE)


def _whole(folder: Path) -> None:
    with new_whole(folder / "file") as path:
        path.write_bytes(b"n" * SIZE)


def _object(folder: Path) -> Any:
    return json.loads((folder / "file.json").read_bytes())["is"]


def _lines(folder: Path) -> list[Any]:
    # A reader takes what is whole; whoever appends next must not glue its line to a torn one.
    return [line["is"] for line in read_lines((folder / "lines.jsonl").read_bytes())]


def _grown(folder: Path) -> str:
    found = _lines(folder)
    return "new" if found[0] == "old" and found[-2:] == ["a", "b"] else "old" if {*found} <= {"old", "a"} else f"neither: {found}"


# --- checkpoints ------------------------------------------------------------------------------------


def _save(folder: Path, step: int, text: str) -> None:
    save(folder / "checkpoints" / f"step-{step:08d}", snapshot({"is": text, "w": torch.ones(40)}), {"step": step})


def _newest(folder: Path) -> str:
    found, skipped = newest_intact(folder / "checkpoints")
    if found is None or skipped:
        return f"neither: {found}, {skipped}"
    return str(load(found)[0]["is"])


def _entry(folder: Path, step: int) -> Entry:
    manifest = folder / "checkpoints" / f"step-{step:08d}" / MANIFEST_FILE
    return Entry(step, Head(step, f"{step:032x}"), sha256_file(manifest))


def _noted(folder: Path, step: int, text: str) -> None:
    _save(folder, step, text)
    ledger.note(folder / ledger.LEDGER_FILE, _entry(folder, step))


def _resumed(folder: Path) -> str:
    """As a run goes on: from the newest checkpoint, whose line may be missing."""
    found, _ = newest_intact(folder / "checkpoints")
    assert found is not None
    tree, manifest = load(found)
    ledger.go_on(folder / ledger.LEDGER_FILE, _entry(folder, manifest.step), [7] if manifest.step > 7 else [])
    return str(tree["is"])


# --- chains and ledgers -----------------------------------------------------------------------------

OLD_HEAD, OLD_LINES = extend(Head(), [f"{step} old" for step in range(60)])
NEW_HEAD, NEW_LINES = extend(OLD_HEAD, [f"{step} new" for step in range(60, 90)])


def _chain(folder: Path) -> str:
    """As a run goes on: later lines are cut off."""
    lines = read_chain(folder / "chain.txt")
    whole = verify(lines, "chain.txt") == NEW_HEAD
    cut(folder / "chain.txt", OLD_HEAD)
    return "new" if whole else "old"


def _run(project: Project, run: str) -> None:
    write_json(project.runs_dir / run / "job.json", {"run": run, "phase": "baseline"})


def _first_run(folder: Path) -> None:
    project = Project(folder)
    _run(project, "0" * 12)
    note_tried(project)
    _run(project, "1" * 12)


def _tried(folder: Path) -> str:
    return _of([line.begun.run for line in read_tried(Project(folder))], ["0" * 12], ["0" * 12, "1" * 12])


# --- a server's database, and an object store ---------------------------------------------------------


def _opened(folder: Path) -> Store:
    return Store(f"sqlite:///{folder}/served.sqlite")


def _answer(folder: Path, name: str) -> None:
    from datetime import UTC, datetime

    row = {"at": datetime(2026, 1, 1, tzinfo=UTC), "weights_sha256": None, "checks": "passed", "answer": {"n": 1}, "input": None}
    with contextlib.closing(_opened(folder)) as store:
        if not _rows(folder, name):  # a client asks again only where it had no answer
            store.add([[{"id": name, "row": number, **row} for number in range(20)]])


def _rows(folder: Path, name: str) -> int:
    with contextlib.closing(sqlite3.connect(folder / "served.sqlite")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return int(connection.execute(f"SELECT count(*) FROM {PREDICTIONS.name} WHERE id = ?", name).fetchone()[0])


def _answers(folder: Path) -> str:
    return _of([_rows(folder, name) for name in ("a", "b")], [20, 0], [20, 20])


def _store(folder: Path) -> ObjectStore:
    LocalFileSystem.clear_instance_cache()
    return ObjectStore(f"file://{folder}/store")


def _send(folder: Path, text: str) -> None:
    store, data = _store(folder), text.encode() * SIZE
    write_atomic(folder / "sent", data)
    row = Listed(sha256=sha256_bytes(data), size=len(data), modified=0)
    _, before = store.listed()
    store.send(folder / "sent", row, lambda _: None)
    store.replace_list(Manifest(project="p", commit=None, files={"sent": row}), before)


def _sent(folder: Path) -> str:
    store, fetched = _store(folder), folder / "fetched"
    manifest, _ = store.listed()
    assert manifest is not None
    fetched.mkdir(exist_ok=True)
    text = store.fetch(manifest.files["sent"], "sent", fetched, lambda _: None).read_text()
    return {"o" * SIZE: "old", "n" * SIZE: "new"}.get(text, "neither")


def _enter(folder: Path, text: str) -> None:
    number = {"old": 1, "new": 2}[text]
    assert _store(folder).create(f"models/m/{number:06d}.json", text.encode() * SIZE)


def _entries(folder: Path) -> str:
    store = _store(folder)
    texts = [store.text(f"models/m/{name}") for name in store.names("models/m", r"\d{6}\.json")]
    return _of(texts, [b"old" * SIZE], [b"old" * SIZE, b"new" * SIZE])


WRITERS = {
    "a new file": Writer(lambda _: None, lambda folder: write_atomic(folder / "deep/file", b"n" * SIZE), _content("deep/file")),
    "a file replaced": Writer(_old_file, lambda folder: write_atomic(folder / "file", b"n" * SIZE), _content("file")),
    "a large file": Writer(_old_file, _whole, _content("file")),
    "JSON": Writer(
        lambda folder: write_json(folder / "file.json", {"is": "old"}),
        lambda folder: write_json(folder / "file.json", {"is": "new"}),
        _object,
    ),
    "lines of a log": Writer(
        lambda folder: append_json_lines(folder / "lines.jsonl", [{"is": "old"}]),
        lambda folder: append_json_lines(folder / "lines.jsonl", [{"is": "a"}, {"is": "b"}]),
        _grown,
        lasts=False,
    ),
    "a checkpoint": Writer(lambda folder: _save(folder, 7, "old"), lambda folder: _save(folder, 14, "new"), _newest),
    "a checkpoint replaced": Writer(lambda folder: _save(folder, 7, "old"), lambda folder: _save(folder, 7, "new"), _newest),
    "a checkpoint and its line in the ledger": Writer(
        lambda folder: _noted(folder, 7, "old"), lambda folder: _noted(folder, 14, "new"), _resumed
    ),
    "the chain of steps": Writer(
        lambda folder: append(folder / "chain.txt", OLD_LINES),
        lambda folder: append(folder / "chain.txt", NEW_LINES),
        _chain,
        lasts=False,
    ),
    "the ledger of tried runs": Writer(_first_run, lambda folder: note_tried(Project(folder)), _tried),
    "a server's answers": Writer(lambda folder: _answer(folder, "a"), lambda folder: _answer(folder, "b"), _answers),
    "a registry's log": Writer(lambda folder: _enter(folder, "old"), lambda folder: _enter(folder, "new"), _entries),
    "an object store": Writer(lambda folder: _send(folder, "o"), lambda folder: _send(folder, "n"), _sent, lasts=False),
}


def leftovers(folder: Path) -> Iterator[Path]:
    """Sweep as the next command does, and yield what is left of unfinished writes."""
    sweep_below(folder)
    yield from (path for path in folder.rglob("*") if path.name.startswith((".tmp-", ".old-")))


# --- disturbed ----------------------------------------------------------------------------------------


def tried(writer: Writer, worker: Worker, injector: Injector, folder: Path, number: int, way: str) -> tuple[list[str], str]:
    """Disturb a writer at a call; return what it broke, and the call."""
    _begun(writer, folder)
    with injector.failing(folder, number, way):
        ended = _ended(writer, folder, worker if way == "kill" else None)
    found = [f"disturbed: {fault}" for fault in told_badly(ended, {0, 7, *((-9,) if way == "kill" else ())})]
    found += _broken(writer, folder, ended.code == 0)
    again = _ended(writer, folder)
    found += [f"again: {fault}" for fault in [*told_badly(again, {0}), *_broken(writer, folder, True)]]
    return found + [f"left over: {path.name}" for path in leftovers(folder)], injector.fired


def counted(writer: Writer, injector: Injector, folder: Path) -> list[Call]:
    """Return the calls of a writer that nothing disturbs."""
    log = folder.with_suffix(".log")
    log.unlink(missing_ok=True)
    _begun(writer, folder)
    with injector.counting(folder, log):
        _acting(writer, folder)
    assert not _broken(writer, folder, True)
    return calls(log)


def cut_off(writer: Writer, folder: Path, found: list[Call], number: int, draw: int) -> tuple[list[str], str]:
    """Look at an image of the disk that a power cut may leave after some of a writer's calls; return what it breaks."""
    _begun(writer, folder)
    disk = Disk(folder)
    for call in found[:number]:
        disk.apply(call)
    shutil.rmtree(folder)
    disk.image(folder, random.Random(f"{number} {draw}"))
    broken = _broken(writer, folder, writer.lasts and number == len(found))
    again = _ended(writer, folder)
    return broken + [f"again: {fault}" for fault in [*told_badly(again, {0}), *_broken(writer, folder, True)]], "power cut"


def _begun(writer: Writer, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    writer.before(folder)


def _ended(writer: Writer, folder: Path, worker: Worker | None = None) -> Ended:
    """Change the state here, or, where that is deadly, in a process of its own."""
    if worker is not None:
        return worker.run(lambda: _acting(writer, folder), folder)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = _acting(writer, folder)
    return Ended(code, said.getvalue())


def _acting(writer: Writer, folder: Path) -> int:
    try:
        writer.act(folder)
    except SQLAlchemyError as error:
        print(error)
        return MachineError.exit_code
    except Exception as error:
        print(found := reported(error))  # as the program's end does
        return found.exit_code
    return 0


def _broken(writer: Writer, folder: Path, must_be_new: bool) -> list[str]:
    try:
        state = writer.state(folder)
    except Exception as error:
        return [f"a reader failed: {error!r}"]
    return [] if state == "new" or (state.startswith("old") and not must_be_new) else [f"the state is {state}"]
