"""Planning's config: edits stay, the project file flows through, what is typed comes last, and no secret is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from mltrainer import handbook
from mltrainer.configs.pages import phase_page
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.phases import sanity_check
from mltrainer.phases.context import Context
from mltrainer.phases.planning import CONFIG_FILE, Plan, config_text, merge, plan_config
from mltrainer.phases.probing import Probes, estimate
from mltrainer.records.envelope import partial_record
from mltrainer.records.job import ExportJob
from mltrainer.records.run import ProbeResult
from mltrainer.runs.launcher import launch
from mltrainer.workspace import Project
from tests.projects import PROJECT, TASK, evidence_of, recorded, results, write_light_template, write_rings
from tests.refusals import refused
from tests.results import probe_result

KEY = "AKIA" + "IOSFODNN7QXAMPLE"  # put together here, so that no scanner takes this file for a leak


def context(folder: Path, *assignments: str, **changes: Any) -> Context:
    project = write_rings(folder, **changes)
    return Context(project, phase_page("planning", None), {}, None, None, assignments, lambda event: None, launch)


def planned(ctx: Context) -> tuple[Context, Plan]:
    """Plan, and write what planning would; return the context of the next planning as well."""
    plan = plan_config(ctx)
    ctx.folder.mkdir(parents=True, exist_ok=True)
    if plan.text is not None:
        (ctx.folder / CONFIG_FILE).write_text(plan.text)
    current = partial_record({"evidence": {"generated": plan.generated}}, "planning")
    return replace(ctx, current=current, assignments=()), plan


def edit(ctx: Context, old: str, new: str) -> None:
    path = ctx.folder / CONFIG_FILE
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def project_file(ctx: Context, **changes: Any) -> None:
    values = yaml.safe_load(ctx.project.file.read_text())
    ctx.project.file.write_text(yaml.safe_dump({**values, **changes}))


# --- what planning makes of the files -------------------------------------------------------------


def test_the_config_is_complete_and_explains_every_key(tmp_path):
    _, plan = planned(context(tmp_path))
    assert plan.text is not None
    assert yaml.safe_load(plan.text).keys() == TrainingConfig.model_fields.keys()
    assert "# passes over the training data\nepochs: 20" in plan.text
    assert plan.edited == {}


def test_planning_again_changes_nothing(tmp_path):
    ctx, first = planned(context(tmp_path))
    again = plan_config(ctx)
    assert (again.config, again.text) == (first.config, None)


def test_an_edit_is_kept_and_told(tmp_path):
    ctx, _ = planned(context(tmp_path))
    edit(ctx, "epochs: 20", "epochs: 7")
    plan = plan_config(ctx)
    assert plan.config.epochs == 7
    assert plan.edited == {"epochs": 7}


def test_a_change_of_the_project_file_flows_through_beside_an_edit(tmp_path):
    ctx, _ = planned(context(tmp_path))
    edit(ctx, "epochs: 20", "epochs: 7")
    project_file(ctx, seed=5, split={"validation": 0.3, "test": 0.1})
    plan = plan_config(ctx)
    assert (plan.config.seed, plan.config.split.validation, plan.config.epochs) == (5, 0.3, 7)
    assert plan.edited == {"epochs": 7}


def test_an_edit_of_a_key_stays_although_the_project_file_changes_it_too(tmp_path):
    ctx, _ = planned(context(tmp_path))
    edit(ctx, "seed: 42", "seed: 43")
    project_file(ctx, seed=5)
    plan = plan_config(ctx)
    assert plan.config.seed == 43
    (told,) = plan.hidden
    assert told.startswith("seed stays 43, as training_config.yaml was edited; mltrainer.yaml or the template says 5 now")
    assert told.endswith("to take that: --set seed=5")
    assert plan_config(replace(ctx, assignments=("seed=7",))).hidden == []
    taken, _ = planned(replace(ctx, assignments=("seed=5",)))
    assert plan_config(taken).hidden == []


def test_an_option_that_leaves_the_project_file_leaves_the_config(tmp_path):
    task = {"use": "my_task:Rings", "options": {"n": 200, "pause": 0.1}}
    ctx, _ = planned(context(tmp_path, task=task))
    project_file(ctx, task={**task, "options": {"n": 200}})
    assert plan_config(ctx).config.task.options == {"n": 200}


def test_a_persons_comments_survive_a_change(tmp_path):
    ctx, _ = planned(context(tmp_path))
    edit(ctx, "epochs: 20", "# agreed with Kim on Monday\nepochs: 20  # not fewer")
    edit(ctx, "optimizer:", "# the usual\noptimizer:")
    plan = plan_config(replace(ctx, assignments=("optimizer.lr=0.5",)))
    assert "# agreed with Kim on Monday\nepochs: 20  # not fewer\n" in plan.text
    assert "# the usual\noptimizer:" in plan.text
    assert yaml.safe_load(plan.text)["optimizer"]["lr"] == 0.5


def test_a_config_on_one_line_is_written_anew(tmp_path):
    ctx, plan = planned(context(tmp_path))
    (ctx.folder / CONFIG_FILE).write_text(json.dumps(plan.config.model_dump()))
    again = plan_config(replace(ctx, assignments=("epochs=3",)))
    assert again.text == config_text(again.config.model_dump())


def test_a_key_that_was_deleted_is_written_again(tmp_path):
    ctx, plan = planned(context(tmp_path))
    edit(ctx, "accumulate: 1\n", "")
    again = plan_config(ctx)
    assert again.text is not None
    assert yaml.safe_load(again.text) == plan.config.model_dump()


# --- the command line -----------------------------------------------------------------------------


def test_what_is_typed_comes_last_and_counts_as_an_edit(tmp_path):
    _, plan = planned(context(tmp_path, "optimizer.lr=3e-4", "epochs=4"))
    assert (plan.config.optimizer.lr, plan.config.epochs) == (3e-4, 4)
    assert plan.edited == {"optimizer.lr": 3e-4, "epochs": 4}


def test_another_optimizer_brings_its_own_defaults(tmp_path):
    _, plan = planned(context(tmp_path, "optimizer.lr=0.05", "optimizer.name=sgd"))
    assert plan.config.optimizer.model_dump() == {
        "name": "sgd",
        "lr": 0.05,
        "momentum": 0.9,
        "nesterov": False,
        "weight_decay": 1e-4,
        "decay_norms_and_biases": True,
        "groups": [],
        "sam": None,
        "lookahead": None,
        "layer_decay": 1.0,
    }


def test_clipping_by_value_takes_the_place_of_by_norm(tmp_path):
    _, plan = planned(context(tmp_path, "clip.value=0.5"))
    assert plan.config.clip.model_dump() == {"norm": None, "value": 0.5, "adaptive": None}


def test_evaluating_by_steps_takes_the_place_of_by_epochs(tmp_path):
    _, plan = planned(context(tmp_path, "evaluate.every_n_steps=50"))
    assert plan.config.evaluate.model_dump() == {"every_n_epochs": None, "every_n_steps": 50}


def test_another_optimizer_in_the_file_is_an_edit_that_stays(tmp_path):
    ctx, _ = planned(context(tmp_path, "optimizer.name=sgd"))
    project_file(ctx, seed=5)
    assert plan_config(ctx).config.optimizer.name == "sgd"


FAULTS = {
    "optimiser.lr=1": "unknown key 'optimiser'; did you mean 'optimizer'",
    "optimizer.rate=1": "key optimizer.rate: unknown key 'rate'",
    "epochs=many": "key epochs: Input should be a valid integer; found 'many'",
    "epochs=0": "key epochs: Input should be greater than or equal to 1",
    "epochs.more=1": "epochs: expected a group of keys, found 20",
    "optimizer.name=adan": "did you mean 'adam'",
    "epochs": "--set: expected KEY=VALUE, found epochs",
    "epochs=[1": "not valid YAML",
}


@pytest.mark.parametrize("assignment", FAULTS)
def test_a_mistake_on_the_command_line_is_named_and_nothing_is_written(tmp_path, assignment):
    ctx = context(tmp_path, assignment)
    with pytest.raises(InputError) as caught:
        plan_config(ctx)
    assert FAULTS[assignment] in str(caught.value)
    assert not ctx.folder.exists()


def test_a_mistake_in_the_file_is_named_with_its_line(tmp_path):
    ctx, _ = planned(context(tmp_path))
    edit(ctx, "epochs: 20", "epoch: 20")
    with pytest.raises(InputError, match=rf"{CONFIG_FILE}:\d+, key epoch: unknown key 'epoch'; did you mean 'epochs'"):
        plan_config(ctx)


# --- merge ----------------------------------------------------------------------------------------

SGD, ADAM = {"name": "sgd", "lr": 0.1}, {"name": "adamw", "lr": 0.001, "eps": 1e-8}
MERGES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"a": 1}, {"a": 1}, {"a": 1}, {"a": 1}),
    ({"a": 2}, {"a": 1}, {"a": 1}, {"a": 2}),
    ({"a": 1}, {"a": 3}, {"a": 1}, {"a": 3}),
    ({"g": {"x": 2, "y": 1}}, {"g": {"x": 1, "y": 5}}, {"g": {"x": 1, "y": 1}}, {"g": {"x": 2, "y": 5}}),
    ({"o": ADAM}, {"o": SGD}, {"o": ADAM}, {"o": SGD}),
    ({"o": SGD}, {"o": {**ADAM, "lr": 0.5}}, {"o": ADAM}, {"o": {**ADAM, "lr": 0.5}}),
    ({"clip": {"norm": 1.0}}, {"clip": None}, {"clip": {"norm": 1.0}}, {"clip": None}),
    ({"clip": {"norm": 2.0}}, {"clip": {"norm": 1.0}}, {"clip": None}, {"clip": {"norm": 1.0}}),
]


@pytest.mark.parametrize(("generated", "current", "before", "expected"), MERGES)
def test_edits_are_what_differs_from_what_was_generated_before(generated, current, before, expected):
    assert merge(generated, current, before) == expected


# --- the estimate ---------------------------------------------------------------------------------


PROBED: dict[str, Any] = {
    "planned_steps": 200,
    "rehearsal": {"seconds": 0.1, "samples": 100, "held_bytes": 0},
    "data": {"splits": {"validation": {"samples": 50}}},
}


def probe(step_us: float, peak_mb: float, held_bytes: int = 0, validation: int = 50) -> ProbeResult:
    return probe_result(
        step_pace_us=step_us,
        planned_steps=200,
        rehearsal={"seconds": 0.1, "samples": 100, "held_bytes": held_bytes},
        data={"splits": {"validation": {"samples": validation}}},
        memory={"peak_rss_mb": peak_mb, "device_peak_mb": None},
    )


def probes(first: ProbeResult, second: ProbeResult | None = None) -> Probes:
    return Probes(first, second or first, ("0", "1"), 12 * 2**20)


def test_the_estimate_scales_the_quicker_probe_and_the_larger_memory(tmp_path):
    config = plan_config(context(tmp_path, "epochs=10")).config
    found = estimate(config, probes(probe(2000, 300), probe(1000, 310)), 8000, 2**30)
    assert found.minutes * 60 == pytest.approx(200 * 0.001 + 10 * 2 * 50 * 0.001 + 1.0)
    assert (found.step_time_us, found.peak_mb, found.available_mb) == (1000, 310, 8000)
    assert (found.checkpoint_mb, found.disk_free_mb, found.budget_minutes) == (12, 1024, 5)


@pytest.mark.parametrize(
    ("changes", "samples"),
    [
        (["evaluate.every_n_epochs=4"], 3 * 2 * 50),  # after epochs 4, 8 and 10
        (["evaluate.every_n_steps=1000"], 2 * 50),
        (["averaging={name: ema}"], 10 * 3 * 50),
        (["optimizer.lookahead={k: 5}"], 10 * 3 * 50),
    ],
)
def test_the_estimate_counts_every_evaluation_and_all_that_it_measures(tmp_path, changes, samples):
    config = plan_config(context(tmp_path, "epochs=10", *changes)).config
    found = estimate(config, probes(probe(1000, 300)), 8000, 2**30)
    assert found.minutes * 60 == pytest.approx(200 * 0.001 + samples * 0.001 + 1.0)


def test_evaluating_more_often_takes_longer(tmp_path):
    often, seldom = (
        estimate(plan_config(context(tmp_path, f"evaluate.every_n_steps={n}")).config, probes(probe(1000, 300)), 8000, 2**30)
        for n in (10, 100)
    )
    assert often.minutes > seldom.minutes


def test_the_estimate_counts_what_a_whole_evaluation_holds_of_every_sample(tmp_path):
    config = plan_config(context(tmp_path)).config
    found = probe(1000, 300, held_bytes=100 * 2**20, validation=600)  # 1 MiB per sample
    measured = estimate(config, probes(found), 8000, 2**30)
    assert (measured.held_mb, measured.peak_mb) == (1000, 1300)  # 500 more samples, held twice for a moment


def test_the_estimate_tells_the_parts_of_the_peak_and_what_is_left_of_it(tmp_path):
    parts = {"weights_mb": 10, "buffers_mb": 1, "gradients_mb": 10, "optimizer_mb": 20, "start_mb": 200}
    config = plan_config(context(tmp_path)).config
    memory = {"peak_rss_mb": 300, "device_peak_mb": None, "parts": parts}
    assert estimate(config, probes(probe_result(**PROBED, memory=memory)), 8000, 2**30).rest_mb == 300 - 200 - 41
    on_device = {**memory, "device_peak_mb": 90}
    assert estimate(config, probes(probe_result(**PROBED, memory=on_device)), 8000, 2**30).rest_mb == 90 - 41
    assert estimate(config, probes(probe(1000, 300)), 8000, 2**30).rest_mb is None


# --- secrets --------------------------------------------------------------------------------------


def holders(project: Project) -> list[str]:
    """Return the files of a project in which the key stands."""
    files = (path for path in project.root.rglob("*") if path.is_file())
    return sorted(project.relative(path) for path in files if KEY.encode() in path.read_bytes())


def found_secrets(project: Project) -> list[dict[str, Any]]:
    record = recorded(project, "planning")
    return list(record["evidence"]["secrets"]["found"])


@pytest.mark.slow
def test_a_secret_among_the_options_is_named_and_written_nowhere(tmp_path, cli):
    project = write_rings(tmp_path, task={"use": "my_task:Rings", "options": {"n": 200, "cloud": KEY}})
    said = cli("phase", "run", "planning", "--project", tmp_path, code=4)
    lines = [line.strip() for line in said.out.splitlines()]
    assert [line.partition(":")[0] for line in lines if " fails: " in line] == ["no_secrets fails"]
    assert [line for line in lines if "next: " in line] == [
        "next: remove the secret from its file (use an environment variable), then mltrainer phase run planning"
    ]
    assert cli("status", "--project", tmp_path).out.splitlines()[-1].startswith("next: remove the secret")
    assert cli("gate", "check", "--project", tmp_path).out.splitlines()[-1].startswith("next: remove the secret")
    assert holders(project) == ["mltrainer.yaml"]
    line = next(n for n, text in enumerate(project.file.read_text().splitlines(), 1) if KEY in text)
    assert found_secrets(project)[0] == {"path": "mltrainer.yaml", "line": line, "kind": "AWS access key"}


@pytest.mark.slow
def test_a_secret_on_the_command_line_is_written_nowhere(tmp_path, cli):
    project = write_rings(tmp_path)
    cli("phase", "run", "planning", "--project", tmp_path, "--set", f"task.options.cloud={KEY}", code=4)
    assert holders(project) == []
    assert found_secrets(project)[0]["path"] == "record.json"


@pytest.mark.slow
def test_a_secret_in_a_comment_fails_the_gate(tmp_path, cli):
    project = write_rings(tmp_path)
    template = cli("guide", "--raw", "configs/baseline_template.yaml").out
    names = ["configs/baseline_template.yaml", "mltrainer.yaml"]
    for name, text in zip(names, (template, project.file.read_text()), strict=True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"# {KEY}\n{text}")
    cli("phase", "run", "planning", "--project", tmp_path, code=4)
    assert holders(project) == names
    assert sorted(row["path"] for row in found_secrets(project)) == names


# --- the data's findings --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("tools_here")
def test_the_numbers_of_planning_s_page_judge_the_data(tmp_path, cli):
    (tmp_path / "table.csv").write_text("x,y,answer\n" + "".join(f"{n % 7},{n},{'ab'[n % 3 == 0]}\n" for n in range(90)))
    cli("init", tmp_path, "--data", tmp_path / "table.csv", "--target", "answer", code=0)
    write_light_template(tmp_path)
    page = (handbook.shipped_folder() / "phases/01_planning/workflow.md").read_text()
    own = tmp_path / "phases/01_planning/workflow.md"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(page.replace("class_imbalance: 10 ", "class_imbalance: 1.5 "))
    cli("phase", "run", "planning", "--project", tmp_path, "--set", "batch_size=8", code=0)
    record = json.loads((own.parent / "record.json").read_bytes())
    assert "classes are imbalanced: " in record["evidence"]["data"]["findings"][0]["what"]
    assert "settings.class_imbalance: 10 -> 1.5" in record["policy_changes"]


# --- loader processes -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("tools_here")
def test_the_number_of_loader_processes_is_measured_and_handed_to_the_tools(tmp_path, cli):
    source = TASK.replace("        noise =", "        __import__('time').sleep(0.002)\n        noise =")
    project = write_rings(tmp_path, source, task={"use": "my_task:Rings", "options": {"n": 60}})
    (tmp_path / "phases/01_planning").mkdir(parents=True)
    page = cli("guide", "--raw", "phases/01_planning/workflow").out
    for old, new in (("loader_seconds: 0.5", "loader_seconds: 0.1"), ("loader_least_s: 5.0", "loader_least_s: 0.1")):
        assert old in page
        page = page.replace(old, new)
    (tmp_path / "phases/01_planning/workflow.md").write_text(page)
    changes = ("--set", "epochs=2", "--set", "batch_size=8", "--set", "gradient_checkpointing=[^0$]")
    cli("phase", "run", "planning", "--project", tmp_path, *changes, code=0)
    evidence = evidence_of(project, "planning")
    assert evidence["config"]["loader"]["workers"] == "auto"
    assert evidence["loader"]["workers"] > 0
    assert [row["key"] for row in evidence["options"]] == ["gradient_checkpointing"]
    cli("phase", "run", "baseline", "--project", tmp_path, code=0)
    (job,) = project.runs_dir.glob("*/job.json")
    assert json.loads(job.read_bytes())["config"]["loader"]["workers"] == evidence["loader"]["workers"]
    report = (project.phase_dir("baseline") / "baseline_results.md").read_text()
    assert "The loop waited for data for" in report


# --- the rehearsal of the export ------------------------------------------------------------------

LISTED = (
    TASK.replace(
        "    def loss(self",
        "    def forward(self, model, batch):\n        return model([batch[0]])[0], batch[1]\n\n    def loss(self",
    ).replace("return nn.Sequential(", "return Listed(")
    + """

