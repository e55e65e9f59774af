"""A record's claims beside its verdicts, computed again from the files that are here; torch-free.

A record's seal shows that nobody edited it by hand. Somebody who writes records can seal them again, so that every claim that
something else than the record can answer is asked there: weights, checksums, the run's own files, pages, versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mltrainer
from mltrainer import handbook
from mltrainer.checkpointing import combinations
from mltrainer.checkpointing.deployment import CHECKSUMS_FILE, INTERFACE
from mltrainer.checkpointing.tensors import (
    WEIGHTS_FILE,
    checkpoint_weights_sha256,
    checkpoint_weights_tree_sha256,
    file_weights_sha256,
    file_weights_tree_sha256,
)
from mltrainer.configs.pages import PhasePage, page_path, policy_changes, shipped_page, tool_pages
from mltrainer.errors import GateError, InputError
from mltrainer.gates.digests import NOT_HASHED, WHY_NOT_HASHED, FileDigests
from mltrainer.gates.releases import Release
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Combination, Finalization, Test
from mltrainer.records.openings import LEDGER_FILE, breaks, missing, openings_in
from mltrainer.records.run import Run
from mltrainer.reports.render import template_paths
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.evidence import RESULT_FILE, TEST_FILE
from mltrainer.reproducibility.git import GitError
from mltrainer.reproducibility.history import contents, holds_commit, is_shallow, ledgers, marks
from mltrainer.workspace import MODEL_FOLDER, TRAINING, Project, digest, read_if_whole, read_whole, without_none

FOLDER = "finalization"


def ledger_faults(project: Project, test: Test) -> Iterator[str]:
    """Yield, as messages, the faults of the ledger: edited or missing openings, and a record and a ledger that disagree.

    Args:
        project: The project.
        test: Finalization's record of the test split.
    """
    path = project.phase_dir(FOLDER) / LEDGER_FILE
    # An unknown value is left out of one and null in the other: the comparison skips it, so both agree.
    name, openings, splits = project.relative(path), [without_none(**row.written()) for row in test.openings], test.splits or {}
    if (number := breaks(openings)) is not None:
        yield f"opening {number} of the record does not follow from those before it: the ledger was edited"
    for split, rows in splits.items():
        if digest(rows.written()) != split:
            yield f"the rows of test split {split[:12]} do not match its name, which is their digest"
    if named := {row.rows_sha256 for row in test.openings if row.rows_sha256} - splits.keys():
        yield f"the record has no rows of {len(named)} opened test splits: {', '.join(sorted(named))[:60]}"
    wrote = read_if_whole(path).get("openings")
    if isinstance(wrote, list) and [_known(row) for row in wrote] != openings:
        yield f"{name} has {len(wrote)} openings, which differ from the record's {len(openings)}"
    if openings and not path.is_file():
        yield f"{name}, the openings of the test split, is missing"


def _known(row: Any) -> dict[str, Any]:
    return without_none(**row) if isinstance(row, dict) else {}


def forgotten(project: Project, test: Test, digests: FileDigests) -> list[str]:
    """Return, in words, the openings in earlier commits that the record lacks.

    Where nothing was forgotten, git is not asked again before the repository or the record changes.
    """
    record = project.phase_dir(FOLDER) / "record.json"
    state = marks(project.root)
    if state is None or digests.agreed("ledger", record, state):
        return []
    try:
        # This branch alone: whoever reviews it has not fetched the others, and must come to the same verdict as its author.
        committed = ledgers(project.root, f"{project.relative(record.parent)}/{LEDGER_FILE}", every_branch=False)
    except GitError:
        return []
    lost = missing((row for part in committed for row in openings_in(part)), [row.written() for row in test.openings])
    if not lost:
        digests.agree("ledger", record, state)
    return [f"the opening by run {run}" for run in dict.fromkeys(str(row["run"]) for row in lost)]


LFS_POINTER = b"version https://git-lfs"
CHAIN_FILE = fingerprint.CHAIN_FILE


@dataclass(frozen=True)
class CheckedRecord:
    """A record and the files that its claims are checked with.

    Attributes:
        project: The project.
        record: The record.
        page: The page that it is judged by.
        digests: Digests of files, which are remembered.
        demand_files: Whether a missing file is a fault.
        notes: Takes what could not be checked here.
        release: The earlier release that finished the project, if it was one.
    """

    project: Project
    record: Envelope[Any]
    page: PhasePage
    digests: FileDigests
    demand_files: bool = False
    notes: list[str] = field(default_factory=list)
    release: Release | None = None

    @property
    def final(self) -> Finalization:
        """Finalization's evidence."""
        assert isinstance(self.record.evidence, Finalization)  # as the sources of its claims are asked of its record alone
        return self.record.evidence

    @property
    def model_folder(self) -> Path:
        """The folder of the delivered model."""
        return self.project.phase_dir("finalization") / MODEL_FOLDER

    def computed(self, path: Path, what: str, compute: Callable[[Path], str]) -> str | None:
        """Return a value computed from a file's content; None if it is missing, or, with a note, if that takes too long."""
        value = self.digests.computed(path, what, compute)
        if value != NOT_HASHED:
            return value
        if (note := f"{self.project.relative(path)}: {WHY_NOT_HASHED}") not in self.notes:  # the file's own digest, too
            self.notes.append(note)
        return None


