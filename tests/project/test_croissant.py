"""`init --data` reads a Croissant description: its file by digest, and what it says of the data for `package`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from mltrainer.companions.proof.documents.answers import DataAnswers, read_answers
from mltrainer.companions.proof.documents.croissant import CONTEXT
from mltrainer.project.croissant import PROPERTIES, read_description
from mltrainer.workspace import sha256_file
from tests.conftest import Cli

TABLE = "size,rooms,price\n" + "".join(f"{40 + n % 50},{1 + n % 4},{90 + 3 * (n % 50)}\n" for n in range(120))


def write_described(folder: Path, **changed: Any) -> Path:
    """Write a table and its description; return the description's path."""
    folder.mkdir(exist_ok=True)
    table = folder / "houses.csv"
    table.write_text(TABLE)
    file = {
        "@type": "cr:FileObject",
        "@id": "houses.csv",
        "name": "houses.csv",
        "contentUrl": "https://example.org/get/houses.csv?download=1",
        "encodingFormat": "text/csv",
        "sha256": sha256_file(table),
    }
    content = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": "houses",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "description": "prices of houses",
        "license": {"@type": "sc:CreativeWork", "url": "https://creativecommons.org/licenses/by/4.0/"},
        "creator": [{"@type": "sc:Person", "name": "Ada"}, {"@type": "sc:Person", "name": "Grace"}],
        "rai:dataBiases": ["cities", "newer houses"],
        "distribution": [{**file, **changed.pop("file", {})}],
        **changed,
    }
    path = folder / "houses.jsonld"
    path.write_text(json.dumps(content))
    return path


def test_a_project_begins_with_the_described_file_and_what_is_said_of_it(tmp_path, cli: Cli):
    description = write_described(tmp_path / "data")
    said = cli("init", tmp_path / "project", "--data", description, "--target", "price", code=0)
    assert "houses.jsonld describes houses.csv: its digest is the described one" in said.out
    config = yaml.safe_load((tmp_path / "project/mltrainer.yaml").read_text())
    assert config["data"]["source"] == "../data/houses.csv"
    answers = read_answers(tmp_path / "project/documents/answers.yaml", "answers.yaml").data
    assert answers.model_dump(exclude_none=True) == {
        "name": "houses",
        "description": "prices of houses",
        "license": "https://creativecommons.org/licenses/by/4.0/",
        "creator": "Ada, Grace",
        "biases": "cities, newer houses",
    }


def test_every_answer_on_the_data_has_its_property():
    assert PROPERTIES.keys() == DataAnswers.model_fields.keys()


def test_a_description_of_the_official_package_is_read(tmp_path):
    mlc = pytest.importorskip("mlcroissant")
    (tmp_path / "houses.csv").write_text(TABLE)
    file = mlc.FileObject(
        id="houses.csv",
        name="houses.csv",
        content_url="houses.csv",
        encoding_formats=["text/csv"],
        sha256=sha256_file(tmp_path / "houses.csv"),
    )
    data = mlc.Metadata(
        name="houses", description="prices", license=["cc-by-4.0"], url="https://example.org", distribution=[file]
    )
    path = tmp_path / "houses.jsonld"
    path.write_text(json.dumps(data.to_json(), default=str))
    found = read_description(path)
    assert (found.path, found.is_compared) == (tmp_path / "houses.csv", True)
    assert found.answers == {"name": "houses", "description": "prices", "license": "cc-by-4.0", "url": "https://example.org"}


def test_a_file_without_a_digest_is_said_to_be_not_compared(tmp_path, cli: Cli):
    description = write_described(tmp_path / "data", file={"sha256": None})
    said = cli("init", tmp_path / "project", "--data", description, "--target", "price", code=0)
    assert "houses.jsonld describes houses.csv: the description has no digest to compare it with" in said.out


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"file": {"sha256": "0" * 64}}, "houses.csv is not what it describes"),
        (
            {"file": {"name": "x.csv", "contentUrl": "https://example.org/x.csv"}},
            "expected one of its files beside it, found 0; it names x.csv",
        ),
        (
            {"file": {"name": "passwd", "contentUrl": "../../../../../../etc/passwd"}},
            "expected one of its files beside it, found 0",
        ),
        ({"@type": "sc:Person"}, "expected a data set described in Croissant"),
        ({"distribution": {"@type": "cr:FileSet", "includes": "*.png"}}, "found 0; it names no file"),
    ],
)
def test_what_does_not_lead_to_its_file_is_refused(tmp_path, cli: Cli, changed, told):
    description = write_described(tmp_path / "data", **changed)
    said = cli("init", tmp_path / "project", "--data", description, "--target", "price", code=1, err=told)
    assert "next: " in said.err
    assert not (tmp_path / "project").exists()


def test_a_blank_description_is_refused(tmp_path, cli: Cli):
    path = tmp_path / "houses.jsonld"
    path.write_text("")
    cli("init", tmp_path / "project", "--data", path, "--target", "price", code=1, err="not readable as JSON")
