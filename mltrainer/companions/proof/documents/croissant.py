"""The data set that a model was trained on, as Croissant 1.1 describes one, with the properties of its RAI vocabulary."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from mltrainer.companions.proof.documents.answers import Answers, DataAnswers
from mltrainer.project.croissant import PROPERTIES
from mltrainer.records.common import FileRow
from mltrainer.records.envelope import Envelope
from mltrainer.records.finalization import Finalization
from mltrainer.records.planning import Column

# The vocabulary's own context, as the package mlcroissant 1.1.1 writes it.
_CR = (
    *(
        "citeAs",
        "column",
        "equivalentProperty",
        "extract",
        "field",
        "fileProperty",
        "fileObject",
        "fileSet",
        "format",
        "includes",
    ),
    *(
        "isLiveDataset",
        "jsonPath",
        "key",
        "md5",
        "parentField",
        "path",
        "recordSet",
        "references",
        "regex",
        "repeated",
        "replace",
    ),
    *("samplingRate", "separator", "source", "subField", "transform"),
)
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in _CR},
}
VERSION = ("http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0")
TYPES = {"number": "sc:Float", "date": "sc:Date"}  # of a column's kind; any other one is text
FORMATS = {  # by a file's ending
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".json": "application/json",
    ".jsonl": "application/jsonlines",
    ".parquet": "application/vnd.apache.parquet",
    ".txt": "text/plain",
    ".zip": "application/zip",
}


def croissant(record: Envelope[Finalization], answers: Answers) -> dict[str, Any]:
    """Return the data set's files by digest, its columns, and what a person answered; an open question is left out."""
    data, said = record.evidence.data, answers.data
    files = [_file(row) for row in data.files]
    source = next((one["@id"] for one in files if one["@type"] == "cr:FileObject"), None)
    rows = {
        "@type": "cr:RecordSet",
        "@id": "rows",
        "name": "rows",
        "field": [_field(column, source) for column in data.columns or ()],
    }
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": said.name or f"data of {record.project.name}",
        "conformsTo": list(VERSION),
        "version": f"1.0.0+{data.sha256[:12]}",
        **_answered(said),
        "distribution": files,
        "recordSet": [rows] if data.columns and source else [],
    }


def _answered(said: DataAnswers) -> dict[str, Any]:
    values = {PROPERTIES[name]: value for name, value in said if value and name != "name"}
    creator = {"creator": {"@type": "sc:Organization", "name": said.creator}} if said.creator else {}
    return values | creator


def _file(row: FileRow) -> dict[str, Any]:
    """Return a file by its digest; of a folder, whose digest is none of a file, a pattern of its files."""
    path = PurePosixPath(row.path)
    if not path.suffix or "*" in row.path:
        pattern = row.path if "*" in row.path else f"{row.path}/**"
        return {"@type": "cr:FileSet", "@id": row.path, "name": row.path, "includes": pattern}
    ending = FORMATS.get(path.suffix.lower(), "application/octet-stream")
    named = {"@type": "cr:FileObject", "@id": row.path, "name": path.name, "contentUrl": row.path}
    return {**named, "contentSize": f"{row.size} B", "encodingFormat": ending, "sha256": row.sha256}


def _field(column: Column, source: str | None) -> dict[str, Any]:
    extracted = {"fileObject": {"@id": source}, "extract": {"column": column.name}}
    missing = f", missing in {column.missing} rows" if column.missing else ""
    return {
        "@type": "cr:Field",
        "@id": f"rows/{column.name}",
        "name": column.name,
        "description": f"{column.kind}, {column.distinct} different values{missing}, in the rows for training and validation",
        "dataType": TYPES.get(column.kind, "sc:Text"),
        "source": extracted,
    }
