"""Faults planted in `mltrainer/planner`."""

from __future__ import annotations

from tests.mutations.fault import Fault

MEMORY, DEVICES, ADVICE = (f"tests/planner/test_{name}.py" for name in ("memory", "devices", "recommendation"))
FAULTS = (
    Fault(
        "the update's own memory counts nothing",
        "mltrainer/planner/memory.py",
        "activations = max(step, update, variant.evaluation_bytes) - gradients",
        "activations = max(step, variant.evaluation_bytes) - gradients",
        MEMORY,
    ),
    Fault(
        "FSDP holds no block whole",
        "mltrainer/planner/memory.py",
        "(1 - 1 / setup.processes) + traced.own.largest_block_bytes",
        "(1 - 1 / setup.processes)",
        MEMORY,
    ),
    Fault(
        "small parameters are divided among processes too",
        "mltrainer/planner/memory.py",
        "kept = 1 - large + large / setup.processes",
        "kept = 1 / setup.processes",
        MEMORY,
    ),
    Fault(
        "accumulation holds one sum of gradients too many",
        "mltrainer/planner/memory.py",
        "for done in range(count)), default=0)",
        "for done in range(count + 1)), default=0)",
        MEMORY,
    ),
    Fault(
        "a checkpoint that is being written takes nothing",
        "mltrainer/planner/memory.py",
        "copies=layers + max(checkpoint, layers if setup.observes else 0.0)",
        "copies=layers",
        MEMORY,
    ),
    Fault(
        "a time on a device is the shortest where it should be the longest",
        "mltrainer/planner/timing.py",
        "return Interval(at_peak / used.high, at_peak / used.low)",
        "return Interval(at_peak / used.low, at_peak / used.high)",
        DEVICES,
    ),
    Fault(
        "a way that the trainer refuses is recommended",
        "mltrainer/planner/recommendation.py",
        "if way.parts is None or way.refused is not None:",
        "if way.parts is None:",
        ADVICE,
    ),
    Fault(
        "a micro-batch comes without the accumulation that keeps a step's samples",
        "mltrainer/planner/recommendation.py",
        'keys = {"batch_size": found.batch, "accumulate": found.accumulate}',
        'keys = {"batch_size": found.batch}',
        ADVICE,
    ),
)
