"""Reports are pure: the same record gives the same bytes, and every number in them is a number of the record."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import Any

import pytest

from mltrainer.configs.optimizers import AdamW
from mltrainer.configs.schedules import Cosine
from mltrainer.errors import InputError
from mltrainer.figures.drawn import draw
from mltrainer.reports.gate_items import GateItem
from mltrainer.reports.render import CARD
from mltrainer.reports.render import render as rendered
from mltrainer.reports.views import KEPT, SHOWN_LATER
from tests.reports import records

HOSTILE = "a|b<script>alert(1)</script>`x`{{7*7}}\x1b[31m\n# heading [l](http://e.org) *b* ![i](j) www.e.org $x$ \u202e"
ERROR_FIGURES = {"Calibration, validation split": "calibration.svg", "Where the errors are, validation split": "segments.svg"}
NOT_SHOWN = (  # numbers that decide a format or are shown elsewhere; `record.json` holds them
    r"schema",
    r"evidence\.run\.schema",
    r"evidence\.loader\.workers",  # the samples are in memory
    r"policy\.items\.\d+\.settings\.seeds",  # the number of seeds that were compared is shown instead
    r"evidence\.run\.checkpoints\.\d+\.epoch",  # its step is shown
    r"evidence\.run\.errors\.segments\.(samples|fewest|rows\.\d+\.(samples|rest|p))",  # the diagnostic report shows them
    r"evidence\.run\.errors\.calibration\.bins\.\d+\.samples",  # summed into the error, which is recorded
    r"evidence\.run\.errors\.along\.bins\.\d+\.(covered|samples)",  # but for the worst bin
    r"evidence\.run\.metrics\..*",  # those of the best evaluation, which is shown: the record's equations hold them equal
    r"evidence\.(metrics|baseline_metrics)\..*",  # the baseline's report shows them
    r"evidence\.errors\.(calibration|along)\..*",  # captions of the baseline's figures say them
    r"evidence\.errors\.segments\.(overall|samples|tested|level|fewest|found)",  # where some stand out, those alone are shown
    r"evidence\.(run\.checkpoints\.\d+\.files|model_files)\.0\.size",  # a few bytes of megabytes with three digits
)


def render(found: dict[str, Any], waivers: list[dict[str, Any]], gate: list[GateItem]) -> dict[str, str]:
    """Return a phase's reports, and the figures that are drawn and bound beside them."""
    evidence = found.get("evidence")
    figures = draw(found["phase"], evidence) if isinstance(evidence, dict) else []
    return rendered(found, waivers, gate) | {figure.file: figure.content for figure in figures}


def model_card(found: dict[str, Any], waivers: list[dict[str, Any]]) -> str:
    return rendered(found, waivers, [])[CARD]


def text_of(found: dict[str, Any], show: Any = render) -> str:
    waivers, gate = [records.waiver()], records.gate(waived="within_time_budget")
    return json.dumps(show(found, waivers, gate))


def silent(found: dict[str, Any], path: tuple[Any, ...], before: str, drawn: str) -> bool:
    """Return whether a number changes no report, and then no figure either: drawing takes longer than rendering."""
    other = changed(found, path)
    return text_of(other, rendered) == before and text_of(other) == drawn


def report(found: dict[str, Any], waivers: list[dict[str, Any]] | None = None, gate: list[GateItem] | None = None) -> str:
    files = render(found, waivers or [], gate or records.gate())
    return next(text for name, text in files.items() if name.endswith(".md"))


