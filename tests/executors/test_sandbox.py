"""A command that is closed off reaches nothing of the machine, whoever started it; limits hold, and nothing of it is left."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltrainer.executors.executor import EVENTS, Command
from mltrainer.executors.local import Ended
from mltrainer.executors.sandbox import CPU_FILES, ClosedOff, Isolation, Limits, closed_off, interpreter_paths, run, unavailable
from tests.waiting import until

ROOM = Limits(seconds=60, memory=4 << 30, output=1 << 20)
SHUT = pytest.mark.skipif(unavailable() is not None, reason=f"no process can be closed off here: {unavailable()}")


def python(code: str, folder: Path, isolated: bool, question: bytes = b"", limits: Limits = ROOM) -> Ended:
    return (closed_off if isolated else run)([sys.executable, "-P", "-c", code], question, limits, folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git/config").write_text("[http] extraheader = AUTHORIZATION: basic canary")
    (folder / "data.txt").write_text("rows")
    (tmp_path / "secret.txt").write_text("canary")
    return folder


@pytest.mark.parametrize("isolated", [pytest.param(True, marks=SHUT), False])
def test_a_question_goes_in_and_an_answer_comes_out(project, isolated):
    code = "import sys, pydantic; print(sys.stdin.read().upper(), open('data.txt').read()); sys.exit(3)"
    ended = python(code, project, isolated, b"hello")
    assert (ended.code, ended.out, ended.in_time) == (3, b"HELLO rows\n", True), ended.err


TRIES = {
    "its own environment": "print(dict(os.environ))",
    "its parent's environment": "print(open(f'/proc/{os.getppid()}/environ').read())",
    "any environment": "print([open(p).read() for p in glob.glob('/proc/*/environ')])",
    "a file beside the project": "print(open('../secret.txt').read())",
    "a file of the user's": "print(open(OUTSIDE).read())",
    "the token that git keeps": "print(open('.git/config').read())",
    "what lies under git's cover": "libc.unshare(0x10020000); libc.umount2(CWD + b'/.git', 2); print(open(GIT).read())",
    "a server on this machine": "print(socket.create_connection(('127.0.0.1', PORT), 2).recv(99))",
    "a server by a socket's name": "s = socket.socket(socket.AF_UNIX); s.connect('\\0' + NAME); print(s.recv(99))",
    "a file in the project": "open('data.txt', 'w').write('canary')",
    "a new file in the project": "open('new.txt', 'w').write('canary')",
    "a file in the project, made writable": "libc.mount(b'none', CWD, None, 4128, None); open('data.txt', 'w').write('canary')",
    "a file of the interpreter": "open(json.__file__, 'a').write('# canary')",
    "a process outside": "os.kill(PARENT, 9); print('canary')",
    "every process": "os.kill(-1, 9); print('canary')",
    "the machine's memory": "print(open('/dev/mem', 'rb').read(9), 'canary')",
    "root's rights": "os.setuid(0); print('canary')",
    "every right in a namespace within": "print('canary' if libc.unshare(0x10000000) == 0 else '')",
}


@pytest.fixture
def server() -> Iterator[tuple[int, str]]:
    """Something that talks to whoever connects, by the network and by a name in this machine's memory."""
    name = f"mltrainer-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as shown, socket.socket(socket.AF_UNIX) as named:
        named.bind(f"\0{name}")
        named.listen()
        port = shown.getsockname()[1]
        code = "import socket, sys\nfor n in sys.argv[1:]:\n    s = socket.socket(fileno=int(n)); s.settimeout(60)\n"
        code += "    import threading; threading.Thread(target=lambda s=s: s.accept()[0].send(b'canary'), daemon=True).start()\n"
        code += "sys.stdin.read()"
        handed = (shown.fileno(), named.fileno())
        command = [sys.executable, "-c", code, *map(str, handed)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=handed) as process:
            yield port, name
            process.kill()


