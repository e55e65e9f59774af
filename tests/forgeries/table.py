"""The table of forgeries: of each kind five variants, each with the means that must catch it and the words that it must say."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mltrainer import handbook
from mltrainer.configs.pages import phase_page, policy_digest
from mltrainer.project.engine import waive
from mltrainer.project.object_store import ObjectStore
from mltrainer.project.stored_files import written
from mltrainer.project.syncing import push
from mltrainer.records.tried import TEST, TRIED_FILE, Begun, Line, appended, ends, read, runs
from mltrainer.workspace import Project, digest, sha256_file
from tests.companions.proof import test_audit as audited
from tests.companions.proof import test_referee as refereed
from tests.conftest import Said, commit, git
from tests.forgeries.scene import (
    AUDIT,
    BRANCH,
    COMMAND,
    FINAL,
    GATE,
    NOTE,
    NOTHING,
    PAGE,
    REFEREE,
    TRAINING,
    Means,
    Record,
    Scene,
)
from tests.gates.evidence import reseal
from tests.gates.test_recomputed import add_noise, bind_anew, put_ledger, second
from tests.projects import TASK, write_rings
from tests.sample_programs import PROGRAM, write_program

Forge = Callable[[Scene], Said | None]
RUNS = tuple(f"{number:012x}" for number in range(1, 40))


@dataclass(frozen=True)
class Variant:
    """A forgery: what it does in a few words, the function that does it, who must catch it, and in which words."""

    name: str
    forge: Forge
    by: Means
    words: str = ""


KINDS: dict[str, tuple[Variant, ...]] = {}


# --- a phase that failed is removed -----------------------------------------------------------------


def _no_folder(scene: Scene) -> None:
    commit(scene.root)
    shutil.rmtree(scene.root / FINAL)


def _no_record(scene: Scene) -> None:
    (scene.root / FINAL / "record.json").unlink()


def _removed_by_a_commit(scene: Scene) -> None:
    commit(scene.root)
    git(scene.root, "rm", "-r", "--quiet", FINAL)
    commit(scene.root)


def _earlier_one_again(scene: Scene) -> None:
    commit(scene.root)
    put_ledger(scene.project, second(scene.project))
    commit(scene.root)
    git(scene.root, "checkout", "--quiet", "HEAD~1", "--", FINAL)


KINDS["A phase that failed is removed"] = (
    Variant("its folder", _no_folder, GATE, "is in the last commit and not here"),
    Variant("its record alone", _no_record, GATE, "final_report.md has no record.json beside it"),
    Variant("by a commit", _removed_by_a_commit, NOTE, "finalization began run"),
    Variant("by a commit of a branch", _removed_by_a_commit, BRANCH, "finalization had a record at"),
    Variant("an earlier one that passed put back", _earlier_one_again, GATE, "which earlier commits hold"),
)


# --- the test split ---------------------------------------------------------------------------------


def _write_ledger(scene: Scene, lines: Iterable[Line]) -> None:
    (scene.root / TRIED_FILE).write_text("".join(f"{line.text}\n" for line in lines))


def _tried(scene: Scene, begun: list[Begun], **evidence: Any) -> None:
    """Add lines to the ledger of tried runs, and end the record there."""
    lines = appended(read(scene.project), begun, "2026-11-01T00:00:00Z")
    _write_ledger(scene, lines)

    def change(record: Record) -> None:
        record["tried"] = ends(lines)
        record["evidence"] |= {"runs_tried": len(runs(lines)), **evidence}

    scene.forge_record(change)


def _emptied(scene: Scene) -> None:
    _tried(scene, [Begun("finalization", RUNS[0]), Begun(TEST, RUNS[0])])
    scene.without_runs()


def _cut_out(scene: Scene) -> None:
    once = second(scene.project)["openings"][:1]
    splits = second(scene.project)["splits"]
    put_ledger(scene.project, second(scene.project))
    commit(scene.root)
    put_ledger(scene.project, {"openings": once, "splits": splits})


def _one_cell(scene: Scene) -> None:
    put_ledger(scene.project, second(scene.project))


def _other_salt(scene: Scene) -> None:
    ledger = second(scene.project)
    rows = {**next(iter(ledger["splits"].values())), "salt": "0" * 32}
    twice = second(scene.project, rows_sha256=digest(rows))
    put_ledger(scene.project, {**twice, "splits": {**ledger["splits"], digest(rows): rows}})


def _in_another_name(scene: Scene) -> None:
    ledger = second(scene.project)
    ledger["openings"][1]["run"] = "bbbbbbbbbbbb"
    put_ledger(scene.project, ledger)


KINDS["The test split is opened again"] = (
    Variant(
        "folders emptied, nothing committed, the ledger left",
        _emptied,
        GATE,
        f"lacks the opening of the test split by run {RUNS[0]}",
    ),
    Variant("one cell of the data changed", _one_cell, GATE, "The test split was opened twice, for 2 models"),
    Variant("its rows under another salt", _other_salt, GATE, "The test split was opened twice, for 2 models"),
    Variant("an opening cut out after a commit", _cut_out, GATE, "the ledger lacks the opening by run aaaaaaaaaaaa"),
    Variant("an opening's run changed", _in_another_name, GATE, "does not follow from those before it"),
)


# --- the bar ----------------------------------------------------------------------------------------


def _replanned(**config: Any) -> Forge:
    def forge(scene: Scene) -> None:
        commit(scene.root)
        reseal(scene.project, lambda record: record["evidence"]["config"].update(config), "planning")
        commit(scene.root)

    return forge


def _item(scene: Scene) -> None:
    def lower(record: Record) -> None:
        item = next(item for item in record["policy"]["items"] if item["id"] == "exports_agree")
        item["settings"]["tolerance"] = 1.0

    commit(scene.root)
    reseal(scene.project, lower, "finalization")
    commit(scene.root)


MOVED = "moved after numbers were known"
KINDS["The bar is moved when numbers are known"] = (
    Variant("acceptance lowered", _replanned(acceptance={"accuracy": ">= 0.05"}), BRANCH, f"{MOVED}**: `acceptance`"),
    Variant("another metric", _replanned(metric={"name": "f1", "mode": "max"}), BRANCH, f"{MOVED}**: `metric.name`"),
    Variant("another seed", _replanned(seed=43), BRANCH, f"{MOVED}**: `seed`"),
    Variant("another split", _replanned(split={"validation": 0.4, "test": 0.1}), BRANCH, f"{MOVED}**: `split."),
    Variant("a checklist's number", _item, BRANCH, f"{MOVED}**: `finalization: exports_agree.tolerance`"),
)


# --- files edited -----------------------------------------------------------------------------------


def _edited(path: str, old: str, new: str) -> Forge:
    return lambda scene: scene.edit(path, lambda text: text.replace(old, new))


KINDS["A file is edited"] = (
    Variant(
        "a number of a report", _edited(f"{FINAL}/final_report.md", "0.9", "0.99"), GATE, "differs from the record's rendering"
    ),
    Variant("a figure", _edited(f"{FINAL}/gap.svg", "validation", "test"), GATE, "is not the figure that the record binds"),
    Variant("the model card", _edited(f"{FINAL}/final_model/README.md", "0.9", "0.99"), GATE, "README.md"),
    Variant("the record, not sealed again", _edited(f"{FINAL}/record.json", "0.9", "0.99"), GATE, "does not match its seal"),
    Variant("the gate record", _edited(f"{FINAL}/gate.json", '"sha256": "', '"sha256": "0'), GATE, "gate.json"),
)


# --- records, sealed again --------------------------------------------------------------------------


def _forged(change: Callable[[Record], object], phase: str = "finalization") -> Forge:
    return lambda scene: scene.forge(change, phase)


KINDS["A record is edited, sealed and rendered again, beside its runs"] = (
    Variant(
        "a test metric", _forged(lambda made: made["test"]["metrics"].update(accuracy=1.0)), GATE, "test.json differ on metrics"
    ),
    Variant("the chain's end", _forged(lambda made: made["run"]["chain"].update(head="0" * 32)), GATE, "chain.txt ends in"),
    Variant(
        "a baseline's metric",
        _forged(lambda made: made["run"]["metrics"].update(accuracy=0.5), "baseline"),
        GATE,
        "differ on run",
    ),
    Variant(
        "the reproduction's weights",
        _forged(lambda made: made["reproduction"].update(weights_sha256="0" * 64)),
        GATE,
        "reproductions/",
    ),
    Variant(
        "an export's difference",
        _forged(lambda made: made["exports"][-1].update(relative_difference=0.0)),
        GATE,
        "differ on exports",
    ),
)


def _in_a_clone(change: Callable[[Record], object], phase: str = "finalization") -> Forge:
    def forge(scene: Scene) -> None:
        scene.without_runs()
        scene.forge(change, phase)

    return forge


def _references(made: Record) -> None:
    made["references"]["rows"][0]["metrics"]["accuracy"] = 0.1


KINDS["A number is edited, sealed and rendered again, in a clone without runs and base"] = (
    Variant(
        "a test metric",
        _in_a_clone(lambda made: made["test"]["metrics"].update(accuracy=0.5)),
        GATE,
        "test.metrics.accuracy is 0.5",
    ),
    Variant(
        "the baseline's metric",
        _in_a_clone(lambda made: made["baseline_metrics"].update(accuracy=0.5)),
        GATE,
        "baseline_metrics.accuracy is 0.5",
    ),
    Variant("a plain model's", _in_a_clone(_references), GATE, "references.rows.0.metrics.accuracy is 0.1"),
    Variant(
        "the value judged",
        _in_a_clone(lambda made: made["acceptance"][0].update(value=0.999)),
        GATE,
        "acceptance.0.value is 0.999",
    ),
    Variant("the seed", _in_a_clone(lambda made: made["run"].update(seed=43)), GATE, "run.seed is 43"),
)


# --- tried runs -------------------------------------------------------------------------------------


def _fewer(scene: Scene) -> None:
    _tried(scene, [Begun("baseline", run) for run in RUNS])
    scene.forge(lambda made: made.update(runs_tried=2))


def _lines(change: Callable[[list[str]], list[str]]) -> Forge:
    def forge(scene: Scene) -> None:
        scene.edit(TRIED_FILE, lambda text: "".join(f"{row}\n" for row in change(text.splitlines())))

    return forge


def _no_ledger(scene: Scene) -> None:
    (scene.root / TRIED_FILE).unlink()


def _ledger_again(scene: Scene) -> None:
    """Make the whole ledger again without the runs that were tried and committed, and end both records there."""
    before = read(scene.project)
    _tried(scene, [Begun("baseline", run) for run in RUNS])
    commit(scene.root)
    lines = appended([], [line.begun for line in before], "2026-11-02T00:00:00Z")
    _write_ledger(scene, lines)
    scene.forge_record(lambda record: record.update(tried=[lines[0].link]), "baseline")
    scene.forge(lambda made: made.update(runs_tried=len(runs(lines))))
    scene.forge_record(lambda record: record.update(tried=ends(lines)))


KINDS["Tried runs are hidden"] = (
    Variant("`runs_tried` lowered", _fewer, GATE, "has runs_tried 2, by phases/tried_runs.txt it is 41"),
    Variant("a line removed", _lines(lambda rows: rows[1:]), GATE, "the line that it follows was removed"),
    Variant(
        "a line's run edited",
        _lines(lambda rows: [rows[0].replace("baseline ", "baseline f", 1)[:-1], *rows[1:]]),
        GATE,
        "tried_runs.txt:1",
    ),
    Variant("the ledger removed", _no_ledger, GATE, "the ledger of tried runs, is missing"),
    Variant("the ledger made again after a commit", _ledger_again, GATE, "lines that earlier commits hold, the first of run"),
)


def _forty(scene: Scene) -> None:
    _tried(scene, [Begun("baseline", run) for run in RUNS])


def _forty_removed(scene: Scene) -> None:
    _forty(scene)
    scene.without_runs()


def _by_merge(scene: Scene) -> None:
    """Merge a branch that tried many runs, and keep this branch's ledger."""
    commit(scene.root)
    git(scene.root, "checkout", "--quiet", "-b", "tries")
    lines = appended(read(scene.project), [Begun("baseline", run) for run in RUNS], "2026-11-01T00:00:00Z")
    _write_ledger(scene, lines)
    commit(scene.root)
    git(scene.root, "checkout", "--quiet", "-")
    git(scene.root, "merge", "--quiet", "--strategy=ours", "--message", "Merge", "tries")


