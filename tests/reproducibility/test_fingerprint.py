"""The chain names the first step in which two runs differ, and breaks when it is edited."""

from __future__ import annotations

import pytest

from mltrainer.errors import GateError
from mltrainer.reproducibility import fingerprint
from mltrainer.reproducibility.fingerprint import Head

ENTRIES = [fingerprint.step_entry(step, f"{step:016x}", step / 3, step / 7) for step in range(1, 6)]


def chain(entries: list[str]) -> list[str]:
    return fingerprint.extend(Head(), entries)[1]


def test_each_entry_covers_the_one_before():
    whole, _ = fingerprint.extend(Head(), ENTRIES)
    half, _ = fingerprint.extend(Head(), ENTRIES[:2])
    assert fingerprint.extend(half, ENTRIES[2:])[0] == whole


def test_equal_chains_do_not_diverge():
    assert fingerprint.first_divergence(chain(ENTRIES), chain(ENTRIES)) is None


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (fingerprint.step_entry(3, "f" * 16, 1.0, 3 / 7), "samples"),
        (fingerprint.step_entry(3, f"{3:016x}", 1.5, 3 / 7), "loss"),
        (fingerprint.step_entry(3, f"{3:016x}", 1.0, 0.5), "gradient norm"),
    ],
)
def test_the_first_divergence_names_step_and_kind(entry, what):
    found = fingerprint.first_divergence(chain(ENTRIES), chain([*ENTRIES[:2], entry, *ENTRIES[3:]]))
    assert (found.step, found.what) == (3, what)


def test_a_difference_in_the_weights_is_named():
    left, right = ([*ENTRIES, fingerprint.weights_entry(5, sha)] for sha in ("a" * 64, "b" * 64))
    found = fingerprint.first_divergence(chain(left), chain(right))
    assert (found.step, found.what) == (5, "weights")


TREE = fingerprint.weights_entry(5, "a" * 64, is_tree=True)
WHOLE = fingerprint.weights_entry(5, "a" * 64)


def test_a_digest_over_chunks_is_none_over_all_bytes():
    assert f"w 5 tree:{'a' * 64}" == TREE
    assert fingerprint.trees_of(chain([TREE, fingerprint.weights_entry(6, "b" * 64, is_tree=True)])) == {5: "a" * 64, 6: "b" * 64}
    assert fingerprint.trees_of(chain([*ENTRIES, WHOLE])) == {}


@pytest.mark.parametrize("entry", ["w", "w 5", "w 5 tree:", f"w x tree:{'a' * 64}", f"w {'9' * 5000} tree:{'a' * 64}"])
def test_a_line_that_nobody_wrote_is_no_digest(entry):
    assert fingerprint.trees_of(chain([entry])) == {}


def test_digests_over_chunks_that_differ_are_named():
    left, right = ([*ENTRIES, fingerprint.weights_entry(5, sha * 64, is_tree=True)] for sha in "ab")
    found = fingerprint.first_divergence(chain(left), chain(right))
    assert (found.step, found.what, found.expected) == (5, "weights", f"tree:{'a' * 64}")


@pytest.mark.parametrize(
    ("entries", "sha256", "holds"),
    [
        ([TREE], "a" * 64, True),
        ([TREE], "b" * 64, False),
        ([TREE], None, False),
        ([TREE.replace("w 5", "w 4")], "b" * 64, True),  # ended after a step that no evaluation came after
        ([WHOLE], None, True),
        ([WHOLE], "a" * 64, False),
        ([], None, True),
        ([], "a" * 64, False),
    ],
)
def test_a_results_digest_over_chunks_is_the_chains(entries, sha256, holds):
    fault = fingerprint.tree_fault(fingerprint.last_tree(chain(entries)), 5, sha256)
    assert (fault is None) is holds


def test_an_edited_line_breaks_the_chain_there():
    lines = chain(ENTRIES)
    lines[2] = lines[2].replace(f"{3:016x}", f"{4:016x}")
    with pytest.raises(GateError, match=r"chain\.txt:3"):
        fingerprint.verify(lines, "chain.txt")


def test_a_torn_last_line_is_not_read(tmp_path):
    path = tmp_path / "chain.txt"
    fingerprint.append(path, chain(ENTRIES))
    path.write_text(path.read_text() + "6 torn")
    assert fingerprint.read(path) == chain(ENTRIES)


def test_cutting_back_keeps_what_the_checkpoint_covers(tmp_path):
    path = tmp_path / "chain.txt"
    fingerprint.append(path, chain(ENTRIES))
    head, lines = fingerprint.extend(Head(), ENTRIES[:3])
    fingerprint.cut(path, head)
    assert fingerprint.read(path) == lines


def test_cutting_back_refuses_another_runs_chain(tmp_path):
    path = tmp_path / "chain.txt"
    fingerprint.append(path, chain(ENTRIES))
    with pytest.raises(GateError, match="the chain of the checkpoint: expected 3 entries"):
        fingerprint.cut(path, Head(3, "0" * 32))


def test_bits_tell_nan_and_signed_zero_apart():
    assert len({fingerprint.bits(value) for value in (0.0, -0.0, float("nan"), float("inf"))}) == 4


def test_each_link_covers_all_entries_before_it():
    one, _ = fingerprint.extend(fingerprint.Head(), ["1 a", "2 b"])
    other, _ = fingerprint.extend(fingerprint.Head(), ["1 x", "2 b"])
    assert one.value != other.value


def test_a_line_that_is_gone_from_the_middle_breaks_the_chain():
    _, lines = fingerprint.extend(fingerprint.Head(), ["1 a", "2 b", "3 c"])
    assert fingerprint.verify(lines, "chain").entries == 3
    with pytest.raises(GateError, match="chain:2"):
        fingerprint.verify([lines[0], lines[2]], "chain")
