"""What an exploration prints."""

from __future__ import annotations

import pytest

from mltrainer.companions.questions.batch_size import FoundSize, Present, Size, text


@pytest.mark.parametrize(("us", "shown"), [(128.5, "128 µs"), (12_345.0, "12.3 ms"), (1.128e7, "11.3 s")])
def test_a_step_takes_a_time_in_the_unit_that_a_person_would_use(us, shown):
    size = Size(batch_size=8, samples_per_s=1.0, step_us=us, peak_mb=1.0)
    present = Present(batch_size=8, accumulate=1)
    found = FoundSize(sizes=[size], stopped="", limit_mb=None, suggestion=None, reason="", largest=8, present=present, changes=[])
    assert shown in text(found)