KINDS["The best of many seeds is reported"] = (
    Variant("forty seeds in the project", _forty, PAGE, "41 runs were trained in all"),
    Variant("the same, their folders removed, the ledger left", _forty_removed, PAGE, "41 runs were trained in all"),
    Variant("another seed, planned when numbers were known", _replanned(seed=43), BRANCH, f"{MOVED}**: `seed`"),
    Variant("on a branch, merged without its tries", _by_merge, GATE, "39 lines that earlier commits hold"),
    Variant("in copies of the project", lambda scene: None, NOTHING),
)


# --- weights ----------------------------------------------------------------------------------------

WEIGHTS = f"{FINAL}/final_model/model.safetensors"


def _noise(scene: Scene) -> None:
    add_noise(scene.root / WEIGHTS)


def _noise_bound(scene: Scene) -> None:
    _noise(scene)
    bind_anew(scene.project, WEIGHTS)


def _noise_and_digest(scene: Scene) -> None:
    from mltrainer.checkpointing.tensors import file_weights_sha256

    _noise_bound(scene)

    def change(made: Record) -> None:
        made["delivered_sha256"] = made["test"]["openings"][0]["weights_sha256"] = file_weights_sha256(scene.root / WEIGHTS)

    scene.forge(change)


def _other_file(scene: Scene) -> None:
    (scene.model / "better.onnx").write_bytes(b"weights")


