"""No secret reaches a file: programs and tasks that say all they know, in every way, and every file that is written of it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mltrainer.workspace import append_json_line, redact_file, write_json, write_text
from tests.projects import TASK, write_rings
from tests.sample_programs import PROGRAM, write_program
from tests.search.test_program import TUNED, run, study
from tests.test_redaction import BODY, CANARIES, random_text

VARIABLES = ("DB_PASSWORD", "DEPLOY_TOKEN", "REGISTRY_PW", "SMTP_PASS", "PROXY_AUTH", "S3_CRED", "WANDB_API_KEY")
KNOWN = {name: random_text(21 + nr) for nr, name in enumerate((*VARIABLES, "netrc"))}
NEEDLES = {**KNOWN, **{f"base64 of {name}": base64.b64encode(value.encode()).decode()[:24] for name, value in KNOWN.items()}}
NEEDLES |= {**CANARIES, "pem": BODY[:60], "openssh, cut off": BODY[-60:]}
SAYS = " ; ".join([*KNOWN.values(), *(base64.b64encode(value.encode()).decode() for value in KNOWN.values()), *CANARIES.values()])
# turned round, so that the user's own file holds none of them as it stands
KNOWS = f"import logging, os, sys, warnings\nSAYS = {SAYS[::-1]!r}[::-1]\n"
LOUD = KNOWS + (
    "print(SAYS, flush=True)\nprint(SAYS, file=sys.stderr, flush=True)\nwarnings.warn(SAYS)\nlogging.getLogger().warning(SAYS)\n"
)


@pytest.fixture(autouse=True)
def _known(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The secrets are this process's own, and those of all that it starts."""
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text(f"machine example.org login ada password {KNOWN['netrc']}\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in VARIABLES:
        monkeypatch.setenv(name, KNOWN[name])


def told(text: str) -> list[str]:
    """Return the names of the secrets that a text holds."""
    return [name for name, secret in NEEDLES.items() if secret in text or json.dumps(secret)[1:-1] in text]


def leaks(folder: Path, *said: str) -> dict[str, list[str]]:
    """Return the secrets in all files below a folder, by path, and in what was said; a user's own code is none of them."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    assert files
    texts = {str(path.relative_to(folder)): path.read_bytes().decode("utf-8", "replace") for path in files}
    found = {name: told(text) for name, text in {**texts, **dict(enumerate(said))}.items()}
    return {str(name): secrets for name, secrets in found.items() if secrets}


def test_a_program_that_says_all_it_knows_would_be_noticed(tmp_path):
    (tmp_path / "log.txt").write_text(SAYS)
    assert leaks(tmp_path) == {"log.txt": list(NEEDLES)}


def test_each_writer_lets_no_secret_through(tmp_path):
    write_text(tmp_path / "page.md", f"before {SAYS} after")
    write_json(tmp_path / "error.json", {"error": [f"before {SAYS} after"], f"key {SAYS}": 1})
    append_json_line(tmp_path / "events.jsonl", {"event": "note", "text": SAYS})
    (tmp_path / "log.txt").write_text(f"before {SAYS} after")
    assert redact_file(tmp_path / "log.txt") == (tmp_path / "log.txt").read_text() == (tmp_path / "page.md").read_text()
    assert leaks(tmp_path) == {}
    assert json.loads((tmp_path / "error.json").read_text())["error"][0].endswith("after")
    assert "GitHub token" in (tmp_path / "page.md").read_text()


@pytest.mark.slow
def test_a_task_that_says_all_it_knows_leaves_no_secret_in_its_project(tmp_path, cli):
    telling = TASK.replace('return {"accuracy"', 'return {f"of {SAYS}": 0.5, "accuracy"')
    project = write_rings(tmp_path, LOUD + telling, acceptance={"accuracy": ">= 0.1"})
    for phase in ("planning", "baseline"):
        said = cli("phase", "run", phase, "--project", project.root, *(("--set", "epochs=2") if phase == "planning" else ()))
        assert (said.code, leaks(tmp_path, said.out, said.err)) == (0, {})
    assert "GitHub token" in (project.phase_dir("baseline") / "record.json").read_text()


@pytest.mark.slow
def test_a_task_that_fails_with_all_it_knows_leaves_no_secret_in_its_project(tmp_path, cli):
    project = write_rings(tmp_path, LOUD + TASK.replace("time.sleep(self.pause)", "raise RuntimeError(SAYS)"))
    said = cli("phase", "run", "planning", "--project", project.root)
    assert (said.code, leaks(tmp_path, said.out, said.err)) == (1, {})
    assert "GitHub token" in said.err


@pytest.mark.slow
@pytest.mark.long
def test_a_program_that_says_all_it_knows_leaves_no_secret_in_its_project(tmp_path, cli):
    project = write_program(tmp_path, LOUD + PROGRAM.replace("found = {", 'found = {"note": SAYS, f"of {SAYS}": 1.0, '))
    for phase in ("planning", "baseline"):
        said = cli("phase", "run", phase, "--project", project.root)
        assert (said.code, leaks(tmp_path, said.out, said.err)) == (0, {})
    assert "GitHub token" in (project.phase_dir("baseline") / "record.json").read_text()


@pytest.mark.slow
def test_a_program_that_fails_with_all_it_knows_leaves_no_secret_in_its_project(tmp_path, cli):
    project = write_program(tmp_path, LOUD + PROGRAM.replace("for epoch in", "raise RuntimeError(SAYS)\nfor epoch in"))
    said = cli("phase", "run", "planning", "--project", project.root)
    assert (said.code, leaks(tmp_path, said.out, said.err)) == (1, {})
    assert "GitHub token" in said.err


@pytest.mark.slow
def test_a_search_whose_trials_say_all_they_know_leaves_no_secret(tmp_path):
    telling = TUNED.replace("'no such model'", "SAYS").replace('return {"accuracy"', 'return {f"of {SAYS}": 0.5, "accuracy"')
    write_rings(tmp_path, LOUD + telling)
    space = {"task.options.poison": {"choice": [0.0, 1.0]}, "task.options.wrong": {"choice": [False, True]}}
    code, said, found = run(tmp_path, study(space, 3, seed=5))  # draws one of each: one is healthy, one cannot be made
    assert (code, leaks(tmp_path, said)) == (0, {})
    assert {trial["state"] for trial in found["trials"]} == {"finished", "failed"}
    assert "GitHub token" in (tmp_path / ".mltrainer/studies/study/workers.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code"), [("raise RuntimeError(SAYS)", 1), ("torch.manual_seed(__import__('time').time_ns() % 997)", 5)]
)
def test_wrap_tells_and_writes_no_secret(line, code, tmp_path):
    keyed = PROGRAM.replace('"--resume"', '"--key")\nparser.add_argument("--resume"')
    write_program(tmp_path, LOUD + keyed.replace("x, y = points", f"{line}\nx, y = points", 1))
    asked = ["--steps", "4", "--out", "report.md", "--json"]
    command = [sys.executable, "train.py", "--epochs", "1", "--key", CANARIES["github"]]
    done = subprocess.run(
        [sys.executable, "-m", "mltrainer", "wrap", *asked, "--", *command], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, leaks(tmp_path, done.stdout, done.stderr)) == (code, {})
    assert "[removed: GitHub token]" in (done.stderr if code == 1 else (tmp_path / "report.md").read_text())
