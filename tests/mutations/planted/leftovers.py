"""Faults planted in `mltrainer/leftovers`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "what a living process holds is removed",
        "mltrainer/leftovers.py",
        "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB) if lock.is_dir() else None",
        "tests/test_leftovers.py",
    ),
    Fault(
        "a folder called scratch is removed although it is of no run",
        "mltrainer/leftovers.py",
        "RUN_SCRATCH in folders and RUN_LOCK in files and _removed(here / RUN_SCRATCH, here / RUN_LOCK)",
        "RUN_SCRATCH in folders and _removed(here / RUN_SCRATCH, here / (RUN_LOCK if RUN_LOCK in files else RUN_SCRATCH))",
        "tests/test_leftovers.py",
    ),
    Fault(
        "who was quicker to sweep leaves a writer without its file",
        "mltrainer/leftovers.py",
        "for left over.\n        if _hold(descriptor, path):",
        "for left over.\n        if _hold(descriptor, path) or True:",
        "tests/test_leftovers.py",
    ),
    Fault(
        "new files are private whatever the umask",
        "mltrainer/leftovers.py",
        "os.O_CLOEXEC, 0o666)",
        "os.O_CLOEXEC, 0o600)",
        "tests/test_leftovers.py",
    ),
    Fault(
        "a user's own folder of such a name is removed",
        "mltrainer/leftovers.py",
        "is_folder and entry.stat(follow_symlinks=False).st_uid == os.getuid() and _is_plain(Path(entry, OWNER_FILE))",
        "is_folder",
        "tests/test_leftovers.py",
    ),
    Fault(
        "a folder that was swept is given out",
        "mltrainer/leftovers.py",
        "raise\n        if _hold(descriptor, path):",
        "raise\n        if _hold(descriptor, path) or True:",
        "tests/test_leftovers.py",
    ),
)
