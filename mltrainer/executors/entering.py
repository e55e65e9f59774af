"""`python -P -m mltrainer.executors.entering JSON [EVENTS]`: takes on limits, closes itself off where asked, becomes a command.

EVENTS is the descriptor that replaces the command's argument `{events}`.

Standard library alone, and Linux's own calls by ctypes: Python 3.11 has no `os.unshare`. Closed off means separate namespaces:
users (so that no right outside is left), mounts (a tree in memory with only the visible files, read-only, and no /proc),
processes (the command's children end with it, and no other can be seen or signalled), network (none), System V memory.

Bubblewrap (`bwrap` 0.8.0) was tried in place of this: it closes off the same, starts a command in the same time, and would save
about 40 lines. But on a machine without its package nothing could be closed off. And with `--die-with-parent`, 21 of 40 commands
outlived the process that waited for them, when that was killed within 4 ms of bubblewrap's start; of 40 commands here, none did.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

EVENTS = "{events}"  # as in `executor`, which this program must not import
REFUSED = 112  # the exit code where the system does not let it close itself off
BASE = "/tmp"  # noqa: S108 - any folder that there is: the new tree is mounted over it, in this process's sight alone
NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
KEPT_FLAGS = NOSUID | NODEV | NOEXEC | 1024 | 2048 | (1 << 21)  # and noatime, nodiratime, relatime: a copy may not drop them
DETACH = 2
PDEATHSIG, DUMPABLE, NO_NEW_PRIVILEGES = 1, 4, 38
INSIDE = 1000  # the user's and group's number inside; root would be given all rights back by becoming another program
DEVICES = ("null", "zero", "full", "random", "urandom")
MOST_PROCESSES, MOST_FILES = 4096, 512
_OCTAL = re.compile(r"\\([0-7]{3})")  # how the list of mounts writes a blank
MEMORY_TREE = "size=64m,mode=755"


def main() -> None:
    """Become the command that the argument describes."""
    request = json.loads(sys.argv[1])
    if sys.platform == "linux":
        _end_with_parent()
        # Asked only now: of a parent that ended before the request no signal comes any more.
        if os.getppid() != request["parent"]:
            sys.exit("the process that asked for this command has ended")
    _limit(request["limits"])
    if request["isolation"] is not None:
        try:
            _close_off(request["isolation"])
        except (OSError, AttributeError, ValueError) as error:
            sys.stderr.write(f"this system does not let a process be closed off: {error}\n")
            sys.stderr.flush()
            os._exit(REFUSED)
    os.chdir(request["folder"])
    command = [sys.argv[2] if argument == EVENTS else argument for argument in request["command"]]
    os.execve(command[0], command, request["environment"])  # noqa: S606 - no shell is wanted


def _limit(limits: dict[str, Any]) -> None:
    """Set the limits of this process, which no process that it starts can raise."""
    _lower("RLIMIT_AS", limits["memory"])
    _lower("RLIMIT_FSIZE", limits["output"])
    _lower("RLIMIT_CORE", 0)
    _lower("RLIMIT_NOFILE", MOST_FILES)
    if limits["cpu_seconds"] is not None:
        _lower("RLIMIT_CPU", limits["cpu_seconds"])


def _lower(name: str, value: int) -> None:
    import resource  # here: Windows lacks it

    kind = getattr(resource, name)
    # Never above the hard limit, which a process without rights cannot raise: it may be below ours already.
    hard = resource.getrlimit(kind)[1]
    lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(OSError, ValueError):  # macOS has no limit of memory
        resource.setrlimit(kind, (lowest, lowest))


# --- Linux ----------------------------------------------------------------------------------------


def _call(function: str, *arguments: Any) -> None:
    """Call a function of the system's library.

    Raises:
        OSError: It failed.
        AttributeError: There is none of that name.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    given = [os.fsencode(value) if isinstance(value, str) else value for value in arguments]
    # ctypes hands over an int as 32 bits, where mount and unshare read flags of the machine's word.
    if getattr(libc, function)(*[ctypes.c_ulong(value) if isinstance(value, int) else value for value in given]) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def _end_with_parent() -> None:
    """Have the system end this process when the one that started it ends, however that ends."""
    _call("prctl", PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _close_off(isolation: dict[str, Any]) -> None:
    """Return in a process that is closed off; those around it, which wait for it, end with its exit code.

    Raises:
        OSError: The system does not allow it.
    """
    _own_namespaces()
    _end_with_parent()  # again: other rights cancel what was asked for before
    _own_tree(isolation["visible"], isolation["hidden"], isolation["writable"])
    # A new namespace of processes holds the children of who asked for it, not that process itself.
    if first := os.fork():
        os._exit(_code_of(first))
    _end_with_parent()  # and the first process of a namespace takes all others with it
    # The process that waits may not be traced by the command, which runs under the same user.
    _call("prctl", DUMPABLE, 0, 0, 0, 0)
    # The command is not the namespace's first process: that one gets no signal without a handler, and must wait for orphans.
    if second := os.fork():
        os._exit(_code_of(second))
    _lower("RLIMIT_NPROC", MOST_PROCESSES)
    _call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)  # the rights inside end with the next program, as its user is not root