def contradictions(checked: CheckedRecord) -> Iterator[str]:
    """Yield the contradictions between a record and the files here, each with the expected and the found value."""
    model = _OF_THE_MODEL if checked.page.phase == "finalization" else ()
    run = (_chain,) if checked.page.phase in TRAINING else ()
    for source in (_version, _overrides, _changes, _commit, *run, *model):
        yield from source(checked)


# --- by what it was made --------------------------------------------------------------------------


def _version(checked: CheckedRecord) -> Iterator[str]:
    """The version is this one: another one's rules find other things in the same run, and its templates render other reports."""
    made = checked.record.mltrainer
    if checked.release is None and made != mltrainer.__version__:
        this = f"this is {mltrainer.__version__}, which checks its own records and projects that an earlier release finished"
        yield f"the record says that mltrainer {made} made it; {this}"


def _overrides(checked: CheckedRecord) -> Iterator[str]:
    """The project's own pages and templates that made the record are named in it."""
    phase, named = checked.page.phase, set(checked.record.policy_overrides)
    pages = {page_path(phase), *tool_pages(phase), *template_paths(phase).values(), *checked.record.handbook}
    for path in sorted(pages - named):
        if handbook.exists(path, checked.project.root) and handbook.locate(path, checked.project.root)[1]:
            yield f"{path} is this project's own, and the record does not name it among its policy_overrides"


def _changes(checked: CheckedRecord) -> Iterator[str]:
    """The numbers that differ from the shipped ones are those that the record lists."""
    phase = checked.page.phase
    expected = policy_changes(checked.page, checked.release.policies[phase] if checked.release else shipped_page(phase))
    if expected != checked.record.policy_changes:
        listed = "; ".join(checked.record.policy_changes) or "none"
        yield f"policy_changes lists {listed}; its page has {'; '.join(expected) or 'none'}"


# --- the delivered model --------------------------------------------------------------------------


def _delivered_weights(checked: CheckedRecord) -> Iterator[str]:
    """The delivered file has the measured weights; so has the checkpoint that they were exported from."""
    places = [checked.model_folder / WEIGHTS_FILE] if _has_weights(checked) else []
    for path in [*places, *_best_checkpoint(checked)]:
        is_file = path.name == WEIGHTS_FILE
        whole = file_weights_sha256 if is_file else lambda path: checkpoint_weights_sha256(path.parent)
        tree = file_weights_tree_sha256 if is_file else lambda path: checkpoint_weights_tree_sha256(path.parent)
        yield from _other_weights(checked, path, "weights", whole, checked.final.delivered_sha256)
        yield from _other_weights(checked, path, "weights over chunks", tree, checked.final.delivered_tree_sha256)


def _other_weights(
    checked: CheckedRecord, path: Path, what: str, compute: Callable[[Path], str], expected: str | None
) -> Iterator[str]:
    """Yield the difference of a file's weights from the measured digest, if that is recorded."""
    name = checked.project.relative(path)
    if expected is None:
        return
    try:
        actual = checked.computed(path, what, compute)
    except InputError as error:
        yield f"{name} cannot be read as the delivered weights: {error.message}"
        return
    if actual is not None and actual != expected:
        yield f"{name} has other weights than the measured ones: sha256 {expected[:12]} -> {actual[:12]}"


def _has_weights(checked: CheckedRecord) -> bool:
    """Return True if finalization exported weights; a program leaves its own files instead."""
    written = {row.file for row in checked.final.exports if row.state == "written"}
    return WEIGHTS_FILE in written


def _best_checkpoint(checked: CheckedRecord) -> list[Path]:
    """Return the tensors' file of the checkpoint that was exported."""
    combination = checked.final.delivered_combination
    best = combination or next((row for row in checked.final.run.checkpoints if "best" in row.roles), None)
    if best is None or not _has_weights(checked):
        return []
    return [checked.project.root / best.path / "state.safetensors"]