class Listed(nn.Sequential):
    def forward(self, parts):
        return [super(Listed, self).forward(parts[0])]
"""
)


@pytest.mark.usefixtures("tools_here")
@pytest.mark.slow
def test_a_call_that_cannot_be_exported_fails_in_planning_with_its_line_and_is_tried_again_when_mended(tmp_path, cli):
    project = write_rings(tmp_path, LISTED, task={"use": "my_task:Rings", "options": {"n": 60}})
    said = cli("phase", "run", "planning", "--project", tmp_path, "--set", "epochs=1", "--set", "batch_size=8")
    line = next(nr for nr, text in enumerate(LISTED.splitlines(), 1) if "model([batch" in text)
    assert said.code == 4
    assert f"my_task.py:{line}: expected a model called with tensors, found list" in said.out
    assert "by name also numbers, text and None; then mltrainer phase run planning" in said.out
    assert not project.runs_dir.exists() or not list(project.runs_dir.glob("*/result.json"))
    (tmp_path / "my_task.py").write_text(TASK)
    cli("phase", "run", "planning", "--project", tmp_path, code=0)
    again = cli("phase", "run", "planning", "--project", tmp_path, "--set", "optimizer.lr=0.01", code=0)
    assert "trying the export" not in again.err


@pytest.mark.parametrize(("state", "tries"), [("written", 1), ("not_available", 1), ("failed", 2)])
def test_an_export_that_failed_is_tried_again_though_nothing_changed(tmp_path, monkeypatch, state, tries):
    monkeypatch.setattr(sanity_check, "environment_digest", lambda _: "same")
    monkeypatch.setattr(sanity_check, "prepare", lambda *_: None)
    row = {"format": "onnx", "file": "model.onnx", "state": state, "reason": None, "agrees": None}
    ran: list[ExportJob] = []

    def run(_tool: str, job: ExportJob) -> dict[str, Any]:
        ran.append(job)
        return {"exports": [row], "inference": True, "evaluation": False, "fault": None}

    probe: Any = SimpleNamespace(data_sha256="data", code_files={}, memory=SimpleNamespace(peak_rss_mb=1.0))
    config, last = TrainingConfig.model_validate({**PROJECT, "epochs": 1}), None
    common = {"project": Project(tmp_path), "note": lambda _: None, "tools": SimpleNamespace(run=run)}
    for _ in range(2):
        ctx: Any = SimpleNamespace(**common, last=SimpleNamespace(rehearsal=last))
        last = sanity_check.rehearsal(ctx, config, probe, None)()
    assert len(ran) == tries


# --- another template -----------------------------------------------------------------------------


def from_template(ctx: Context, name: str | None, recorded: str | None = None) -> Plan:
    """Return what planning from a template gives, after a planning that recorded one."""
    current = partial_record({"evidence": {"template": recorded}}, "planning") if recorded else None
    return plan_config(replace(ctx, template=name, current=current))


def test_planning_starts_from_any_template_of_handbook_or_project(tmp_path):
    ctx = context(tmp_path)
    (tmp_path / "configs/vision.yaml").write_text("epochs: 7\noptimizer: {name: sgd, lr: 0.1}\n")
    for name in ("vision", "configs/vision.yaml"):
        plan = from_template(ctx, name)
        assert (plan.template, plan.config.epochs, plan.config.optimizer.name) == ("configs/vision.yaml", 7, "sgd")
        assert plan.edited == {}
    (tmp_path / "configs/production_template.yaml").unlink()
    assert from_template(ctx, "production").config.epochs == 150


def test_a_template_is_kept_until_another_one_is_named(tmp_path):
    ctx = context(tmp_path)
    (tmp_path / "configs/vision.yaml").write_text("epochs: 7\n")
    assert from_template(ctx, None, "configs/vision.yaml").config.epochs == 7
    assert from_template(ctx, "baseline", "configs/vision.yaml").config.epochs == 20
    assert from_template(ctx, None).template == "configs/baseline_template.yaml"


@pytest.mark.parametrize(("name", "message"), [("visoin", "there is no template 'visoin'"), ("tuning", "unknown key 'strategy'")])
def test_what_is_no_template_of_a_training_is_refused(tmp_path, name, message):
    with pytest.raises(InputError) as caught:
        from_template(context(tmp_path), name)
    assert message in str(caught.value)


def test_a_template_outside_the_project_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "elsewhere.yaml").write_text("epochs: 7\n")
    with refused(hint="copy the file into the project's configs/"):
        from_template(context(tmp_path / "rings"), str(tmp_path / "elsewhere.yaml"))


@pytest.mark.slow
@pytest.mark.usefixtures("tools_here")
def test_a_change_given_to_the_baseline_is_planned_first_and_a_template_that_changes_is_noticed(tmp_path, cli):
    project = write_rings(tmp_path, task={"use": "my_task:Rings", "options": {"n": 60}})
    (tmp_path / "configs/quick.yaml").write_text("epochs: 1\nbatch_size: 8\n")
    said = cli("phase", "run", "baseline", "--template", "quick", "--set", "optimizer.lr=0.02", "--project", tmp_path, code=0)
    assert "planning runs again first" in said.err
    (job,) = project.runs_dir.glob("*/job.json")
    config = json.loads(job.read_bytes())["config"]
    assert (config["epochs"], config["batch_size"], config["optimizer"]["lr"]) == (1, 8, 0.02)
    (tmp_path / "configs/quick.yaml").write_text("epochs: 2\nbatch_size: 8\n")
    assert "configs/quick.yaml (template) changed" in cli("gate", "check", "planning", "--project", tmp_path).out
    refused = cli("phase", "run", "diagnostics", "--template", "quick", "--project", tmp_path)
    assert (refused.code, "--template does not belong to diagnostics" in refused.err) == (1, True)


@pytest.mark.slow
@pytest.mark.long
def test_planning_with_two_processes_shows_that_the_bits_are_those_of_one(tmp_path, cli):
    project = write_rings(tmp_path, task={"use": "my_task:Rings", "options": {"n": 60}})
    changes = ("--set", "epochs=1", "--set", "batch_size=6", "--set", "accumulate=2", "--set", "launch.processes=2")
    cli("phase", "run", "planning", "--project", tmp_path, *changes, code=0)
    probe = evidence_of(project, "planning")["probe"]
    assert probe["identical"]
    cli("phase", "run", "baseline", "--project", tmp_path)
    (result,) = results(project).values()
    assert (result["state"], result["processes"]) == ("finished", 2)