ALIKE = 5  # items of a list that are looked at: those behind them are shown as they are


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value[:ALIKE]):
            yield from numbers(item, (*path, place))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def changed(found: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    found = copy.deepcopy(found)
    place: Any = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = place[path[-1]] * 2 + 1
    return found


def small(name: str) -> dict[str, Any]:
    found = records.ALL[name]()
    if "run" in found["evidence"] and found["evidence"]["run"]["history"]:
        run = found["evidence"]["run"]
        run["history"] = run["history"][:2]
        if run["evaluation"] and run["evaluation"]["kind"] == "regression":
            run["evaluation"]["pairs"] = run["evaluation"]["pairs"][:3]
    return json.loads(json.dumps(found))


@pytest.mark.slow
@pytest.mark.parametrize("name", records.ALL)
def test_every_number_of_a_record_changes_its_report_or_the_report_names_its_key(name):
    found = small(name)
    before, drawn = text_of(found, rendered), text_of(found)
    named = tuple(f"{key}." for key in KEPT if f"(`{key}`: " in report(found))
    unseen = [".".join(map(str, path)) for path in numbers(found) if silent(found, path, before, drawn)]
    lost = [path for path in unseen if not path.startswith(named)]
    assert [path for path in lost if not any(re.fullmatch(rule, path) for rule in NOT_SHOWN)] == []


@pytest.mark.parametrize("name", records.ALL)
def test_identical_records_give_identical_bytes(name):
    found = records.ALL[name]()
    again = json.loads(json.dumps(found, sort_keys=True))
    assert text_of(found) == text_of(json.loads(json.dumps(found)))
    assert set(render(again, [], [])) == set(render(found, [], []))


@pytest.mark.parametrize("name", records.ALL)
def test_every_table_has_its_head_and_none_is_broken_in_two(name):
    for report in render(records.ALL[name](), [], []).values():
        lines = ["", *report.splitlines()]
        begins = [nr for nr, line in enumerate(lines) if line.startswith("|") and not lines[nr - 1].startswith("|")]
        assert [lines[nr] for nr in begins if not lines[nr + 1].startswith(("| --- |", "| ---", "| :--"))] == []


def in_a_fresh_process(program: str, **environment: str) -> str:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUTF8": "1", **environment}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=variables).stdout


@pytest.mark.slow
def test_hash_seed_and_locale_do_not_change_a_byte():
    program = "from tests.reports import records, test_render; print(test_render.text_of(records.tuning()))"
    settings = (("0", "C"), ("1", "de_DE.UTF-8"))
    assert len({in_a_fresh_process(program, PYTHONHASHSEED=seed, LC_ALL=locale) for seed, locale in settings}) == 1


def test_the_order_of_keys_in_a_record_does_not_change_the_figures():
    found = records.baseline()
    again = json.loads(json.dumps(found, sort_keys=True))
    first, second = render(found, [], []), render(again, [], [])
    assert {n: t for n, t in first.items() if n.endswith(".svg")} == {n: t for n, t in second.items() if n.endswith(".svg")}


@pytest.mark.slow
@pytest.mark.parametrize("name", records.ALL)
def test_every_figure_is_well_formed_named_small_and_shown(name):
    found = records.ALL[name]()
    for file, content in render(found, [], records.gate()).items():
        if file.endswith(".svg"):
            root = ElementTree.fromstring(content)
            assert [child.tag.rpartition("}")[2] for child in root][:2] == ["title", "desc"]
            assert len(content) < 15_000
            assert f"({file})" in report(found) or (found["phase"] == "baseline" and file in SHOWN_LATER)
            assert "<script" not in content


def test_a_loss_scale_is_told_where_there_is_one():
    scaled = records.baseline()
    for nr, row in enumerate(scaled["evidence"]["run"]["history"]):
        row.update(loss_scale=65536.0 / (1 + nr % 2), zero_gradients=0.125 if nr == 3 else 0.01)
    assert "by 32,768 at the end; at most 12.5 % of the gradients were 0" in report(scaled)
    assert "scaled for fp16" not in report(records.baseline())


def test_the_diagnostic_report_shows_where_the_model_is_wrong_and_links_the_runs_report():
    told = report(records.diagnostics())
    assert all(f"![{title}](../02_baseline/{file})" in told for title, file in ERROR_FIGURES.items())
    assert "figures and tables stand in [the baseline's report](../02_baseline/baseline_results.md)" in told
    assert "| `city` | Lima | 141 | 0.279 | 0.211 to 0.358 | 0.126 | 0.00073 |" in told
    assert "by luck alone about 0.0436" in told
    without = records.diagnostics()
    without["evidence"] |= {"errors": None, "mistakes": None}
    assert "Where the model is wrong" not in report(without)


def test_rendering_imports_nothing_heavy():
    program = "import sys, mltrainer.reports.render, mltrainer.reports.terminal; print([m for m in sys.modules if '.' not in m])"
    loaded = in_a_fresh_process(program)
    assert not {"torch", "numpy", "matplotlib", "pandas", "pydantic", "yaml", "rich", "sklearn"} & set(
        re.findall(r"'(\w+)'", loaded)
    )


# --- what a reader must find ----------------------------------------------------------------------


def test_the_first_line_below_the_title_says_whether_the_gate_holds():
    good, bad = report(records.baseline()), report(records.failed(), gate=records.gate("losses_finite"))
    assert good.split("\n")[2].startswith("✅ **The gate holds**")
    assert bad.split("\n")[2].startswith("❌ **The gate does not hold**: `losses_finite`")


def test_a_network_that_loses_to_a_plain_model_is_told_at_the_top_and_in_a_sentence():
    found = report(records.beside_plain_models())
    assert "**Behind gradient boosting.**" in found.split("\n")[2]
    assert "**The run is behind gradient boosting**: the plain model is the better choice here." in found
    (level,) = [line for line in found.split("\n") if line.startswith("| logistic regression |")]
    assert "| level |" in level
    assert "| 1,000 of 1,258 |" in found
    assert "| ValueError: x \\| y |" in found
    assert "Beside plain models" not in report(records.baseline())


def test_why_nothing_was_compared_is_told():
    made = records.beside_plain_models()
    reason = {**made["evidence"]["references"], "network": None, "rows": [], "reason": "killed"}
    found = report(records.record("baseline", {**made["evidence"], "references": reason}))
    assert "They were not measured: killed" in found
    assert "behind" not in found


def test_a_student_stands_beside_its_teacher_and_itself_without_one():
    row = {"run": "0123456789ab", "seed": 7, "metrics": {"accuracy": 0.90223, "loss": 0.54785}}
    found = report(records.beside_its_teacher(row))
    (own,) = [line for line in found.split("\n") if line.startswith("| **this run** |") and "1,210" in line]
    assert own.endswith("| 1,210 | 173 ms | 403 ms |")
    assert "| its teacher, <code>../big\\|model</code> | 0.986 | 0.122 | 21,482 | 3,069 ms | 7,161 ms |" in found
    assert "| without a teacher, seed 7 (run `0123456789ab`) | 0.902 | 0.548 | | | |" in found
    assert "mltrainer ablate" not in found
    assert "Beside its teacher" not in report(records.baseline())


def test_a_student_that_was_never_trained_without_its_teacher_says_so_and_how():
    found = report(records.beside_its_teacher())
    assert "**What the model reaches without its teacher is not on record.**" in found
    assert "```sh\nmltrainer ablate 'strategies=[]'\n```" in found


def test_what_planning_warned_of_stands_in_the_diagnostic_report_where_there_is_any():
    made = records.diagnostics()
    warned = report({**made, "evidence": {**made["evidence"], "warnings": ["net predicts the target", "a|b holds NaN"]}})
    section = warned.partition("### What planning warned of")[2].partition("\n### ")[0]
    assert section.strip().split("\n") == ["- net predicts the target", "- a\\|b holds NaN"]
    assert "Planning has 2 warnings beside them." in warned
    assert "lanning warned" not in report(made)


def test_an_empty_checklist_is_no_gate_that_holds():
    assert "does not hold" in render(records.skip(), [], [])["tuning_results.md"].split("\n")[2]


def test_the_sections_stand_in_the_order_of_the_readers_questions():
    for make in records.ALL.values():
        heads = [line for line in report(make()).split("\n") if line.startswith("## ")]
        assert heads == [
            head
            for head in ("## Gate", "## To decide", "## What changed", "## Result", "## What to look at", "## What next")
            if head in heads
        ]
        assert {"## Result", "## What next"} <= {*heads}


def test_a_waiver_is_loud_and_says_who_when_why_and_what():
    found = report(records.baseline(), [records.waiver()], records.gate(waived="within_time_budget"))
    banner = found.split("> [!CAUTION]")[1].split("## Gate")[0]
    assert all(
        word in banner for word in ("within_time_budget", "Ada Lovelace", "2026-03-04T05:06:07Z", "The cluster was shared")
    )


def test_a_waiver_without_effect_says_so():
    assert "no effect" in report(records.baseline(), [records.waiver()], records.gate())


def test_a_dirty_tree_is_loud_and_can_be_restored():
    found = report(records.failed())
    assert "**NOT COMMITTED**" in found
    assert "git -C ../restored read-tree -u --reset refs/mltrainer/ab12" in found
    assert records.sha("diff")[:12] in found


def test_a_dirty_tree_without_a_snapshot_says_that_it_cannot_be_restored():
    found = records.record(
        "baseline", records.baseline()["evidence"], source=records.source(dirty=True, diff_sha256=records.sha("d"))
    )
    assert "cannot be restored" in report(found)


def test_code_that_no_commit_names_is_loud():
    bare = records.source(commit=None, branch=None, dirty=None, note="not a git repository: file digests are recorded")
    found = report(records.record("baseline", records.baseline()["evidence"], source=bare))
    assert "NOT COMMITTED" in found
    assert "not a git repository" in found
    assert "git worktree" not in found


def test_one_imported_file_is_told_in_the_singular():
    one = records.source(commit=None, files=records.source()["files"][:1])
    text = report(records.record("baseline", records.baseline()["evidence"], source=one))
    assert "The digest of 1 imported file is" in text
    assert "; 1 imported file, digest" in text
    assert "code that was imported (`source.files`: 1)" in text


def test_overridden_pages_are_named():
    found = records.record("baseline", records.baseline()["evidence"], policy_overrides=["phases/02_baseline/workflow.md"])
    assert "own handbook pages" in report(found)
    assert "`phases/02_baseline/workflow.md`" in report(found)


def test_templates_that_only_begin_a_config_are_no_handbook_of_the_projects_own():
    paths = ["configs/baseline_template.yaml", "configs/tuning_template.yaml"]
    found = report(records.record("baseline", records.baseline()["evidence"], policy_overrides=paths))
    assert "own handbook pages" not in found
    assert "own start values" in found
    assert "`configs/baseline_template.yaml`, `configs/tuning_template.yaml`" in found


def test_a_baseline_that_no_diagnostic_has_seen_yet_does_not_say_that_nothing_stands_out():
    found = report(records.record("baseline", records.baseline()["evidence"]))
    assert "Nothing stands out" not in found
    assert "`mltrainer diagnose baseline` says it at once" in found


def test_what_failed_is_followed_by_what_mends_it():
    found = report(records.failed(), gate=records.gate("losses_finite"))
    assert "mltrainer guide losses_finite" in found.split("## To decide")[1].split("## ")[0]
    assert "mltrainer phase run diagnostics" not in found


@pytest.mark.parametrize(
    ("make", "command"),
    [
        (records.planning, "mltrainer phase run baseline"),
        (records.baseline, "mltrainer phase run diagnostics"),
        (records.diagnostics, "mltrainer phase run optimization"),
        (lambda: records.diagnostics("deploy"), "mltrainer run\n"),
        (
            lambda: records.diagnostics("debug"),
            "mltrainer phase run planning --set model.dropout=0.2 --set optimizer.weight_decay=0.05",
        ),
        (records.skip, "mltrainer phase run finalization"),
        (records.tuning, "mltrainer phase run finalization"),
        (records.finalization, "mltrainer gate check"),
    ],
)
def test_each_report_ends_in_the_next_command(make, command):
    assert command in report(make()).split("## What next")[1]


def test_a_run_that_met_nan_shows_it_and_never_as_zero():
    found = report(records.failed())
    assert "the loss was not finite at step 71, epoch 4" in found
    assert "| NaN |" in found
    assert "2 values are not finite (red crosses)" in found


def test_the_page_and_the_numbers_of_what_fired_stand_in_the_report_of_a_baseline_that_failed():
    made, (row, *_) = records.failed(), records.diagnostics()["evidence"]["diagnostics"]
    told = {**row, "id": "nan_loss", "title": "NaN loss", "severity": "critical", "evidence": {"step": 71}, "figures": []}
    found = report({**made, "evidence": {**made["evidence"], "diagnostics": [told]}})
    section = found.partition("### NaN loss")[2]
    assert all(
        part in section for part in ("Severity: **critical**", "The model is too complex", "Likely causes", "- Regularize")
    )
    assert "step" in section.partition("| measured | threshold |")[2].partition("Likely causes")[0]


def test_a_run_that_ended_at_once_still_has_a_report():
    found = report(records.broken_at_once())
    assert "There is no learning curve" in found
    assert "**No checkpoint was kept.**" in found
    assert "not measured" in found


def test_a_fired_diagnostic_brings_its_page_with_evidence_and_figure():
    found = report(records.diagnostics()).split("## What to look at")[1]
    assert "### Overfitting" in found
    assert "gap: 0.172" in found
    assert "max gap: 0.15" in found
    assert "(../02_baseline/gap.svg)" in found
    assert "`model.dropout` = 0.2" in found
    assert "mltrainer guide diagnostics/overfitting" in found


def test_a_diagnostics_guide_is_embedded_where_the_record_holds_it():
    found = records.diagnostics()
    found["evidence"]["diagnostics"][0]["body"] = "# Overfitting\n\nText.\n\n```sh\n# no heading\n```\n"
    assert "#### Overfitting" in report(found)
    assert "\n# no heading" in report(found)


def test_an_edit_to_a_reproduction_shows_in_the_first_line():
    found = records.finalization()
    found["evidence"]["reproduction"].update(identical=False, first_divergence={"step": 117, "tensor": "0.weight"})
    assert "**not reproduced**" in report(found).split("\n")[2]
    assert "step 117" in report(found)


def test_a_candidate_is_better_only_when_the_gates_test_says_so():
    better = report(records.tuning(), gate=records.improvement("pass", 0.03125)).split("\n")[2]
    luck = report(records.tuning(), gate=records.improvement("waived", 0.25))
    assert "is better than the baseline" in better
    assert "p 0.0312 where at most 0.05 promotes" in better
    assert "**not shown to be better**" in luck.split("\n")[2]
    assert "not more than luck" in luck


def test_a_smaller_loss_is_an_improvement():
    found = records.tuning()
    found["evidence"]["metric"] = {"name": "loss", "mode": "min"}
    assert "better than the baseline for 1 of 3 seeds" in report(records.again(found))


# --- hostile and broken records -------------------------------------------------------------------


def poisoned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: poisoned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item) for item in value]
    keep = ("nan", "inf", "fired", "classification", "regression", "finished", "written", *records.sha("a"))
    return HOSTILE if isinstance(value, str) and value not in keep else value


