"""Models in a registry: what is added stays as it is, what is promoted holds, and each way to break either is named."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mltrainer.cli.main import run
from mltrainer.companions.proof.referee.add import add
from mltrainer.companions.registry import checking, commands, entries, log
from mltrainer.companions.registry.changes import Added, Model, Moved, replayed, written
from mltrainer.companions.registry.log import Registry, opened, stage_before
from mltrainer.errors import GateError
from mltrainer.gates.gate import Gate, check_gates
from mltrainer.project.object_store import ObjectStore
from mltrainer.records.reading import sound_record
from mltrainer.records.verdict import verdict_of
from mltrainer.workspace import Project, pretty_json, read_json, seal, write_json
from tests.conftest import Cli, Said, succeed
from tests.gates.evidence import forge
from tests.projects import kept

MODEL = "phases/05_finalization/final_model/model.safetensors"
RECORD = "phases/05_finalization/record.json"
Registered = Callable[..., Said]
DIED = 99


@pytest.fixture(scope="module")
def finished(digits_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished digits project without its runs; not to be changed."""
    folder = tmp_path_factory.mktemp("registry") / "digits"
    return Path(shutil.copytree(digits_once, folder, ignore=shutil.ignore_patterns(".git", ".mltrainer")))


@pytest.fixture(scope="module")
def filled_once(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry with two versions of digits, the first in production; not to be changed."""
    place = tmp_path_factory.mktemp("filled") / "models"
    project = Path(shutil.copytree(finished, tmp_path_factory.mktemp("adding") / "digits"))
    succeed("registry", "add", "digits", "--registry", place, "--project", project)
    succeed("registry", "promote", "digits:1", "--registry", place)
    (project / "phases/notes.md").write_text("another file, so another version\n")
    succeed("registry", "add", "digits", "--registry", place, "--project", project)
    return place


@pytest.fixture
def project(finished: Path, tmp_path: Path) -> Project:
    return Project(Path(shutil.copytree(finished, tmp_path / "digits")))


@pytest.fixture
def filled(filled_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled_once, tmp_path / "models"))


@pytest.fixture
def registry(cli: Cli, tmp_path: Path) -> Registered:
    """Type a command of the registry in `models`."""
    return lambda *words, **expected: cli("registry", *words, "--registry", tmp_path / "models", **expected)


def stored(place: Path, reference: str, path: str) -> Path:
    """Return the object that holds a file of a version."""
    sha256 = opened(str(place)).version(reference)[1].files[path].sha256
    return place / "objects" / sha256[:2] / sha256


def change(path: Path, new: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    write_json(path, new(read_json(path)))


# --- versions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["models", "memory://{}/models"])
def test_a_version_goes_there_and_comes_back_in_the_same_bytes(project, tmp_path, cli, address):
    place = tmp_path / "models" if address == "models" else address.format(tmp_path.name)
    said = cli("registry", "add", "digits", "--registry", place, "--project", project.root, code=0, out="added digits:1: run ")
    assert said.err == ""
    cli("registry", "pull", "digits:1", "--to", tmp_path / "pulled", "--registry", place, code=0)
    delivered = (project.root / MODEL).parent
    assert {path.name: path.read_bytes() for path in (tmp_path / "pulled").iterdir()} == {
        path.name: path.read_bytes() for path in delivered.iterdir() if path.is_file()
    }
    shown = cli("registry", "show", "digits:1", "--json", "--registry", place, code=0).json
    run = sound_record(project, "finalization").evidence.run
    assert (shown["run"], shown["contract"]) == (run.id, run.contract)


def test_the_same_files_are_no_second_version(project, registry):
    registry("add", "digits", "--json", "--project", project.root, code=0)
    said = registry("add", "digits", "--project", project.root, code=0)
    assert said.out.startswith("the same files are registered as digits:1")
    assert registry("list", "--json").json["models"] == [{"model": "digits", "versions": 1, "stages": {}, "aliases": {}}]


def test_a_model_that_is_not_the_delivered_one_is_not_added(project, registry):
    weights = bytearray((project.root / MODEL).read_bytes())
    weights[-1] ^= 1
    (project.root / MODEL).write_bytes(weights)
    registry("add", "digits", "--project", project.root, code=4, err=f"{MODEL}: expected sha256")
    (project.root / MODEL).unlink()
    registry("add", "digits", "--project", project.root, code=4, err="found no file")
    registry("list", code=1, err="no such folder")  # nothing was made


def test_an_edited_record_is_not_added(project, registry):
    change(project.root / RECORD, lambda record: {**record, "previous": "0" * 64})
    registry("add", "digits", "--project", project.root, code=4, err="record.json was edited")


def test_the_project_keeps_the_run_of_a_version(digits, tmp_path, cli):
    run = sound_record(digits, "finalization").evidence.run.id
    cli("registry", "add", "digits", "--registry", tmp_path / "models", "--project", digits.root, code=0)
    cli("gate", "check", "--project", digits.root, code=0)  # the note is no file that gates account for
    shutil.rmtree(digits.phase_dir("finalization"))  # the record of a later version has another run
    said = cli("runs", "delete", run, "--project", digits.root, code=1)
    assert f"run {run} is not deleted: phases/registered.json and 1 more refer to it" in said.err
    before = len(list((digits.runs_dir / run / "checkpoints").iterdir()))
    cli("checkpoints", "prune", "--project", digits.root, code=0)
    assert len(list((digits.runs_dir / run / "checkpoints").iterdir())) == before > 0


@pytest.mark.parametrize("text", ["<<<<<<< ours\n{}", '{"versions": "x"}', '{"versions": [{"registry": 5}]}', "["])
def test_a_damaged_note_of_versions_is_named_and_never_written_anew(project, registry, tmp_path, text):
    note = project.root / "phases/registered.json"
    note.write_text(text)
    registry("add", "digits", "--project", project.root, code=1, err="phases/registered.json: ")
    assert note.read_text() == text
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("name", ["../digits", "a/b", "", "digits:1", ".hidden", "x" * 65])
def test_a_name_that_leads_elsewhere_is_refused(project, registry, tmp_path, name):
    registry("add", name, "--project", project.root, code=1, err="cannot be a model's name")
    assert not (tmp_path / "models").exists()


def test_no_registry_is_a_mistake_and_the_environment_names_one(filled, cli, monkeypatch):
    cli("registry", "list", code=1, err="export MLTRAINER_REGISTRY=")
    monkeypatch.setenv("MLTRAINER_REGISTRY", str(filled))
    cli("registry", "list", code=0, out="digits         2  production 1")


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["list", "verify"])
def test_a_mistyped_folder_is_no_registry_without_faults(tmp_path, cli, command):
    said = cli("registry", command, "--registry", tmp_path / "modles", code=1, err="no such folder")
    assert "next: name a registry's folder" in said.err


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_a_damaged_file_is_named_and_never_given_out(filled, registry, tmp_path, damage):
    place = stored(filled, "digits:1", MODEL)
    data = place.read_bytes()
    flipped = bytes([*data[:-1], data[-1] ^ 1])
    place.unlink() if damage == "missing" else place.write_bytes(flipped if damage == "flipped" else data[:-1])
    registry(
        "pull",
        "digits:1",
        "--to",
        tmp_path / "pulled",
        code=4,
        err=f"{place.name}: model.safetensors is missing or damaged",
    )
    assert not (tmp_path / "pulled").exists()
    registry("promote", "digits:1", "--stage", "staging", code=4, err=f"{place.name}: {MODEL} is missing or damaged")
    registry("verify", code=4, out=f"DAMAGED digits:1: {MODEL}")
    assert registry("list", "--json").json["models"][0]["stages"] == {"production": 1}


def test_a_pipe_in_a_files_place_is_named_and_nobody_waits_for_it(filled, registry):
    path = stored(filled, "digits:1", MODEL)
    path.unlink()
    os.mkfifo(path)
    registry("verify", code=1, err="neither a file nor a folder")


def test_a_damaged_file_is_mended_by_adding_the_model_again(filled, registry, project):
    stored(filled, "digits:1", MODEL).write_bytes(b"torn")
    registry("verify", code=4)
    registry("add", "digits", "--project", project.root, code=0, out="the same files are registered as digits:1")
    assert registry("verify", "--json", code=0).json["intact"]


def _noted(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "change": {**entry["change"], "note": "by somebody else"}}


BROKEN = {
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-20]), "000002.json: the entry was cut off or edited"),
    "blank": (lambda path: path.write_bytes(b""), "000002.json: the entry was cut off or edited"),
    "edited": (lambda path: change(path, _noted), "000002.json: the entry was cut off or edited"),
    "edited and sealed": (
        lambda path: change(path, lambda entry: seal(_noted(entry))),
        "000003.json: the log is broken",
    ),
    "removed": (lambda path: path.unlink(), "000003.json: the log is broken"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_log_is_named_and_nothing_is_added_to_it(filled, registry, project, tmp_path, how):
    spoil, message = BROKEN[how]
    spoil(filled / "models/digits/000002.json")
    for words in (("show", "digits"), ("promote", "digits:2"), ("add", "digits", "--project", project.root)):
        registry(*words, code=4, err=message)
    for words in (("list",), ("verify",), ("verify", "digits")):
        registry(*words, code=4, out="BROKEN ")
    assert len(list((filled / "models/digits").iterdir())) == 3 - (how == "removed")


def test_the_log_of_another_model_is_not_taken_for_this_ones(filled, registry):
    shutil.copytree(filled / "models/digits", filled / "models/other")
    registry("show", "other", code=4, err="other/000001.json: the log is broken")
    registry("list", code=4, out="digits         2  production 1")


def _rewritten(filled: Path, new: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Make the log of one version, whose entry is changed and sealed again."""
    log = filled / "models/digits"
    for name in ("000002.json", "000003.json"):
        (log / name).unlink()
    change(log / "000001.json", lambda entry: seal({**entry, "change": {**entry["change"], **new(entry["change"])}}))


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "a/../../b", ".git/config", "phases/.hidden", f"{MODEL}/inside"])
def test_a_version_writes_no_file_elsewhere(filled, registry, tmp_path, path):
    _rewritten(filled, lambda added: {"files": {**added["files"], path: added["files"][MODEL]}})
    expected = "is inside of another file" if path.startswith(MODEL) else "is no path of a project's file"
    registry("pull", "digits:1", "--to", tmp_path / "pulled", "--records", code=1, err=expected)


