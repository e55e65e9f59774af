"""`mltrainer sign --key FILE`: one key signs the gates, the model's origin, and the model's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mltrainer.cli.common import AsJson, Folder, group, open_project, path_name
from mltrainer.cli.output import emit, say, warn
from mltrainer.companions.proof.holding import require_gates
from mltrainer.companions.proof.signatures import libraries
from mltrainer.companions.proof.signatures.envelopes import BUNDLE_FILE, bundle
from mltrainer.companions.proof.signatures.keys import SigningKey, dangers, signing_key
from mltrainer.companions.proof.signatures.model import file_faults, model_signature, signed_files
from mltrainer.companions.proof.signatures.statements import MODEL_PREFIX, ORIGIN, gate_of, model_digests, signed_statements
from mltrainer.errors import GateError
from mltrainer.reports.values import counted
from mltrainer.workspace import MODEL_SIGNATURE, Project, locked_project, write_atomic

app = group()


@app.command(epilog="Example: mltrainer sign --key key.pem")
def sign(
    key: Annotated[Path, typer.Option("--key", metavar="FILE", parser=path_name, help="Your private key: PEM, P-256.")],
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Sign the gates, the model's origin and the model with your key; `gate check --trust` then refuses anything else.

    Written are phases/signed.intoto.jsonl and final_model/model.sig, in place of earlier signatures. Nothing is signed unless
    every gate holds that there is. An encrypted key's password is asked for, or taken from MLTRAINER_KEY_PASSWORD.
    """
    project = open_project(folder)
    signing = signing_key(key)
    for danger in dangers(key, project.root):
        warn(f"warning: {danger}")
    with libraries(), locked_project(project):
        files, statements = signed(project, signing)
    if as_json:
        emit({"signed": statements, "files": files, "key": signing.public.keyid})
        return 0
    what = counted(len(statements), "gate") if len(files) == 1 else f"{len(statements) - 1} gates, {ORIGIN} and the model"
    say(f"signed {what} with key {signing.public.keyid[:16]}: commit {' and '.join(files)}")
    say("a reviewer who has your public key: mltrainer gate check --trust key.pub")
    return 0


def signed(project: Project, signing: SigningKey) -> tuple[list[str], list[str]]:
    """Sign a project, and return the files that were written and what was signed.

    Raises:
        GateError: A gate does not hold, or the model's folder is not what was delivered.
    """
    require_gates(project)
    statements = signed_statements(project)
    written = {BUNDLE_FILE: bundle(statements.values(), signing)}
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
