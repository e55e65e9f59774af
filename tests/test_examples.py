"""The example projects: their files are valid, and what their READMEs say to type works as it stands."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mltrainer.companions.serving.templates.rendering import Place, files_of
from mltrainer.configs.project import ProjectConfig
from mltrainer.configs.templates import ProductionTemplate
from mltrainer.gates.gate import check_gates
from mltrainer.workspace import Project
from tests.companions.serving.test_templates import MODEL, SPECS

EXAMPLES = Path(__file__).parents[1] / "examples"
PAIRS = {"distillation": ("teacher", "student"), "lora": ("base", "adapted")}
SERVED = ("sentiment", "textgen", "trades")
PROJECTS = [f"{name}/{project}" for name, pair in PAIRS.items() for project in pair]

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are part of the checkout, not of the wheel")


@pytest.mark.parametrize("project", PROJECTS)
def test_an_examples_files_are_valid(project):
    folder = EXAMPLES / project
    assert ProjectConfig.model_validate(yaml.safe_load((folder / "mltrainer.yaml").read_text("utf-8"))).name == folder.name
    ProductionTemplate.model_validate(yaml.safe_load((folder / "configs/production_template.yaml").read_text("utf-8")))


def test_each_example_is_named_where_examples_are_listed():
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    assert all(f"({name}/README.md)" in listed for name in (*PAIRS, *SERVED))
    assert {path.name for path in EXAMPLES.iterdir() if path.is_dir()} == {*PAIRS, *SERVED}


@pytest.mark.parametrize("name", SERVED)
def test_a_served_example_ends_with_the_files_of_its_stacks(name):
    form = {"sentiment": "texts", "textgen": "prompt", "trades": "table"}[name]
    kinds = {"trades": ("supabase", "docker")}.get(name, ("fastapi", "nextjs"))
    shown = dict(commands_of(name))
    for kind in kinds:
        command = next(command for command in shown if command.startswith(f"mltrainer integrate {kind}"))
        written = [f"integrations/{kind}/{path}" for path in files_of(kind, SPECS[form], MODEL, Place(f"integrations/{kind}"))]
        assert shown[command] in ("", "\n".join(written).replace("haeuser", "demo"))


def environment() -> dict[str, str]:
    who = {f"GIT_{role}_{what}": "a@b.example" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **who, "PATH": path, "NEXT_TELEMETRY_DISABLED": "1"}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PAIRS)
def test_what_an_example_says_to_type_works(tmp_path, name):
    shutil.copytree(EXAMPLES / name, tmp_path / name)
    lines = (EXAMPLES / name / "README.md").read_text("utf-8").splitlines()
    typed = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    subprocess.run(["bash", "-e", "-c", typed], cwd=tmp_path / name, env=environment(), check=True)
    for project in PAIRS[name]:
        assert all(gate.holds for gate in check_gates(Project(tmp_path / name / project)))


# --- examples that are served ---

STAYS = ("mltrainer serve", "uvicorn", "npm start")  # programs that run until they are ended


def commands_of(name: str) -> list[tuple[str, str]]:
    """Return what a README has to type, and what it says is printed then."""
    text = (EXAMPLES / name / "README.md").read_text("utf-8")
    blocks = "".join(re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    parts = re.findall(r"^\$ (.*(?:\n    .*)*)\n((?:(?!\$ ).*\n)*)", blocks, re.MULTILINE)
    return [(command, printed.strip()) for command, printed in parts]


def shape_of(printed: str) -> str:
    """Return what is printed without ids, numbers and texts that a model makes, which are others on another machine."""
    varies = ((r"\b[0-9a-f]{32}\b", "ID"), (r"\d\.\d+(e-\d+)?", "NUMBER"), (r'"(part|continuation)": "[^"]*"', r'"\1": TEXT'))
    for pattern, name in varies:
        printed = re.sub(pattern, name, printed)
    return printed


@contextlib.contextmanager
def running(command: str, folder: Path, port: int) -> Iterator[None]:
    """Run a program that stays, once it listens."""
    process = subprocess.Popen(["bash", "-c", f"{command} & trap 'kill $!' TERM; wait"], cwd=folder, env=environment())
    try:
        for _ in range(1200):
            assert process.poll() is None
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(60)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as open_ones:
        found = [open_ones.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in found]


def follow(name: str, folder: Path) -> None:
    """Type what a README says, on ports that are free, and compare what is printed."""
    ports = dict(zip(("8000", "8001", "3000"), free_ports(3), strict=True))
    with contextlib.ExitStack() as ending:
        for command, printed in commands_of(name):
            if command.startswith("cd "):
                folder /= command.removeprefix("cd ")
                continue
            typed = re.sub(r"(?<=[: ])(8000|8001)\b", lambda found: str(ports[found[1]]), command)
            typed = typed.replace("mltrainer serve", f"mltrainer serve --port {ports['8000']}")
            typed = typed.replace("npm start", f"npm start -- --port {ports['3000']}")
            if program := next((one for one in STAYS if one in command), None):
                port = ports[{"mltrainer serve": "8000", "uvicorn": "8001", "npm start": "3000"}[program]]
                ending.enter_context(running(typed, folder, port))
                continue
            done = subprocess.run(
                ["bash", "-e", "-c", typed], cwd=folder, env=environment(), check=True, stdout=subprocess.PIPE, text=True
            )
            for part in shape_of(printed).split("..."):
                assert part.strip() in shape_of(done.stdout), command
            if command == "mltrainer integrate fastapi":
                (code,) = re.findall(
                    r"^```python\n(.*?)^```", (EXAMPLES / name / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
                )
                (folder / "integrations/fastapi/app.py").write_text(code)
        if name != "trades":
            page = urllib.request.urlopen(f"http://127.0.0.1:{ports['3000']}", timeout=60).read().decode()
            assert "Ask the model" in page


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm is here: install Node.js")
@pytest.mark.parametrize("name", SERVED)
def test_what_a_served_example_says_leads_to_its_answers(tmp_path, name):
    follow(name, tmp_path)