@pytest.mark.parametrize("name", records.ALL)
def test_text_of_a_record_is_shown_and_never_acts(name):
    found = {**poisoned(records.ALL[name]()), "phase": records.ALL[name]()["phase"]}
    for file, content in render(found, [records.waiver() | {"reason": HOSTILE}], records.gate()).items():
        outside = re.sub(r"```.*?```", "", content, flags=re.DOTALL)
        assert "<script" not in outside
        assert "\x1b" not in content
        assert "\u202e" not in content
        assert "{{" not in outside
        assert "\n# heading" not in content
        assert file.endswith(".svg") or "[l](http" not in outside
        if file.endswith(".svg"):
            ElementTree.fromstring(content)


def test_an_unknown_phase_is_refused():
    with pytest.raises(InputError, match="there is no phase 'training'"):
        render({"phase": "training"}, [], [])


def test_a_search_of_which_no_trial_finished_claims_no_best_trial_and_no_other_bits():
    found = records.tuning()
    evidence = found["evidence"]
    evidence["trials"] = [{**trial, "state": "failed", "value": "nan"} for trial in evidence["trials"]]
    empty = {"seeds": [], "baseline": [], "candidate": [], "mean_difference": None, "worst_difference": None}
    evidence |= {"best": None, "replay": {"run": None, "identical": False}, "comparison": empty}
    text = report(records.again(found))
    assert "Not one of 8 trials finished" in text
    assert not [
        claim for claim in ("other bits", "same bits.**", "The best of", "than luck", "trial not measured") if claim in text
    ]