def test_a_file_is_read_to_its_end_however_large_its_entry_says_it_is(filled, registry, tmp_path):
    _rewritten(filled, lambda added: {"files": {**added["files"], MODEL: {**added["files"][MODEL], "size": 10**18}}})
    registry("pull", "digits:1", "--to", tmp_path / "pulled")  # it ends
    registry("verify", code=4, out=f"DAMAGED digits:1: {MODEL}")


def test_an_entry_that_tells_another_metric_than_its_records_is_not_promoted(filled, registry):
    _rewritten(filled, lambda added: {"metrics": {**added["metrics"], "accuracy": 1.0}})
    registry("promote", "digits:1", code=4, err="not promoted: the log's metrics of version 1 is not that of its records")


# --- two at once, and killed ones -----------------------------------------------------------------


def test_of_two_adds_at_once_each_gets_a_version_of_its_own(project, registry, tmp_path, monkeypatch, cli):
    other = Project(Path(shutil.copytree(project.root, tmp_path / "other")))
    (other.root / "phases/notes.md").write_text("another version\n")
    create, calls = ObjectStore.create, []

    def overtaken(store: ObjectStore, name: str, data: bytes) -> bool:
        calls.append(name)
        if len(calls) == 1:  # between the look at the log and the new entry
            registry("add", "digits", "--project", other.root, code=0, out="added digits:1")
        return create(store, name, data)

    monkeypatch.setattr(ObjectStore, "create", overtaken)
    registry("add", "digits", "--project", project.root, code=0, out="added digits:2")
    assert len(registry("show", "digits", "--json").json["log"]) == 2
    registry("verify", code=0, out="2 versions, 0 damaged files")


