"""CPU time that processes use: a process that computes is alive, even where its machine is too busy for signs of life."""

from __future__ import annotations

DOUBT_S = 3.0  # chosen by us: a process shows life every second; of one that has not for so long, its CPU time is looked at


class Work:
    """The CPU time of some processes, compared with their CPU time at the last look."""

    def __init__(self) -> None:
        self._used: dict[int, float] = {}

    def goes_on(self, pid: int) -> bool:
        """Return True if a process has used CPU time since the last look; False at the first look, and where it has ended."""
        before, now = self._used.get(pid), cpu_s(pid)
        self._used[pid] = now
        return before is not None and now > before


def cpu_s(pid: int) -> float:
    """Return the CPU time of all threads of a process, in seconds; 0 where it has ended."""
    import psutil  # here: only a process that shows no life is looked at

    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