@SHUT
@pytest.mark.parametrize("what", TRIES)
def test_what_is_closed_off_reaches_none_of(what, project, server, monkeypatch):
    monkeypatch.setenv("SERVICE_TOKEN", "canary")
    outside = project.parent / "secret.txt"
    known = (
        f"CWD, GIT = os.getcwdb(), '.git/config'; OUTSIDE = {str(outside)!r}; PORT, NAME = {server!r}; PARENT = {os.getpid()}\n"
    )
    code = f"import ctypes, glob, json, os, socket\nlibc = ctypes.CDLL(None)\n{known}{TRIES[what]}"
    ended = python(code, project, isolated=True)
    assert b"canary" not in ended.out
    assert (project / "data.txt").read_text() == "rows"
    assert not (project / "new.txt").exists()
    assert "canary" not in Path(json.__file__).read_text("utf-8")


@pytest.mark.parametrize(
    "what", ["a file of the user's", "a server on this machine", "a server by a socket's name", "a new file in the project"]
)
def test_each_of_these_is_reached_by_a_process_that_is_not_closed_off(what, project, server):
    """The tries are real ones."""
    known = f"OUTSIDE = {str(project.parent / 'secret.txt')!r}; PORT, NAME = {server!r}\n"
    ended = python(f"import os, socket\n{known}{TRIES[what]}", project, isolated=False)
    assert b"canary" in ended.out or (project / "new.txt").exists(), ended.err


@SHUT
def test_what_is_closed_off_sees_a_tree_that_holds_nothing_else(project):
    code = "import json, os; print(json.dumps([name for folder in ('/', '/etc', '/tmp') for name in os.listdir(folder)]))"
    found = set(json.loads(python(code, project, isolated=True).out))
    assert not found & {"proc", "sys", "run", "var", "old", "passwd", "shadow", "hosts", "ssh"}, found


@SHUT
def test_what_is_closed_off_has_no_right_to_mount_or_trace_even_in_its_own_tree(project):
    code = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
    code += "held = (ctypes.c_uint32 * 6)(); print(libc.capget((ctypes.c_uint32 * 2)(0x20080522, 0), held), list(held))\n"
    code += "print(libc.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None), ctypes.get_errno())"
    assert python(code, project, isolated=True).out.decode() == "0 [0, 0, 0, 0, 0, 0]\n-1 1\n"


@pytest.mark.parametrize("isolated", [pytest.param(True, marks=SHUT), False])
def test_a_limit_cannot_be_raised_again(project, isolated):
    code = "import resource\nfor kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):\n"
    code += "    print(*resource.getrlimit(kind))"
    limits = Limits(60, 1 << 30, 1 << 20, cpu_seconds=7)
    assert python(code, project, isolated, limits=limits).out.split() == [b"1073741824"] * 2 + [b"1048576"] * 2 + [b"7"] * 2


LASTING = (
    "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(600)\n    os._exit(0)\n"
)


@pytest.mark.slow
@SHUT
@pytest.mark.parametrize("seconds", [2.0, 60.0])
def test_a_process_that_leaves_its_group_ends_with_the_command(project, seconds):
    mark = f"mark-{os.getpid()}-{seconds}"
    code = f"MARK = {mark!r}\n{LASTING}{'time.sleep(600)' if seconds < 9 else ''}"
    ended = python(code, project, True, limits=Limits(seconds, 1 << 30, 1 << 20))
    assert ended.in_time is (seconds > 9)
    time.sleep(0.2)
    assert not running(mark)


@SHUT
@pytest.mark.parametrize("isolated", ["closed_off", "run"])
def test_a_command_ends_when_the_process_that_waits_for_it_is_killed(project, isolated):
    mark = f"mark-{os.getpid()}-{len(isolated)}"
    code = f"from tests.executors.test_sandbox import *\nfolder = Path({str(project)!r})\n"
    code += f"{isolated}([sys.executable, '-c', 'import time; time.sleep(600) # {mark}'], b'', ROOM, folder)"
    with subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2]) as waiting:
        until(lambda: any(b"import *" not in words and b"mltrainer.executors" not in words for words in running(f"# {mark}")))
        waiting.kill()
    until(lambda: not running(f"# {mark}"))


