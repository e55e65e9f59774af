"""An earlier date and another time zone for the user's own code: its results may not depend on either.

Libraries read the true date: certificates, signed requests, logs and temporary files stay as they are. All moments are earlier
by the same time, so that durations are unchanged. Also loaded by its path into a program: it imports the standard library alone.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import os
import sys
import sysconfig
import time
from collections.abc import Callable
from typing import Any

# Earlier, so that what takes "the last 30 days" of its records finds some; year, month, weekday and, beside UTC, hour are others
# at any time of a day: 401 days are 57 weeks and 2 days, and with the zone the clock is 2 hours and 38 minutes ahead.
EARLIER_S = (401 * 24 + 3) * 3600 + 7 * 60
ZONE = "XYZ-05:45"  # a POSIX rule, which needs no database; no hour of it begins when one of UTC does
LIBRARIES = tuple(
    os.path.join(os.path.realpath(path), "")
    for path in (os.path.dirname(os.path.dirname(__file__)), *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")))
)
OF_NOW = ("localtime", "gmtime", "ctime", "strftime", "asctime")  # of `time`: about now, unless a moment is given


def begin(_process: Any) -> None:
    """Make the user's own code read an earlier date, in this process and those that it forks."""
    os.environ["TZ"] = ZONE
    time.tzset()
    moment = time.time
    time.time = _shifted(moment, lambda now: now - EARLIER_S)
    time.time_ns = _shifted(time.time_ns, lambda now: now - EARLIER_S * 10**9)
    for name in OF_NOW:
        setattr(time, name, _about_then(getattr(time, name), name, moment))
    _replace_now()


def _is_own(code: Any) -> bool:
    """Return True for code that is not Python's, an installed package's or ours."""
    name = code.co_filename
    if name not in _known:
        path = os.path.realpath(name)
        is_library = "site-packages" in path or "dist-packages" in path or path.startswith(LIBRARIES)
        _known[name] = not (is_library or name.startswith("<frozen"))
    return _known[name]


_known: dict[str, bool] = {}


def _shifted(true: Callable[[], Any], shift: Callable[[Any], Any]) -> Any:
    def read() -> Any:
        return shift(true()) if _is_own(sys._getframe(1).f_code) else true()

    return read


def _about_then(true: Callable[..., Any], name: str, moment: Callable[[], float]) -> Any:
    """Return a function of `time` that is about the earlier date where its caller gives no moment."""
    local = time.localtime

    def read(*given: Any) -> Any:
        lacks = len(given) < (2 if name == "strftime" else 1)
        if not (lacks and _is_own(sys._getframe(1).f_code)):
            return true(*given)
        then = moment() - EARLIER_S
        return true(*given, local(then) if name in ("strftime", "asctime") else then)

    return read


def _replace_now() -> None:
    """Make `datetime.now` and `utcnow` return the earlier date; `today` asks `time.time` itself.

    They are replaced in the type itself, so that whoever has it already calls them; no other type takes its place, by which
    comparisons and pickles would be others.
    """
    own = gc.get_referents(datetime.datetime.__dict__)[0]
    for name in ("now", "utcnow"):
        own[name] = classmethod(_earlier(own[name]))
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))


def _earlier(true: Any) -> Any:
    shift = datetime.timedelta(seconds=EARLIER_S)

    def read(cls: type, *given: Any, **named: Any) -> Any:
        now = true.__get__(None, cls)(*given, **named)
        return now - shift if _is_own(sys._getframe(1).f_code) else now

    return read