def _own_namespaces() -> None:
    user, group = os.getuid(), os.getgid()
    _call("unshare", NEWUSER | NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS)
    # First: without it the kernel lets an unprivileged process map no groups.
    Path("/proc/self/setgroups").write_text("deny", "ascii")
    Path("/proc/self/uid_map").write_text(f"{INSIDE} {user} 1", "ascii")
    Path("/proc/self/gid_map").write_text(f"{INSIDE} {group} 1", "ascii")
    # In a namespace of users within this one the command would have every right, and reach more of the kernel's code.
    with contextlib.suppress(OSError):  # a container may show the kernel's settings read-only
        Path("/proc/sys/user/max_user_namespaces").write_text("0", "ascii")


def _own_tree(visible: list[str], hidden: list[str], writable: list[str]) -> None:
    """Make a tree in memory the root, with the visible files at their own paths, read-only but for the writable folders."""
    # Private first: later mounts outside would show in here, and pivot_root refuses a shared root.
    _call("mount", "none", "/", None, REC | PRIVATE, None)
    _call("mount", "tmpfs", BASE, "tmpfs", NOSUID | NODEV, MEMORY_TREE)
    os.mkdir(f"{BASE}/old")
    _call("pivot_root", BASE, f"{BASE}/old")
    os.chdir("/")
    for name in ("tmp", "dev", "dev/shm"):
        os.mkdir(f"/{name}")
    for path in sorted(visible, key=len):  # a path inside another comes with it
        if not os.path.lexists(path):
            _show(path)
    for path in writable:
        _call("mount", f"/old{path}", path, None, BIND | REC, None)
    # Bound from outside, since a namespace of users may make no devices.
    for name in DEVICES:
        _bind(f"/old/dev/{name}", f"/dev/{name}")
    for path in hidden:
        if os.path.isdir(path) and not os.path.islink(path):
            _call("mount", "tmpfs", path, "tmpfs", NOSUID | NODEV | RDONLY, "size=4k,mode=555")
    _call("umount2", "/old", DETACH)
    os.rmdir("/old")


def _show(path: str) -> None:
    """Put a file, a folder or a link of the old tree at its place in the new one."""
    source = f"/old{path}"
    if not os.path.lexists(source):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), path)
    else:
        _bind(source, path)
        _read_only(path)


def _bind(source: str, place: str) -> None:
    if not os.path.exists(source):
        return
    if os.path.isdir(source):
        os.mkdir(place)
    else:
        Path(place).touch()
    _call("mount", source, place, None, BIND | REC, None)


def _read_only(path: str) -> None:
    """Make a bound folder read-only with all that is mounted in it; a mount's fixed flags must be given again."""
    for point in [path, *_mounted_below(path)]:
        flags = os.statvfs(point).f_flag & KEPT_FLAGS
        _call("mount", "none", point, None, BIND | REMOUNT | RDONLY | flags, None)


def _mounted_below(path: str) -> list[str]:
    lines = Path("/old/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    points = [_OCTAL.sub(lambda match: chr(int(match[1], 8)), line.split(" ")[4]) for line in lines]
    return [point for point in points if point.startswith(f"{path}/")]


def _code_of(process: int) -> int:
    """Wait for a process, and for those that it left, and return its exit code as a shell gives it."""
    while True:
        ended, status = os.wait()
        if ended == process:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    main()