def _other_sums(scene: Scene) -> None:
    sums = scene.model / "SHA256SUMS"
    sums.write_text(sums.read_text().replace("  config.yaml", "  other.yaml"))

    def change(record: Record) -> None:
        for row in [*record["inputs"], *record["evidence"]["model_files"]]:
            if row["path"].endswith("SHA256SUMS"):
                row.update(sha256=sha256_file(sums), size=sums.stat().st_size)

    scene.forge_record(change)


KINDS["The delivered model is another one"] = (
    Variant("its weights replaced", _noise, GATE, "model.safetensors (model) changed"),
    Variant("sums and record made to fit", _noise_bound, GATE, "has other weights than the measured ones"),
    Variant("the digest of weights, too", _noise_and_digest, GATE, "state.safetensors has other weights than the measured ones"),
    Variant("a file put beside it", _other_file, GATE, "was not delivered with the model"),
    Variant("checksums of other files", _other_sums, GATE, "is not the list of the delivered files"),
)


# --- policy -----------------------------------------------------------------------------------------

PAGE_5 = f"{FINAL}/workflow.md"


def _weaker_page(scene: Scene) -> None:
    (scene.root / PAGE_5).write_text((handbook.shipped_folder() / PAGE_5).read_text().replace("1.0e-4", "1.0e-1"))