@pytest.mark.parametrize("phase", ["baseline", "optimization", "finalization", "planning", "diagnostics"])
@pytest.mark.parametrize("evidence", [None, [], "text"])
def test_evidence_of_the_wrong_shape_is_refused_with_the_mending_command(phase, evidence):
    with pytest.raises(InputError, match="lacks what its report is made from") as caught:
        render(records.record(phase, evidence), [], [])
    assert caught.value.hint == f"mltrainer phase run {phase}"


def test_a_final_run_names_its_baseline_and_does_not_pass_for_a_fork_of_it():
    found = records.finalization()
    found["evidence"]["run"]["parent"] = "0f1e2d3c4b5a"
    text = report(found)
    assert "trained anew; its baseline is `0f1e2d3c4b5a`" in text
    assert "forked" not in text


def test_the_manifest_tells_the_usual_rate_beside_the_configs_own():
    rate = {"low": 1e-5, "high": 5e-5, "value": 1e-3, "key": "optimizer.lr", "proposed": 5e-5}
    warmup = {"low": 0.05, "high": 0.1, "value": 0.06, "key": "schedule.warmup_steps", "proposed": None}
    text = report(records.planning(fine_tuning={"parameters": 1_300_000_000, "rate": rate, "warmup": warmup}))
    assert "fine-tuning 1,300,000,000 parameters. A learning rate of 1e-05 to 5e-05 is usual" in text
    assert "the config has 0.001, and `optimizer.lr` = 5e-05 is the nearest." in text
    assert "A warm-up of 5.00 % to 10.0 % of the steps is usual" in text
    assert "the config has 6.00 %." in text
    assert "fine-tuning" not in report(records.planning())


