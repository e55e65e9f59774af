"""What `gate check --trust` refuses: what is unsigned, signed by others, or not what was signed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mltrainer.companions.proof.signatures.envelopes import BUNDLE_FILE, SUMMARY_FILE, UntrustedError, verified
from mltrainer.companions.proof.signatures.keys import trusted_keys
from mltrainer.companions.proof.signatures.model import file_faults, signed_files
from mltrainer.companions.proof.signatures.statements import (
    LIST,
    MODEL_PREFIX,
    ORIGIN,
    PROVENANCE,
    SIGNED,
    gate_of,
    model_digests,
    signed_statements,
    verification_summary,
)
from mltrainer.gates.verdicts import read_verdict
from mltrainer.records.reading import read_record
from mltrainer.workspace import MODEL_SIGNATURE, Project, from_json, phase_folder, pretty_json, read_whole, sha256_bytes

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

REFEREE = "next: the referee signs: mltrainer sign --key FILE --verdict FILE; the author copies its file to this path"
OTHERS = {PROVENANCE: ORIGIN, SIGNED: LIST}  # the words for a statement that is not of a gate, by its predicate
SIGN = "next: the author signs: mltrainer sign --key FILE"


def untrusted(project: Project, trust: Path) -> list[str]:
    """Return a line for each statement and model that no trusted key signed as it is here now.

    The gates say whether the files are those of the records; the signatures, whether the records are those that were signed.

    Raises:
        InputError: The keys cannot be read or are in the project's repository, or a needed package is not installed.
    """
    keys = trusted_keys(trust, project.root)
    expected = signed_statements(project)
    own = (*_statement_faults(project, expected, keys), *_model_faults(project, expected, keys))
    return [*(f"{fault}; {SIGN}" for fault in own), *(f"{fault}; {REFEREE}" for fault in _verdict_faults(project, keys))]


def _statement_faults(project: Project, expected: dict[str, bytes], keys: Sequence[SSlibKey]) -> Iterator[str]:
    lines = _lines(project.root / BUNDLE_FILE)
    if lines is None:
        yield f"{BUNDLE_FILE}: nothing is signed"
        return
    signed, refused = _opened(lines, keys)
    yield from refused
    listed = _listed(signed.pop(LIST, None))
    if listed is None and not refused:
        yield f"{BUNDLE_FILE}: {LIST}, which is its last line, is missing: others may be missing, too"
    for what in sorted({*signed, *expected, *(listed or ())}):
        if what not in expected:
            yield f"{BUNDLE_FILE}: {what} was signed and is not here"
        elif what not in signed:
            # A line that is refused may have been this one: that is one fault, not two.
            yield from () if refused else (f"{BUNDLE_FILE}: {what} is not signed",)
        elif signed[what] != expected[what]:
            yield f"{BUNDLE_FILE}: {what} is not what was signed: it was changed since, or the signature is of another project"
        elif listed is not None and listed.get(what) != sha256_bytes(signed[what]):
            yield f"{BUNDLE_FILE}: {what} is not in {LIST}, or is another there: its lines were not signed together"


def _listed(payload: bytes | None) -> dict[str, str] | None:
    """Return the digests of the statements that were signed together, by what each is about; None without a list of them."""
    if payload is None:
        return None
    with contextlib.suppress(KeyError, TypeError):
        return {row["name"]: row["digest"]["sha256"] for row in from_json(payload)["subject"]}
    return None


def _opened(lines: Sequence[object], keys: Sequence[SSlibKey]) -> tuple[dict[str, bytes], list[str]]:
    """Return the statements that a trusted key signed, by what each is about, and a fault for each line that none signed."""
    signed: dict[str, bytes] = {}
    refused = []
    for nr, line in enumerate(lines, 1):
        try:
            payload = verified(line, keys)
            signed[_about(payload)] = payload
        except UntrustedError as error:
            refused.append(f"{BUNDLE_FILE}:{nr}: {error}")
    return signed, refused


def _lines(path: Path) -> list[object] | None:
    """Return the bundle's lines as JSON, an unreadable one as None; None where there is no bundle."""
    try:
        return [_json(line) for line in read_whole(path).splitlines()]
    except OSError:
        return None


def _json(line: bytes) -> object:
    try:
        return from_json(line)
    except ValueError:
        return None


def _about(payload: bytes) -> str:
    """Return the words for what a signed statement is about."""
    try:
        statement = from_json(payload)
        kind = statement["predicateType"]
        return OTHERS[kind] if kind in OTHERS else gate_of(statement["predicate"]["phase"])
    except (ValueError, KeyError, TypeError) as error:
        raise UntrustedError("a statement of another kind") from error


def _model_faults(project: Project, expected: dict[str, bytes], keys: Sequence[SSlibKey]) -> Iterator[str]:
    path = f"{MODEL_PREFIX}{MODEL_SIGNATURE}"
    gate = expected.get(gate_of("finalization"))
    try:
        content = read_whole(project.root / path)
    except OSError:
        if gate is not None:
            yield f"{path}: the model is not signed"
        return
    try:
        signed = signed_files(content, keys)
    except UntrustedError as error:
        yield f"{path}: {error}"
        return
    yield from (f"{path}: {fault}" for fault in file_faults(signed, model_digests(json.loads(gate)) if gate else {}))


def _verdict_faults(project: Project, keys: Sequence[SSlibKey]) -> Iterator[str]:
    """Yield the faults of the summary of the verdict that the card shows, which its referee must have signed."""
    record = read_record(project, "finalization")
    path = f"{phase_folder('finalization')}/{SUMMARY_FILE}"
    verdict = read_verdict(project, "finalization", record)[0] if record and record.typed else None
    if verdict is None:
        return
    author = [key for key in keys if any(_is_by(key, line) for line in _lines(project.root / BUNDLE_FILE) or [])]
    others = [key for key in keys if key not in author]
    signed = []
    for nr, line in enumerate(_lines(project.root / path) or [], 1):
        try:
            signed.append(verified(line, others))
        except UntrustedError as error:
            is_own = any(_is_by(key, line) for key in author)
            yield f"{path}:{nr}: {'the key that signed the gates signed it, and a referee is somebody else' if is_own else error}"
    if pretty_json(verification_summary(verdict)) not in signed:
        yield f"{path}: the referee's verdict is not signed by a trusted key"


def _is_by(key: SSlibKey, line: object) -> bool:
    with contextlib.suppress(UntrustedError):
        verified(line, [key])
        return True
    return False
