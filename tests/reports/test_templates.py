"""A team's own report fills blocks of the shipped one; it can neither hide a gate nor let text of a record act."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mltrainer import handbook
from mltrainer.errors import InputError
from mltrainer.reports import templates
from mltrainer.reports.phase_names import names
from mltrainer.reports.render import CARD, REPORTS, render, template_paths
from tests.refusals import refused
from tests.reports import records

PATH = "phases/02_baseline/report.md.j2"
EXTENDS = f'{{% extends "{PATH}" %}}\n'
FAILING = records.gate("losses_finite")


def block(body: str, name: str = "findings") -> str:
    return f"{EXTENDS}{{% block {name} %}}{body}{{% endblock %}}\n"


def rendered(project: Path, text: str, found: dict[str, Any] | None = None) -> str:
    own = project / PATH
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(text)
    return render(found or records.baseline(), [records.waiver()], FAILING, project)[REPORTS["baseline"]]


def test_a_block_of_ones_own_takes_the_place_of_the_shipped_one(tmp_path):
    text = rendered(tmp_path, block("We look at {{ run.metric.name|code }} first.\n\n{{ super() }}"))
    assert "## What to look at\n\nWe look at `accuracy` first." in text
    assert "| config digest |" in text


@pytest.mark.parametrize("path", [path for phase in REPORTS for path in template_paths(phase).values()])
def test_the_shipped_templates_do_only_what_a_teams_own_may_do(path, tmp_path):
    own = tmp_path / path
    own.parent.mkdir(parents=True)
    own.write_text(f'{{% extends "{path}" %}}\n' + (handbook.shipped_folder() / path).read_text())
    assert templates.report(path, tmp_path).overridden


@pytest.mark.parametrize("name", records.ALL)
def test_the_shipped_blocks_leave_nothing_open(name):
    found = records.ALL[name]()
    for path in template_paths(found["phase"]).values():
        blocks = templates.report(path, None).blocks(names(found, FAILING))
        assert {key: templates.left_open(str(text)) for key, text in blocks.items()} == dict.fromkeys(blocks)


# --- what hides a failing gate --------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        EXTENDS + "{% block gate %}all is well{% endblock %}",
        EXTENDS + "{% set gate = [] %}",
        EXTENDS + "{% set own = {} %}{% macro banners() %}{% endmacro %}",
        EXTENDS + "✅ **The gate holds**",
        '{% extends "phases/frame.md.j2" %}',
        "# All is well\n",
        block('{% include "phases/frame.md.j2" %}'),
        block('{% import "phases/parts.md.j2" as parts %}'),
        block('{% from "phases/parts.md.j2" import banners %}'),
        block("{% autoescape false %}{{ record.project.name }}{% endautoescape %}"),
        block("{% block inner %}{% endblock %}"),
        block("{% if gate.clear() %}{% endif %}"),
        block("{{ record.update({}) }}"),
        block("<!-- "),
        block("```"),
        block("~~~"),
        block("<details>\n\nall that follows"),
        block("</details>"),
        block("<details>\n\n    </details>"),
        block("<details>\n\n`</details>`"),
        block("<details>\n```\n\n```\n</details>\n"),
        block("- ```\n  ```\n\n```\n"),
        block("<div hidden>"),
        block("a <b style='display:none'>"),
        block("<script>"),
        block("<{{ '' }}!-- "),
        block("$$"),
    ],
)
def test_what_would_hide_a_failing_gate_is_refused(text, tmp_path):
    with refused(where=PATH):
        rendered(tmp_path, text)


@pytest.mark.parametrize(
    "body",
    ["{% set gate = [] %}{% set record = {} %}", "✅ **The gate holds**", "{% for gate in [] %}{% endfor %}", "<br>"],
)
def test_whatever_a_block_says_verdict_banners_and_mend_stand(body, tmp_path):
    text = rendered(
        tmp_path, "".join([EXTENDS, *(f"{{% block {name} %}}{body}{{% endblock %}}" for name in ("summary", "decide"))])
    )
    assert text.split("\n")[2].startswith("❌ **The gate does not hold**: `losses_finite`.")
    assert "**WAIVED: `within_time_budget`**" in text
    assert "- `losses_finite`: mltrainer guide losses_finite" in text


@pytest.mark.parametrize("path", handbook.FIXED)
def test_a_frame_of_ones_own_is_not_read(path, tmp_path):
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("all is well")
    assert handbook.overrides(tmp_path) == []
    assert "does not hold" in rendered(tmp_path, block("Ours."))


# --- text of a record never acts ------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        "run.id|safe",
        "['<b>', run.id]|join",
        "'%s'|format(run.id)",
        "(run.id|code)|replace('a', 'b')",
        "run.id|escape",
        "run.id|tojson",
        "(run.id|code) ~ run.id",
        "(run.id|code) + run.id",
        "(run.id|code) % run.id",
        "(run.id|code).join([run.id, run.id])",
        "(run.id|code).format(run.id)",
        "[run.id]|map('safe')|list",
        "run.__class__",
        "self.title()",
        "range(9)",
    ],
)
def test_what_passes_text_by_the_escaping_is_refused(expression, tmp_path):
    found = records.baseline(id="<b>*bold*</b>")
    with pytest.raises(InputError):
        rendered(tmp_path, block("{{ " + expression + " }}"), found)


def test_a_value_that_no_filter_touched_is_shown_as_it_is(tmp_path):
    text = rendered(tmp_path, block("{{ run.id }} {{ run.state|number }} {{ run.layers[0] }}"), records.baseline(id="*<b>*"))
    assert "\\*&lt;b>\\* finished 0.weight" in text


def test_a_name_that_the_record_lacks_is_told_with_its_name(tmp_path):
    with pytest.raises(InputError, match="has no attribute 'seeds'"):
        rendered(tmp_path, block("{{ evidence.seeds }}"))


def test_a_syntax_error_is_told_with_its_line(tmp_path):
    with refused("line 2", where=PATH):
        rendered(tmp_path, block("{{ run.id"))


def test_the_model_card_can_be_extended_too(tmp_path):
    path = template_paths("finalization")[CARD]
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(
        f'{{% extends "{path}" %}}{{% block limits %}}{{{{ super() }}}}\n- Not for children.{{% endblock %}}'
    )
    card = render(records.finalization(), [], FAILING, tmp_path)[CARD]
    assert "- No check of fairness across groups, of adversarial inputs or of drift was made." in card
    assert "- Not for children." in card
