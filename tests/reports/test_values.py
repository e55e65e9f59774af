"""Values are written the same everywhere, and what is not a number is never written as one."""

from __future__ import annotations

import pytest

from mltrainer.reports import values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.96743, "0.967"),
        (0.9, "0.900"),
        (12345.6, "12,346"),
        (9.99996, "10.0"),
        (-7.671e-05, "-0.0000767"),
        (1.5e-7, "1.50e-07"),
        (1e30, "1.00e+30"),
        (0.0, "0"),
        (-0.0, "0"),
        (85002, "85,002"),
        (True, "yes"),
        (None, "not measured"),
        ("nan", "NaN"),
        ("inf", "infinite"),
        ("-inf", "-infinite"),
        (float("nan"), "NaN"),
        (float("inf"), "infinite"),
        ("\x1b[1m", "\\x1b[1m"),
    ],
)
def test_a_number_has_fixed_significant_digits(value, text):
    assert values.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.001, "0.001"), (60.0, "60"), (1e-8, "1e-08"), (2000, "2000"), (None, "none"), (False, "no")]
)
def test_a_setting_is_written_as_it_was_given(value, text):
    assert values.given(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(0, "0 s"), (12.5e-6, "12.5 µs"), (0.005034, "5.03 ms"), (0.5, "500 ms"), (9, "9 s"), (59.99, "60.0 s")],
        *[
            (60, "1 min"),
            (192.4, "3 min 12 s"),
            (3599.7, "1 h 00 min"),
            (3600, "1 h"),
            (3840, "1 h 04 min"),
            (90061.0, "25 h 01 min"),
        ],
        *[("nan", "NaN"), (None, "not measured")],
    ],
)
def test_a_duration_is_in_the_units_of_a_person(seconds, text):
    assert values.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (264712, "265 kB"),
        (999_600, "1.00 MB"),
        (3.2e9, "3.20 GB"),
        (5e15, "5,000 TB"),
        (None, "not measured"),
    ],
)
def test_a_size_has_a_decimal_unit(count, text):
    assert values.size(count) == text


@pytest.mark.parametrize(
    ("mib", "text"),
    [
        (8 / 2**20, "8 B"),
        (0.324, "332 KiB"),
        (0.9999, "1.00 MiB"),
        (445.2, "445 MiB"),
        (62_600.0, "61.1 GiB"),
        (0, "0 B"),
        (None, "not measured"),
    ],
)
def test_memory_has_a_binary_unit(mib, text):
    assert values.megabytes(mib) == text


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("minutes", 0.0425, ("time", "2.55 s")),
        ("budget_minutes", 60, ("budget", "1 h")),
        ("device_peak_mb", 19488, ("device peak", "19.0 GiB")),
        ("step_us", 5034.0, ("step", "5.03 ms")),
        ("waited_s", None, ("waited s", "none")),
        ("not_available", [], ("not available", "none")),
    ],
)
def test_evidence_is_in_words_and_a_persons_units(key, value, told):
    assert values.labelled(key, value) == told


def test_what_is_hidden_becomes_visible():
    assert values.visible("a\x1b[0m\n\u202eb\u200b\ud800\x85") == "a\\x1b[0m\\n\\u202eb\\u200b\\ud800\\x85"


def test_shares_signs_counts_and_digests():
    assert (values.share(0.0341), values.share("nan"), values.signed(0.5), values.signed(-0.5)) == (
        "3.41 %",
        "NaN",
        "+0.500",
        "-0.500",
    )
    assert (values.times(1), values.times(2), values.times(3), values.counted(1, "step"), values.counted(2, "step")) == (
        "once",
        "twice",
        "3 times",
        "1 step",
        "2 steps",
    )
    assert (values.short("a" * 64), values.short(None)) == ("a" * 12, "not measured")


def test_numbers_and_times_at_the_borders_of_their_ways_of_writing():
    assert [values.number(1234567.0), values.number(0.0001234)] == ["1,234,567", "0.000123"]
    assert values.number(12345678.0) == "1.23e+07"
    assert [values.duration(59.9), values.duration(60.0)] == ["59.9 s", "1 min"]


@pytest.mark.parametrize(
    ("value", "other", "text"),
    [(0.9497, 0.95, "0.9497"), (0.94, 0.95, "0.940"), (0.95, 0.95, "0.950"), (None, 0.95, "not measured")],
)
def test_a_number_beside_another_has_the_digits_that_tell_them_apart(value, other, text):
    assert values.apart(value, other) == text


def test_evidence_on_a_line_has_no_brackets_quotes_or_many_digits():
    evidence = {
        "gap": 0.022346368715083775,
        "criteria": {"accuracy": ">= 0.95"},
        "ends": [0.9441340782122905, 1.0],
        "first": None,
    }
    assert values.plain(evidence) == "gap 0.0223, criteria accuracy >= 0.95, ends 0.944, 1, first none"
    assert values.plain([*range(9)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 1 more"
