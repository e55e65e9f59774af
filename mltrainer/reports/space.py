"""The dimensions of a search for reports: the position of a trial's value on its axis, and wider or narrower ranges."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mltrainer.reports.values import as_float

FORMS = ("choice", "uniform", "log_uniform", "integer", "log_integer")
WIDER = 10.0  # a log axis is widened by one decade: less rarely shows an effect, more leaves few trials to each decade


@dataclass(frozen=True)
class Dimension:
    """One searched key.

    Attributes:
        key: The dotted config key.
        form: The form, one of `FORMS`.
        values: The choices, or both ends.
        when: The values of other keys that it exists for; None for one that always exists.
    """

    key: str
    form: str
    values: Sequence[Any]
    when: Mapping[str, Any] | None = None

    @property
    def is_log(self) -> bool:
        """Whether its axis is logarithmic: equal factors are equally far apart."""
        return self.form.startswith("log_")

    @property
    def is_whole(self) -> bool:
        """Whether it has whole numbers only."""
        return self.form.endswith("integer")

    @property
    def is_ordered(self) -> bool:
        """Whether its values have an order, and so ends."""
        return self.form != "choice" or (len(self.values) > 2 and _ascends(self.values))

    def number(self, value: Any) -> float:
        """Return a value as a number on the dimension's axis: the index of a choice, NaN of a value that is not on it."""
        if self.form != "choice":
            return as_float(value)
        return self._places.get(name_of(value), math.nan)

    def bound(self, share: float, upwards: bool) -> float:
        """Return the number that bounds a share of the axis at one of its ends; of choices the outermost one."""
        if self.form == "choice":
            return float(len(self.values) - 1) if upwards else 0.0
        (low, high), part = map(as_float, self.values), 1 - share if upwards else share
        return low * (high / low) ** part if self.is_log else low + (high - low) * part

    @functools.cached_property
    def _places(self) -> dict[str, float]:
        return {name_of(one): float(nr) for nr, one in enumerate(self.values)}


def name_of(value: Any) -> str:
    """Return a choice as text in which true differs from 1; JSON's own takes twenty times as long."""
    return value if isinstance(value, str) else repr(value)


def _ascends(values: Sequence[Any]) -> bool:
    numbers = [as_float(value) for value in values]
    return all(low < high for low, high in itertools.pairwise(numbers))


def dimensions(space: Mapping[str, Any]) -> list[Dimension]:
    """Return the dimensions of a search's space, sorted by key; those of an unknown form are left out."""
    found = (_dimension(key, space[key]) for key in sorted(space))
    return [dimension for dimension in found if dimension is not None]


def _dimension(key: str, given: Any) -> Dimension | None:
    form = next((form for form in FORMS if isinstance(given, dict) and isinstance(given.get(form), list)), None)
    if form is None or not given[form]:
        return None
    dimension = Dimension(key, form, given[form], given.get("when"))
    return dimension if form == "choice" or _has_ends(dimension) else None


def _has_ends(dimension: Dimension) -> bool:
    # With two NaN behind them: too few values leave NaN for an end, too many leave more than two over.
    low, high, *more = (as_float(value) for value in (*dimension.values, math.nan, math.nan))
    return math.isfinite(low) and math.isfinite(high) and low < high and len(more) == 2 and (low > 0 or not dimension.is_log)


def wider(dimension: Dimension, upwards: bool) -> dict[str, list[Any]] | None:
    """Return the dimension with its range extended at one end, in the tuning template's form.

    A decade on a log axis, half the range on a linear one; a share between 0 and 1 goes half of the way to 1, and no range that
    begins at 0 or above goes below 0. None where there is nothing sensible to try beyond the end.
    """
    low, high = dimension.values[0], dimension.values[-1]
    if dimension.form == "choice":
        return _more_choices(dimension, upwards)
    end = _beyond(dimension, as_float(low), as_float(high), upwards)
    if end is None:
        return None
    ends = [low, end] if upwards else [end, high]
    return {dimension.form: [int(one) if dimension.is_whole else _short(one) for one in ends]}


def narrower(dimension: Dimension, numbers: Sequence[float], upwards: bool) -> dict[str, list[Any]] | None:
    """Return the dimension's range from one of its ends to the farthest of some numbers; None where all are at that end."""
    low, high = map(as_float, dimension.values)
    ends = [min(numbers), high] if upwards else [low, max(numbers)]
    found = [int(end) if dimension.is_whole else _short(end) for end in ends]
    return {dimension.form: found} if found[0] < found[1] else None


def _beyond(dimension: Dimension, low: float, high: float, upwards: bool) -> float | None:
    half = max(1.0, (high - low) / 2 // 1) if dimension.is_whole else (high - low) / 2
    if upwards and dimension.is_log:
        return high * _factor(dimension)
    if upwards:
        is_share = low >= 0 and high < 1 and not dimension.is_whole
        return (high + 1) / 2 if is_share else high + half
    end = low / _factor(dimension) if dimension.is_log else low - half
    least = 1.0 if dimension.is_log and dimension.is_whole else 0.0 if low >= 0 else -math.inf
    end = max(least, end // 1 if dimension.is_whole else end)
    return end if end < low else None


def _factor(dimension: Dimension) -> float:
    return 2.0 if dimension.is_whole else WIDER


def _more_choices(dimension: Dimension, upwards: bool) -> dict[str, list[Any]] | None:
    """Return the choices with one more at an end, continued by the factor of the last two, or by their difference."""
    first, second = (as_float(one) for one in (dimension.values[-2:] if upwards else dimension.values[1::-1]))
    added = second * second / first if first > 0 and second > 0 else second + (second - first)
    whole = all(isinstance(one, int) for one in dimension.values)
    if whole and (added != added // 1 or added < 1):
        return None
    one = int(added) if whole else _short(added)
    return {"choice": [*dimension.values, one] if upwards else [one, *dimension.values]}


def _short(value: Any) -> float:
    return float(f"{as_float(value):.6g}")


def as_yaml(dimension: Dimension, given: Mapping[str, Any]) -> str:
    """Return a dimension in another form as one line of `space` in the tuning template."""
    return f"{dimension.key}: {_flow({**given, 'when': dimension.when} if dimension.when else given)}"


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return repr(value) if isinstance(value, float) else json.dumps(value)
