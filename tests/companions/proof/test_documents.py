"""The documents that others ask for pass their formats' own validators, hold the record's numbers, and leave the rest blank."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from mltrainer.companions.proof.documents.answers import Answers, DataAnswers, blank_answers, read_answers
from mltrainer.companions.proof.documents.checklists import TEMPLATES
from mltrainer.companions.proof.documents.kitfile import kitfile
from mltrainer.companions.proof.documents.package import rendered
from mltrainer.records.envelope import Envelope
from mltrainer.records.reading import sound_record
from mltrainer.workspace import Project, write_text
from tests.gates.evidence import forge
from tests.projects import evidence_of, kept

FILLED = Answers(
    license="Apache-2.0",
    creator="Our team",
    published="2026-11-29",
    base_model="org/base",
    datasets=["org/digits"],
    users="clerks",
    intended_use="to read digits",
    limitations="not for letters",
    risks="a wrong digit",
    data=DataAnswers(
        **dict.fromkeys(("url", "license"), "https://example.org/data"),
        **{
            name: f"the {name}"
            for name in ("name", "creator", "citation", "description", "collection", "biases", "personal", "uses")
        },
        limitations="only digits",
        published="2026-11-29",
    ),
)
KINDS = ("digits", "houses", "rings", "script")


@pytest.fixture(params=KINDS)
def any_project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    return kept(f"0.9/{request.param}", tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return kept("0.9/digits", tmp_path)


def record_of(project: Project) -> Envelope[Any]:
    record = sound_record(project, "finalization")
    assert record is not None
    return record


def documents(project: Project, answers: Answers = FILLED) -> dict[str, str]:
    return rendered(project, record_of(project), answers)


def front_matter(project: Project, answers: Answers = FILLED) -> Any:
    return yaml.safe_load(documents(project, answers)["model_card.md"].split("---\n")[1])


# --- bill of materials ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("answers", [Answers(), FILLED], ids=["blank", "filled"])
def test_cyclonedx_validates_the_bill_of_materials(any_project, answers):
    validation = pytest.importorskip("cyclonedx.validation.json", reason="pip install 'cyclonedx-python-lib[json-validation]'")
    schema = pytest.importorskip("cyclonedx.schema")
    found = documents(any_project, answers)["ml-bom.cdx.json"]
    fault = validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(found)
    assert fault is None, fault
    wrong = validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(found.replace('"SHA-256"', '"SHA256"'))
    assert wrong is not None


def test_the_bill_names_each_file_and_package_and_what_was_measured(project):
    bom, evidence = json.loads(documents(project)["ml-bom.cdx.json"]), evidence_of(project, "finalization")
    files = {part["name"]: part["hashes"][0]["content"] for part in bom["components"] if part["type"] == "file"}
    assert files == {row["path"]: row["sha256"] for row in evidence["model_files"]}
    addresses = {part["purl"] for part in bom["components"] if part["type"] == "library"}
    assert len(addresses) == len(evidence["environment"]["distributions"])
    assert "pkg:pypi/typing-extensions@4.16.0" in addresses
    metrics = bom["metadata"]["component"]["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    accuracy = next(row for row in metrics if (row["type"], row["slice"]) == ("accuracy", "test"))
    assert float(accuracy["value"]) == evidence["test"]["metrics"]["accuracy"]
    low, high = evidence["test"]["intervals"]["bounds"]["accuracy"]
    assert accuracy["confidenceInterval"] == {"lowerBound": str(low), "upperBound": str(high)}
    parameters = {row["name"]: row["value"] for row in bom["formulation"][0]["workflows"][0]["inputs"][1]["parameters"]}
    assert (parameters["seed"], parameters["optimizer.name"]) == ("42", "adamw")


def test_the_same_record_gives_the_same_bytes_and_another_one_another_serial_number(project):
    before = documents(project)
    assert documents(project) == before
    forge(project, lambda record: record["evidence"].update(runs_tried=99))
    number = json.loads(before["ml-bom.cdx.json"])["serialNumber"]
    assert json.loads(documents(project)["ml-bom.cdx.json"])["serialNumber"] != number


# --- card for the hub -----------------------------------------------------------------------------


def test_the_card_has_license_data_sets_and_base_model_beside_what_it_had(project):
    found = front_matter(project)
    assert (found["license"], found["datasets"], found["base_model"]) == ("apache-2.0", ["org/digits"], "org/base")
    assert found["model-index"][0]["results"][0]["metrics"][0]["type"] == "accuracy"
    text = documents(project)["model_card.md"]
    card = (project.phase_dir("finalization") / "final_model/README.md").read_text()
    assert text.endswith(card.removeprefix("---\n"))


def test_the_hub_reads_the_card(project):
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard(documents(project)["model_card.md"])
    assert (card.data.license, card.data.base_model, card.data.datasets) == ("apache-2.0", "org/base", ["org/digits"])
    assert card.data.eval_results[0].metric_type == "accuracy"


def test_a_license_that_the_hub_does_not_know_is_named_and_a_blank_one_is_no_license(project):
    found = front_matter(project, Answers(license="Our own"))
    assert (found["license"], found["license_name"]) == ("other", "Our own")
    assert "license" not in front_matter(project, Answers())
    assert "# license: yours to say\n" in documents(project, Answers())["model_card.md"]


# --- data -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("answers", [Answers(), FILLED], ids=["blank", "filled"])
def test_mlcroissant_validates_the_description_of_the_data(any_project, answers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a library that it uses
        mlcroissant = pytest.importorskip("mlcroissant", reason="pip install mlcroissant")
        found = mlcroissant.Dataset(json.loads(documents(any_project, answers)["croissant.json"])).metadata.issues
    assert (list(found.errors), len(found.warnings)) == ([], 0 if answers is FILLED else 3)


def test_the_data_is_described_by_its_files_columns_and_what_a_person_said(tmp_path):
    houses = kept("0.9/houses", tmp_path)
    found, data = json.loads(documents(houses)["croissant.json"]), evidence_of(houses, "finalization")["data"]
    (file,) = found["distribution"]
    assert (file["contentUrl"], file["sha256"]) == ("houses.csv", data["files"][0]["sha256"])
    assert [field["name"] for field in found["recordSet"][0]["field"]] == [column["name"] for column in data["columns"]]
    assert (found["rai:dataBiases"], found["rai:personalSensitiveInformation"]) == ("the biases", "the personal")
    assert "rai:dataBiases" not in json.loads(documents(houses, Answers())["croissant.json"])


# --- packages -------------------------------------------------------------------------------------


def test_the_kitfile_packs_the_delivered_folder_and_the_data(tmp_path):
    houses = kept("0.9/houses", tmp_path)
    found = yaml.safe_load(kitfile(record_of(houses), FILLED))
    assert found["manifestVersion"] == "1.0.0"
    assert (found["model"]["path"], found["model"]["license"]) == ("phases/05_finalization/final_model", "Apache-2.0")
    assert [row["path"] for row in found["datasets"]] == ["houses.csv"]
    assert {*found} <= {"manifestVersion", "package", "model", "datasets", "code", "docs"}  # keys of the Kitfile's reference
    assert "license" not in yaml.safe_load(kitfile(record_of(houses), Answers()))["model"]
    for path in (found["model"]["path"], *(row["path"] for part in ("code", "docs") for row in found[part])):
        assert (houses.root / path).exists()


# --- templates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", TEMPLATES, ids=[template.name for template in TEMPLATES])
def test_each_section_has_what_the_record_says_and_marks_the_rest_as_a_persons(any_project, template):
    found = documents(any_project, Answers())[f"{template.name}.md"]
    blanks = [f"`{template.name}.{section.key}`" for section in template.sections]
    assert [blank for blank in blanks if found.count(blank) != 1] == []
    assert found.count("**For a person to fill in**") == len(template.sections)
    assert "It claims no conformity" in found
    assert "trained twice, the second time in a fresh process: the same bits" in found


def test_the_test_results_stand_in_the_templates_as_they_were_recorded(project):
    forge(project, lambda record: record["evidence"]["test"]["metrics"].update(accuracy=0.123))
    assert "accuracy 0.123 (" in documents(project)["annex_iv.md"]
    assert "on 179 test samples, opened once; 2 runs tried in all" in documents(project)["neurips.md"]


def test_a_persons_text_takes_the_place_of_the_mark(project):
    found = documents(project, Answers(risks="a wrong digit", written={"neurips.theory": "It has none."}))["neurips.md"]
    assert "From a person: It has none." in found
    assert "From a person: a wrong digit" in found
    assert "`neurips.theory`" not in found


# --- the command ----------------------------------------------------------------------------------


def test_the_command_asks_once_and_renders_what_was_answered(digits, cli):
    where = ("--project", digits.root)
    said = cli(
        "package",
        *where,
        code=0,
        out="neurips.md, annex_iv.md to documents, and ro-crate-metadata.json and Kitfile",
    )
    assert "left for you in documents/answers.yaml" in said.out
    path = digits.root / "documents/answers.yaml"
    assert path.read_text() == blank_answers()
    assert read_answers(path, "answers.yaml") == Answers()
    path.write_text(path.read_text().replace("license: null  # the model's", "license: MIT  # the model's"))
    blank = cli("package", *where, "--json", code=0).json["blank"]
    assert "license" not in blank
    assert {"creator", "data.license"} < {*blank}
    assert "license: mit" in (digits.root / "documents/model_card.md").read_text()
    path.write_text("written: {neurips.ethic: yes indeed}\n")
    cli("package", *where, code=1, err="did you mean neurips.ethics?")
    path.write_text("licence: MIT\n")
    cli("package", *where, code=1, err="documents/answers.yaml:1")


def test_nothing_is_written_of_a_project_whose_gates_do_not_hold(digits, cli):
    (digits.phase_dir("finalization") / "final_report.md").write_text("better")
    cli("package", "--project", digits.root, code=4, err="nothing was written: the gate of finalization is stale")
    assert not (digits.root / "documents").exists()


def tree(project: Project) -> dict[str, bytes]:
    """Return the files' bytes by path, without those that a look at the gates keeps for the next one."""
    found = {path.relative_to(project.root).as_posix(): path for path in project.root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith(".mltrainer/cache/")}


