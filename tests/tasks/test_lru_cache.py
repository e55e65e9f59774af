"""Values that are held to be found sooner: which of them, and where."""

from __future__ import annotations

import pickle

from mltrainer.tasks.stored.lru_cache import LruCache


def asked(held: LruCache[str, str], keys: str, size: int = 1) -> str:
    """Return the keys for which a value was made."""
    made: list[str] = []

    def make(key: str) -> str:
        made.append(key)
        return key.upper()

    assert [held.get(key, lambda key=key: make(key), size) for key in keys] == [*keys.upper()]
    return "".join(made)


def test_the_values_that_were_asked_for_last_are_held():
    held: LruCache[str, str] = LruCache(2)
    assert asked(held, "abaca") == "abc"  # b goes, as a was asked for after it
    assert asked(held, "b") == "b"


def test_older_ones_make_room_before_a_value_is_made_and_one_too_large_is_held_alone():
    held: LruCache[str, str] = LruCache(10)
    asked(held, "ab", size=5)
    found: list[int] = []
    held.get("c", lambda: found.append(len(held._values)) or "C", 12)
    assert found == [0]
    assert asked(held, "c") == ""


def test_none_goes_along_to_another_process():
    held: LruCache[str, str] = LruCache(2)
    asked(held, "ab")
    assert asked(pickle.loads(pickle.dumps(held)), "aba") == "ab"