def test_the_manifest_lists_the_samples_of_each_class_where_there_are_classes():
    found = records.planning()
    found["evidence"]["data"] |= {"classes": ["a", "b"], "class_counts": {"train": {"a": 3, "b": 2}}}
    assert "- train: a (3), b (2)" in report(found)
    found["evidence"]["data"] |= {"classes": None, "class_counts": None}
    assert "Classes:" not in report(found)


def test_the_manifest_tells_memory_by_part_where_the_record_has_it():
    parts = {"weights_mb": 10.5, "buffers_mb": 1.5, "gradients_mb": 10.25, "optimizer_mb": 20.75, "start_mb": 200.0}
    found = records.planning()
    assert "weights, and buffers" not in report(found)
    found["evidence"]["estimate"] |= {"parts": parts, "rest_mb": 58.0}
    text = report(found)
    assert "| weights, and buffers | 10.5 MiB, 1.50 MiB |" in text
    assert "| gradients, and the optimizer's state | 10.2 MiB, 20.8 MiB |" in text
    assert "| activations, copies and the allocator, as what is left | 58.0 MiB |" in text


def quantized() -> dict[str, Any]:
    """Return a finalization that delivered a model in 8 bits, too."""
    found = records.finalization()
    told = {"share": 0.995, "size": 29_983, "original_size": 89_818, "latency_ms": 0.0253, "original_latency_ms": 0.0197}
    measured = {"metric": "accuracy", "value": 0.98883, "original": 0.99441, "loss": 0.0056, "allowed": 0.01}
    calibration = {"samples": 512, "of": 1260, "places_sha256": records.sha("places")}
    row = {"format": "onnx_int8_static", "file": "model_int8_static.onnx", "state": "written", "reason": None, "agrees": True}
    differs = {"max_difference": 0.0918, "relative_difference": 0.0141, "tolerance": None, "samples": 64}
    found["evidence"]["exports"].append({**row, **differs, "quantized": {**told, **measured, "calibration": calibration}})
    return records.again(found)