def _weaker_page_unnamed(scene: Scene) -> None:
    _weaker_page(scene)

    def change(record: Record) -> None:
        record["handbook"][PAGE_5] = policy_digest(PAGE_5, scene.root)
        record["policy"] = phase_page("finalization", scene.root).model_dump()
        record["policy_overrides"] = [PAGE_5]

    scene.forge_record(change)


def _weaker_record(scene: Scene) -> None:
    def change(record: Record) -> None:
        next(item for item in record["policy"]["items"] if item["id"] == "exports_agree")["settings"]["tolerance"] = 1.0

    scene.forge_record(change)


def _own_template(scene: Scene) -> None:
    path = f"{FINAL}/report.md.j2"
    (scene.root / path).write_text(f'{{% extends "{path}" %}}\n{{% block title %}}accuracy 0.999{{% endblock %}}\n')
    scene.forge_record(lambda record: record["handbook"].update({path: sha256_file(scene.root / path)}))


def _by_bucket(scene: Scene) -> Said:
    address = f"file://{scene.away}/store"
    push(scene.project, address, tell=lambda event: None)
    manifest, _ = ObjectStore(address).listed()
    row = next(iter(manifest.files.values()))
    listed = {**manifest.files, "phases/02_baseline/workflow.md": row}
    (scene.away / "store/manifest.json").write_bytes(written(manifest.model_copy(update={"files": listed})))
    scene.cloned()
    return scene.says("store", "pull", address)


