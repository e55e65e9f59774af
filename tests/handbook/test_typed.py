"""What a page tells to type works: each console block, line by line, in a project such as its reader has by then."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from PIL import Image

from mltrainer.configs import yaml
from mltrainer.configs.loading import apply, validate
from mltrainer.configs.project import TrainingConfig
from tests.conftest import Cli
from tests.handbook.reading import blocks, unknown_part

ROOT = Path(__file__).parents[2]
DOCUMENTS = [path.relative_to(ROOT).as_posix() for pattern in ("*.md", "*/**/*.md") for path in sorted(ROOT.glob(pattern))]
FOLDERS = ("docs", "phases", "diagnostics", "configs", "reproducibility", "checkpointing", "tools")
PAGES = [
    path
    for path in DOCUMENTS
    if path.partition("/")[0] in ("README.md", "CONTRIBUTING.md", *FOLDERS) and blocks((ROOT / path).read_text("utf-8"))
]
# Of these lines the words are checked, and the keys that `--set` names; they are not run, for the reason given.
PARSED = {
    r"run|phase run|reproduce|fork|ablate|wrap|diagnose --try": "trains; the tests of each, `make demo` and `make long` run it",
    r"forget": "trains, without rows that the reader names; tests/companions/proof",
    r"lr-find|batch-size|profile|landscape|extrapolate|plan": "takes steps; tests/companions/questions",
    r"checkpoints (export|average)": "measures; tests/runs and checkpointing",
    r"serve|monitor|mcp": "runs until it is ended; tests/companions/serving, monitor and agents",
    r"predict|watch|gate check --(projects|trust \.\./keys)|runs (show|delete) 4f1c": "reads what an earlier line trained",
    r"hold-out|referee|verdict": "divides a table of yours, and trains; tests/companions/proof",
    r"checkpoints import": "reads a file of the reader's; tests/exporters",
    r"verify-case": "reads what a dispute wrote; tests/companions/proof",
    r"registry|lineage": "writes or reads beside the project, by the environment's address; tests/companions/registry",
    r"store|launch print --for ssh": "speaks with another machine; tests/project",
    r"init .*--from-training-arguments|init birds --data photos$": "reads a file that the page shows in part; tests/project",
    r"rows .*--finding|gate waive|integrate|export-config|diagnose --apply": "the digits project has nothing of the kind",
}
# Programs that are not ours.
OTHERS = {
    "make": "its target is in the Makefile",
    "pip": "its extras are in pyproject.toml",
    "python3 . docker curl sbatch ray accelerate tensorboard optuna-dashboard": "installed, or started, by the reader",
    "export $EDITOR MLTRAINER=git+https://example.org/mltrainer.git": "the reader's own",
    "grep cat ls": "shows a file that a line before it wrote",
}
SHELL = ("cd", "echo", "git", "sha256sum", "openssl")
TABLE = "size,rooms,price\n" + "".join(f"{40 + n},{n % 5 + 1},{1000 * n + 50 * (n % 7)}\n" for n in range(200))


@pytest.fixture
def desk(tmp_path: Path, digits_once: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that pages begin with, and the finished digits project."""
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        monkeypatch.setenv(f"{name}_NAME", "Tester")
        monkeypatch.setenv(f"{name}_EMAIL", "tester@example.org")
    shutil.copytree(digits_once, tmp_path / "finished", symlinks=True)
    (tmp_path / "clone").symlink_to("finished")
    photos = tmp_path / "given/photos"
    photos.mkdir(parents=True)
    for number in range(40):
        Image.new("RGB", (8, 8), (6 * number, 0, 0)).save(photos / f"{number}.png")
    lines = [f"photos/{number}.png,{'heron' if number % 2 else 'owl'}" for number in range(40)]
    (tmp_path / "given/labels.csv").write_text("\n".join(["path,species", *lines]) + "\n")
    (tmp_path / "given/house_prices.csv").write_text(TABLE)
    (tmp_path / "given/chat.jsonl").write_text('{"prompt": "After three comes ", "completion": "four"}\n')
    return tmp_path


def reason(command: str) -> str | None:
    """Return why a command of ours is not run."""
    return next((why for pattern, why in PARSED.items() if re.match(rf"mltrainer ({pattern})\b", command)), None)


def check_other(command: str) -> None:
    """Check a command of another program, which must be one that is known here."""
    first, *rest = shlex.split(command)
    assert any(first in names.split() for names in OTHERS), command
    if first == "make":
        assert f"\n{rest[0]}:" in (ROOT / "Makefile").read_text("utf-8"), command
    if first == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
        assert {one for asked in re.findall(r"\[(.+?)\]", command) for one in asked.split(",")} <= extras.keys(), command


def check_settings(command: str, finished: Path) -> None:
    """Check that planning would take the keys and values that follow `--set`."""
    words = shlex.split(command)
    changes = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
    path = finished / "phases/01_planning/training_config.yaml"
    values, where = apply(yaml.parse(path.read_bytes(), path.name).value, changes, path.name)
    validate(TrainingConfig, yaml.parse(yaml.dump(values), where))


def type_in(command: str, desk: Path, cli: Cli) -> None:
    """Type one command, or check its words where it is not run."""
    if command.startswith("git commit"):
        Path("README.md").write_text(f"What a reader changed before {command}")
        command = command.replace("git commit", "git add README.md && git commit")
    if command.split()[0] in SHELL:
        done = subprocess.run(["bash", "-c", f"{command} && pwd > {shlex.quote(str(desk / 'pwd'))}"], check=False)
        assert done.returncode == 0, command
        os.chdir((desk / "pwd").read_text().strip())
    elif not command.startswith("mltrainer "):
        check_other(command)
    elif reason(command):
        assert unknown_part(command.split(" > ")[0]) is None, command
        if re.match(r"mltrainer (phase run planning|fork|plan)\b(?!.*tracking)", command):  # its tracker is not installed
            check_settings(command, desk / "finished")
        if command.startswith("mltrainer run"):
            os.chdir(desk / "finished")  # has what it leaves
    else:
        cli(*shlex.split(command.split(" > ")[0])[1:], code=0)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_tells_to_type_works(page, desk, cli, monkeypatch):
    for number, block in enumerate(blocks((ROOT / page).read_text("utf-8"))):
        monkeypatch.chdir(desk / "finished")
        if any(line.startswith("mltrainer init") for line in block):
            os.chdir(shutil.copytree(desk / "given", desk / f"block {number}"))
        for command in (part.strip() for line in block for part in line.split(" && ")):
            type_in(command, desk, cli)


@pytest.mark.parametrize(
    "command", ["mltrainer statuss", "mltrainer runs show --alll", "make tset", "pip install '.[onix]'", "sl", "git statuss"]
)
def test_a_command_that_does_not_exist_is_noticed(command, tmp_path, cli):
    with pytest.raises(AssertionError):
        type_in(command, tmp_path, cli)


def test_a_key_that_does_not_exist_is_noticed(digits_once):
    with pytest.raises(Exception, match="learning_rate"):
        check_settings("mltrainer phase run planning --set optimizer.learning_rate=1", digits_once)
