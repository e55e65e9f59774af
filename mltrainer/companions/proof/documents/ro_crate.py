"""The project as an RO-Crate: a Process Run Crate, in which the training made the model from data and config."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mltrainer.companions.proof.documents.answers import Answers
from mltrainer.records.common import FileRow
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization
from mltrainer.records.reading import RECORD_FILE
from mltrainer.workspace import phase_folder

CRATE_FILE = "ro-crate-metadata.json"  # in the project's folder, which is the crate
CONTEXT = ["https://w3id.org/ro/crate/1.1/context", {"sha256": "https://schema.org/sha256"}]
PROCESS = "https://w3id.org/ro/wfrun/process/0.5"
REPORTS = ("final_report.md", RECORD_FILE)  # of finalization


def ro_crate(record: Envelope[Finalization], answers: Answers) -> dict[str, Any]:
    """Return the crate's metadata; it conforms to RO-Crate once a person has named license and day of publication."""
    evidence, run = record.evidence, record.evidence.run
    model, data = [*map(_file, evidence.model_files)], [*map(_file, evidence.data.files)]
    reports = [{"@id": f"{phase_folder(record.phase)}/{name}", "@type": "File", "name": name} for name in REPORTS]
    inputs = data or [{"@id": "#data", "@type": "CreativeWork", "name": answers.data.name or evidence.data.source or "data"}]
    agent = [{"@id": "#creator", "@type": "Organization", "name": answers.creator}] if answers.creator else []
    training = {
        "@id": f"#{run.id}",
        "@type": "CreateAction",
        "name": f"training of {record.project.name}",
        "description": f"run {run.id}: {run.steps} steps, seed {run.seed}",
        "instrument": {"@id": "#mltrainer"},
        "object": _named(inputs),
        "result": _named(model),
        **({"agent": {"@id": "#creator"}} if agent else {}),
    }
    program = {"@id": "#mltrainer", "@type": "SoftwareApplication", "name": "mltrainer", "softwareVersion": record.mltrainer}
    profile = {"@id": PROCESS, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    parts = [*model, *data, *reports]
    others = [one for one in inputs if one not in parts]
    graph = [_descriptor(), _root(record, answers, parts), profile, *parts, *others, training, program, *agent]
    return {"@context": CONTEXT, "@graph": graph}


def _descriptor() -> dict[str, Any]:
    return {
        "@id": CRATE_FILE,
        "@type": "CreativeWork",
        "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        "about": {"@id": "./"},
    }


def _root(record: Envelope[Finalization], answers: Answers, parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    run = record.evidence.run
    said = {"license": answers.license, "datePublished": answers.published}
    return {
        "@id": "./",
        "@type": "Dataset",
        "name": record.project.name,
        "description": answers.intended_use or f"a model that run {run.id} trained, with the record of its training",
        "conformsTo": {"@id": PROCESS},
        "hasPart": _named(parts),
        "mentions": {"@id": f"#{run.id}"},
        **{name: value for name, value in said.items() if value},
    }


def _file(row: FileRow) -> dict[str, Any]:
    name = row.path.rpartition("/")[2]
    return {"@id": row.path, "@type": "File", "name": name, "contentSize": str(row.size), "sha256": row.sha256}


def _named(entities: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    return [{"@id": entity["@id"]} for entity in entities]
