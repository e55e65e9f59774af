"""Two parties, each a user of the machine with a home of their own, share a git repository and a data file, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mltrainer.executors.sandbox import import_paths
from tests.companions.proof.test_referee import CONFIG, write_table
from tests.projects import write_light_template

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes users"),
    pytest.mark.skipif(shutil.which("useradd") is None, reason="this machine has no useradd"),
    pytest.mark.skipif(shutil.which("runuser") is None, reason="this machine has no runuser"),
]
PARTIES = ("mlt-author", "mlt-referee")
PLACE = Path("/tmp/mltrainer-two-parties")  # pytest's own folders are closed to other users


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that both parties may enter, with a home for each that is closed to the other."""
    place = PLACE
    try:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o755)
        for name in PARTIES:
            subprocess.run(["useradd", "--create-home", "--home-dir", place / name, "--no-log-init", name], check=True)
            (place / name).chmod(0o700)
        yield place
    finally:
        for name in PARTIES:
            subprocess.run(["userdel", "--remove", name], check=False, capture_output=True)
        shutil.rmtree(place, ignore_errors=True)


def interpreter() -> Path:
    """Return an interpreter that every user may run: this one's, or a copy of it where it is in a folder closed to others."""
    own = Path(sys.executable).resolve()
    if all(folder.stat().st_mode & 0o005 == 0o005 for folder in own.parents):
        return Path(sys.executable)
    place = PLACE / "python"
    if not place.exists():
        left_out = shutil.ignore_patterns("site-packages", "test", "__pycache__")
        shutil.copytree(sys.base_prefix, place, symlinks=True, ignore=left_out)
        (
            place / own.relative_to(sys.base_prefix).parent.parent / "lib" / f"python3.{sys.version_info.minor}/site-packages"
        ).mkdir()
    return place / own.relative_to(sys.base_prefix)


def asks(party: str, folder: Path, *words: str | Path, code: int = 0) -> str:
    """Return what a party's command says, run in a folder of its home as that user, with none of our variables."""
    home = folder / party
    variables = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([*import_paths(), *(path for path in sys.path if "site-packages" in path)]),
        **{f"GIT_{role}_{what}": f"{party}@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    assigned = [f"{name}={value}" for name, value in variables.items()]
    command = ["runuser", "-u", party, "--", "env", "-i", f"--chdir={home}", *assigned, *map(str, words)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == code, said
    return said.stdout


def mltrainer(party: str, folder: Path, *words: str | Path, code: int = 0) -> str:
    return asks(party, folder, interpreter(), "-P", "-m", "mltrainer", *words, code=code)


def given(path: Path, party: str) -> None:
    shutil.chown(path, party, party)
    for one in path.rglob("*") if path.is_dir() else ():
        shutil.chown(one, party, party)


@pytest.fixture
def parties(shared: Path) -> Path:
    """The referee has divided a table; the author has planned, trained and pushed; both share a bare repository."""
    author, referee = PARTIES
    write_table(shared / referee / "all.csv")
    given(shared / referee / "all.csv", referee)
    key = json.loads(mltrainer(referee, shared, "hold-out", "--data", "all.csv", "--share", "15%", "--name", "lab", "--json"))
    shutil.copy(shared / referee / "all-author.csv", shared / author)
    given(shared / author / "all-author.csv", author)
    root = shared / author / "project"
    write_light_template(root)
    held = {name: key[name] for name in ("held_by", "held_rows", "held_sha256")}
    (root / "mltrainer.yaml").write_text(yaml.safe_dump({**CONFIG, "split": {"validation": 0.2, **held}}))
    (root / ".gitignore").write_text(".mltrainer/\n*.safetensors\n")
    given(root, author)
    asks(author, shared, "git", "init", "--quiet", "--bare", "--initial-branch=main", "shared.git")
    asks(author, shared, "git", "init", "--quiet", "--initial-branch=main", "project")
    push(shared)
    mltrainer(author, shared, "run", "--project", "project")
    push(shared)
    return shared


def push(folder: Path) -> None:
    author, _ = PARTIES
    for words in (
        ("add", "--all"),
        ("commit", "--quiet", "--message", "Change"),
        ("push", "--quiet", "../shared.git", "HEAD:main"),
    ):
        asks(author, folder, "git", "-C", "project", *words)
    # Published, as a server would: the referee's own copy of what was pushed, in place of the author's home.
    _, referee = PARTIES
    place = folder / referee / "shared.git"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / author / "shared.git", place)
    given(place, referee)


def test_two_users_come_to_one_verdict(parties):
    author, referee = PARTIES
    asks(referee, parties, "ls", parties / author, code=2)  # nothing else of the author's is readable
    said = json.loads(
        mltrainer(referee, parties, "referee", "shared.git", "--data", "all-author.csv", "--held", "all-held.csv", "--json")
    )
    assert [row for row in said["checked"] if row["outcome"] == "no"] == []
    assert said["held"]["samples"] == 90
    asks(referee, parties, "test", "-e", parties / author / "project", code=1)
    verdict = parties / author / "verdict.json"
    shutil.copy(parties / referee / "verdict.json", verdict)
    given(verdict, author)
    mltrainer(author, parties, "verdict", "verdict.json", "--project", "project")
    assert "On 90 rows that lab holds" in (parties / author / "project/phases/05_finalization/final_model/README.md").read_text()
    mltrainer(author, parties, "gate", "check", "--project", "project")
