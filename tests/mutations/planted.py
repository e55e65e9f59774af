"""Faults that the suite must catch: three a room, each one line of code made wrong in a way that runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        room: The room of `mltrainer` that it stands in.
        what: What goes wrong, in a few words.
        file: The module, from the checkout's top.
        right: The text that is replaced; it stands there once.
        wrong: What takes its place.
        tests: The tests that should notice, as pytest takes them.
    """

    room: str
    what: str
    file: str
    right: str
    wrong: str
    tests: str


FAULTS = (
    Fault(
        "gates",
        "a record of another chain is taken",
        "mltrainer/gates/gate.py",
        'if data.get("previous") != expected:',
        "if False:",
        "tests/gates",
    ),
    Fault(
        "gates",
        "an input of any role may be missing",
        "mltrainer/gates/gate.py",
        'if found is None and row["role"] in AWAY_ROLES:',
        "if found is None:",
        "tests/gates",
    ),
    Fault(
        "gates",
        "any difference of an export passes",
        "mltrainer/gates/checks/finalization.py",
        "isinstance(relative, int | float) and relative <= limit",
        "isinstance(relative, int | float) and relative <= 1e9",
        "tests/gates",
    ),
    Fault(
        "runs",
        "a finished run's checkpoints are not looked at",
        "mltrainer/runs/contract.py",
        'return result if all(_is(project.root / row["path"], row["sha256"]) for row in files) else None',
        "return result if files is not None else None",
        "tests/runs tests/trainer/test_tampering.py tests/gates tests/cli/test_interruptions.py",
    ),
    Fault(
        "runs",
        "a reproduction with another end counts as identical",
        "mltrainer/runs/retrain.py",
        'same_end = in_part or all(again[key] == result[key] for key in ("weights_sha256", "metrics"))',
        "same_end = True",
        "tests/runs tests/trainer/test_tampering.py",
    ),
    Fault(
        "runs",
        "a tool's exit without a word passes",
        "mltrainer/runs/launcher.py",
        "    if end is None:\n        raise InputError(",
        "    if False:\n        raise InputError(",
        "tests/runs tests/cli/test_users_code.py",
    ),
    Fault(
        "trainer",
        "every epoch has the first one's order",
        "mltrainer/trainer/data/addresses.py",
        "order = seeds.epoch_order(config.seed, epoch, np.arange(plan.samples))\n        ids = samples.ids[order]",
        "order = seeds.epoch_order(config.seed, 0, np.arange(plan.samples))\n        ids = samples.ids[order]",
        "tests/trainer",
    ),
    Fault(
        "trainer",
        "every step has the same draws",
        "mltrainer/trainer/shards.py",
        'else seeds.key(seed, "step", step)',
        'else seeds.key(seed, "step", 1)',
        "tests/trainer",
    ),
    Fault(
        "trainer",
        "a resumed run forgets its history",
        "mltrainer/trainer/stages.py",
        'self.history = list(tree["history"])',
        "self.history = []",
        "tests/trainer",
    ),
    Fault(
        "checkpointing",
        "a file's digest is not compared with the record's",
        "mltrainer/checkpointing/format.py",
        'if name in expected and expected[name] != row["sha256"]:',
        "if False:",
        "tests/checkpointing tests/tools/export",
    ),
    Fault(
        "checkpointing",
        "a damaged checkpoint is taken for the newest intact one",
        "mltrainer/checkpointing/manifest.py",
        "        if not wrong:\n            return folder, skipped",
        "        if True:\n            return folder, skipped",
        "tests/checkpointing",
    ),
    Fault(
        "checkpointing",
        "the best checkpoint may be deleted",
        "mltrainer/checkpointing/retention.py",
        'if "best" in names or "last" in names}',
        'if "last" in names}',
        "tests/checkpointing",
    ),
    Fault(
        "reproducibility",
        "the seed is no part of a draw's address",
        "mltrainer/reproducibility/seeds.py",
        'address = f"{seed}/{purpose}/',
        'address = f"{purpose}/',
        "tests/reproducibility",
    ),
    Fault(
        "reproducibility",
        "the number of threads decides nothing",
        "mltrainer/reproducibility/environment.py",
        '        "threads": str(threads),\n        "GPU":',
        '        "GPU":',
        "tests/reproducibility",
    ),
    Fault(
        "reproducibility",
        "the chain does not cover the entry before",
        "mltrainer/reproducibility/fingerprint.py",
        'f"{value} {entry}".encode()',
        'f"{entry}".encode()',
        "tests/reproducibility",
    ),
    Fault(
        "reports",
        "markup in a value acts",
        "mltrainer/reports/markdown.py",
        "shown = _MARKUP.sub(_reference, visible(value))",
        "shown = visible(value)",
        "tests/reports",
    ),
    Fault(
        "reports",
        "NaN is written as 0",
        "mltrainer/reports/values.py",
        '_NOT_FINITE = {"nan": "NaN"',
        '_NOT_FINITE = {"nan": "0"',
        "tests/reports",
    ),
    Fault(
        "reports",
        "a failing item is not named beside the verdict",
        "mltrainer/reports/views.py",
        'return [item for item in gate if item["verdict"] == "fail"]',
        "return []",
        "tests/reports tests/gates",
    ),
)
