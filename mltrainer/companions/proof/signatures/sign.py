"""`mltrainer sign --key FILE`: one key signs the gates, the model's origin, and the model's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Folder, group, open_project, path_name
from mltrainer.cli.output import emit, say, warn
from mltrainer.companions.proof.holding import require_gates
from mltrainer.companions.proof.signatures.envelopes import BUNDLE_FILE, SUMMARY_FILE, bundle
from mltrainer.companions.proof.signatures.keys import SigningKey, dangers, signing_key
from mltrainer.companions.proof.signatures.model import file_faults, model_signature, signed_files
from mltrainer.companions.proof.signatures.statements import (
    MODEL_PREFIX,
    ORIGIN,
    gate_of,
    list_of,
    model_digests,
    signed_statements,
    verification_summary,
)
from mltrainer.companions.proof.signatures.tokens import PREFIX, token_key
from mltrainer.errors import GateError
from mltrainer.records.verdict import WRITTEN, verdict_of
from mltrainer.reports.values import counted
from mltrainer.workspace import MODEL_SIGNATURE, Project, locked_project, phase_folder, pretty_json, read_json, write_atomic

VERDICT = "the verdict's summary"
app = group()


@app.command(epilog="Example: mltrainer sign --key key.pem")
def sign(
    key: Annotated[str, typer.Option("--key", metavar="FILE", help="Your private key: PEM, P-256; or a token's: pkcs11:...")],
    verdict: Annotated[
        Path | None, typer.Option("--verdict", metavar="FILE", parser=path_name, help="As a referee: sign this verdict alone.")
    ] = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Sign the gates, the model's origin and the model with your key; `gate check --trust` then refuses anything else.

    Written are phases/signed.intoto.jsonl and final_model/model.sig, in place of earlier signatures. Nothing is signed unless
    every gate that there is holds. An encrypted key's password, or a token's PIN, is asked for, or taken
    from MLTRAINER_KEY_PASSWORD.

    With --verdict, which needs no project, verdict.intoto.jsonl beside FILE is written: a summary of the verdict (SLSA) with your
    signature.
    """
    if verdict is not None:
        return _sign_verdict(verdict, key, as_json)
    project = open_project(folder)
    signing = _key(key, project.root)
    with locked_project(project):
        files, statements = signed(project, signing)
    if as_json:
        emit({"signed": statements, "files": files, "key": signing.public.keyid})
        return 0
    what = counted(len(statements), "gate") if len(files) == 1 else f"{len(statements) - 1} gates, {ORIGIN} and the model"
    say(f"signed {what} with key {signing.public.keyid[:16]}: commit {' and '.join(files)}")
    say("a reviewer who has your public key: mltrainer gate check --trust ../key.pub")
    return 0


def _key(name: str, root: Path | None) -> SigningKey:
    """Return the key of a token, or of a file, after a warning where others may come to read it."""
    if name.startswith(PREFIX):
        return token_key(name)
    path = path_name(name)
    signing = signing_key(path)
    for danger in dangers(path, root):
        warn(f"warning: {danger}")
    return signing


def _sign_verdict(file: Path, key: str, as_json: bool) -> int:
    found = verdict_of(read_json(file, WRITTEN), str(file))
    signing, path = _key(key, None), file.with_name(SUMMARY_FILE)
    write_atomic(path, bundle([pretty_json(verification_summary(found))], signing))
    if as_json:
        emit({"signed": [VERDICT], "files": [str(path)], "key": signing.public.keyid})
        return 0
    say(f"signed {VERDICT} with key {signing.public.keyid[:16]}: {path}")
    say(f"for its author, who copies it to {phase_folder('finalization')}/{SUMMARY_FILE}")
    return 0


def signed(project: Project, signing: SigningKey) -> tuple[list[str], list[str]]:
    """Sign a project, and return the files that were written and what was signed.

    Raises:
        GateError: A gate does not hold, or the model's folder is not what was delivered.
    """
    require_gates(project)
    statements = signed_statements(project)
    written = {BUNDLE_FILE: bundle([*statements.values(), list_of(statements)], signing)}
    if (gate := statements.get(gate_of("finalization"))) is not None:
        signature = model_signature(project.root / MODEL_PREFIX, signing)
        _require_delivered(signature, model_digests(json.loads(gate)), signing)
        written[f"{MODEL_PREFIX}{MODEL_SIGNATURE}"] = signature
    for path, content in written.items():
        write_atomic(project.root / path, content)
    return [*written], [*statements]


def _require_delivered(signature: bytes, recorded: dict[str, str], signing: SigningKey) -> None:
    if faults := list(file_faults(signed_files(signature, [signing.public]), recorded)):
        message = f"nothing was written: the folder is not the model that was delivered: {'; '.join(faults[:3])}"
        raise GateError(message, where=MODEL_PREFIX.rstrip("/"), hint="bring the delivered files back, and move others elsewhere")
