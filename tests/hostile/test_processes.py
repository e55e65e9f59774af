"""A stranger's project of many tricks at once, looked at by real processes of a parent that holds a token."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mltrainer.workspace import Project
from tests.conftest import commit
from tests.hostile.test_code import trap, with_own_pages
from tests.hostile.test_files import Place, commit_links, many, pipe, sparse, text
from tests.hostile.test_git import CONFIG, plant

OWN, PARENTS = "ghp_own7Hq2Lm9Zx4Tv8Nc1Rb5Wd3Ks6Pf0Gj", "parents3Yk8Qe1Uo6Ia9Sl2Dn5Fm7Bv4"  # what the two environments hold
MOST_CPU_S, MOST_KIB = 20.0, 1 << 20
COMMANDS = (
    "status",
    "gate check",
    "gate waive baseline within_time_budget --reason looked",
    "report --against HEAD",
    "runs list",
    "runs show baseline",
    "checkpoints list",
    "checkpoints verify",
    "diagnose baseline",
    "guide",
    "doctor",
    "monitor --web",
)
PARENT = """
import json, os, signal, subprocess, sys, threading, urllib.request

def fetched(address):
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return answer.read1(1 << 20).decode(errors="replace")
    except OSError as error:
        return str(error)

def looked_at(child):
    address = child.stdout.readline().decode().strip()
    pages = ("", "events?unasked=1", "report/phases/02_baseline/baseline_report.md", "guide/phases/01_planning/workflow")
    said = "".join([address, *(fetched(address + page) for page in pages if address)])
    child.send_signal(signal.SIGINT)
    return said

told = {}
for line in json.loads(sys.argv[1]):
    environment = {**{key: value for key, value in os.environ.items() if key != "PARENT_TOKEN"}, "GITHUB_TOKEN": sys.argv[2]}
    command = [sys.executable, "-P", "-c", "import sys; from mltrainer.cli.main import main; sys.exit(main())", *line.split()]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT)
    said = looked_at(child) if line.startswith("monitor") else ""
    said += child.stdout.read().decode(errors="replace")
    _, status, used = os.wait4(child.pid, 0)
    told[line] = [os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss, said]
with open(sys.argv[3], "w") as file:
    json.dump(told, file)
