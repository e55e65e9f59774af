"""The ledger of a run's checkpoints: one line for each, written when it is saved, each covering the one before. Needs no torch.

A line holds the step, the number of lines and the head of the run's chain up to that step, the digest of the checkpoint's
manifest, and the head of the ledger. The run's result holds the ledger's end: a checkpoint that was made or changed later is in
no line of it. Lines of checkpoints that were deleted stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from mltrainer.errors import GateError
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.fingerprint import Head
from mltrainer.workspace import RESTORE, write_atomic

LEDGER_FILE = "ledger.txt"


@dataclass(frozen=True)
class Entry:
    """A checkpoint at the moment at which it was saved.

    Attributes:
        step: The step that its state follows.
        chain: The head of the run's chain after that step.
        manifest_sha256: The digest of its `manifest.json`, which holds those of its files.
    """

    step: int
    chain: Head
    manifest_sha256: str

    @property
    def text(self) -> str:
        """The entry as its line holds it."""
        return f"{self.step} {self.chain.entries} {self.chain.value} {self.manifest_sha256}"


def read(path: Path) -> list[Entry]:
    """Return the entries of a ledger, by step; empty without a file.

    Raises:
        GateError: A line does not follow from the line before, or is none of a ledger; the message names it.
    """
    lines = fingerprint.read(path)
    fingerprint.verify(lines, path.name)
    return [_entry(line, f"{path.name}:{number}") for number, line in enumerate(lines, 1)]


def _entry(line: str, where: str) -> Entry:
    try:
        step, entries, head, manifest_sha256, _ = line.split()
        return Entry(int(step), Head(int(entries), head), manifest_sha256)
    except ValueError as error:
        columns = "STEP CHAIN_LINES CHAIN_HEAD MANIFEST_SHA256 LEDGER_HEAD"
        raise GateError(expected=columns, found=f"{line!r:.120}", where=where, hint=RESTORE) from error


def head(entries: Iterable[Entry]) -> Head:
    """Return the end of a ledger."""
    return fingerprint.extend(Head(), (entry.text for entry in entries))[0]


def note(path: Path, entry: Entry) -> None:
    """Append the entry of a checkpoint that was just saved; those of the same and of later steps are of an interrupted process.

    Raises:
        GateError: The ledger was changed.
    """
    _write(path, [*(one for one in read(path) if one.step < entry.step), entry])


def go_on(path: Path, entry: Entry, earlier: Collection[int] = ()) -> None:
    """Make a ledger end in the checkpoint that a run goes on from, which a killed process may have saved without a line.

    Args:
        path: The ledger.
        entry: That checkpoint.
        earlier: The steps of the run's earlier checkpoints that are here.

    Raises:
        GateError: The ledger was changed, has that step with another manifest, or lacks an earlier checkpoint.
    """
    entries = {one.step: one for one in read(path)}
    bring_back = "restore the file, or remove the checkpoint's folder to resume from a different one"
    if missing := sorted({*earlier} - {*entries}):
        raise GateError(f"the ledger has no line for the checkpoint of step {missing[0]}", where=str(path), hint=bring_back)
    saved = entries.get(entry.step, entry)
    if saved != entry:
        raise GateError(
            f"the checkpoint of step {entry.step} is not the one that was saved",
            expected=f"a manifest of sha256 {saved.manifest_sha256[:12]} after a chain that ends in {saved.chain.value[:12]}",
            found=f"{entry.manifest_sha256[:12]} and {entry.chain.value[:12]}",
            where=str(path),
            hint=bring_back,
        )
    _write(path, [*(one for one in entries.values() if one.step < entry.step), entry])


def _write(path: Path, entries: list[Entry]) -> None:
    _, lines = fingerprint.extend(Head(), (one.text for one in entries))
    write_atomic(path, "".join(f"{line}\n" for line in lines).encode())
