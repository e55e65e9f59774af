"""The date that a program's own code reads."""

from __future__ import annotations

import datetime
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from mltrainer.observe import date

BEGIN = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("date_of_it", {date.__file__!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.begin(None)
"""


def printed(code: str, folder: Path) -> str:
    path = folder / "program.py"
    path.write_text(BEGIN + textwrap.dedent(code))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def then() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=date.EARLIER_S)


def parts(moment: datetime.datetime) -> tuple[int, int, int, int]:
    return moment.year, moment.month, moment.weekday(), moment.hour


@pytest.mark.parametrize(
    "asked",
    [
        "time.time()",
        "time.time_ns() / 1e9",
        "datetime.datetime.now().timestamp()",
        "datetime.datetime.now(datetime.timezone.utc).timestamp()",
        "time.mktime(time.localtime())",
        "time.mktime(time.strptime(time.strftime('%Y-%m-%d %H:%M:%S'), '%Y-%m-%d %H:%M:%S'))",
        "time.mktime(time.strptime(time.ctime()))",
        "early.now().timestamp()",
    ],
)
def test_each_way_to_read_the_present_moment_is_earlier_by_the_same_time(tmp_path, asked):
    found = float(printed(f"import datetime, time\nfrom datetime import datetime as early\nprint({asked})", tmp_path))
    assert found == pytest.approx(then().timestamp(), abs=30)


def test_the_day_is_another_in_year_month_weekday_and_hour(tmp_path):
    read = datetime.datetime.fromisoformat(printed("import datetime\nprint(datetime.datetime.today().isoformat())", tmp_path))
    now = datetime.datetime.now(datetime.UTC)
    assert all(one != other for one, other in zip(parts(read), parts(now), strict=True)), (read, now)
    assert read.date().isoformat() == printed("import datetime\nprint(datetime.date.today())", tmp_path)


def test_it_is_so_at_any_time_of_a_day():
    zone = datetime.timezone(datetime.timedelta(hours=5, minutes=45))
    for hours in range(24 * 366):
        now = datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(hours=hours, minutes=hours % 60)
        read = (now - datetime.timedelta(seconds=date.EARLIER_S)).astimezone(zone)
        assert all(one != other for one, other in zip(parts(read), parts(now), strict=True)), now


def test_moments_that_are_given_and_durations_stay_as_they_are(tmp_path):
    code = """
    import datetime, time
    began, ticks = time.time(), time.monotonic()
    time.sleep(0.2)
    is_same = abs((time.time() - began) - (time.monotonic() - ticks)) < 0.05
    print(is_same, time.gmtime(0).tm_year, time.strftime("%Y", time.gmtime(0)))
    """
    assert printed(code, tmp_path) == "True 1970 1970"


def test_libraries_read_the_true_date(tmp_path):
    code = "import email.utils, logging, datetime\nprint(email.utils.formatdate()[12:16], int(logging.makeLogRecord({}).created))"
    year, created = printed(code, tmp_path).split()
    assert year == time.strftime("%Y", time.gmtime())
    assert int(created) == pytest.approx(time.time(), abs=30)


def test_the_type_stays_the_same_one(tmp_path):
    code = """
    import copy, datetime, pickle
    now = datetime.datetime.now()
    print(type(now) is datetime.datetime, pickle.loads(pickle.dumps(now)) == now, copy.copy(now) == now)
    """
    assert printed(code, tmp_path) == "True True True"
