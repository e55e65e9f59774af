"""Reads a data set's description in Croissant, MLCommons' vocabulary in JSON-LD, for `mltrainer init --data FILE.jsonld`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mltrainer.errors import InputError
from mltrainer.redaction import redact
from mltrainer.workspace import read_json, sha256_file

DOCUMENTS, ANSWERS_FILE = "documents", "answers.yaml"  # where `mltrainer package` looks for a person's answers
SUFFIX, PACKAGED = ".jsonld", "croissant.json"  # the second as `mltrainer package` names it
PREFIXES = ("https://schema.org/", "http://mlcommons.org/croissant/", "sc:", "cr:")
PROPERTIES = {  # what a person answers of the data: the property of the data set that has it
    "name": "name",
    "description": "description",
    "url": "url",
    "license": "license",
    "creator": "creator",
    "published": "datePublished",
    "citation": "citeAs",
    "collection": "rai:dataCollection",
    "biases": "rai:dataBiases",
    "personal": "rai:personalSensitiveInformation",
    "uses": "rai:dataUseCases",
    "limitations": "rai:dataLimitations",
}


@dataclass(frozen=True)
class DescribedData:
    """The data that a description leads to.

    Attributes:
        path: Its file, beside the description.
        is_compared: Whether the description has the file's digest, which is then the same.
        answers: What it says of the data, by the names of `PROPERTIES`.
    """

    path: Path
    is_compared: bool
    answers: dict[str, str]


def is_description(path: Path) -> bool:
    """Return True if a path names a description in Croissant."""
    return path.suffix.lower() == SUFFIX or path.name == PACKAGED


def read_description(path: Path) -> DescribedData:
    """Return the data that a description leads to; nothing is downloaded.

    Args:
        path: The description. Of the files that it names, exactly one must be in its folder.

    Raises:
        InputError: It is no description of a data set, the file is not here, or its digest is another one.
    """
    hint = "give the table itself as --data"
    content = read_json(path, hint)
    if not isinstance(content, dict) or _short(content.get("@type")) != "Dataset":
        raise InputError("expected a data set described in Croissant", where=str(path), hint=hint)
    files = [row for row in _rows(content.get("distribution")) if _short(row.get("@type")) == "FileObject"]
    here = {found: row for row in files if (found := _found(path.parent, row)) is not None}
    if len(here) != 1:
        names = ", ".join(sorted(_name(row) for row in files)) or "no file"
        message = f"expected one of its files beside it, found {len(here)}; it names {names}"
        raise InputError(message, where=str(path), hint="download the table into its folder, or give the table itself as --data")
    ((file, row),) = here.items()
    digest = row.get("sha256")
    if digest and digest != (own := sha256_file(file)):
        message = f"{file.name} is not what it describes: its sha256 is {own[:12]}, and {str(digest)[:12]} is expected"
        raise InputError(message, where=str(path), hint="download the file again, or ask the data's owner")
    return DescribedData(file, bool(digest), dict(_answers(content)))


def _found(folder: Path, row: dict[str, Any]) -> Path | None:
    """Return a file beside the description, by its relative path or the last part of its address; None: it is not there."""
    address = urlsplit(str(row.get("contentUrl") or ""))
    relative = folder / unquote(address.path) if not address.scheme else folder
    places = (relative, folder / Path(unquote(address.path)).name, folder / Path(_name(row)).name)
    return next((place for place in places if place.is_file() and place.resolve().is_relative_to(folder.resolve())), None)


def _name(row: dict[str, Any]) -> str:
    return str(row.get("name") or row.get("@id") or "?")


def _answers(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, key in PROPERTIES.items():
        said = ", ".join(text for one in _listed(content.get(key)) if (text := _text(one)))
        if said:
            yield name, redact(said)


def _text(value: Any) -> str:
    """Return a property's text: of a person, an organization or a license as an object its name or address."""
    found = next((value[key] for key in ("name", "url", "@id") if value.get(key)), "") if isinstance(value, dict) else value
    return str(found or "").strip()


def _rows(value: Any) -> list[dict[str, Any]]:
    return [one for one in _listed(value) if isinstance(one, dict)]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _short(name: Any) -> str:
    """Return a type's name without its vocabulary."""
    text = str(name)
    return next((text.removeprefix(prefix) for prefix in PREFIXES if text.startswith(prefix)), text)