def running(mark: str) -> list[bytes]:
    """Return the command lines of the processes that hold a text."""
    return [command for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in (command := _command(path))]


def _command(path: Path) -> bytes:
    """Return a command line; of a process that has ended meanwhile nothing."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "limits"),
    [
        ("import time; time.sleep(60)", Limits(0.5, 1 << 30, 1 << 20)),
        ("while True: pass", Limits(60, 1 << 30, 1 << 20, cpu_seconds=1)),
        ("x = bytearray(1 << 30)", Limits(60, 1 << 29, 1 << 20)),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", Limits(60, 1 << 30, 1 << 20)),
        ("open('large', 'wb').write(bytes(1 << 21))", Limits(60, 1 << 30, 1 << 20)),
    ],
    ids=["time", "computing", "memory", "output", "a file"],
)
def test_a_command_takes_no_more_than_its_limits(project, code, limits):
    begun = time.monotonic()
    ended = python(code, project, False, limits=limits)
    assert (ended.code != 0, len(ended.out) <= limits.output + 1) == (True, True)
    assert time.monotonic() - begun < 30


def test_the_shells_variables_are_not_handed_down(project, monkeypatch):
    for name in ("SERVICE_TOKEN", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "HOME"):
        monkeypatch.setenv(name, "canary")
    assert b"canary" not in python("import os; print(dict(os.environ))", project, isolated=False).out


def test_no_folder_that_a_home_lies_in_is_shown(monkeypatch, tmp_path):
    home = tmp_path / "ada"
    (home / "library").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(home), str(home / "library")]))
    shown = interpreter_paths()
    assert str(home / "library") in shown
    assert not {str(home), str(tmp_path)} & set(shown)


@SHUT
def test_where_the_system_allows_no_namespaces_it_is_said(tmp_path):
    """In a namespace in which no other one may be made, as in a container."""
    code = "from mltrainer.executors.sandbox import unavailable; print(unavailable())"
    inside = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" "$@"'
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", inside, sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ})
    assert "this system does not let a process be closed off: [Errno" in done.stdout, done.stderr


# --- an executor that closes off what it starts --------------------------------------------------


@SHUT
def test_a_process_of_an_executor_writes_where_it_may_tells_its_events_and_sees_its_own_variables_alone(project, monkeypatch):
    monkeypatch.setenv("SERVICE_TOKEN", "canary")
    (project / "state").mkdir()
    isolation = Isolation((*interpreter_paths(), *CPU_FILES, str(project)), (str(project / ".git"),), (str(project / "state"),))
    code = (
        "import json, os, sys\n"
        "open('state/new.txt', 'w').write('written')\n"
        "found = {'variables': [name for name in os.environ if name in ('SERVICE_TOKEN', 'OWN')], 'git': os.listdir('.git')}\n"
        "found |= {'cpu': os.path.getsize('/proc/cpuinfo') >= 0, 'others': sorted(os.listdir('/proc'))}\n"
        "try: open('data.txt', 'w')\n"
        "except OSError as error: found['refused'] = error.strerror\n"
        "os.write(int(sys.argv[1]), (json.dumps(found) + chr(10)).encode())\n"
        "sys.exit(3)"
    )
    command = Command(
        arguments=[sys.executable, "-P", "-c", code, EVENTS],
        folder=project,
        environment={**os.environ, "OWN": "1"},
        own_variables={"OWN": "1"},
        output=project / "log.txt",
    )
    process = ClosedOff(isolation, ROOM).start(command)
    lines = process.listen(60)
    assert (process.wait(60), lines) == (3, lines), (project / "log.txt").read_text()
    found = json.loads(lines[0])
    assert found["variables"] == ["OWN"]
    assert (found["git"], found["refused"], found["cpu"]) == ([], "Read-only file system", True)
    assert set(found["others"]) <= {"cpuinfo", "meminfo"}
    assert (project / "state/new.txt").read_text() == "written"
    assert (project / "data.txt").read_text() == "rows"
