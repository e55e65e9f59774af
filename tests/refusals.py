"""What is refused, and the words that a user reads with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mltrainer.errors import InputError


@contextmanager
def refused(match: str | None = None, *, where: str | None = None, hint: str = "") -> Iterator[pytest.ExceptionInfo[InputError]]:
    """Expect an error in what was given, with its place and a part of what to do next."""
    with pytest.raises(InputError, match=match) as caught:
        yield caught
    assert where in (None, caught.value.where)
    assert hint in str(caught.value.hint)
