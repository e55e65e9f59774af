"""A tool's life as the workflow sees it: its events, its end, its death, and what it is told of a Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError, KilledError, MachineError, MltrainerError, StoppedError
from mltrainer.executors import local
from mltrainer.executors.executor import Executor
from mltrainer.executors.fork_server import ForkServers
from mltrainer.records.job import TrainingJob
from mltrainer.redaction import redact
from mltrainer.runs import launcher
from mltrainer.runs.launcher import LOG_FILE, _Signals, launch
from mltrainer.tools.mark import VARIABLE, new_mark
from mltrainer.workspace import Project, read_json, write_json
from tests.projects import PROJECT

Event = dict[str, Any]
Launch = Callable[..., list[Event]]
CONFIG = TrainingConfig.model_validate({**PROJECT, "name": "x"})
JOB = TrainingJob(run="x", purpose="probe", folder="job", config=CONFIG, contract={}, threads=1)
START = """
import json, os, signal, sys, time
def send(event, **values):
    os.write(int(sys.argv[2]), json.dumps({"event": event, **values}).encode() + b"\\n")
"""


@pytest.fixture(params=["fresh", "forked"])
def run_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Launch]:
    """Launch a tool that is nothing but some lines of Python, in a fresh interpreter or forked, and return its events."""
    monkeypatch.setattr(launcher, "FORKED", {"fake_tool": ("json",)} if request.param == "forked" else {})
    monkeypatch.setattr(launcher, "tool_page", lambda tool, root: SimpleNamespace(entry_point="fake_tool", environment={}))
    monkeypatch.setattr(launcher, "program_of", lambda page: [page.entry_point])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def call(code: str, events: list[Event] | None = None, executor: Executor | None = None) -> list[Event]:
        (tmp_path / "fake_tool.py").write_text(START + code)
        events = [] if events is None else events
        launch(Project(tmp_path), "fake", JOB, events.append, forks=forks, executor=executor)
        return events

    with ForkServers(late=(VARIABLE,)) as forks:
        yield call


DIES_TWICE = """
import pathlib
count = pathlib.Path("deaths")
deaths = int(count.read_text()) if count.exists() else 0
count.write_text(str(deaths + 1))
if deaths < 2:
    os.kill(os.getpid(), signal.SIGKILL)
send("done")
"""


@pytest.mark.parametrize("purpose", ["train", "probe"])
@pytest.mark.parametrize("restarts", [0, 1, 2, 3])
def test_a_training_that_is_killed_is_started_again_as_often_as_the_config_says_and_a_probe_never(
    run_tool, monkeypatch, restarts, purpose
):
    own = JOB.model_copy(
        update={
            "purpose": purpose,
            "config": TrainingConfig.model_validate({**PROJECT, "name": "x", "launch": {"restarts": restarts}}),
        }
    )
    monkeypatch.setattr(sys.modules[__name__], "JOB", own)
    events: list[Event] = []
    ended = contextlib.nullcontext() if restarts >= 2 and purpose == "train" else pytest.raises(KilledError, match="signal 9")
    with ended:
        run_tool(DIES_TWICE, events)
    notes = [event["text"] for event in events if event["event"] == "note"]
    assert len(notes) == (min(restarts, 2) if purpose == "train" else 0)
    assert all(f"going on, restart {number} of {restarts}" in note for number, note in enumerate(notes, 1))


LINKS_AND_DIES = """
os.rename("job", "was")
os.symlink("mine", "job")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_that_a_process_of_a_given_executor_made_a_link_is_not_followed(run_tool, monkeypatch, tmp_path):
    config = TrainingConfig.model_validate({**PROJECT, "name": "x", "launch": {"restarts": 1}})
    monkeypatch.setattr(sys.modules[__name__], "JOB", JOB.model_copy(update={"purpose": "train", "config": config}))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / LOG_FILE).write_text(text := "DB_PASSWORD=hX92kLq0PzA7\n")
    assert redact(text) != text
    with pytest.raises(KilledError):
        run_tool(LINKS_AND_DIES, executor=local)
    assert [(path.name, path.read_text()) for path in (tmp_path / "mine").iterdir()] == [(LOG_FILE, text)]


LOST_WHILE_STOPPING = """
def stop(number, frame):
    send("error", exit_code=7, message="process 1 of 2 was ended by signal 9", where=None, mend=None)
    os.kill(os.getpid(), signal.SIGKILL)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(5)
"""


