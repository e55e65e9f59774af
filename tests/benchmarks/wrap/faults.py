"""Ways in which a training can be irreproducible, as lines that are put into a script at a marked place."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A way to be irreproducible.

    Attributes:
        place: The mark in the scripts at which the lines are put in.
        lines: What is put in; the guilty ones end in `# guilty`.
        kinds: The kinds of cause that are right.
    """

    place: str
    lines: tuple[str, ...]
    kinds: tuple[str, ...]


FAULTS = {
    "unseeded draw": Fault("sample", ("x = x + 0.01 * float(np.random.default_rng().normal())  # guilty",), ("random draw",)),
    "set order": Fault("order", ("order = [int(name) for name in {str(index) for index in order}]  # guilty",), ("hash order",)),
    "clock": Fault("seed", ("torch.manual_seed(time.time_ns() % 1000003)  # guilty",), ("clock",)),
    "thread race": Fault(
        "order",
        (
            "with ThreadPoolExecutor(8) as pool:  # guilty",
            "    jobs = [pool.submit(lambda index: (time.sleep(0.001), index)[1], index) for index in order]",
            "    order = [job.result() for job in as_completed(jobs)]  # guilty",
        ),
        ("threads",),
    ),
    "unwritten memory": Fault(
        "batch",
        ("padding = torch.empty(20)  # guilty", "x = x + padding.nan_to_num(0, 0, 0).clamp(-1, 1)"),
        ("unwritten memory",),
    ),
    "operation": Fault(
        "batch",
        (
            "torch.set_num_threads(2)",
            "slots = torch.arange(100000) % 8",
            "parts = torch.linspace(0, 1, 2000000).view(-1, 20)",
            "summed = torch.zeros(8, 20).index_put((slots,), parts, accumulate=True)  # guilty",
            "x = x + torch.frac(1000 * summed[0])",
        ),
        ("operation",),
    ),
    "listing order": Fault("order", ('order = [int(name) for name in os.listdir("samples")]  # guilty',), ("listing order",)),
}
STATE = Fault("resume", ('saved["rng"] = torch.get_rng_state()',), ("state",))  # what the script loads next is not the saved one
STATE_GONE = Fault("resume", ("os.remove(states)",), ("state",))  # of frameworks that keep it in a file of its own


def planted(source: str, fault: Fault) -> str:
    """Return a script with a fault put in at its place, indented as the place is; unchanged where it has none."""
    mark = f"# <{fault.place}>"
    lines = []
    for line in source.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines += [f"{indent}{part}" for part in fault.lines] if line.strip() == mark else [line]
    return "\n".join(lines) + "\n"


def guilty(source: str) -> set[int]:
    """Return the numbers of the guilty lines."""
    return {number for number, line in enumerate(source.splitlines(), 1) if line.endswith("# guilty")}
