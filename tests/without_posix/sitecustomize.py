"""Takes from mltrainer, in each Python that starts with this folder on PYTHONPATH, what other systems than Linux lack.

Only mltrainer's own modules are refused: other libraries have ways of their own for each system. In place of fcntl it gets
something that answers as Windows's msvcrt does, so that commands still lock.
"""

import builtins
import errno
import fcntl
import importlib
import os
import signal
import subprocess  # noqa: F401 - it needs what is taken away below, on this system
import sys
import types

REFUSED = ("fcntl", "resource", "pwd", "grp", "termios")
FORK = ("fork", "forkpty")
WINDOWS_LACKS = {
    os: (
        *(
            "getuid",
            "geteuid",
            "getgid",
            "uname",
            "sysconf",
            "confstr",
            "killpg",
            "getsid",
            "setsid",
            "sched_getaffinity",
            "statvfs",
        ),
        *(
            "O_CLOEXEC",
            "O_DIRECTORY",
            "O_NOFOLLOW",
            "O_NONBLOCK",
            "WNOHANG",
            "openpty",
            "pread",
            "posix_fallocate",
            "memfd_create",
        ),
    ),
    signal: (
        *("SIGKILL", "SIGHUP", "SIGCHLD", "SIGPIPE", "SIGBUS", "SIGXCPU", "SIGXFSZ", "SIGUSR1", "SIGALRM"),
        *("setitimer", "pthread_sigmask", "ITIMER_PROF", "SIG_BLOCK"),
    ),
}


def locking(descriptor: int, mode: int, size: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None


msvcrt = types.ModuleType("msvcrt")
msvcrt.LK_NBLCK, msvcrt.locking = 2, locking
own_import, own_import_module, own_stat = builtins.__import__, importlib.import_module, os.stat


def is_ours() -> bool:
    """Return True if mltrainer asks, through Python's own library or not."""
    frame = sys._getframe(2)
    while frame is not None:
        package = (frame.f_globals.get("__package__") or frame.f_globals.get("__name__") or "").partition(".")[0]
        if package == "mltrainer":
            return True
        if package not in sys.stdlib_module_names:
            return False
        frame = frame.f_back
    return False


def limited_import(name, globals=None, *rest, **more):
    if ((globals or {}).get("__package__") or "").partition(".")[0] == "mltrainer":
        if name in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name == "msvcrt" and os.environ.get("WITHOUT_POSIX") != "locks":
            return msvcrt
    return own_import(name, globals, *rest, **more)


def limited_import_module(name, package=None):
    if name in REFUSED and is_ours():
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return own_import_module(name, package)


def is_proc(path) -> bool:
    return isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).startswith("/proc")


def limited_stat(path, *rest, **more):
    if is_proc(path) and is_ours():
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fsdecode(path))
    return own_stat(path, *rest, **more)


def hook(event, arguments):
    if event == "open" and is_proc(arguments[0]) and is_ours():
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fsdecode(arguments[0]))


builtins.__import__, importlib.import_module, os.stat = limited_import, limited_import_module, limited_stat
sys.addaudithook(hook)
for name in FORK:
    delattr(os, name)
if os.environ.get("WITHOUT_POSIX") == "windows":
    for module, names in WINDOWS_LACKS.items():
        for name in names:
            delattr(module, name)