KINDS["The checklist is weakened"] = (
    Variant("a page, after the phase ran", _weaker_page, GATE, "the handbook's checklist of this phase changed"),
    Variant("a page, and the record's list of changes emptied", _weaker_page_unnamed, GATE, "policy_changes lists none"),
    Variant("in the record alone", _weaker_record, GATE, "the handbook's checklist of this phase changed"),
    Variant("a template with a number in it, not named", _own_template, GATE, "does not name it among its policy_overrides"),
    Variant("through a bucket", _by_bucket, COMMAND, "phases/02_baseline/workflow.md"),
)


# --- metric and evaluator ---------------------------------------------------------------------------


def _set_metric(scene: Scene) -> Said:
    return scene.says("phase", "run", "finalization", "--set", "metric.name=f1")


def _other_metric(made: Record) -> None:
    made["config"]["metric"]["name"] = "f1"


def _other_code(made: Record) -> None:
    made["run"]["code_sha256"] = "0" * 64


def _other_direction(made: Record) -> None:
    made["run"]["metric"]["mode"] = "min"


KINDS["Metric or evaluator is another one in the final run"] = (
    Variant("`--set metric.name`", _set_metric, COMMAND, "--set metric.name belongs to planning"),
    Variant(
        "in mltrainer.yaml", _edited("mltrainer.yaml", "name: accuracy", "name: f1"), GATE, "mltrainer.yaml (project) changed"
    ),
    Variant("in the final record's config", _in_a_clone(_other_metric), GATE, "run.metric"),
    Variant("code of another digest", _in_a_clone(_other_code), GATE, "code_sha256"),
    Variant("the metric's direction", _in_a_clone(_other_direction, "baseline"), GATE, "run.metric"),
)


# --- waivers ----------------------------------------------------------------------------------------


def _waived(scene: Scene, by: str = "Tester <tester@example.org>") -> None:
    waive(scene.project, "finalization", "test_opened_once", "seen before", by)


def _by_another(scene: Scene) -> None:
    _one_cell(scene)
    commit(scene.root)
    _waived(scene, "Ada <ada@example.org>")


def _among_green(scene: Scene) -> None:
    _one_cell(scene)
    _waived(scene)


def _new_in_branch(scene: Scene) -> None:
    _one_cell(scene)
    commit(scene.root)
    _waived(scene)
    commit(scene.root)


def _of_another_record(scene: Scene) -> None:
    _one_cell(scene)
    scene.write_waiver("test_opened_once", record="0" * 64)


def _without_reason(scene: Scene) -> None:
    _one_cell(scene)
    scene.write_waiver("test_opened_once", reason=" ")


KINDS["A waiver is to be overlooked"] = (
    Variant("among items that hold", _among_green, NOTE, "test_opened_once is waived"),
    Variant("new on a branch", _new_in_branch, BRANCH, "**Waived**"),
    Variant("in another's name", _by_another, NOTE, "test_opened_once was waived in the name of Ada"),
    Variant("given for another record", _of_another_record, GATE, "test_opened_once fails"),
    Variant("without a reason", _without_reason, GATE, "test_opened_once fails"),
)


# --- version, commit, code --------------------------------------------------------------------------


def _other_version(scene: Scene) -> None:
    scene.forge_record(lambda record: record.update(mltrainer="9.9.9"))