@pytest.mark.parametrize("address", ["file://{}/store", "memory://{}/store"])
def test_an_object_is_created_once_and_never_replaced(tmp_path, address):
    store = ObjectStore(address.format(tmp_path))
    assert [store.create("models/x/000001.json", data) for data in (b"first", b"second", b"first")] == [True, False, True]
    assert store.text("models/x/000001.json") == b"first"
    assert store.names("models", r"x/\d+\.json") == ["x/000001.json"]


def test_an_entry_or_a_policy_that_is_larger_than_any_is_refused_before_it_is_read(project, registry, tmp_path):
    registry("add", "digits", "--project", project.root, code=0)
    entry = next((tmp_path / "models/models/digits").glob("*.json"))
    with entry.open("ab") as file:
        file.truncate(1 << 30)  # takes no room
    registry("verify", code=1, err="000001.json: more than 16777216 bytes, which no object of its kind has")
    entry.unlink()
    with (tmp_path / "models/registry.yaml").open("wb") as file:
        file.truncate(1 << 30)
    registry("add", "digits", "--project", project.root, code=0)
    registry("promote", "digits:1", code=1, err="registry.yaml: more than 1000000 bytes")


def test_an_entry_that_nobody_could_read_is_not_written(project, registry, tmp_path, monkeypatch):
    monkeypatch.setattr(log, "MOST_OF_ENTRY", 1000)
    registry(
        "add", "digits", "--project", project.root, code=1, err="the list of files is too long: expected at most 1,000 bytes"
    )
    assert not [*tmp_path.glob("models/models/digits/*.json")]


