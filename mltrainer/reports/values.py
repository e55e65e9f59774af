"""Values as people read them: numbers, durations, sizes, digests, and text made visible.

Everything here gives the same text on every machine and in every version of Python: no locale, no table of
Unicode properties, no function of the C library whose last bit differs between systems.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mltrainer.workspace import is_number

NOT_MEASURED = "not measured"
DIGITS = 3  # significant digits for readers; a record holds all digits
_DIGEST = re.compile("[0-9a-f]{40,}")
_TEXT_LIMIT = 300
_LIST_LIMIT = 8
_NOT_FINITE = {"nan": "NaN", "inf": "infinite", "-inf": "-infinite"}
# Control characters, invisible ones, and those that change the direction of writing, by code point.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(value: object) -> str:
    r"""Return text on one line without hidden characters: an escape character becomes `\x1b`, a newline `\n`."""
    return _INVISIBLE.sub(_escape, str(value))


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _SHORT_ESCAPES.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def as_float(value: Any) -> float:
    """Return a number of a record as a float; "nan", "inf" and unmeasured values are not finite."""
    if isinstance(value, str) and value in _NOT_FINITE:
        return float(value)
    if not is_number(value):
        return math.nan
    return float(value)


def finite(value: Any) -> bool:
    """Return True if a value of a record is a finite number."""
    return math.isfinite(as_float(value))


def number(value: Any, digits: int = DIGITS) -> str:
    """Return a number with fixed significant digits; a whole number is written out in full.

    Args:
        value: A number of a record; "nan", "inf" and "-inf" are numbers, None is not measured.
        digits: The number of significant digits of a fraction.
    """
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float) and math.isfinite(value):
        return _significant(value, digits)
    return _NOT_FINITE.get(str(value), visible(value))


def _significant(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    scientific = f"{value:.{digits - 1}e}"
    # From the text, which is rounded already: of 9.9996 with four digits it is 1.
    exponent = int(scientific.partition("e")[2])
    if not -5 <= exponent < 7:
        return scientific
    return f"{value:,.{max(0, digits - 1 - exponent)}f}"


def given(value: Any) -> str:
    """Return a value as a person wrote it, such as a setting or a limit: every digit, and none added."""
    if value is None:
        return "none"
    if isinstance(value, float) and math.isfinite(value):
        return repr(value).removesuffix(".0")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return number(value)


def apart(value: Any, other: Any) -> str:
    """Return a number with enough digits to differ from `other`, and no fewer than usual."""
    if not finite(value) or not finite(other) or value == other:
        return number(value)
    digits = range(DIGITS, 18)  # 17 digits distinguish any two numbers of double precision
    return next((number(value, count) for count in digits if number(value, count) != number(other, count)), number(value))


def measured(value: Any) -> str:
    """Return a measured value in short: as `number` shows it, with no zeros added."""
    if not isinstance(value, float) or not math.isfinite(value):
        return given(value)
    shown = number(value)
    return shown.rstrip("0").rstrip(".") if "." in shown and "e" not in shown else shown


def plain(
    value: Any,
    written: Callable[[Any], str] = measured,
    text: Callable[[str], str] = visible,
    code: Callable[[str], str] = visible,
) -> str:
    """Return any value of a record on one line, long lists and dicts in short.

    Args:
        value: A value that JSON can hold.
        written: A function that shows a number, a truth value or None.
        text: A function that shows a text, which is cut where it is long.
        code: A function that shows the head of a digest.
    """
    inner = partial(plain, written=written, text=text, code=code)
    if isinstance(value, dict):
        shown = ", ".join(f"{text(str(key))} {inner(item)}" for key, item in list(value.items())[:_LIST_LIMIT])
        return (shown or "none") + _rest(len(value))
    if isinstance(value, list):
        return (", ".join(map(inner, value[:_LIST_LIMIT])) or "none") + _rest(len(value))
    if isinstance(value, str) and value not in _NOT_FINITE:
        return code(short(value, 16)) if _DIGEST.fullmatch(value) else text(cut(value, _TEXT_LIMIT))
    return written(value)


def _rest(count: int) -> str:
    return f" and {count - _LIST_LIMIT:,} more" if count > _LIST_LIMIT else ""


def times(count: int) -> str:
    """Return a count as an adverb: once, twice, or a number of times."""
    return {1: "once", 2: "twice"}.get(count, f"{number(count)} times")


def counted(count: Any, noun: str) -> str:
    """Return a number and its noun, in the plural where needed."""
    return f"{number(count)} {noun}" if count == 1 else f"{number(count)} {noun}s"


def signed(value: Any) -> str:
    """Return a number with its sign, for differences."""
    return f"+{number(value)}" if as_float(value) > 0 else number(value)


def share(value: Any) -> str:
    """Return a fraction as a percentage with three significant digits."""
    return f"{number(as_float(value) * 100)} %" if finite(value) else number(value)


def duration(seconds: Any) -> str:
    """Return a time in the units that a person would use, from microseconds to hours; whole seconds as they are."""
    if not finite(seconds):
        return number(seconds)
    value = seconds if isinstance(seconds, int) else as_float(seconds)
    if value < 60:
        factor, unit = (1, "s") if value >= 1 or not value else (1e3, "ms") if value >= 1e-3 else (1e6, "µs")
        return f"{number(value * factor)} {unit}"
    # Rounded before it is parted: 119.6 s would otherwise be 1 min 60 s.
    whole = round(value)
    unit_s, large, small = (60, "min", "s") if whole < 3600 else (3600, "h", "min")
    rest = f" {whole % unit_s * 60 // unit_s:02d} {small}" if value % unit_s else ""
    return f"{whole // unit_s:,} {large}{rest}"


def time_left(seconds: float) -> str:
    """Return an estimate of the remaining time in words, no finer than a second."""
    return f"{duration(round(seconds))} left"


def rates(samples_per_s: float | None, tokens_per_s: float | None = None) -> list[str]:
    """Return the samples and the tokens in a second as words, each where it is known."""
    known = {"samples/s": samples_per_s, "tokens/s": tokens_per_s}
    return [f"{number(rate)} {unit}" for unit, rate in known.items() if rate is not None]


def microseconds(value: Any) -> str:
    """Return a time that is recorded in microseconds."""
    return duration(as_float(value) / 1e6) if finite(value) else number(value)


def minutes(value: Any) -> str:
    """Return a time that is recorded in minutes."""
    return duration(as_float(value) * 60) if finite(value) else number(value)


def size(count: Any) -> str:
    """Return a number of bytes with three significant digits and a decimal unit."""
    return _with_unit(as_float(count), 1000, ("B", "kB", "MB", "GB", "TB")) if finite(count) else number(count)


def megabytes(value: Any) -> str:
    """Return an amount of memory that is recorded in MiB (2**20 bytes), with three significant digits and a binary unit."""
    return _with_unit(as_float(value) * 2**20, 1024, ("B", "KiB", "MiB", "GiB", "TiB")) if finite(value) else number(value)


def _with_unit(count: float, step: int, units: Sequence[str]) -> str:
    # From 999.5 on in the next unit: three digits are shown.
    power = next((power for power in range(len(units) - 1) if abs(count) < 999.5 * step**power), len(units) - 1)
    return f"{number(count / step**power if power else int(count))} {units[power]}"


_UNITS = {"minutes": minutes, "_us": microseconds, "_mb": megabytes, "_s": duration}


def labelled(key: str, value: Any, shown: Callable[[Any], str] = plain) -> tuple[str, str]:
    """Return a key of evidence in words, and its value: a measured time or memory in the unit that a person would use."""
    ending = next((one for one in _UNITS if key.endswith(one) and finite(value)), "")
    label = key.removesuffix(ending).replace("_", " ").strip() or "time"
    return label, _UNITS[ending](value) if ending else shown(value)


def short(digest: Any, length: int = 12) -> str:
    """Return the head of a digest, enough to recognise it; the record holds it whole."""
    return NOT_MEASURED if digest is None else visible(digest)[:length]


def cut(text: str, limit: int) -> str:
    """Return text cut to at most `limit` characters, ending in an ellipsis where some were left out."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