def test_a_training_that_was_asked_to_stop_is_not_started_again(run_tool, monkeypatch, tmp_path):
    config = TrainingConfig.model_validate({**PROJECT, "name": "x", "launch": {"restarts": 3}})
    monkeypatch.setattr(sys.modules[__name__], "JOB", JOB.model_copy(update={"purpose": "train", "config": config}))
    ask(signal.SIGTERM, on=tmp_path / "job" / LOG_FILE)
    events: list[Event] = []
    with pytest.raises(MachineError, match="process 1 of 2"):
        run_tool(LOST_WHILE_STOPPING, events)
    assert not [event for event in events if "restart" in str(event.get("text"))]


@pytest.mark.parametrize(("number", "restarted"), [("SIGKILL", True), ("SIGSEGV", False)])
def test_a_crash_of_one_of_several_would_come_again_and_starts_nothing(run_tool, monkeypatch, number, restarted):
    config = TrainingConfig.model_validate({**PROJECT, "name": "x", "launch": {"restarts": 1}})
    monkeypatch.setattr(sys.modules[__name__], "JOB", JOB.model_copy(update={"purpose": "train", "config": config}))
    events: list[Event] = []
    lost = 'send("error", exit_code=7, message="process 1 of 2 was ended", where=None, mend=None)\n'
    with pytest.raises(MachineError, match="process 1 of 2"):
        run_tool(f"{lost}os.kill(os.getpid(), signal.{number})", events)
    assert bool(events) == restarted


def test_a_fault_of_a_training_starts_nothing_again(run_tool, monkeypatch):
    config = TrainingConfig.model_validate({**PROJECT, "name": "x", "launch": {"restarts": 3}})
    monkeypatch.setattr(sys.modules[__name__], "JOB", JOB.model_copy(update={"purpose": "train", "config": config}))
    events: list[Event] = []
    with pytest.raises(InputError, match="not finite"):
        run_tool('send("error", exit_code=1, message="not finite", where=None, mend=None)\nsys.exit(1)', events)
    assert events == []


def ask(*numbers: int, on: Path) -> None:
    """Send this process signals as soon as the tool has written to its log, a moment apart."""

    def wait_and_send() -> None:
        while not on.exists() or not on.stat().st_size:
            time.sleep(0.01)
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.2)

    threading.Thread(target=wait_and_send).start()


def test_events_are_handed_on_in_order(run_tool):
    assert run_tool("send('note', text='a'); send('trial', nr=1, trials=2, values={}); send('done')") == [
        {"event": "note", "text": "a"},
        {"event": "trial", "nr": 1, "trials": 2, "values": {}},
    ]


def test_what_is_no_event_is_not_handed_on(run_tool):
    assert run_tool("send('note'); send('progress', step='many'); send('note', text='a'); send('done')") == [
        {"event": "note", "text": "a"}
    ]


def test_a_tools_error_is_raised_as_what_it_is(run_tool):
    with pytest.raises(MachineError, match="no space") as caught:
        run_tool("send('error', exit_code=7, message='no space', where='a.txt', mend='free some'); sys.exit(7)")
    assert (caught.value.where, caught.value.hint) == ("a.txt", "free some")


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("os._exit(0)", InputError, "ended before its work was done"),
        ("sys.exit(5)", MltrainerError, "exit code 5"),
        ("os.abort()", MltrainerError, r"signal 6 \(SIGABRT\)"),
        ("os.kill(os.getpid(), signal.SIGKILL)", MachineError, r"signal 9 \(SIGKILL\): .* memory runs out"),
        ("os.kill(os.getpid(), signal.SIGBUS)", MachineError, r"signal 7 \(SIGBUS\): .* ran out of room"),
        ('os.write(int(sys.argv[2]), b\'{"event": "ro\'); os._exit(0)', InputError, "ended before its work was done"),
    ],
)
def test_a_death_without_a_word_is_never_taken_for_success(run_tool, code, kind, message):
    with pytest.raises(kind, match=message) as caught:
        run_tool(code)
    assert (caught.value.where, caught.value.exit_code) == (f"job/{LOG_FILE}", kind.exit_code)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_passed_on_and_the_handlers_come_back(run_tool, tmp_path, number, code):
    before = signal.getsignal(number)
    ask(number, on=tmp_path / "job" / LOG_FILE)
    with pytest.raises(StoppedError) as caught:
        run_tool(f"signal.signal({int(number)}, lambda *_: sys.exit(1)); print('ready', flush=True); time.sleep(30)")
    assert caught.value.exit_code == code
    assert signal.getsignal(number) is before