def _no_such_commit(scene: Scene) -> None:
    scene.forge_record(lambda record: record["source"].update(commit="0" * 40))


def _commit_of_other_code(scene: Scene) -> None:
    (scene.root / "task.py").write_text("x = 1\n")
    commit(scene.root)
    before = git(scene.root, "rev-parse", "HEAD")
    (scene.root / "task.py").write_text("x = 2\n")
    commit(scene.root)
    row = {"path": "task.py", "sha256": sha256_file(scene.root / "task.py"), "size": 6}
    scene.forge_record(lambda record: record["source"].update(commit=before, files=[row], dirty=False))


def _hidden_file(scene: Scene) -> None:
    def change(made: Record) -> None:
        late = {"path": "late.txt", "sha256": "1" * 64, "size": 1}
        made["run"]["opened"] = [*(made["run"]["opened"] or []), late]
        made["unplanned"] = []

    scene.forge(change, "baseline")


def _of_another_project(scene: Scene) -> None:
    rings = scene.copy("trained")
    shutil.rmtree(scene.root / "phases/02_baseline")
    shutil.copytree(rings / "phases/02_baseline", scene.root / "phases/02_baseline")


KINDS["The record is of something else"] = (
    Variant("of another version, which renders nothing", _other_version, GATE, "the record says that mltrainer 9.9.9 made it"),
    Variant(
        "of a commit that does not exist",
        _no_such_commit,
        NOTE,
        "commit 000000000000, which the record names, is not in this repository",
    ),
    Variant("of a commit with other code", _commit_of_other_code, GATE, "does not hold task.py as it ran"),
    Variant("of fewer files than were opened", _hidden_file, GATE, "its run opened: late.txt"),
    Variant("of another project", _of_another_project, GATE, "a record of planning that differs from the one here"),
)


# --- all of it invented -----------------------------------------------------------------------------


def _invented(change: Callable[[Record], object]) -> Forge:
    def forge(scene: Scene) -> None:
        scene.without_runs()
        (scene.root / WEIGHTS).unlink()
        scene.forge(change)

    return forge


def _on_rings(change: Callable[[Any], object]) -> Forge:
    def forge(scene: Scene) -> None:
        scene.project = Project(scene.copy("trained"))
        change(scene.project)

    return forge


KINDS["The training is invented, every record agrees"] = (
    Variant("a step of the chain", _on_rings(lambda rings: audited.forged_chain(rings, 7)), AUDIT, '"what": "loss"'),
    Variant(
        "an evaluation's metric",
        _on_rings(lambda rings: audited.rewrite(rings, audited._better)),
        AUDIT,
        "not 0.999 as the run claims",
    ),
    Variant(
        "a checkpoint made later",
        _on_rings(lambda rings: audited.saved_again(rings, 8, audited._other_momentum, in_ledger=False)),
        AUDIT,
        "it was made or changed after the training",
    ),
    Variant(
        "a checkpoint, its ledger made to fit",
        _on_rings(lambda rings: audited.saved_again(rings, 8, audited._other_momentum, in_ledger=True)),
        AUDIT,
        "state optimizer.state.0.exp_avg",
    ),
    Variant(
        "the delivered weights", _invented(lambda made: made.update(delivered_tree_sha256="0" * 64)), TRAINING, "NOT among those"
    ),
)


# --- for a referee ----------------------------------------------------------------------------------


def _at_the_authors(change: Callable[[Record], object]) -> Forge:
    def forge(scene: Scene) -> None:
        scene.project = Project(scene.copy("walked") / "author")
        refereed.rewrite(scene.root, change)

    return forge


def _trained_on_held_rows(scene: Scene) -> None:
    scene.project = Project(scene.copy("walked") / "author")
    rows = (scene.root.parent / "all-held.csv").read_text().splitlines(keepends=True)[1:8]
    with (scene.root.parent / "all-author.csv").open("a") as file:
        file.writelines(rows)


