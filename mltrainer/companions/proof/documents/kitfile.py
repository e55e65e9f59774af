"""The project as a Kitfile, by which KitOps packs model, data, config and documents into one artifact of a registry."""

from __future__ import annotations

from typing import Any

from mltrainer.companions.proof.documents.answers import Answers
from mltrainer.configs import yaml
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization
from mltrainer.workspace import MODEL_FOLDER, PROJECT_FILE, phase_folder

KITFILE = "Kitfile"  # in the project's folder, to which its paths are relative


def kitfile(record: Envelope[Finalization], answers: Answers) -> str:
    """Return the Kitfile (manifest version 1.0.0): the delivered folder as the model, the data's files, config and records."""
    evidence, folder = record.evidence, phase_folder(record.phase)
    named = {"name": record.project.name, "version": evidence.run.id}
    said = {"description": answers.intended_use, "license": answers.license}
    data = [{"name": row.path, "path": row.path, **_present(license=answers.data.license)} for row in evidence.data.files]
    content = {
        "manifestVersion": "1.0.0",
        "package": {**named, **_present(**said, authors=answers.creator and [answers.creator])},
        "model": {**named, "path": f"{folder}/{MODEL_FOLDER}", "framework": "pytorch", **_present(**said)},
        **_present(datasets=data),
        "code": [{"path": PROJECT_FILE, "description": "config of the project"}],
        "docs": [{"path": "phases", "description": "records and reports of the training"}],
    }
    return yaml.dump(content)


def _present(**values: Any) -> dict[str, Any]:
    """Return the values that there are."""
    return {name: value for name, value in values.items() if value}