@pytest.mark.slow
def test_a_tool_that_ends_well_all_the_same_does_not_hide_that_a_stop_was_asked_for(run_tool, tmp_path):
    ask(signal.SIGINT, on=tmp_path / "job" / LOG_FILE)
    with pytest.raises(StoppedError):
        run_tool("signal.signal(2, signal.SIG_IGN); print('ready', flush=True); time.sleep(0.5); send('done')")


def test_a_second_signal_kills_a_tool_that_does_not_stop(run_tool, tmp_path):
    ask(signal.SIGINT, signal.SIGINT, on=tmp_path / "job" / LOG_FILE)
    begun = time.monotonic()
    with pytest.raises(StoppedError):
        run_tool("signal.signal(2, signal.SIG_IGN); print('ready', flush=True); time.sleep(30)")
    assert time.monotonic() - begun < 10


def test_a_third_signal_does_not_begin_the_killing_again():
    done: list[str] = []
    process: Any = SimpleNamespace(signal=lambda _: done.append("signal"))
    with _Signals() as signals:
        signals.pass_on_to(process)
        process.kill = lambda: [done.append("kill"), signals._catch(signal.SIGINT, None)]
        for _ in range(2):
            signals._catch(signal.SIGINT, None)
    assert done == ["signal", "kill"]


@pytest.mark.slow
def test_who_waits_for_a_stop_is_told_once_how_to_end_it_at_once(run_tool, tmp_path):
    ask(signal.SIGINT, on=tmp_path / "job" / LOG_FILE)
    events: list[Event] = []
    with pytest.raises(StoppedError):
        run_tool("signal.signal(2, signal.SIG_IGN); print('ready', flush=True); time.sleep(2)", events)
    assert [event["text"] for event in events] == ["stopping, which may take as long as a step; Ctrl-C again ends it at once"]


@pytest.mark.parametrize("end", ["send('note', text='a'); send('done')", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_process_that_the_users_code_left_behind_is_not_waited_for(run_tool, end):
    begun = time.monotonic()
    with contextlib.nullcontext() if "done" in end else pytest.raises(MltrainerError, match="signal 9"):
        assert run_tool(f"os.system('sleep 20 &'); {end}") == [{"event": "note", "text": "a"}]
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_program_is_imported_ends_it_though_the_import_swallows_it(tmp_path, number):
    (tmp_path / "slow.py").write_text(
        "import time\ntry:\n    print('importing', flush=True)\n    time.sleep(30)\nexcept BaseException:\n    pass\n"
    )
    code = "from mltrainer.tools.start import start; start('slow')"
    launch, mark = new_mark()
    write_json(tmp_path / "job.json", {"launch": launch})
    environment = {**os.environ, **mark, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", code, str(tmp_path / "job.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(10) == -number


# --- started by hand ------------------------------------------------------------------------------


def by_hand(job: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mltrainer.tools.trainer", str(job)]
    return subprocess.run(command, cwd=job.parent, env={**os.environ, **variables}, capture_output=True, text=True)


@pytest.mark.parametrize("case", ["copied", "with another's mark", "without a mark", "no job"])
def test_a_tool_that_was_started_by_hand_is_refused(tmp_path, case):
    job = {"phase": "baseline", "folder": "run", "launch": new_mark()[0]}
    if case != "no job":
        write_json(tmp_path / "job.json", {"phase": "baseline"} if case == "without a mark" else job)
    done = by_hand(tmp_path / "job.json", **({VARIABLE: "guessed"} if case == "with another's mark" else {}))
    assert (done.returncode, done.stdout) == (1, "")
    assert "not started by the workflow" in done.stderr
    assert f"next: mltrainer phase run {'PHASE' if case == 'no job' else 'baseline'}" in done.stderr


def test_the_mark_of_a_launch_stands_in_no_file_and_is_not_inherited(run_tool, tmp_path):
    told = run_tool(f"send('note', text=os.environ['{VARIABLE}']); send('done')")[0]["text"]
    assert told not in (tmp_path / "job/job.json").read_text()
    assert len(read_json(tmp_path / "job/job.json")["launch"]) == 64
    code = (
        "import os, sys; from pathlib import Path; from mltrainer.tools.mark import require_mark\n"
        f"require_mark(Path(sys.argv[1])); sys.exit('{VARIABLE}' in os.environ)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "job/job.json")]
    assert subprocess.run(command, env={**os.environ, VARIABLE: told}).returncode == 0
