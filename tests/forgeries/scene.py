"""A finished project in the hands of somebody who forges it, and the means by which others look at it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mltrainer.workspace import Project, pretty_json, read_json
from tests.conftest import Cli, Said, commit, git
from tests.gates import evidence

FINAL = "phases/05_finalization"
Record = dict[str, Any]


@dataclass
class Scene:
    """A project to forge.

    Attributes:
        project: The project; a forgery may put a clone in its place.
        copy: Returns a copy of what a fixture made: `trained`, a baseline with checkpoints for an audit; `walked`, an author's
            project with the data that a referee divided.
        cli: Runs a command.
        away: An empty folder.
    """

    project: Project
    copy: Callable[[str], Path]
    cli: Cli
    away: Path

    @property
    def root(self) -> Path:
        return self.project.root

    @property
    def model(self) -> Path:
        return self.root / FINAL / "final_model"

    def says(self, *arguments: str | Path) -> Said:
        return self.cli(*arguments, "--project", self.root)

    def forge(self, change: Callable[[Record], object], phase: str = "finalization") -> None:
        """Change a phase's evidence, seal the record again, and render its reports by mltrainer's own code."""
        self.forge_record(lambda record: change(record["evidence"]), phase)

    def forge_record(self, change: Callable[[Record], object], phase: str = "finalization") -> None:
        evidence.forge(self.project, change, phase)

    def without_runs(self) -> None:
        """Leave the project as a clone has it: no run can be asked."""
        shutil.rmtree(self.project.state_dir)

    def cloned(self) -> None:
        """Commit, and go on in a clone."""
        commit(self.root)
        git(self.away, "clone", "--quiet", self.root, "clone")
        self.project = Project(self.away / "clone")

    def trains(self, project: Project) -> None:
        """Go on with another project, whose baseline is trained now."""
        self.project = project
        said = self.says("run", "--until", "baseline")
        assert said.code == 0, said

    def edit(self, path: str, change: Callable[[str], str]) -> None:
        """Edit a file that holds what is to be changed."""
        text = (self.root / path).read_text("utf-8")
        assert change(text) != text
        (self.root / path).write_text(change(text), "utf-8")

    def write_waiver(self, item: str, **more: Any) -> None:
        """Write a waiver by hand, for the record as it is."""
        from mltrainer.records.reading import read_record

        path, record = self.root / FINAL / "waivers.json", read_record(self.project, "finalization")
        assert record is not None
        given = {"item": item, "reason": "seen", "by": "Tester <tester@example.org>", "record": record.sha256, **more}
        rows = read_json(path)["waivers"] if path.exists() else []
        path.write_bytes(pretty_json({"waivers": [*rows, given]}))


@dataclass(frozen=True)
class Means:
    """How others look at a project.

    Attributes:
        name: Its name in the published table.
        cost: What it takes.
        catches: Whether it sees what was forged, which it must say in these words.
    """

    name: str
    cost: str
    catches: Callable[[Scene, str], None]


def _refuses(scene: Scene, words: str) -> None:
    said = scene.says("gate", "check", "-v")
    assert (said.code, words in said.out) == (4, True), said


def _mentions(scene: Scene, words: str) -> None:
    said = scene.says("gate", "check")
    assert (said.code, words in said.out) == (0, True), said


def _in_report(scene: Scene, words: str) -> None:
    paths = (f"{FINAL}/final_report.md", "phases/01_planning/reproducibility_manifest.md")
    assert any(words in (scene.root / path).read_text("utf-8") for path in paths if (scene.root / path).exists())


def _beside_branch(scene: Scene, words: str) -> None:
    commits = git(scene.root, "rev-list", "--count", "HEAD")
    base = "HEAD~1" if int(commits) > 2 else "HEAD"
    said = scene.says("report", "--against", base)
    assert words in said.out, said


def _by_command(scene: Scene, words: str) -> None:
    raise AssertionError("a forgery that a command refuses returns what the command said")


def _by_audit(scene: Scene, words: str) -> None:
    said = scene.says("reproduce", "baseline", "--segments", "100%", "--json")
    assert (said.code in (4, 5), words in said.out + said.err) == (True, True), said


def _by_referee(scene: Scene, words: str) -> None:
    lab, given = scene.root.parent, list[str | Path]()
    if (lab / "all-held.csv").exists():
        given = ["--data", lab / "all-author.csv", "--held", lab / "all-held.csv"]
    with pytest.MonkeyPatch.context() as patch:  # gates that hold, as a careful forger makes them: otherwise nothing runs
        patch.setattr("mltrainer.companions.proof.referee.referee.check_gates", lambda _: [])
        said = scene.cli("referee", scene.root, *given, "--out", scene.away / "verdict.json", "--json")
    wrong = [row["what"] for row in said.json["checked"] if row["outcome"] == "no"]
    assert (said.code, any(what.startswith(words) for what in wrong)) == (5, True), said


def _by_training(scene: Scene, words: str) -> None:
    said = scene.says("reproduce", "finalization")
    assert (said.code, words in said.out) == (5, True), said


def _not_at_all(scene: Scene, words: str) -> None:
    said = scene.says("gate", "check", "--json")
    assert (said.code, words) == (0, ""), said


GATE = Means("`gate check`", "seconds, without data or GPU", _refuses)
NOTE = Means("`gate check`, in words (exit 0)", "seconds, and a reader", _mentions)
PAGE = Means("the phase's report, in words", "a reader", _in_report)
BRANCH = Means(
    "`report --against`, in words (exit 0)", "seconds, a reader, and a branch or commit to compare with", _beside_branch
)
COMMAND = Means("the command itself, which refuses", "nothing", _by_command)
AUDIT = Means("`reproduce --segments`", "the share of the training that is replayed", _by_audit)
TRAINING = Means("`reproduce`", "the training, once more", _by_training)
REFEREE = Means("`referee`", "the training, once more, and rows that the author never had", _by_referee)
NOTHING = Means("nothing in the project", "reading the code, or rows that the author never had", _not_at_all)