"""


def everything_that_runs(place: Place, canary: Path) -> None:
    """Code wherever it might be imported, own pages that name it, and a repository whose settings would start it."""
    plant(Project(place.root), canary, CONFIG["a clean filter"] | CONFIG["a file-system monitor"] | CONFIG["a pager"])
    trap(place.root, canary.parent / "ran")
    with_own_pages(place.root)


def everything_that_reads(place: Place, _canary: Path) -> None:
    """Files that lead to environments, never end, or explode; enough is left that the commands have something to show."""
    place.replace("phases/02_baseline/baseline_report.md", "/proc/self/environ")
    place.replace("phases/03_diagnostics/diagnostic_report.md", f"/proc/{os.getpid()}/environ")
    place.replace("phases/04_optimization/report.md.j2", "/proc/self/environ")
    place.replace("diagnostics/nan_loss.md", place.outside / "secret.txt")
    place.replace("phases/02_baseline/waivers.json", "/dev/stdin")
    pipe("phases/02_baseline/more.json")(place)
    pipe(".mltrainer/cache/digests.json")(place)
    text("phases/01_planning/workflow.md", lambda: "---\n" + "a: 1\n" * 190_000)(place)
    many("phases/03_diagnostics", 2000)(place)
    commit_links(place)
    sparse("phases/02_baseline/more.bin")(place)


def everything_that_is_parsed(place: Place, _canary: Path) -> None:
    """Records, results and logs of a run that no run wrote."""
    for folder in Project(place.root).runs_dir.iterdir():
        (folder / "events.jsonl").write_text('{"event": "row"}\n{}\n[1]\n' + "[" * 100_000 + '\n{"event": "stopped"}\n')
        (folder / "alerts.jsonl").write_text('{"diagnostic": {"a": [1]}}\n{"severity": []}\n' * 1000)
        (folder / "result.json").write_text('{"a":' * 100_000)
    place.record("diagnostics", evidence={"run": "/proc/self/environ", "findings": "x" * 1_000_000})
    text("phases/05_finalization/record.json", lambda: f'{{"schema": {"9" * 1_000_000}}}')(place)
    text("phases/04_optimization/record.json", lambda: b"\xff\xfe\x00{")(place)


def everything_that_is_rendered(place: Place, _canary: Path) -> None:
    """Sealed records that grow without measure: rows, a text of markup, lists in lists."""
    evidence = {name: place.evidence(name) for name in ("baseline", "diagnostics", "finalization")}
    evidence["baseline"]["acceptance"] *= 50_000
    evidence["diagnostics"]["assessment"]["fit_reason"] = "|*_<[" * 1_000_000
    nest: Any = []
    for _ in range(400):
        nest = [nest]
    evidence["finalization"]["acceptance"] = [{"metric": nest, "name": nest}] * 1000
    for name, values in evidence.items():
        place.record(name, evidence=values)


CLONES: dict[str, Callable[[Place, Path], None]] = {
    "runs": everything_that_runs,
    "reads": everything_that_reads,
    "is parsed": everything_that_is_parsed,
    "is rendered": everything_that_is_rendered,
}


def looked_at(
    root: Path, outside: Path, commands: tuple[str, ...] = COMMANDS, engine: Path = Path(__file__).parents[2]
) -> dict[str, Any]:
    """Return exit code, CPU seconds, peak memory and words of each command, typed by a parent with a token of its own.

    Args:
        root: Where they are typed.
        outside: A folder for their home and scratch files.
        commands: Their words.
        engine: Where mltrainer lies.
    """
    for name in ("home", "tmp"):
        (outside / name).mkdir()
    environment = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    environment |= {"PARENT_TOKEN": PARENTS, "HOME": str(outside / "home"), "TMPDIR": str(outside / "tmp")}
    environment |= {"RAN": str(outside / "ran"), "PYTHONPATH": str(engine)}
    command = [sys.executable, "-P", "-c", PARENT, json.dumps(commands), OWN, str(outside / "told.json")]
    subprocess.run(command, cwd=root, env=environment, check=True, timeout=600)
    found: dict[str, Any] = json.loads((outside / "told.json").read_text())
    (outside / "told.json").unlink()
    return found


def faults(told: dict[str, Any]) -> list[str]:
    """Return what is wrong with how commands ended, what they took, and what they said."""
    wrong = []
    for line, (code, spent, peak, said) in told.items():
        wrong += [f"{line}: exit code {code}"] if code not in (0, 1, 4) else []
        wrong += [f"{line}: {spent} s"] if spent > MOST_CPU_S else []
        wrong += [f"{line}: {peak} KiB"] if peak > MOST_KIB else []
        wrong += [f"{line}: a token"] if OWN in said or PARENTS in said else []
    return wrong


LEAKS = {
    "a token of its own": (f"print('now: {OWN}')", "a token"),
    "the parent's token": ("import os; print(open(f'/proc/{os.getppid()}/environ').read())", "a token"),
    "memory": (f"x = bytearray({MOST_KIB} << 10); x[:: 4096] = b'x' * len(x[:: 4096])", "KiB"),
    "an exit code": ("sys.exit(3)", "exit code 3"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", LEAKS)
def test_a_leak_that_is_planted_is_noticed(tmp_path, what):
    """In a program that takes mltrainer's place."""
    code, expected = LEAKS[what]
    place = tmp_path / "instead/mltrainer/cli"
    place.mkdir(parents=True)
    for package in (place, place.parent):
        (package / "__init__.py").touch()
    (place / "main.py").write_text(f"import sys\ndef main():\n    {code}\n")
    told = looked_at(tmp_path, tmp_path, commands=("status",), engine=tmp_path / "instead")
    assert [expected in fault for fault in faults(told)] == [True]


def written(*folders: Path) -> Iterator[Path]:
    """Yield the plain files below some folders; no link is followed."""
    for folder in folders:
        for place, _, names in os.walk(folder):
            found = (Path(place) / name for name in names)
            yield from (path for path in found if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 30)


def cloned(digits: Path, folder: Path) -> tuple[Place, Path]:
    """Return a clone with a folder outside of it, where a secret lies, and a program there that leaves a mark where it runs."""
    outside = folder / "outside"
    outside.mkdir()
    shutil.copytree(digits, folder / "clone", symlinks=True)
    place, canary = Place(folder / "clone", outside), outside / "canary.sh"
    (outside / "secret.txt").write_text(PARENTS)
    canary.write_text(f"#!/bin/sh\ntouch {outside}/ran\ncat\n")
    canary.chmod(0o755)
    commit(place.root)
    return place, canary


@pytest.mark.slow
@pytest.mark.parametrize("what", CLONES)
def test_no_token_leaves_and_nothing_runs_or_grows_where_a_strangers_project_is_looked_at(digits_once, tmp_path, what):
    place, canary = cloned(digits_once, tmp_path)
    outside = place.outside
    CLONES[what](place, canary)
    told = looked_at(place.root, outside)
    (outside / "secret.txt").unlink()
    assert not (outside / "ran").exists()
    assert faults(told) == []
    tokens = (OWN.encode(), PARENTS.encode())
    assert [path for path in written(tmp_path) if any(token in path.read_bytes() for token in tokens)] == []
    assert "http://" in told["monitor --web"][3]
    assert "event: project" in told["monitor --web"][3]
