"""`mltrainer package`: the documents that others ask for, in a folder of the project; no file of a person is replaced."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mltrainer.cli.common import AsJson, Folder, group, open_project
from mltrainer.cli.output import emit, say
from mltrainer.companions.proof.documents.answers import Answers, blank_answers, read_answers
from mltrainer.companions.proof.documents.checklists import TEMPLATES, filled_in, require_known
from mltrainer.companions.proof.documents.croissant import croissant
from mltrainer.companions.proof.documents.hub_card import hub_card
from mltrainer.companions.proof.documents.kitfile import KITFILE, kitfile
from mltrainer.companions.proof.documents.ml_bom import ml_bom
from mltrainer.companions.proof.documents.ro_crate import CRATE_FILE, ro_crate
from mltrainer.companions.proof.holding import require_gates
from mltrainer.errors import GateError, InputError
from mltrainer.generated_files import folder_within
from mltrainer.project.croissant import ANSWERS_FILE, DOCUMENTS
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization
from mltrainer.records.reading import sound_record
from mltrainer.redaction import redact
from mltrainer.reports.values import counted
from mltrainer.workspace import (
    MODEL_CARD,
    MODEL_FOLDER,
    NOT_TEXT,
    Project,
    pretty_json,
    read_if_whole,
    read_whole,
    sha256_bytes,
    sha256_file,
    write_json,
    write_text,
)

PACKAGED_FILE = "phases/packaged.json"  # beside cited.json: the digests of the documents as they were written
app = group()


@app.command(epilog="Example: mltrainer package")
def package(
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="The folder to write, in the project.")] = DOCUMENTS,
    folder: Folder = None,
    as_json: AsJson = False,
) -> int:
    """Write the documents that others ask for, from the records of a finished project.

    ml-bom.cdx.json is a bill of materials (CycloneDX), model_card.md the card for Hugging Face's hub, croissant.json
    describes the data (Croissant), neurips.md is a paper's checklist, annex_iv.md a template after the EU's AI Act;
    ro-crate-metadata.json and Kitfile make the project an RO-Crate, and a package for KitOps. What no record knows, such as a
    license, is in answers.yaml: fill it in, and run the command again. No document claims conformity.

    ro-crate-metadata.json and Kitfile are in the project's own folder, phases/packaged.json has the digest of each file, and all
    others are in DIR. Nothing is written where a file of one of these names is not as this command wrote it.
    """
    project = open_project(folder)
    target = folder_within(project, to)
    require_gates(project, "finalization")
    record = _record(project)
    answers = _answers(project, target)
    texts = rendered(project, record, answers)
    # Their paths are relative to the folder that they are in: the project's.
    own = {CRATE_FILE: _json(ro_crate(record, answers)), KITFILE: kitfile(record, answers)}
    paths = {target / name: text for name, text in texts.items()} | {project.root / name: text for name, text in own.items()}
    _write(project, paths)
    if not (target / ANSWERS_FILE).exists():
        write_text(target / ANSWERS_FILE, blank_answers())
    if as_json:
        emit({"files": sorted(map(project.relative, paths)), "blank": answers.blanks})
        return 0
    say(f"wrote {', '.join(texts)} to {project.relative(target)}, and {' and '.join(own)}")
    if answers.blanks:
        say(f"{counted(len(answers.blanks), 'question')} left for you in {project.relative(target / ANSWERS_FILE)}")
    return 0


def rendered(project: Project, record: Envelope[Finalization], answers: Answers) -> dict[str, str]:
    """Return the documents by name."""
    card = read_whole(project.phase_dir("finalization") / MODEL_FOLDER / MODEL_CARD).decode()
    return {
        "ml-bom.cdx.json": _json(ml_bom(record, answers)),
        "model_card.md": hub_card(card, answers),
        "croissant.json": _json(croissant(record, answers)),
        **{f"{template.name}.md": filled_in(template, record, answers) for template in TEMPLATES},
    }


def _write(project: Project, texts: Mapping[Path, str]) -> None:
    """Write the documents, and their digests, by which a later call knows a document from a person's file.

    Old and new digests come first, and the new ones alone last: a call that was killed leaves documents that the next one knows.

    Raises:
        InputError: A file is a person's, a link or a folder; nothing is written then.
    """
    kept = read_if_whole(project.root / PACKAGED_FILE)
    written = {name: digests for name, digests in kept.items() if isinstance(digests, list)}
    new = {project.relative(path): [sha256_bytes(redact(text).encode(errors=NOT_TEXT))] for path, text in texts.items()}
    known = {name: [*written.get(name, []), *digests] for name, digests in new.items()}
    strange = [path for path in texts if os.path.lexists(path) and not _is_one_of(path, known[project.relative(path)])]
    if strange:
        named = ", ".join(map(project.relative, strange))
        message = "not a file as `mltrainer package` wrote it, and not replaced"
        raise InputError(message, where=named, hint="move or remove it, then: mltrainer package")
    write_json(project.root / PACKAGED_FILE, {**written, **known})
    for path, text in texts.items():
        write_text(path, text)
    write_json(project.root / PACKAGED_FILE, {**written, **new})


def _is_one_of(path: Path, digests: Sequence[str]) -> bool:
    """Return True for a file, and no link, that has one of the digests."""
    return path.is_file() and not path.is_symlink() and sha256_file(path) in digests


def _json(document: dict[str, Any]) -> str:
    return pretty_json(document).decode()


def _record(project: Project) -> Envelope[Finalization]:
    record = sound_record(project, "finalization")
    if record is None:
        raise GateError("finalization has no record", hint="mltrainer run")
    return record


def _answers(project: Project, target: Path) -> Answers:
    path = target / ANSWERS_FILE
    if not path.exists():
        return Answers()
    answers = read_answers(path, project.relative(path))
    require_known(answers.written, project.relative(path))
    return answers
