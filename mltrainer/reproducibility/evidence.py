"""Independent evidence of a run's result, which contradicts an edited result or another run's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mltrainer.checkpointing import ledger
from mltrainer.errors import InputError, MltrainerError
from mltrainer.records.checkpoint import Manifest
from mltrainer.records.partial import partial
from mltrainer.records.run import TRAIN, Chain, RunResult, parsed_result
from mltrainer.reproducibility import fingerprint
from mltrainer.workspace import is_sealed, read_json

RESULT_FILE = "result.json"
JOB_FILE = "job.json"
TEST_FILE = "test.json"  # file of a run that opened the test split


def sound_result(folder: Path, contract: Mapping[str, str]) -> RunResult | None:
    """Return the result of a run that has ended, or None if the run of this contract did not write it.

    Its seal, its contract, the chain beside it, its own history and its checkpoints' manifests must say the same; and the
    workflow must have started it: one that was explored in a process of somebody's own is never evidence.
    """
    try:
        content = read_json(folder / RESULT_FILE)
        if not is_sealed(content) or any(content.get(key) != value for key, value in {**contract, "purpose": TRAIN}.items()):
            return None
        result = parsed_result(content, RunResult)
        has_chains = _has_chain(folder, result) and _has_ledger(folder, result)
        is_sound = has_chains and _has_history(result) and _has_manifests(folder, result)
        return result if is_sound else None
    except (MltrainerError, TypeError, AttributeError):  # the last two: somebody's manifest may hold anything
        return None


def has_ended(folder: Path) -> bool:
    """Return True if a run is not resumed: its result, edited or not, says that it finished or that no phase started it."""
    try:
        result = read_json(folder / RESULT_FILE)
    except InputError:
        return False
    return not isinstance(result, dict) or result.get("state") == "finished" or result.get("purpose", TRAIN) != TRAIN


def set_aside(folder: Path) -> Path:
    """Move a damaged run aside, for later inspection, and return its new path."""
    number = 1
    while (target := folder.with_name(f"{folder.name}.damaged-{number}")).exists():
        number += 1
    return folder.rename(target)


def _has_chain(folder: Path, result: RunResult) -> bool:
    """Return True if the chain leads to the result's head, and has the result's digest of the weights at the end."""
    lines = fingerprint.read(folder / fingerprint.CHAIN_FILE)
    head = fingerprint.verify(lines, fingerprint.CHAIN_FILE)
    is_same = result.chain == Chain(entries=head.entries, head=head.value)
    return is_same and fingerprint.tree_fault(fingerprint.last_tree(lines), result.steps, result.weights_tree_sha256) is None


def _has_ledger(folder: Path, result: RunResult) -> bool:
    """Return True if the ledger ends as the result says, and has the manifest of each checkpoint that the result names."""
    entries = ledger.read(folder / ledger.LEDGER_FILE)
    noted = {one.manifest_sha256 for one in entries}
    manifests = {
        row.sha256 for checkpoint in result.checkpoints for row in checkpoint.files if row.path.endswith("/manifest.json")
    }
    end = ledger.head(entries)
    found = Chain(entries=end.entries, head=end.value) if entries else None
    return found == result.ledger and (not entries or manifests <= noted)


def _has_history(result: RunResult) -> bool:
    """Return True if the metrics are those of the best row, and the best row is one of the history."""
    best = result.best
    if best is None:
        return not result.metrics
    rows = (row.model_dump(include=best.model_fields_set) for row in result.history)
    return best.flat == result.metrics and best.written() in rows


def _has_manifests(folder: Path, result: RunResult) -> bool:
    """Return True if the checkpoints that are here hold the metrics of the history's rows, and the chain's digests of weights."""
    measured = {row.step: row.validation for row in result.history}
    paths = (folder / "checkpoints" / Path(row.path).name / "manifest.json" for row in result.checkpoints)
    manifests = [partial(Manifest, read_json(path)) for path in paths if path.exists()]
    trees = fingerprint.trees_of(fingerprint.read(folder / fingerprint.CHAIN_FILE))
    same = (found.weights_tree_sha256 == trees.get(found.step) for found in manifests)
    return all(same) and all(found.metrics == measured.get(found.step, {}) for found in manifests)