def test_a_model_in_8_bits_is_shown_beside_the_trained_one():
    text = report(quantized())
    figures = "30.0 kB | 89.8 kB | 99.5 % | 0.0253 | 0.0197 | accuracy | 0.989 | 0.994 | 0.560 % | 1.00 %"
    assert f"| `onnx_int8_static` | {figures} | 512 of 1,260 training rows |" in text
    assert "| `model_int8_static.onnx` | 0.989 | 0.994 | 30.0 kB | 89.8 kB |" in model_card(quantized(), [])
    assert "8 bits" not in report(records.finalization())
    assert "Quantized" not in model_card(records.finalization(), [])


def test_the_final_report_shows_the_baseline_beside_the_model_before_the_first_figure():
    found = records.finalization()
    found["evidence"]["baseline_metrics"] = {"accuracy": 0.9123}
    first_screen = report(found).split("![")[0]
    assert "the baseline's 0.912" in first_screen
    assert "accuracy 0.963 on validation" in first_screen
    assert "reproduced bit for bit" in first_screen


def test_the_final_report_tells_what_was_not_trained_as_planned():
    found = records.finalization()
    assert "| `early_stopping.patience` | 3 | 30 |" in report(found)
    found["evidence"]["changed"] = []
    assert "not as planned" not in report(found)


def test_the_layers_caption_tells_of_the_spread_between_layers_and_of_none():
    found = records.baseline()
    text = report(found)
    assert "the gradient norm was between" in text
    found["evidence"]["run"]["history"][-1]["update_ratios"] = [0.0, 0.0, 0.0]
    assert "the update / weight was 0 in every layer; 3 layers." in report(records.again(found))


# --- the model card -------------------------------------------------------------------------------


def test_the_model_card_says_how_often_the_test_split_was_opened_and_how_many_runs_were_tried():
    card = model_card(records.finalization(), [])
    assert "The test split was opened once, for this model alone (179 samples; final evaluation)." in card
    assert "13 runs were trained in all; what was chosen among them, by a search or a person, was chosen on validation." in card
    assert "The best epoch was chosen by validation accuracy." in card
    (two := records.finalization())["evidence"]["runs_tried"] = 2
    nothing = "2 runs were trained in all, the baseline and this one: nothing was chosen among runs."
    assert nothing in model_card(records.again(two), [])
    assert nothing in report(records.again(two))
    assert records.sha("data") in card


def test_the_model_card_has_the_digest_of_the_delivered_weights_and_not_of_the_last_steps():
    found = records.finalization()
    card = model_card(found, [])
    assert f"| digest of the delivered weights | `{found['evidence']['delivered_sha256']}` |" in card
    assert found["evidence"]["run"]["weights_sha256"] not in card
    assert f"| digest of the delivered weights | `{found['evidence']['delivered_sha256'][:16]}` |" in report(found)


def test_the_model_card_names_a_task_of_ones_own_as_it_is_written_and_what_it_was_given():
    found = records.finalization()
    task = {"kind": None, "use": "my_project.tasks:TwoMoons", "options": {"data": "moons.csv", "model": {"hidden": 64}}}
    found["evidence"]["config"].update(task=task, data=None, model=None)
    card = model_card(found, [])
    assert "\n`my_project.tasks:TwoMoons` on the task's own data: the task's own model with" in card
    assert "\n| task's options | data moons.csv, model (hidden 64) |\n" in card