@pytest.mark.parametrize("number", [0, 1, 4, 6])
def test_documents_of_a_command_that_was_killed_are_replaced(digits, cli, monkeypatch, number):
    where, answers = ("--project", digits.root), digits.root / "documents/answers.yaml"
    cli("package", *where, code=0)
    answers.write_text("{license: MIT, published: 2026-11-29}")
    left = iter([write_text] * number)
    with monkeypatch.context() as here:
        here.setattr("mltrainer.companions.proof.documents.package.write_text", lambda *given: next(left)(*given))
        cli("package", *where, code=3)
    answers.write_text("{license: Apache-2.0, published: 2026-11-30}")
    cli("package", *where, code=0)
    assert "Apache-2.0" in (digits.root / "documents/model_card.md").read_text() + (digits.root / "Kitfile").read_text()


@pytest.mark.parametrize("name", ["Kitfile", "ro-crate-metadata.json", "documents/model_card.md"])
def test_a_persons_file_is_not_replaced(digits, cli, name):
    where, path = ("--project", digits.root), digits.root / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    before = tree(digits)
    cli("package", *where, code=1, err=f"{name}: not a file as `mltrainer package` wrote it, and not replaced\n  next: move")
    assert tree(digits) == before
    path.unlink()
    cli("package", *where, code=0)
    (digits.root / "documents/answers.yaml").write_text("{license: MIT, published: 2026-11-29}")
    cli("package", *where, code=0)  # what it wrote itself it replaces
    cli("package", *where, "--to", "elsewhere", code=0)
    path.write_text("mine")
    cli("package", *where, code=1, err=name)
    path.unlink()
    path.symlink_to(digits.root / "mltrainer.yaml")
    cli("package", *where, code=1, err=name)
    cli("gate", "check", *where, code=0)


@pytest.mark.parametrize("folder", ["phases", "phases/05_finalization/final_model", ".mltrainer/x", ".git/hooks", "link"])
def test_documents_stay_out_of_the_folders_that_gates_account_for(digits, cli, folder):
    (digits.root / "link").symlink_to("phases")
    before = tree(digits)
    cli("package", "--project", digits.root, "--to", folder, code=1, err=f"--to {folder}: expected a folder outside of")
    assert tree(digits) == before
