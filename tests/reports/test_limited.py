"""A project's own template gives the same report from its process; one that asks for more than the limits is refused in time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from mltrainer.errors import InputError
from mltrainer.reports import limited
from mltrainer.reports.limited import LARGE_RECORD, is_rendered_apart, render_limited
from mltrainer.reports.render import render
from tests.reports import records
from tests.reports.test_templates import EXTENDS, FAILING, PATH, block


def own(project: Path, text: str) -> tuple[Any, ...]:
    (project / PATH).parent.mkdir(parents=True)
    (project / PATH).write_text(text)
    return records.baseline(), [records.waiver()], FAILING, project


@pytest.mark.slow
def test_the_report_is_the_one_that_is_rendered_here(tmp_path):
    asked = own(tmp_path, block("We look at {{ run.metric.name|code }} first.\n\n{{ super() }}"))
    assert render_limited(*asked) == render(*asked)


@pytest.mark.slow
def test_what_a_template_may_not_do_is_told_as_it_is_here(tmp_path):
    asked = own(tmp_path, EXTENDS + "{% block gate %}all is well{% endblock %}")
    with pytest.raises(InputError, match="there is no block 'gate'") as there:
        render_limited(*asked)
    with pytest.raises(InputError) as here:
        render(*asked)
    assert str(there.value) == str(here.value)


def nested(depth: int) -> str:
    numbers = str(list(range(20)))
    return f"{{% for a in {numbers} %}}" * depth + "x" + "{% endfor %}" * depth


COSTLY = {
    "a text times a number": "{{ 99999999 * 'aaaaaaaaaa' }}",
    "a number times a text": "{{ 'aaaaaaaaaa' * 99999999 }}",
    "a list times a number": "{% for x in [1] * 999999999 %}{% endfor %}",
    "loops in loops": nested(9),
    "a number times itself": "{% set a0 = 10 %}"
    + "".join(f"{{% set a{n + 1} = a{n} * a{n} %}}" for n in range(30))
    + "{{ a30 }}",
    "the evidence over and over": "{% for a in "
    + str([1] * 500)
    + " %}{% for b in "
    + str([1] * 500)
    + " %}{{ evidence }}{% endfor %}{% endfor %}",
    "parentheses": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", COSTLY)
def test_a_template_that_asks_for_too_much_is_refused_in_bounded_time(what, tmp_path):
    begun = time.monotonic()
    with pytest.raises(InputError) as told:
        render_limited(*own(tmp_path, block(COSTLY[what])))
    assert time.monotonic() - begun < 30
    assert told.value.where == PATH
    assert "rendering it takes more than 1.5 s of computing, 768 MiB of memory or 8 MiB of text" in told.value.message


@pytest.mark.slow
def test_it_is_rendered_once_however_often_a_command_looks(tmp_path, monkeypatch):
    asked = own(tmp_path, block("Twice."))
    first = render_limited(*asked)
    monkeypatch.setattr(limited, "run", None)
    assert render_limited(*asked) == first


@pytest.mark.parametrize(("size", "apart"), [(LARGE_RECORD, False), (LARGE_RECORD + 1, True)])
def test_a_large_record_is_rendered_within_limits_whoever_wrote_the_template(size, apart, tmp_path):
    assert is_rendered_apart("baseline", tmp_path, size) is apart


@pytest.mark.slow
def test_a_record_whose_report_takes_too_much_is_named(tmp_path):
    record = records.baseline()
    record["evidence"]["acceptance"] *= 100_000
    with pytest.raises(InputError, match=r"takes more than 1\.5 s of computing") as told:
        render_limited(record, [], FAILING, tmp_path)
    assert (told.value.where, told.value.hint) == ("record.json", "mltrainer phase run baseline")