def _combination(checked: CheckedRecord) -> Iterator[str]:
    """The combination follows from the metrics, and members and combination have the measured weights."""
    final = checked.final
    if final.combination is None:
        return
    yield from combinations.contradictions(final.combination, final.run)
    if final.delivered_combination and final.delivered_sha256 != final.combination.weights_sha256:
        yield "the record says that the combination is delivered, and other weights were"
    made = final.combination
    for folder, sha256 in [(made.path, made.weights_sha256), *((row.path, row.weights_sha256) for row in made.members)]:
        path = checked.project.root / folder / "state.safetensors"
        yield from _other_weights(checked, path, "weights", lambda path: checkpoint_weights_sha256(path.parent), sha256)
    yield from _other_mean(checked, made)


def _other_mean(checked: CheckedRecord, made: Combination) -> Iterator[str]:
    """Yield the difference of the combination's weights from its members' mean, if all of them are here."""
    root, path = checked.project.root, checked.project.root / made.path / "state.safetensors"
    used = [row for row in made.members if row.used]
    if not all((root / row.path / "state.safetensors").is_file() for row in used):
        return
    if not combinations.is_quick(made):
        checked.notes.append(f"{made.path}: the mean of the members' weights was not computed again, which would take minutes")
        return
    what = f"mean of {digest([row.weights_sha256 for row in used])}"
    try:
        fault = checked.computed(path, what, lambda _: combinations.weights_fault(made, root))
    except InputError as error:
        fault = error.message
    if fault:
        yield f"{made.path}: {fault}"


def _checksums(checked: CheckedRecord) -> Iterator[str]:
    """SHA256SUMS lists the delivered files, each by the record's digest, and no others."""
    path = checked.model_folder / CHECKSUMS_FILE
    try:
        lines = read_whole(path).decode().splitlines()
    except (OSError, ValueError):
        return  # missing or unreadable: its digest among the inputs reports it
    folder = checked.project.relative(checked.model_folder)
    listed = {name: sha256 for sha256, _, name in (line.partition("  ") for line in lines)}
    bound = {row.path.removeprefix(f"{folder}/"): row.sha256 for row in checked.final.model_files}
    # The list cannot hold a digest of itself.
    bound.pop(CHECKSUMS_FILE, None)
    for name in sorted(name for name in listed.keys() | bound.keys() if listed.get(name) != bound.get(name)):
        digests = f"sha256 {str(bound.get(name))[:12]} in the record, {str(listed.get(name))[:12]} there"
        yield f"{folder}/{CHECKSUMS_FILE} is not the list of the delivered files: {name} has {digests}"


# --- the run's own files --------------------------------------------------------------------------


def _measured_test(checked: CheckedRecord) -> Iterator[str]:
    """The test split's metrics are those in the run's folder, for the delivered weights."""
    test = checked.final.test
    path = checked.project.runs_dir / checked.final.run.id / TEST_FILE
    wrote = read_if_whole(path)
    if test.samples and not path.exists() and path.with_name(RESULT_FILE).exists():
        name = checked.project.relative(path)
        yield f"{name}, the test split's metrics beside the result of its run, is missing"
    # A later test of other weights may be in its place: then nothing here can answer for these.
    if not test.samples or wrote.get("weights_sha256") != checked.final.delivered_sha256:
        return
    coverage = test.coverage.written() if test.coverage else None
    yield from _unlike(checked, path, wrote, {"samples": test.samples, "metrics": test.metrics, "coverage": coverage})


def _exported(checked: CheckedRecord) -> Iterator[str]:
    """The exported formats, and their agreement, are those that the export wrote."""
    path = checked.project.state_dir / "exports" / checked.final.run.id / "result.json"
    wrote = read_if_whole(path)
    if wrote.get("weights_sha256") == checked.final.delivered_sha256:
        exports = [row.written() for row in checked.final.exports]
        tree = {"weights_tree_sha256": checked.final.delivered_tree_sha256}
        recorded = {"exports": exports, "inference": checked.final.inference, **tree, "conformal": _conformal(checked)}
        yield from _unlike(checked, path, wrote, recorded)


def _conformal(checked: CheckedRecord) -> dict[str, Any] | None:
    return checked.final.conformal.written() if checked.final.conformal else None


def _interface(checked: CheckedRecord) -> Iterator[str]:
    """The delivered model's inputs and outputs are those recorded, with the measured sets or intervals."""
    path = checked.model_folder / INTERFACE
    if path.is_file():
        doubt = {"conformal": _conformal(checked)} if checked.final.conformal else {}
        yield from _unlike(checked, path, read_if_whole(path), {**checked.final.inference, **doubt})