@pytest.fixture
def small(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A version of four files, so that an add has few steps."""
    kept = (MODEL, RECORD, "mltrainer.yaml", "phases/05_finalization/gate.json")
    monkeypatch.setattr(commands, "files_of", lambda one: {path: entries._listed(one.root / path) for path in kept})
    return project


def killed_at(nth: int, *words: str | Path) -> bool:
    """Type a command in a process that dies at its nth replacing, linking or syncing of a file; return whether it did."""
    if (child := os.fork()) == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        calls = itertools.count(1)
        for name in ("replace", "link", "fsync"):
            setattr(os, name, functools.partial(_dying, getattr(os, name), calls, nth))
        os._exit(run([str(word) for word in words]))
    return os.WEXITSTATUS(os.waitpid(child, 0)[1]) == DIED


def _dying(real: Callable[..., Any], calls: Iterator[int], nth: int, *arguments: Any, **named: Any) -> Any:
    if next(calls) == nth:
        os._exit(DIED)
    return real(*arguments, **named)


@pytest.mark.slow
def test_an_add_that_is_killed_anywhere_leaves_no_half_version(small, registry, tmp_path):
    words = ("registry", "add", "digits", "--project", small.root, "--registry", tmp_path / "models")
    for nth in itertools.count(1):
        shutil.rmtree(tmp_path / "models", ignore_errors=True)
        died = killed_at(nth, *words)
        models = registry("list", "--json", code=0).json["models"]
        assert [one["versions"] for one in models] in ([], [1])
        registry("verify", code=0)
        registry("add", "digits", "--project", small.root, code=0)
        registry("verify", code=0, out="1 version, 0 damaged files")
        assert not [*(tmp_path / "models").rglob(".tmp-*")]
        if not died:
            break
    assert nth > 15


@pytest.mark.slow
def test_of_processes_that_add_at_once_each_gets_a_version(small, registry, tmp_path):
    children = []
    for number in range(6):
        other = Path(shutil.copytree(small.root, tmp_path / f"project {number}"))
        (other / "mltrainer.yaml").write_text((other / "mltrainer.yaml").read_text() + f"# {number}\n")
        if (child := os.fork()) == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os._exit(run(["registry", "add", "digits", "--project", str(other), "--registry", str(tmp_path / "models")]))
        children.append(child)
    assert {os.waitpid(child, 0)[1] for child in children} == {0}
    log = registry("show", "digits", "--json", code=0).json["log"]
    assert [entry["change"]["version"] for entry in log] == [1, 2, 3, 4, 5, 6]
    registry("verify", code=0, out="6 versions, 0 damaged files")


# --- stages ---------------------------------------------------------------------------------------


def test_a_version_is_promoted_by_its_own_records_and_rolled_back_by_one_command(filled, registry):
    said = registry("promote", "digits:2", "--note", "better", code=0)
    assert "checked: 5 gates computed again from the version's own records: all hold" in said.out
    assert said.out.endswith("digits@production is version 2, before 1\n")
    assert registry("rollback", "digits", "--note", "it was slow", "--json", code=0).json["version"] == 1
    log = registry("show", "digits", "--json").json["log"]
    last = log[-1]["change"]
    assert (last["kind"], last["version"], last["before"], last["note"]) == ("rollback", 1, 2, "it was slow")
    assert [entry["change"]["kind"] for entry in log] == ["add", "promote", "add", "promote", "rollback"]
    said = registry("rollback", "digits", code=4, err="production has named version 1 alone")
    assert said.err.endswith(f"next: mltrainer registry show digits --registry {filled}\n")
    registry("rollback", "digits", "--stage", "nope", code=1, err="there is no stage 'nope'; there are staging, production")


def _of(version: int) -> Added:
    texts = dict.fromkeys(("project", "run", "record", "metric"), "x")
    nothing: dict[str, Any] = {**dict.fromkeys(("commit", "weights_sha256", "note")), "contract": {}, "metrics": {}, "tested": {}}
    return Added(kind="add", version=version, files={}, **texts, **nothing)


def test_what_is_rolled_back_twice_is_two_promotions_before(tmp_path):
    model, log, there = Model("x"), list[tuple[str, bytes]](), opened(str(tmp_path))

    def then(change: Added | Moved) -> None:
        nonlocal model
        log.append((f"{len(log) + 1}", written(model, change, "2026-11-30T00:00:00Z", "me")))
        model = replayed("x", log)

    for number in (1, 2, 3):
        then(_of(number))
        then(Moved(kind="promote", name="production", version=number, before=number - 1 or None, checked=[], note=None))
    for number in (2, 1):
        assert stage_before(model, "production", there) == number
        then(Moved(kind="rollback", name="production", version=number, before=number + 1, checked=[], note=None))
        assert model.stages == {"production": number}
    with pytest.raises(GateError, match="production has named version 1 alone"):
        stage_before(model, "production", there)


def test_a_rollback_to_a_damaged_version_is_refused(filled, registry):
    registry("promote", "digits:2", code=0)
    stored(filled, "digits:1", "phases/05_finalization/gate.json").write_bytes(b"torn")
    said = registry("rollback", "digits", code=4, err="phases/05_finalization/gate.json of digits:1 is damaged")
    assert said.err.endswith("next: remove this object, and add the model again from a project that has it\n")
    assert registry("list", "--json").json["models"][0]["stages"] == {"production": 2}


def _gate_removed(project: Project) -> None:
    (project.phase_dir("finalization") / "gate.json").unlink()


def _report_edited(project: Project) -> None:
    path = project.phase_dir("finalization") / "final_report.md"
    path.write_text(path.read_text() + "better\n")


def _metric_forged(project: Project) -> None:
    forge(project, lambda record: record["evidence"]["test"]["metrics"].update(accuracy=0.999))


@pytest.mark.parametrize(("verdict", "code"), [("waived", 0), ("fail", 4)])
def test_a_version_with_a_waived_or_failing_item(filled, registry, monkeypatch, verdict, code):
    def with_verdict(project: Project) -> list[Gate]:
        *gates, last = check_gates(project)
        return [*gates, replace(last, items=(replace(last.items[0], verdict=verdict), *last.items[1:]))]

    monkeypatch.setattr(checking, "check_gates", with_verdict)
    said = registry("promote", "digits:2", code=code)
    expected = "all hold (1 waived)" if verdict == "waived" else "the gate of finalization does not hold"
    assert expected in said.out + said.err


def _baseline_removed(project: Project) -> None:
    shutil.rmtree(project.phase_dir("baseline"))


FORGED = pytest.param(_metric_forged, marks=pytest.mark.slow)


@pytest.mark.parametrize("spoil", [_gate_removed, _report_edited, FORGED, _baseline_removed])
def test_without_gates_that_hold_nothing_is_promoted(project, registry, spoil):
    spoil(project)
    registry("add", "digits", "--project", project.root, code=0, err="it cannot be promoted: ")
    registry("promote", "digits:1", code=4, err="not promoted: ")
    assert registry("list", "--json").json["models"][0]["stages"] == {}


def test_a_record_that_was_edited_in_the_registry_promotes_nothing(filled, registry):
    place = stored(filled, "digits:2", RECORD)
    place.write_bytes(place.read_bytes().replace(b'"accuracy": 0.9', b'"accuracy": 0.8'))
    registry("promote", "digits:2", code=4, err="record.json is missing or damaged in the registry")


def test_a_promotion_that_somebody_wrote_by_hand_is_seen(filled, registry):
    model = opened(str(filled)).model("digits")
    forged = Moved(kind="promote", name="staging", version=7, before=None, checked=[], note=None)
    (filled / "models/digits/000004.json").write_bytes(written(model, forged, "2026-11-30T00:00:00Z", "me"))
    registry("show", "digits", code=4, err="000004.json: the log contradicts itself: staging names version 7")


def test_stages_and_aliases_are_the_teams(filled, registry):
    (filled / "registry.yaml").write_text("stages:\n  shadow: {}\n")
    registry("promote", "digits:1", code=1, err="there is no stage 'production'; there is only shadow")
    registry("alias", "digits:2", "shadow", code=1, err="shadow is a stage")
    registry("promote", "digits:1", "--stage", "shadow", "--json", code=0)
    registry("alias", "digits:2", "production", code=1, err="production is a stage")  # which it was when it named a version
    registry("alias", "digits:2", "champion", code=0, out="digits@champion is version 2")
    registry("alias", "digits:1", "champion", "--remove", code=1, err="champion does not name digits:1")
    assert registry("alias", "digits:2", "champion", "--json", code=0).json["changed"] is False
    registry("alias", "digits@champion", "champion", "--remove", code=0, out="digits@champion is removed, before 2")
    (filled / "registry.yaml").write_text("stages:\n  shadow: {verdikt: true}\n")
    registry("promote", "digits:2", "--stage", "shadow", code=1, err="registry.yaml:2")


def test_an_alias_that_has_the_name_of_a_later_stage_gives_nothing_out(filled, registry, tmp_path):
    (filled / "registry.yaml").write_text("stages:\n  staging: {}\n")
    registry("alias", "digits:2", "live", code=0)
    (filled / "registry.yaml").write_text("stages:\n  staging: {}\n  live: {}\n")
    registry("pull", "digits@live", "--to", tmp_path / "pulled", code=1, err="there is no digits@live")
    registry("promote", "digits:1", "--stage", "live", code=1, err="live is an alias of digits, too, which names version 2")
    registry("alias", "digits:2", "live", "--remove", code=0)
    registry("promote", "digits:1", "--stage", "live", code=0)
    registry("pull", "digits@live", "--to", tmp_path / "pulled", code=0, out="wrote digits:1")
    assert "config.yaml" in registry("pull", "digits@live", "--to", tmp_path / "again", "--json", code=0).json["files"]


@pytest.mark.parametrize("name", ["../x", "", "a\nb", "x" * 65])
def test_what_is_no_name_is_no_alias(filled, registry, name):
    registry("alias", "digits:1", name, code=1, err="cannot be an alias")


def test_a_registry_among_the_files_of_a_version_is_refused(project, cli):
    place = project.root / "phases/models"
    cli("registry", "add", "digits", "--registry", place, "--project", project.root, code=1, err="the registry is in phases/")
    assert not place.exists()


# --- verdicts -------------------------------------------------------------------------------------


def _with_verdict(project: Project, outcome: str) -> None:
    """Add a referee's verdict on the project's record, as `mltrainer verdict` does, whose one value has an outcome."""
    record = sound_record(project, "finalization")
    row = {"what": "accuracy on test", "recorded": "0.9", "found": "0.9", "outcome": outcome, "interval": None}
    verdict = {
        "schema": 1,
        "project": "digits",
        "commit": None,
        "record": record.seal,
        "run": record.evidence.run.id,
        "made": "2026-11-30",
        "version": "0.9",
        "open": None,
        "foreign": None,
        "sample": None,
        "held": None,
        "checked": [row],
        "unchecked": [],
        "differences": [],
        "seconds": 1.0,
        "recorded_seconds": 1.0,
    }
    path = project.root.parent / "verdict.json"
    path.write_bytes(pretty_json(seal(verdict)))
    add(project, verdict_of(read_json(path), "verdict.json"), "verdict.json")


@pytest.fixture
def strict(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/registry.yaml").write_text("stages:\n  staging: {}\n  production: {verdict: true}\n")
    return tmp_path / "models"


@pytest.mark.slow
def test_where_the_team_asks_for_a_verdict_none_is_promoted_without(project, registry, strict):
    registry("add", "digits", "--project", project.root, code=0)
    registry("promote", "digits:1", code=4, err="the stage asks for a referee's verdict on this record, and it has none")
    registry("promote", "digits:1", "--stage", "staging", code=0)
    _with_verdict(project, "same")
    registry("add", "digits", "--project", project.root, code=0, out="added digits:2")
    registry("promote", "digits:2", code=0, out="the referee's verdict of 2026-11-30 holds (1 value compared)")


def test_a_verdict_in_which_a_value_does_not_hold_promotes_nothing(project, registry, strict):
    _with_verdict(project, "no")
    registry("add", "digits", "--project", project.root, code=0)
    registry("promote", "digits:1", code=4, err="accuracy on test does not hold")


@pytest.mark.slow
def test_where_the_team_names_keys_the_signatures_are_checked(project, registry, tmp_path, cli):
    pytest.importorskip("model_signing", reason="pip install 'mltrainer[sign]'")
    pytest.importorskip("securesystemslib.dsse", reason="pip install 'mltrainer[sign]'")
    from tests.companions.proof.test_signatures import write_key

    key, other = write_key(tmp_path / "author/key.pem"), write_key(tmp_path / "stranger/key.pem")
    (tmp_path / "models").mkdir()

    def trust(public: Path) -> None:
        text = "".join(f"        {line}\n" for line in public.with_suffix(".pub").read_text().splitlines())
        (tmp_path / "models/registry.yaml").write_text(f"stages:\n  production:\n    keys:\n      - |\n{text}")

    trust(key)
    registry("add", "digits", "--project", project.root, code=0)
    registry("promote", "digits:1", code=4, err="not promoted: the stage asks for signatures: phases/signed.intoto.jsonl")
    cli("sign", "--key", key, "--project", project.root, code=0)
    registry("add", "digits", "--project", project.root, code=0, out="added digits:2")
    registry("promote", "digits:2", code=0, out="signed by a key that the stage trusts")
    trust(other)
    registry("promote", "digits:2", code=4, err="not promoted: the stage asks for signatures: ")
    for text, place in ((f"{key.with_suffix('.pub').read_text()[:60]}\nx", "keys.0"), ("BEGIN PUBLIC KEY", "keys")):
        other.with_suffix(".pub").write_text(text)
        trust(other)
        registry("promote", "digits:2", code=1, err=f"{tmp_path / 'models'}/registry.yaml, {place}: ")


# --- what is registered ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["digits", "houses", "rings", "script", "parallel"])
def test_each_kind_of_project_makes_a_version_that_is_read_as_it_was_written(kind, tmp_path, monkeypatch):
    project = kept(f"0.9/{kind}", tmp_path)
    monkeypatch.setattr(entries, "require_delivered", lambda *_: None)  # its weights are not here
    files = entries.files_of(project)
    assert RECORD in files
    assert "mltrainer.yaml" in files
    assert not [path for path in files if path.startswith((".mltrainer", ".git"))]
    first = entries.added(Model("m"), project, files, "a note")
    model = replayed("m", [("models/m/000001.json", written(Model("m"), first, "2026-11-30T00:00:00Z", "me"))])
    assert model.versions == {1: first}
    evidence = sound_record(project, "finalization").evidence
    assert (first.run, first.metrics, first.weights_sha256) == (evidence.run.id, evidence.validation, evidence.delivered_sha256)


# --- without torch --------------------------------------------------------------------------------


def test_the_log_alone_says_what_there_is():
    with pytest.raises(GateError, match="cut off"):
        replayed("x", [("models/x/000001.json", b'{"form": 1}')])
    assert isinstance(opened("memory://nothing/models"), Registry)
    assert opened("memory://nothing/models").names() == []


@pytest.fixture(autouse=True)
def _clean_memory() -> Iterator[None]:
    yield
    import fsspec

    fsspec.filesystem("memory").store.clear()
