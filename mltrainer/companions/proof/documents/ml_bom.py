"""The bill of materials of a delivered model, as CycloneDX 1.6 describes one of machine learning (ML-BOM)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from mltrainer.companions.proof.documents.answers import Answers
from mltrainer.companions.proof.signatures.statements import package_url
from mltrainer.configs.loading import at, flatten
from mltrainer.records.common import FileRow
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization

SPEC = "1.6"
LEARNING = {  # the approach of each kind of task, in CycloneDX's words
    **dict.fromkeys(
        ("image_classification", "tabular_classification", "tabular_regression", "text_classification"), "supervised"
    ),
    "text_generation": "self-supervised",
}


def ml_bom(record: Envelope[Finalization], answers: Answers) -> dict[str, Any]:
    """Return the bill of materials: the model with its numbers, its files, the data, each package, and how it was trained.

    It holds no time: the same record and answers give the same bytes.
    """
    evidence = record.evidence
    packages = [_package(row.name, row.version) for row in evidence.environment.distributions]
    parts = [_data(record, answers), *map(_file, evidence.model_files), *map(_file, evidence.data.files), *packages]
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'urn:mltrainer:record:{record.seal}')}",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "mltrainer", "version": record.mltrainer}]},
            "component": _model(record, answers),
        },
        "components": parts,
        "dependencies": [{"ref": "model", "dependsOn": [part["bom-ref"] for part in parts]}],
        "formulation": [{"bom-ref": "formula", "workflows": [_training(record)]}],
    }


def _model(record: Envelope[Finalization], answers: Answers) -> dict[str, Any]:
    evidence = record.evidence
    return {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": record.project.name,
        "version": evidence.run.id,
        **({"licenses": [{"license": {"name": answers.license}}]} if answers.license else {}),
        **({"manufacturer": {"name": answers.creator}} if answers.creator else {}),
        "modelCard": {
            "modelParameters": _parameters(evidence),
            "quantitativeAnalysis": {"performanceMetrics": list(_metrics(evidence))},
            "considerations": _considerations(answers),
        },
        "properties": _properties({"mltrainer:parameters": evidence.run.parameters, "mltrainer:seed": evidence.run.seed}),
    }


def _parameters(evidence: Finalization) -> dict[str, Any]:
    kind, name = at(evidence.config, "task.kind"), at(evidence.config, "model.name")
    approach = LEARNING.get(str(kind))
    return {
        **({"approach": {"type": approach}} if approach else {}),
        **({"task": str(kind).replace("_", " ")} if kind else {}),
        **({"modelArchitecture": str(name)} if name else {}),
        "datasets": [{"ref": "data"}],
    }


def _metrics(evidence: Finalization) -> Iterator[dict[str, Any]]:
    """Yield each metric on the test split with its interval, and on the validation split."""
    bounds = evidence.test.intervals.bounds if evidence.test.intervals else {}
    for split, metrics in (("test", evidence.test.metrics), ("validation", evidence.validation)):
        for name, value in sorted(metrics.items()):
            between = bounds.get(name) if split == "test" else None
            ends = {"lowerBound": str(between[0]), "upperBound": str(between[1])} if between else None
            yield {"type": name, "value": str(value), "slice": split, **({"confidenceInterval": ends} if ends else {})}


def _considerations(answers: Answers) -> dict[str, Any]:
    texts = {"users": answers.users, "useCases": answers.intended_use, "technicalLimitations": answers.limitations}
    risks = {"ethicalConsiderations": [{"name": answers.risks}]} if answers.risks else {}
    return {**{name: [text] for name, text in texts.items() if text}, **risks}


def _data(record: Envelope[Finalization], answers: Answers) -> dict[str, Any]:
    data, said = record.evidence.data, answers.data
    name = said.name or f"data of {record.project.name}"
    counts = ", ".join(f"{split.samples} {name}" for name, split in data.splits)
    contents = {"contents": {"url": said.url}} if said.url else {}
    return {
        "type": "data",
        "bom-ref": "data",
        "name": name,
        "version": data.sha256[:12],
        **({"licenses": [{"license": {"name": said.license}}]} if said.license else {}),
        "data": [{"type": "dataset", "name": name, "description": f"samples: {counts}", **contents}],
        "properties": _properties({"mltrainer:sha256": data.sha256}),
    }


def _file(row: FileRow) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": row.sha256}]
    return {"type": "file", "bom-ref": f"file:{row.path}", "name": row.path, "hashes": hashes}


def _package(name: str, version: str) -> dict[str, Any]:
    address = package_url(name, version)
    return {"type": "library", "bom-ref": address, "name": name, "version": version, "purl": address}


def _training(record: Envelope[Finalization]) -> dict[str, Any]:
    """Return the training: its run, its config key by key, and the files that it made."""
    evidence = record.evidence
    config = [
        {"name": key, "value": _text(value)} for key, value in sorted(flatten(evidence.config).items()) if value is not None
    ]
    contract = {"code": evidence.run.code_sha256, "config": evidence.run.config_sha256, "commit": record.source.commit}
    return {
        "bom-ref": "training",
        "uid": evidence.run.id,
        "name": "training",
        "taskTypes": ["build"],
        "inputs": [{"resource": {"ref": "data"}}, {"parameters": config}],
        "outputs": [{"type": "artifact", "resource": {"ref": f"file:{row.path}"}} for row in evidence.model_files],
        "properties": _properties({f"mltrainer:{name}": value for name, value in contract.items() if value}),
    }


def _properties(values: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"name": name, "value": str(value)} for name, value in values.items()]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