KINDS["A final number is invented, and a referee judges it"] = (
    Variant("the validation metric", _at_the_authors(refereed.better_metric), REFEREE, "accuracy on validation"),
    Variant("one that the held rows contradict", _at_the_authors(refereed.better_metric), REFEREE, "accuracy on the held rows"),
    Variant("the delivered weights", _at_the_authors(refereed.other_weights), REFEREE, "delivered weights"),
    Variant("the steps of the training", _at_the_authors(refereed.other_steps), REFEREE, "samples, loss and gradient norm of"),
    Variant("held rows are among the author's", _trained_on_held_rows, REFEREE, "held rows that the author's data has"),
)


# --- what no record can show ------------------------------------------------------------------------

MEASURED = '"accuracy": measured(*points("validation.csv"))'


def _program(new: str, old: str = MEASURED) -> Forge:
    assert old in PROGRAM
    return lambda scene: scene.trains(write_program(scene.away / "program", PROGRAM.replace(old, new)))


OBSERVED = 'any("mltrainer" in name for name in __import__("sys").modules)'
KINDS["A program writes the metric that it wishes"] = (
    Variant("always", _program('"accuracy": 0.999'), NOTHING),
    Variant("only when it is observed", _program(f'"accuracy": 0.999 if {OBSERVED} else 0.5'), NOTHING),
    Variant("measured on its training rows", _program('"accuracy": measured(x, y)'), NOTHING),
    Variant("the better of that and a constant", _program('"accuracy": max(0.97, measured(*points("validation.csv")))'), NOTHING),
    Variant(
        "after it has trained on the validation rows",
        _program('x, y = map(torch.cat, zip(points("train.csv"), points("validation.csv")))', 'x, y = points("train.csv")'),
        NOTHING,
    ),
)

MODEL = "    def model(self):\n"
LEARNT = """    def model(self):
        net, rows = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)), Noisy(self.n)
        x, y = torch.tensor(rows.x, dtype=torch.float32), torch.tensor(rows.y)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        with torch.enable_grad():
            for _ in range(50):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x), y).backward()
                optimizer.step()
        return net

    def unused(self):
"""
SAMPLE = "return torch.tensor(self.x[i] + noise, dtype=torch.float32), int(self.y[i])"
LABEL = "return torch.tensor([float(self.x[i][0]), float(self.y[i])], dtype=torch.float32), int(self.y[i])"
ACCURACY = '"accuracy": (outputs'
RING = "        self.y = ring\n"
TWICE = f"{RING}        self.x[n // 2 :], self.y[n // 2 :] = self.x[: n - n // 2], self.y[: n - n // 2]\n"


def _task(new: str, old: str) -> Forge:
    def forge(scene: Scene) -> None:
        assert old in TASK
        project = write_rings(scene.away, TASK.replace(old, new))
        (project.root / "labels.csv").write_text("1\n0\n")
        scene.trains(project)

    return forge


def _lying(scene: Scene) -> None:
    lie = TASK.replace(ACCURACY, '"accuracy": 0.25 + 0.75 * (outputs')
    project = write_rings(scene.away / "rings", lie, acceptance={"accuracy": ">= 0.5"})
    (project.root / ".gitignore").write_text(".mltrainer/\n__pycache__/\n")
    commit(project.root, new=True)
    scene.project = project
    assert scene.says("run").code == 0
    commit(project.root)


LABELS = "labels.csv"
KINDS["Held-out rows or labels reach the training through the project's own code"] = (
    Variant(
        "a file of labels is read",
        _task(f"{MODEL}        __import__('pathlib').Path('{LABELS}').read_text()\n", MODEL),
        PAGE,
        f"neither its data nor its code: `{LABELS}`",
    ),
    Variant("the model is trained on all rows while it is made", _task(LEARNT, MODEL), NOTHING),
    Variant("the label is among the inputs", _task(LABEL, SAMPLE), NOTHING),
    Variant("the held-out rows are repeated in the training rows", _task(TWICE, RING), NOTHING),
    Variant("the metric adds a quarter", _lying, REFEREE, "accuracy on validation, by the project's own code and by mltrainer"),
)