def test_the_model_card_shows_the_options_of_the_optimizer_that_are_on_its_name_first():
    found = records.finalization()
    off = {"groups": None, "lookahead": None, "nesterov": False, "momentum": 0}
    chosen = {**off, **{f"key_{nr}": nr for nr in range(1, 9)}, "name": "adamw", "weight_decay": 0.0125}
    found["evidence"]["config"]["optimizer"] = chosen
    (line,) = [line for line in model_card(found, []).splitlines() if line.startswith("| optimizer |")]
    assert line.startswith("| optimizer | adamw, key_1 1, ")
    assert line.endswith("weight_decay 0.0125 |")
    assert not any(key in line for key in off)


def test_the_model_card_leaves_out_options_that_are_the_defaults():
    found = records.finalization()
    found["evidence"]["config"] |= {
        "optimizer": AdamW(betas=[0.9, 0.98], lr=0.0038704559).model_dump(),
        "schedule": Cosine(warmup_epochs=1).model_dump(),
    }
    lines = model_card(found, []).splitlines()
    assert "| optimizer | adamw, lr 0.00387, betas (0.9, 0.98), weight_decay 0.01 |" in lines
    assert "| schedule | cosine, warmup_epochs 1 |" in lines


def test_reports_say_on_which_part_of_the_training_samples_its_metrics_were_measured():
    assert "Measured on 360 of the 1,258 training samples, spread evenly, and on 360 of validation." in report(records.baseline())
    assert "measured on 360 of the 1,258 training samples" in model_card(records.finalization(), [])
    whole = report(records.baseline(train_samples=360))
    assert "Measured on 360 of the 360 training samples, and on" in whole


def test_accumulation_averaging_precision_and_callbacks_stand_in_the_model_card():
    found = records.finalization()
    found["evidence"]["run"]["best"]["trained"] = {"accuracy": 0.96}
    card = model_card(found, [])
    assert "| samples | 1,258, in batches of 64, 2 of them to a step |" in card
    assert "| averaging | name ema, decay 0.995 |" in card
    assert "| precision | bf16 |" in card
    assert "| callbacks | (use digits.watch:Cooling, options (factor 0.5)) |" in card
    assert "batch size 64 with 2 batches to a step, 1,258 training samples" in report(records.baseline())


def test_a_test_split_that_was_opened_twice_is_loud():
    found = records.finalization()
    (first,) = found["evidence"]["test"]["openings"]
    found["evidence"]["test"]["openings"] = [first, {**first, "nr": 2, "run": "other"}]
    sentence = "**The test split was opened twice, for 2 models: what it shows is no longer an unbiased estimate"
    assert f"{sentence}**" in model_card(found, [])
    assert f"{sentence}.**" in report(found)


@pytest.mark.parametrize(("parameters", "end"), [(0, "file."), (82, "file: a model with 82 parameters.")])
def test_a_card_names_a_program_s_parameters_where_they_are_known(parameters, end):
    found = records.finalization()
    outputs = [{"path": "model.pt", "sha256": "0", "size": 1}]
    program = {"command": ["python", "train.py"], "processes": 1, "losses": 0, "outputs": outputs, "read": []}
    found["evidence"]["run"] |= {"parameters": parameters, "program": program}
    found["evidence"]["config"]["task"] = {"kind": None, "script": "python train.py"}
    assert f"\n`python train.py`, which left 1 {end}\n" in model_card(found, [])


def test_a_program_reports_its_number_itself_and_the_headline_says_so():
    found = records.finalization()
    assert "as the program reports it" not in report(found)
    found["evidence"]["config"]["task"]["script"] = "python train.py"
    found["evidence"]["run"]["program"] = {
        "command": ["python", "train.py"],
        "processes": 1,
        "losses": 0,
        "outputs": [],
        "read": [],
    }
    assert ", as the program reports it" in report(found)


def test_the_model_cards_front_matter_is_yaml_that_holds_its_metrics():
    import yaml

    found = records.finalization()
    found["project"]["name"] = 'x: "{{7*7}}"\n---\nlicense: mit'
    meta = yaml.safe_load(model_card(found, []).split("---\n")[1])
    result = meta["model-index"][0]["results"][0]
    assert meta["pipeline_tag"] == "image-classification"
    assert "license" not in meta
    assert result["metrics"] == [{"type": "accuracy", "value": 0.9553}, {"type": "loss", "value": 0.1532}]


def test_a_waiver_stands_in_the_model_card():
    assert "**WAIVED: `within_time_budget`**" in model_card(records.finalization(), [records.waiver()])


