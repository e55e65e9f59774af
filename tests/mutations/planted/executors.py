"""Faults planted in `mltrainer/executors`."""

from __future__ import annotations

from tests.mutations.fault import Fault

TESTS = "tests/executors/test_sandbox.py"
FORKS = "tests/executors/test_fork_server.py"
FAULTS = (
    Fault(
        "a forked process never collects its garbage",
        "mltrainer/executors/fork_server.py",
        "            gc.enable()\n",
        "",
        f"{FORKS} -k collects_garbage",
    ),
    Fault(
        "what cannot be imported ahead ends the server",
        "mltrainer/executors/fork_server.py",
        "if order.arguments else (Exception,)",
        "if order.arguments else ()",
        f"{FORKS} -k imported_ahead",
    ),
    Fault(
        "what a command started outlives it when its time is over",
        "mltrainer/executors/running.py",
        "        process.kill()\n",
        "        process.signal(9)\n",
        "tests/executors/test_running.py",
    ),
    Fault(
        "a closed-off process keeps the network",
        "mltrainer/executors/entering.py",
        "NEWUSER | NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS",
        "NEWUSER | NEWNS | NEWPID | NEWIPC | NEWUTS",
        f"{TESTS} -k reaches_none_of",
    ),
    Fault(
        "a closed-off process sees the machine's other processes",
        "mltrainer/executors/entering.py",
        "NEWUSER | NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS",
        "NEWUSER | NEWNS | NEWNET | NEWIPC | NEWUTS",
        f"{TESTS} -k leaves_its_group",
    ),
    Fault(
        "what is bound can be written",
        "mltrainer/executors/entering.py",
        "BIND | REMOUNT | RDONLY | flags",
        "BIND | REMOUNT | flags",
        f"{TESTS} -k reaches_none_of",
    ),
    Fault(
        "the old tree stays below the new one",
        "mltrainer/executors/entering.py",
        '    _call("umount2", "/old", DETACH)\n    os.rmdir("/old")\n',
        "",
        f"{TESTS} -k holds_nothing_else",
    ),
    Fault(
        "git's own folder is seen",
        "mltrainer/executors/sandbox.py",
        "(str(folder / GIT_FOLDER),)",
        "()",
        f"{TESTS} -k reaches_none_of",
    ),
    Fault(
        "a folder that a home lies in is shown",
        "mltrainer/executors/sandbox.py",
        "if not any(home.is_relative_to(path) for home in homes)",
        "if not any(home == Path(path) for home in homes)",
        f"{TESTS} -k home_lies_in",
    ),
    Fault(
        "the shell's variables are handed down",
        "mltrainer/executors/limited.py",
        "kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}",
        "kept = dict(os.environ)",
        f"{TESTS} -k variables",
    ),
    Fault(
        "the user inside is root, who keeps every right",
        "mltrainer/executors/entering.py",
        "INSIDE = 1000 ",
        "INSIDE = 0 ",
        f"{TESTS} -k has_no_right",
    ),
    Fault(
        "a command outlives the process that waits for it",
        "mltrainer/executors/entering.py",
        '    _call("prctl", PDEATHSIG, signal.SIGKILL, 0, 0, 0)',
        "    pass",
        f"{TESTS} -k waits_for_it_is_killed",
    ),
    Fault(
        "memory is not limited",
        "mltrainer/executors/entering.py",
        '    _lower(resource.RLIMIT_AS, limits["memory"])\n',
        "",
        f"{TESTS} -k no_more_than_its_limits",
    ),
    Fault(
        "a file that is written is not limited",
        "mltrainer/executors/entering.py",
        '    _lower(resource.RLIMIT_FSIZE, limits["output"])\n',
        "",
        f"{TESTS} -k no_more_than_its_limits",
    ),
    Fault(
        "computing is not limited",
        "mltrainer/executors/entering.py",
        '    if limits["cpu_seconds"] is not None:',
        '    if limits["cpu_seconds"] is None:',
        f"{TESTS} -k no_more_than_its_limits",
    ),
    Fault(
        "a soft limit is lowered, which the command itself can raise again",
        "mltrainer/executors/entering.py",
        "resource.setrlimit(kind, (lowest, lowest))",
        "resource.setrlimit(kind, (lowest, hard))",
        f"{TESTS} -k cannot_be_raised",
    ),
    Fault(
        "a fork server ends at Ctrl-C",
        "mltrainer/executors/fork_server.py",
        "for number in (*STOPS, signal.SIGHUP):",
        "for number in (signal.SIGTERM, signal.SIGHUP):",
        f"{FORKS} -k passes_its_server_by",
    ),
    Fault(
        "a forked process is deaf to Ctrl-C, as its server is",
        "mltrainer/executors/fork_server.py",
        "for number in (signal.SIGCHLD, *STOPS):",
        "for number in (signal.SIGCHLD,):",
        f"{FORKS} -k passes_its_server_by",
    ),
    Fault(
        "a forked process has the variables of its server",
        "mltrainer/executors/fork_server.py",
        "os.environ.update(order.environment)",
        "os.environ.update({})",
        f"{FORKS} -k own_variables",
    ),
    Fault(
        "a forked process that was killed has ended well",
        "mltrainer/executors/fork_server.py",
        "os.waitstatus_to_exitcode(found[1])",
        "os.WEXITSTATUS(found[1])",
        f"{FORKS} -k code_of_a_program",
    ),
    Fault(
        "what a killed process started goes on",
        "mltrainer/executors/local.py",
        "for pid in descendants(self.pid) if self.poll() is None else ():",
        "for pid in ():",
        f"{FORKS} -k killed_with_it",
    ),
)
