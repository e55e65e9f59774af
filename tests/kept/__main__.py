"""`python -m tests.kept [NAME...]`: has this version finish projects, and keeps each as a clone of it and what its gates say.

What a release has finished must hold under each later one. Until 0.9.0 is released they are made again with each change of a
record; they take about four minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from mltrainer import handbook
from mltrainer.workspace import PHASES
from tests.projects import write_rings
from tests.sample_programs import write_program

HERE = Path(__file__).parent
VERSION, SOURCES = HERE / "0.9", HERE / "sources"
MLTRAINER = (sys.executable, "-m", "mltrainer")
IDENTITY = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org")
IGNORED = ".mltrainer/\n*.safetensors\n*.onnx\n*.onnx.data\n*.pt\n*.pt2\n__pycache__/\n"
OWN_ITEM = """\
items:
  - id: good_enough
    statement: The model is good enough for us.
    waivable: true
    check: "our_gates:good_enough"
    settings: {at_least: 0.5}
"""

OWN_CHECK = '''\
"""What this team asks of a baseline beside the handbook."""


def good_enough(evidence, settings):
    """Compare the baseline's accuracy with the team's own bound."""
    value = evidence.run.metrics["accuracy"]
    holds = value >= settings["at_least"]
    return {"verdict": "pass" if holds else "fail", "evidence": {"accuracy": value}, "mend": "bring more data"}
'''


def _rings(folder: Path) -> None:
    """Write a custom task, and a baseline's page that asks for a check of the team's own."""
    write_rings(folder)
    shipped = (handbook.shipped_folder() / "phases/02_baseline/workflow.md").read_text("utf-8")
    page = folder / "phases/02_baseline/workflow.md"
    page.parent.mkdir(parents=True)
    page.write_text(shipped.replace("items:\n", OWN_ITEM, 1), "utf-8")
    (folder / "our_gates.py").write_text(OWN_CHECK, "utf-8")


def _copied(name: str) -> Callable[[Path], object]:
    return lambda folder: shutil.copytree(SOURCES / name, folder)


PROJECTS: dict[str, Callable[[Path], object]] = {
    **{name: _copied(name) for name in ("digits", "houses", "parallel")},
    "rings": _rings,
    "script": write_program,
}


def keep(name: str, folder: Path) -> None:
    """Finish a project and keep it."""
    project, clone = folder / name, folder / "clone"
    PROJECTS[name](project)
    (project / ".gitignore").write_text(IGNORED, "utf-8")
    (project / ".gitattributes").write_text("* -text\n", "utf-8")
    _run("git", "init", "--quiet", "--initial-branch=main", cwd=project)
    _commit(project, "Start the project")
    for phase in PHASES:
        _run(*MLTRAINER, "phase", "run", phase, cwd=project)
        _commit(project, f"Run {phase}")
    # Without templates: their hooks would differ by machine.
    _run("git", "clone", "--quiet", "--no-local", "--template=", project.as_uri(), str(clone), cwd=folder)
    verdicts = _run(*MLTRAINER, "gate", "check", "--json", cwd=clone)
    shutil.rmtree(clone / ".mltrainer", ignore_errors=True)
    VERSION.mkdir(exist_ok=True)
    (VERSION / f"{name}.json").write_text(verdicts, "utf-8")
    with tarfile.open(VERSION / f"{name}.tar.gz", "w:gz") as archive:
        for path in sorted(clone.iterdir()):
            archive.add(path, path.name, filter=_of_nobody)


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _commit(project: Path, message: str) -> None:
    _run("git", "add", "--all", cwd=project)
    _run("git", *IDENTITY, "commit", "--quiet", "--message", message, cwd=project)


def _run(*words: str, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, stdout=subprocess.PIPE, text=True, env={**os.environ, "CI": "true"})
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{' '.join(words)}: exit {done.returncode}")
    return done.stdout


def main() -> None:
    """Keep the named projects, or all."""
    for name in sys.argv[1:] or PROJECTS:
        with tempfile.TemporaryDirectory() as folder:
            keep(name, Path(folder))
        print(f"{name}: {(VERSION / f'{name}.tar.gz').stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
