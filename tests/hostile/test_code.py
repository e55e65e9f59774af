"""A stranger's project: who looks at it runs nothing of it; what is run of it on purpose learns and changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mltrainer.executors.sandbox import unavailable
from mltrainer.handbook import shipped_folder
from tests.projects import kept

CANARY = "ghs_canary0123456789"
SHUT = pytest.mark.skipif(unavailable() is not None, reason=f"no process can be closed off here: {unavailable()}")
ACTS = """import os, pathlib, sys
with open(os.environ.get("RAN", {ran!r}), "a") as file:
    file.write(__file__ + "\\n")
def __getattr__(name):
    raise AttributeError(name)
"""
STANDARD = (
    "typing",
    "json",
    "re",
    "dataclasses",
    "pathlib",
    "subprocess",
    "hashlib",
    "signal",
    "site",
    "sitecustomize",
    "usercustomize",
)
LIBRARIES = (
    "yaml",
    "jinja2",
    "markupsafe",
    "pydantic",
    "pydantic_core",
    "git",
    "gitdb",
    "typer",
    "click",
    "rich",
    "numpy",
    "torch",
    "psutil",
)
PROJECTS = ("my_task", "our_gates", "our_tool", "our_callbacks", "our_tracker", "conftest", "setup", "mltrainer_plugin")
FOLDERS = (".", "phases", "tools", "configs", "mltrainer")
LOOKS = (
    "status",
    "status --json",
    "gate check",
    "gate check --files",
    "gate check --json",
    "gate waive baseline good_enough --reason none",
    "report --against HEAD",
    "runs list",
    "runs show baseline",
    "runs compare baseline finalization",
    "checkpoints list",
    "checkpoints verify",
    "diagnose baseline",
    "guide",
    "guide phases/02_baseline/workflow",
    "doctor",
    "monitor --web",
)
RUNNER = """
import json, os, resource, signal, sys
clone, lines, told = os.path.realpath(sys.argv[1]), json.loads(sys.argv[2]), {"executed": [], "started": [], "commands": {}}
def watch(event, about):
    name = getattr(about[0], "co_filename", "<") if event == "exec" else "<"
    if not name.startswith("<") and os.path.realpath(name).startswith(clone + os.sep):
        told["executed"].append(name)
    elif event == "subprocess.Popen":
        told["started"].append([str(word) for word in about[1]])
    elif event in ("os.system", "os.exec", "os.posix_spawn", "pickle.find_class"):
        told["started"].append([event, str(about)])
sys.addaudithook(watch)
def end(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, end)
from mltrainer.cli.main import run
for line in lines:
    before, words = sum(os.times()[:4]), line.split()
    signal.alarm(3 if words[0] == "monitor" else 0)
    code = run(words)
    told["commands"][line] = [code, sum(os.times()[:4]) - before]
own = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss would count who started it
told["peak_kib"] = max(int(own.split()[1]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
with open(sys.argv[3], "w") as file:
    json.dump(told, file)
"""


def trap(root: Path, ran: Path) -> None:
    """Put code wherever Python, mltrainer or a library might look for some: each would write down that it ran."""
    code = ACTS.format(ran=str(ran))
    for folder in FOLDERS:
        (root / folder).mkdir(exist_ok=True)
        for name in (*STANDARD, *LIBRARIES, *PROJECTS, "__init__"):
            (root / folder / f"{name}.py").write_text(code)
    for name in ("mltrainer_plugin-1.0.dist-info", "mltrainer-9.9.dist-info"):
        (root / name).mkdir()
        (root / name / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.partition('-')[0]}\nVersion: 9.9\n")
        groups = ("trackers", "optimizers", "tasks", "strategies", "questions", "executors", "exporters", "plugins")
        rows = "".join(f"[mltrainer.{group}]\nevil = mltrainer_plugin:load\n" for group in groups)
        (root / name / "entry_points.txt").write_text(f"{rows}[console_scripts]\nmltrainer = mltrainer_plugin:load\n")
    (root / "evil.pth").write_text("import mltrainer_plugin\n")
    (root / "pyvenv.cfg").write_text(f"home = {root}\n")
    (root / ".pth").write_text("import mltrainer_plugin\n")


def with_own_pages(root: Path) -> None:
    """Give a project a page with a check, a tool and a template of its own, all of which name or hold what would act."""
    page = shipped_folder() / "phases/02_baseline/workflow.md"
    own = '  - id: good_enough\n    statement: It is.\n    waivable: true\n    check: "our_gates:good_enough"\n'
    (root / "phases/02_baseline/workflow.md").write_text(page.read_text("utf-8").replace("items:\n", f"items:\n{own}", 1))
    template = "phases/03_diagnostics/report.md.j2"
    body = "{{ 99999999 * 'aaaaaaaaaa' }}{{ ''.__class__.__mro__ }}"
    (root / template).write_text(f'{{% extends "{template}" %}}\n{{% block findings %}}{body}{{% endblock %}}\n')
    tool = (shipped_folder() / "tools/training_orchestrator/README.md").read_text("utf-8")
    (root / "tools/our_tool").mkdir(parents=True)
    (root / "tools/our_tool/README.md").write_text(tool.replace("mltrainer.tools.trainer", "our_tool"))


def looked_at(root: Path, lines: tuple[str, ...], ran: Path) -> dict[str, Any]:
    """Run commands in a clone, as a person does who stands in it, with a token in the environment; return what was seen."""
    folder = ran.parent
    (folder / "runner.py").write_text(RUNNER)
    environment = {**os.environ, "GITHUB_TOKEN": CANARY, "RAN": str(ran), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(folder / "runner.py"), str(root), json.dumps(lines), str(folder / "seen.json")]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert CANARY not in done.stdout + done.stderr
    return json.loads((folder / "seen.json").read_text())


@pytest.mark.slow
def test_who_looks_at_a_strangers_project_runs_nothing_of_it(digits, tmp_path_factory):
    ran = tmp_path_factory.mktemp("outside") / "ran"
    trap(digits.root, ran)
    with_own_pages(digits.root)
    seen = looked_at(digits.root, LOOKS, ran)
    assert not ran.exists(), ran.read_text()
    assert seen["executed"] == []
    assert [words[:9] for words in seen["started"] if not _is_ours(words)] == []
    assert {line: spent for line, (_, spent) in seen["commands"].items() if spent > 10} == {}
    assert seen["peak_kib"] < 1 << 20
    assert {line: code for line, (code, _) in seen["commands"].items() if code == 3} == {}


def _is_ours(words: list[str]) -> bool:
    """Return whether a process is git, or Python on a module of mltrainer's that no file beside it can take the place of."""
    if Path(words[0]).name == "env":
        return "git" in words
    return words[0] == "git" or (words[0] == sys.executable and words[1:3] == ["-P", "-m"] and words[3].startswith("mltrainer."))


@pytest.mark.slow
def test_neither_a_recorded_check_nor_a_task_is_called_by_who_looks(tmp_path):
    """Also where the record is whole."""
    root, ran = tmp_path / "clone", tmp_path / "ran"
    kept("0.9/rings", root)
    for name in ("our_gates.py", "my_task.py"):
        (root / name).write_text(ACTS.format(ran=str(ran)))
    looks = [line for line in LOOKS if not line.startswith("monitor")]
    assert looked_at(root, (*looks, "gate waive diagnostics good_enough --reason none"), ran)["executed"] == []
    assert not ran.exists()


def test_started_as_a_module_it_imports_nothing_from_the_folder_that_one_stands_in(tmp_path):
    root, ran = tmp_path / "clone", tmp_path / "ran"
    root.mkdir()
    for name in (*STANDARD, *LIBRARIES, *PROJECTS):
        (root / f"{name}.py").write_text(ACTS.format(ran=str(ran)))
    environment = {**os.environ, "RAN": str(ran)}
    command = [sys.executable, "-m", "mltrainer", "guide"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, ran.exists()) == (0, False), done.stderr


# --- run on purpose -------------------------------------------------------------------------------

SPIES = """
import ctypes, glob, os, signal, socket, subprocess, sys
FOUND = []
def attempt(act):
    try:
        FOUND.append(str(act()))
    except BaseException as error:
        FOUND.append(type(error).__name__)
def leave():
    if os.fork() == 0:
        os.setsid()
        import time
        time.sleep(2)
        open({left!r}, "w").write("left")
        os._exit(0)
def good_enough(evidence, settings):
    attempt(lambda: dict(os.environ))
    attempt(lambda: [open(path).read() for path in glob.glob("/proc/*/environ")])
    attempt(lambda: open(f"/proc/{{os.getppid()}}/environ").read())
    attempt(lambda: open({outside!r}).read())
    attempt(lambda: open({outside!r}, "w").write("changed"))
    attempt(lambda: open("our_gates.py", "a").write("# changed"))
    attempt(lambda: open("phases/03_diagnostics/record.json", "w"))
    attempt(lambda: socket.create_connection(("127.0.0.1", {port}), 1))
    attempt(lambda: os.kill({parent}, signal.SIGKILL))
    attempt(lambda: subprocess.run(["git", "push"], capture_output=True))
    attempt(leave)
    return {{"verdict": "pass", "evidence": {{"found": FOUND}}}}
"""


@pytest.mark.slow
@SHUT
def test_a_check_that_is_run_on_purpose_learns_and_changes_nothing(tmp_path):
    import socket

    root, ran, outside, left = tmp_path / "clone", tmp_path / "ran", tmp_path / "outside", tmp_path / "left"
    outside.write_text(CANARY)
    kept("0.9/rings", root)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        known = {"outside": str(outside), "left": str(left), "port": server.getsockname()[1], "parent": os.getpid()}
        (root / "our_gates.py").write_text(text := SPIES.format(**known))
        record = (root / "phases/03_diagnostics/record.json").read_bytes()
        seen = looked_at(root, ("gate check diagnostics --custom-checks --json",), ran)
        with pytest.raises(TimeoutError):
            server.accept()
    assert (
        seen["commands"]["gate check diagnostics --custom-checks --json"][0] == 4
    )  # the module is not the one that was recorded
    assert ((root / "our_gates.py").read_text(), outside.read_text()) == (text, CANARY)
    assert (root / "phases/03_diagnostics/record.json").read_bytes() == record
    assert not left.exists()


WRITES = """import os
for number in range(1, 9):
    try:
        os.write(number, b'{"found": {"verdict": "pass"}, "files": []}')
    except OSError:
        pass
os._exit(NUMBER)
"""
FORGES = {"an answer twice": WRITES.replace("NUMBER", "0"), "an exit code": WRITES.replace("NUMBER", "112")}


@pytest.mark.slow
@SHUT
@pytest.mark.parametrize("what", FORGES)
def test_a_check_cannot_make_its_process_seem_to_be_one_that_could_not_be_closed_off(what, tmp_path):
    """It fails: nobody is asked to run it without."""
    root, ran = tmp_path / "clone", tmp_path / "ran"
    kept("0.9/rings", root)
    (root / "our_gates.py").write_text(FORGES[what])
    seen = looked_at(root, (line := "gate check diagnostics --custom-checks",), ran)
    assert seen["commands"][line][0] == 4
    shutil.rmtree(root)