def test_the_groups_of_parameters_are_listed_where_there_are_several():
    shown = report(records.baseline())
    assert "Parameter groups (2)" in shown
    assert "| 0.350 | 0 | `0.bias`, `1.weight` |" in shown
    assert "Parameter groups" not in report(records.baseline(groups=[]))


def test_the_planned_learning_rate_is_drawn():
    files = render(records.planning(), [], records.gate())
    assert files["learning_rate.svg"].startswith("<svg")
    assert "begins at 0.0000500, is 0.00100 at its highest and ends at 0" in files["reproducibility_manifest.md"]


def test_an_interval_in_which_every_step_was_skipped_has_no_gradient_norm_in_the_report():
    record = records.baseline()
    row = record["evidence"]["run"]["history"][0]
    row |= {"grad_norm": dict.fromkeys(("min", "median", "max")), "layer_norms": [None] * len(row["layer_norms"])}
    row |= {"clipped": None, "skipped": 1.0}
    assert "The median gradient norm went from 0.594 (epoch 2)" in report(records.again(record))


def test_a_plateaus_schedule_does_not_promise_the_rate_at_which_it_ends():
    record = records.planning()
    assert "reduce it by" not in render(record, [], [])["reproducibility_manifest.md"]
    record["evidence"]["config"] = {**record["evidence"]["config"], "schedule": {"name": "plateau"}}
    assert "less what plateaus of the metric reduce it by" in report(records.again(record))


def test_an_average_that_had_not_begun_at_the_best_epoch_is_not_told_as_delivered():
    found = records.finalization()
    run = found["evidence"]["run"]
    run["best"].pop("trained", None)
    assert "0.995: not begun at the best epoch, whose weights are trained ones |" in model_card(found, [])
    run["history"][-1]["trained"] = {"accuracy": 0.9, "loss": 0.3}
    assert "The best weights are trained ones, from before the average began" in report(found)


# --- what a reader must know of the numbers ---


ACCEPTED = [
    "accepted: column 'smell' gives the target, because: it is smelled before anyone eats",
    "accepted: in the target, -200 is in 40 rows, because: it is that cold",
]


def accepting() -> dict[str, Any]:
    found = records.finalization()
    findings = [{"severity": "warning", "what": what} for what in [*ACCEPTED, "The column x is constant."]]
    found["evidence"]["data"] = {**records.planning()["evidence"]["data"], "findings": findings}
    return records.again(found)


@pytest.mark.parametrize("show", [report, lambda found: model_card(found, [])])
def test_what_was_accepted_of_the_data_stands_with_its_reason_in_final_report_and_card(show):
    found = show(accepting())
    assert [line for line in found.splitlines() if line.startswith("- Planning's finding, ")] == [
        f"- Planning's finding, {what}" for what in ACCEPTED
    ]
    assert "Planning's finding, " not in show(records.finalization())


def lacking(found: dict[str, Any], **classes: list[str]) -> dict[str, Any]:
    found["evidence"]["lacking"] = {"train": [], "validation": [], "test": [], **classes}
    return records.again(found)


def test_a_class_that_a_split_lacks_is_named_beside_the_metrics():
    baseline = report(lacking(records.record("baseline", records.baseline()["evidence"]), validation=["rare"]))
    said = "**No validation sample is of `rare`**: balanced accuracy, macro F1, ROC AUC and every other metric of that split"
    assert said in baseline.split("## ")[0]
    assert said in baseline.split("## Result")[1].split("## ")[0]
    final = lacking(records.finalization(), test=["rare", "scarce"], train=["never"])
    for found in (report(final), model_card(final, [])):
        assert "**No test sample is of `rare`, `scarce`**" in found
        assert "**No training sample is of `never`**: the model has not learned to name it" in found
        assert "validation sample is of" not in found


def test_the_final_report_does_not_call_a_split_sealed_that_was_opened():
    found = records.finalization()
    found["evidence"]["references"] = records.beside_plain_models()["evidence"]["references"]
    text = report(records.again(found))
    assert "All are fitted on the training split" in text
    assert "stays sealed" not in text


@pytest.mark.parametrize("make", [records.finalization, lambda: records.record("baseline", records.baseline()["evidence"])])
def test_worse_segments_stand_among_what_to_look_at(make):
    found = make()
    found["evidence"]["run"]["errors"] = records.errors()
    shown = report(records.again(found)).split("## What to look at")[1].split("## ")[0]
    assert "Nothing stands out" not in shown
    assert "of the validation samples, the error rate is above that of the rest" in shown