def _reproduced(checked: CheckedRecord) -> Iterator[str]:
    """The reproduction is the one whose result is in the state folder, unless a later one took its place."""
    recorded = checked.final.reproduction
    path = checked.project.state_dir / "reproductions" / checked.final.run.id / "result.json"
    wrote = read_if_whole(path)
    # Told apart by its duration: two reproductions of one run have all else in common.
    if wrote.get("wall_s") != recorded.wall_s:  # another reproduction than the recorded one
        return
    trees = {"weights_tree_sha256": recorded.weights_tree_sha256}
    heads = {"weights_sha256": recorded.weights_sha256, "chain": recorded.chain_head, **trees}
    yield from _unlike(checked, path, {**wrote, "chain": (wrote.get("chain") or {}).get("head")}, heads)


def _chain(checked: CheckedRecord) -> Iterator[str]:
    """The chain of fingerprints leads to the record's head, and to the weights at its end."""
    run: Run = checked.record.evidence.run
    path = checked.project.runs_dir / run.id / CHAIN_FILE
    if not path.is_file() or run.program:
        return
    name, recorded = checked.project.relative(path), f"{run.chain.head} after {run.chain.entries} entries"
    try:
        found = checked.computed(path, "chain", lambda path: _head(path, name))
        last = checked.computed(path, "weights of the chain", lambda path: fingerprint.last_tree(fingerprint.read(path)))
    except GateError as error:
        yield error.placed_message
        return
    if found is not None and found != recorded:
        yield f"{name} ends in {found}, the record in {recorded}"
    if last is not None and (fault := fingerprint.tree_fault(last, run.steps, run.weights_tree_sha256)):
        yield f"{name}: {fault}"


def _head(path: Path, name: str) -> str:
    head = fingerprint.verify(fingerprint.read(path), name)
    return f"{head.value} after {head.entries} entries"


# --- what was committed ---------------------------------------------------------------------------


def _ledger(checked: CheckedRecord) -> Iterator[str]:
    """The ledger is whole, is the record's, and holds every opening that was committed before."""
    test = checked.final.test
    yield from ledger_faults(checked.project, test)
    if lost := forgotten(checked.project, test, checked.digests):
        lacking = f"{', '.join(lost[:3])}{' and more' if len(lost) > 3 else ''}, which earlier commits hold"
        yield f"the ledger lacks {lacking}: the test split was opened more often than the record says"


def _commit(checked: CheckedRecord) -> Iterator[str]:
    """The commit that the code came from is in the repository, and holds the code that ran."""
    source, root = checked.record.source, checked.project.root
    state = marks(root)
    record = checked.project.phase_dir(checked.page.phase) / "record.json"
    if not source.commit or state is None or checked.digests.agreed(f"commit {checked.page.phase}", record, state):
        return
    try:
        faults = [*_of_commit(checked, source.commit)]
    except GitError:
        return
    # An answer that left a note is not remembered: the next look would not ask, and would lose the note.
    if not faults and not any(source.commit[:12] in note for note in checked.notes):
        checked.digests.agree(f"commit {checked.page.phase}", record, state)
    yield from faults


def _of_commit(checked: CheckedRecord, commit: str) -> Iterator[str]:
    source, root = checked.record.source, checked.project.root
    # A record of a clean tree claims that the commit holds its code; of a dirty one the digests of files are all there is.
    if holds_commit(root, commit):
        if source.dirty is False:
            yield from _other_code(checked, commit, [row.path for row in source.files])
        return
    if is_shallow(root):
        checked.notes.append(f"commit {commit[:12]} is not here: a shallow clone, whose older history was not fetched")
        return
    missing = f"commit {commit[:12]}, which the record names, is not in this repository: rebased, squashed away, or never there"
    if checked.demand_files:
        yield f"{missing}; fetch the branch or tag that holds it"
    else:
        checked.notes.append(missing)


def _other_code(checked: CheckedRecord, commit: str, paths: list[str]) -> Iterator[str]:
    """Yield the files of code that differ from those in a commit; line ends may differ."""
    for path, held in contents(checked.project.root, commit, paths).items():
        file = checked.project.root / path
        here = read_whole(file) if file.is_file() else None
        # git holds a pointer in place of a file in LFS, whose content is here: the two cannot be compared.
        if here is None or (held is not None and held.startswith(LFS_POINTER)):
            continue
        if held is None or held.replace(b"\r\n", b"\n") != here.replace(b"\r\n", b"\n"):
            yield f"commit {commit[:12]} does not hold {path} as it ran, although the record says that nothing was uncommitted"


_OF_THE_MODEL: tuple[Callable[[CheckedRecord], Iterator[str]], ...] = (
    *(_delivered_weights, _combination, _checksums, _measured_test, _exported, _interface, _reproduced, _ledger),
)


def _unlike(checked: CheckedRecord, path: Path, wrote: Mapping[str, Any], recorded: Mapping[str, Any]) -> Iterator[str]:
    for key, value in recorded.items():
        if wrote.get(key) != value:
            yield f"the record and {checked.project.relative(path)} differ on {key}"
