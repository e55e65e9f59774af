"""A test split is known again by the rows that it shares, whatever else changed, and by none where it shares none."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltrainer.configs.project import TrainingConfig
from mltrainer.tasks.array_operations import KEPT, sketch
from mltrainer.tasks.opening import OpenTask, open_task


def digests(*hashes: int, salt: str = "s") -> set[str]:
    return set(sketch(np.array(hashes, dtype=np.uint64), salt).split())


def test_each_row_has_the_keyed_digest_of_its_hash():
    key = hashlib.blake2b(b"s", digest_size=32).digest()
    told = [hashlib.blake2b(nr.to_bytes(8, "little"), digest_size=6, key=key).hexdigest() for nr in (3, 2**64 - 1)]
    assert sketch(np.array([3, 2**64 - 1, 3], dtype=np.uint64), "s") == " ".join(sorted(told))


def test_two_splits_share_the_digests_of_the_rows_that_they_share_under_one_salt_alone():
    assert len(digests(1, 2, 3) & digests(3, 4)) == 1
    assert not digests(1, 2, 3) & digests(4, 5)
    assert not digests(1, 2, 3) & digests(1, 2, 3, salt="t")
    assert digests() == set()


def test_few_rows_are_all_kept_and_of_many_so_many():
    assert [len(digests(*range(count))) for count in (1, KEPT, KEPT + 1, 5 * KEPT)] == [1, KEPT, KEPT, KEPT]


@pytest.mark.parametrize("seed", range(5))
def test_large_splits_that_share_a_hundredth_of_their_rows_meet(seed):
    rows = np.random.default_rng(seed).integers(0, 2**63, size=199_000).astype(np.uint64)
    one, other = (set(sketch(part, "s").split()) for part in (rows[:100_000], rows[99_000:]))
    assert one & other
    assert not one & set(sketch(rows[100_000:], "s").split())


# --- of a table -----------------------------------------------------------------------------------

LINES = [f"{nr}.5,{nr * 7 % 13},{'yes' if nr % 3 else 'no'}" for nr in range(80)]


def opened(root: Path, lines: list[str], **changes: Any) -> OpenTask:
    (root / "data.csv").write_text("\n".join(["size,age,bought", *lines]) + "\n")
    values = {
        "name": "shop",
        "task": {"kind": "tabular_classification"},
        "data": {"source": "data.csv", "target": "bought"},
        "model": {"name": "mlp", "hidden": [4]},
        "metric": {"name": "accuracy", "mode": "max"},
        "batch_size": 8,
        **changes,
    }
    return open_task(TrainingConfig.model_validate(values), root)


def known(task: OpenTask) -> set[str]:
    found = task.test_rows("s")
    assert (found["salt"], found["samples"]) == ("s", len(task.open_test()))
    return set(found["digests"].split())


def test_a_changed_training_cell_leaves_every_test_row_known(tmp_path):
    task = opened(tmp_path, LINES)
    row = int(task.split("train").ids[0])
    other = opened(tmp_path, [line.replace(".5", ".500001", 1) if nr == row else line for nr, line in enumerate(LINES)])
    assert task.data_sha256 != other.data_sha256
    assert known(task) == known(other)


def test_a_changed_test_cell_a_new_row_and_another_seed_leave_some_test_rows_known(tmp_path):
    task = opened(tmp_path, LINES)
    row, before = int(task.open_test().ids[0]), known(task)
    assert len(before) == 8
    edited = [f"9.25{line[line.index(',') :]}" if nr == row else line for nr, line in enumerate(LINES)]
    assert len(before & known(opened(tmp_path, edited))) == 7
    assert before & known(opened(tmp_path, [*LINES, "500.5,3,yes"]))
    assert before & known(opened(tmp_path, LINES, split={"validation": 0.2, "test": 0.4}))


def test_new_rows_are_another_test_split(tmp_path):
    before = known(opened(tmp_path, LINES))
    assert not before & known(opened(tmp_path, [f"1{line}" for line in LINES]))
