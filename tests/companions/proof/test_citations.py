"""Numbers in a user's own text are the records', in the form that the user gave them, or are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltrainer.companions.proof.citations import citations, filled, formed
from mltrainer.workspace import Project, read_json
from tests.gates.evidence import forge
from tests.projects import evidence_of, kept

ACCURACY = "finalization.test.metrics.accuracy"
EVIDENCE = {"finalization": {"test": {"metrics": {"accuracy": 0.96089}, "samples": 1437, "sealed": True}, "rows": [{"x": -0.5}]}}


def marked(reference: str, text: str) -> str:
    return f"<!-- mltrainer {reference} -->{text}<!-- /mltrainer -->"


@pytest.mark.parametrize(
    ("value", "like", "expected"),
    [
        (0.96089, "", "0.9609"),
        (0.96089, "many", "0.9609"),
        (0.96089, "**0.95**", "**0.96**"),
        (0.96089, "0.95 or so", "0.96 or so"),
        (0.96089, "0.9", "1.0"),
        (0.96089, "0.957", "0.961"),
        (0.96089, "1", "1"),
        (0.96089, "95.7%", "96.1%"),
        (0.96089, "95.7 %", "96.1 %"),
        (0.96089, r"95\%", r"96\%"),
        (0.5, "+0.1", "+0.5"),
        (-0.5, "0.1", "-0.5"),
        (1437, "", "1437"),
        (1437, "7", "1437"),
        (1437, "1,000", "1,437"),
        (1234567.8, "1,000.0", "1,234,567.8"),
    ],
)
def test_a_number_keeps_the_form_that_it_was_given(value, like, expected):
    assert formed(value, like) == expected


def test_markdown_and_latex_are_filled_and_the_rest_of_the_text_stays():
    before = (
        f"a {marked(ACCURACY, '0.9')} b\n% \\mltrainer{{finalization.test.samples}}{{1,000}} and \\mltrainer{{{ACCURACY}}}{{}}\n"
    )
    found = citations(before, EVIDENCE)
    assert [(one.line, one.expected) for one in found] == [(1, "1.0"), (2, "1,437"), (2, "0.9609")]
    after = filled(before, found)
    assert after == before.replace(">0.9<", ">1.0<").replace("1,000", "1,437").replace(
        f"{ACCURACY}}}{{}}", f"{ACCURACY}}}{{0.9609}}"
    )
    assert [one.fault for one in citations(after, EVIDENCE)] == [None] * 3


@pytest.mark.parametrize(
    "reference", ["finalization.test", "finalization.test.sealed", "finalization.none", "baseline.run", "nothing", "finalization"]
)
def test_a_reference_to_no_number_is_named_and_its_text_stays(reference):
    before = marked(reference, "0.9")
    (one,) = citations(before, EVIDENCE)
    assert one.fault == f"no record has a number named {reference}"
    assert filled(before, [one]) == before


def test_a_number_in_a_list_is_cited_by_its_place():
    (one,) = citations(marked("finalization.rows.0.x", "-0.50"), EVIDENCE)
    assert one.fault is None


# --- in a project ---------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return kept("0.9/digits", tmp_path)


def write(project: Project, text: str, name: str = "README.md") -> Path:
    path = project.root / name
    path.write_text(text)
    return path


@pytest.mark.slow
def test_a_text_is_filled_and_bound_until_somebody_changes_it_or_the_record(project, cli):
    where = ("--project", project.root)
    value = evidence_of(project, "finalization")["test"]["metrics"]["accuracy"]
    path = write(project, f"# Ours\n\nIt reaches {marked(ACCURACY, '0.999')}.\n")
    cli("cite", "README.md", *where, code=0, out="README.md: 1 number, 1 filled")
    assert f">{value:.3f}<" in path.read_text()
    assert read_json(project.root / "phases/cited.json") == {"files": ["README.md"]}
    cli("cite", "--check", *where, code=0, out="1 number, 0 wrong")
    cli("gate", "check", *where, code=0, out="all gates hold")
    write(project, path.read_text().replace(f"{value:.3f}", "0.999"))
    told = f"README.md:3: 0.999, but {ACCURACY} is {value:.3f}; next: mltrainer cite README.md"
    assert told in cli("gate", "check", *where, code=4).out
    assert cli("gate", "check", "--json", *where, code=4).json["cited"] == [told]
    assert f"closed  {project.root}" in cli("gate", "check", "--projects", project.root, code=4).out
    cli("cite", "--check", *where, code=4, out="1 number, 1 wrong")
    assert ">0.999<" in path.read_text()
    cli("cite", *where, code=0)
    forge(project, lambda record: record["evidence"]["test"]["metrics"].update(accuracy=0.5))
    assert f"but {ACCURACY} is 0.500" in cli("gate", "check", *where, code=4).out


def test_a_number_that_no_record_has_gets_a_next_step_that_can_help(project, cli):
    where = ("--project", project.root)
    write(project, marked("finalization.test.nosuch", "1") + marked("nosuch.x", "1") + marked(ACCURACY, "0.9"))
    said = cli("cite", "README.md", *where, code=4).out
    assert "named finalization.test.nosuch; next: mltrainer cite --list finalization\n" in said
    assert "named nosuch.x; next: mltrainer cite --list .\n" in said
    record = project.phase_dir("finalization") / "record.json"
    record.write_text(record.read_text().replace("accuracy", "correct"))
    assert f"named {ACCURACY}; next: mltrainer gate check finalization\n" in cli("cite", *where, code=4).out
    assert f"named {ACCURACY}; next: mltrainer gate check finalization\n" in cli("gate", "check", *where, code=4).out


def test_a_cited_text_that_is_gone_is_named(project, cli):
    path = write(project, marked(ACCURACY, "0.9"))
    cli("cite", path, "--project", project.root, code=0)
    path.unlink()
    assert "README.md: no such file" in cli("gate", "check", "--project", project.root, code=4).out


def test_a_file_is_found_from_the_folder_where_the_command_is_typed(project, cli, monkeypatch):
    (project.root / "paper").mkdir()
    write(project, marked(ACCURACY, "0.9"), "paper/main.tex")
    monkeypatch.chdir(project.root / "paper")
    cli("cite", "main.tex", code=0, out="paper/main.tex: 1 number")
    assert read_json(project.root / "phases/cited.json") == {"files": ["paper/main.tex"]}
    cli("cite", "--check", code=0)


def test_numbers_are_listed_by_name(project, cli):
    said = cli("cite", "--list", "test.metrics", "--json", "--project", project.root, code=0).json
    assert said["numbers"][ACCURACY] == evidence_of(project, "finalization")["test"]["metrics"]["accuracy"]
    cli("cite", "--list", "nonsense", "--project", project.root, code=1, err="has a name that contains 'nonsense'")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("../README.md", marked(ACCURACY, "1"), "a cited text must be in the project"),
        ("README.md", "nothing is marked", "no number in it is marked"),
        ("README.md", None, "no such file"),
    ],
)
def test_what_cannot_be_cited_is_refused_and_not_bound(project, cli, name, content, told):
    if content is not None:
        write(project, content, name)
    cli("cite", name, "--project", project.root, code=1, err=told)
    assert not (project.root / "phases/cited.json").exists()


def test_without_a_marked_number_the_way_to_mark_one_is_shown(project, cli):
    cli("cite", "--project", project.root, code=1, err="<!-- mltrainer finalization.test.metrics.accuracy -->")


@pytest.mark.parametrize("content", ["[]", '{"files": 3}', '{"files": ["/etc/passwd"]}', "no json"])
def test_a_damaged_list_of_cited_texts_is_named(project, cli, content):
    (project.root / "phases/cited.json").write_text(content)
    said = cli("gate", "check", "--project", project.root, code=4)
    assert "planning: holds" in said.out
    assert "cited" in "".join(said.out.splitlines()[-2:])


def test_a_cited_text_whose_marks_are_gone_is_named(project, cli):
    write(project, marked(ACCURACY, "0.9"))
    cli("cite", "README.md", "--project", project.root, code=0)
    write(project, "Accuracy: 0.999")
    assert "no number in it is marked any more" in cli("gate", "check", "--project", project.root, code=4).out
