"""A project in an object store: what goes there and comes back, compared by digest, and what is refused on the way."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mltrainer.errors import InputError, InUseError, MachineError
from mltrainer.project import object_store, syncing
from mltrainer.project.object_store import ObjectStore
from mltrainer.project.stored_files import Listed, files_of, is_declared, merged, refusal, written
from mltrainer.project.syncing import pull, push
from mltrainer.records.common import FileRow
from mltrainer.reproducibility.git import tracked
from mltrainer.workspace import LOCK_FILE, Project, locked, sha256_bytes
from tests.conftest import commit, git
from tests.projects import write_rings
from tests.refusals import refused

RECORD, WEIGHTS = "phases/02_baseline/record.json", ".mltrainer/runs/0123456789ab/checkpoints/step-00000010/state.safetensors"
SENT = {
    RECORD: b"{}",
    "phases/02_baseline/report.md": b"# Report\n",
    ".mltrainer/runs/0123456789ab/result.json": b"{}",
    ".mltrainer/runs/0123456789ab/chain.txt": b"1 2\n",
    WEIGHTS: b"weights" * 100,
}
LEFT = (
    *(".mltrainer/lock", ".mltrainer/cache/digests.json", ".mltrainer/remote/log", ".mltrainer/served.sqlite-wal"),
    *(
        ".mltrainer/runs/0123456789ab/lock",
        ".mltrainer/runs/.tmp-012345/x",
        "phases/.notes",
        ".mltrainer/environments/1/bin/python",
    ),
    *(".mltrainer/tokens/1.bin", ".mltrainer/tables/1/table.json"),  # made again from the data
    *(".mltrainer/probe/first/chain.txt", ".mltrainer/plan/probe/result.json", ".mltrainer/lr_find/result.json"),
)


def quiet(_event: dict[str, Any]) -> None:
    """Take the progress, and show nothing."""


def put(project: Project, path: str, data: bytes) -> None:
    (project.root / path).parent.mkdir(parents=True, exist_ok=True)
    (project.root / path).write_bytes(data)


def get(project: Project, path: str) -> bytes | None:
    return (project.root / path).read_bytes() if (project.root / path).is_file() else None


def paths(project: Project) -> set[str]:
    return {path for path in SENT if (project.root / path).exists()}


@pytest.fixture
def here(tmp_path: Path) -> Project:
    """A project with some of what phases write."""
    (tmp_path / "here").mkdir()
    project = write_rings(tmp_path / "here")
    for path, data in SENT.items():
        put(project, path, data)
    for path in LEFT:
        put(project, path, b"left")
    return project


@pytest.fixture
def there(tmp_path: Path) -> Project:
    """The same project on another machine, without any of it."""
    (tmp_path / "there").mkdir()
    return write_rings(tmp_path / "there")


@pytest.fixture(params=["file", "memory"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"file://{tmp_path}/store" if request.param == "file" else f"memory://{tmp_path.name}/store"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def object_of(tmp_path: Path, data: bytes) -> Path:
    return tmp_path / "store/objects" / sha256_bytes(data)[:2] / sha256_bytes(data)


# --- there and back -------------------------------------------------------------------------------


def test_what_phases_wrote_goes_there_and_comes_back(here, there, address):
    os.utime(here.root / RECORD, (1_000_000_000, 1_000_000_000))
    copied = push(here, address, tell=quiet)
    assert (copied.files, copied.same) == (len(set(SENT.values())), 0)  # each content once
    assert pull(there, address, tell=quiet).files == len(SENT)
    assert {path: get(there, path) for path in SENT} == SENT
    assert [path for path in LEFT if path != ".mltrainer/lock" and get(there, path) is not None] == []
    assert (there.root / RECORD).stat().st_mtime == 1_000_000_000  # runs are listed by age


def test_only_what_changed_is_copied(here, there, address):
    push(here, address, tell=quiet)
    pull(there, address, tell=quiet)
    put(here, RECORD, b'{"a": 1}')
    assert push(here, address, tell=quiet).files == 1
    assert push(here, address, tell=quiet).files == 0
    assert pull(there, address, tell=quiet).files == 1
    assert pull(there, address, tell=quiet).files == 0
    assert get(there, RECORD) == b'{"a": 1}'


def test_what_retention_removed_leaves_the_store_and_stays_elsewhere(here, there, tmp_path, folder):
    push(here, folder, tell=quiet)
    pull(there, folder, tell=quiet)
    (here.root / WEIGHTS).unlink()
    assert push(here, folder, tell=quiet).dropped == 1
    assert not object_of(tmp_path, SENT[WEIGHTS]).exists()
    pull(there, folder, tell=quiet)
    assert get(there, WEIGHTS) == SENT[WEIGHTS]
    assert push(there, folder, tell=quiet).files == 0  # and does not come back from there
    assert WEIGHTS not in json.loads((tmp_path / "store/manifest.json").read_bytes())["files"]


def test_data_that_git_does_not_have_goes_along(here, there, folder, monkeypatch):
    put(here, "data/rows.csv", b"a,b\n")
    put(here, "data/pictures/1.png", b"png")
    put(here, "tracked.csv", b"c\n")
    (here.root / ".gitignore").write_text("data/\n.mltrainer/\n")
    commit(here.root, new=True)
    rows = [FileRow(path=path, sha256="0" * 64, size=1) for path in ("data/rows.csv", "data/pictures", "tracked.csv")]
    monkeypatch.setattr(syncing, "data_rows", lambda _: rows)
    push(here, folder, tell=quiet)
    pull(there, folder, tell=quiet)
    assert get(there, "data/rows.csv") == b"a,b\n"
    assert get(there, "data/pictures/1.png") == b"png"
    assert get(there, "tracked.csv") is None
    (here.root / "data/rows.csv").unlink()
    push(here, folder, tell=quiet)  # the plan still needs it
    shutil.rmtree(there.root / "data")
    assert pull(there, folder, force=True, tell=quiet).files == 2


@pytest.mark.slow
def test_a_finished_project_is_pulled_into_an_empty_clone_whose_gates_hold(digits, tmp_path, cli, folder):
    commit(digits.root)
    git(tmp_path, "clone", "--quiet", digits.root, tmp_path / "clone")
    cli("gate", "check", "--files", "--project", tmp_path / "clone", code=4)
    cli("store", "push", folder, "--project", digits.root, code=0)
    said = cli("store", "pull", folder, "--project", tmp_path / "clone")
    assert (said.code, said.out.startswith("fetched ")) == (0, True), said
    for line in ("gate check --files", "checkpoints verify", "status"):
        cli(*line.split(), "--project", tmp_path / "clone", code=0)


@pytest.mark.slow
def test_the_commands_import_no_torch(here, folder):
    code = (
        "import sys; from mltrainer.cli.main import run\n"
        "codes = [run(['store', word, *sys.argv[1:]]) for word in ('push', 'pull')]\n"
        "sys.exit(any(codes) or 'torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, folder, "--project", here.root], check=True, capture_output=True)


# --- two sides that changed -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "ours", "theirs", "counts"),
    [
        ("a", "a", "a", None),
        ("a", "b", "a", "here"),
        ("a", None, "a", "here"),
        ("a", "a", "b", "there"),
        ("a", "a", None, "there"),
        (None, "a", None, "here"),
        (None, None, "a", "there"),
        ("a", "b", "c", "both"),
        (None, "b", "c", "both"),
        ("a", "b", "b", None),
        ("a", "b", None, "both"),
    ],
)
def test_what_counts_is_what_changed_since_both_were_the_same(known, ours, theirs, counts):
    sides = [{"x": value} if value else {} for value in (known, ours, theirs)]
    found = merged(*sides)
    assert {name for name in ("here", "there", "both") if getattr(found, name)} == ({counts} if counts else set())


def test_what_is_newer_here_is_not_replaced(here, there, folder):
    push(here, folder, tell=quiet)
    pull(there, folder, tell=quiet)
    put(there, RECORD, b"newer")
    (there.root / WEIGHTS).unlink()
    copied = pull(there, folder, tell=quiet)
    assert (copied.files, copied.kept) == (0, 2)
    assert (get(there, RECORD), get(there, WEIGHTS)) == (b"newer", None)
    pull(there, folder, force=True, tell=quiet)
    assert (get(there, RECORD), get(there, WEIGHTS)) == (SENT[RECORD], SENT[WEIGHTS])


def test_what_changed_on_both_sides_is_named_and_force_decides(here, there, folder):
    push(here, folder, tell=quiet)
    pull(there, folder, tell=quiet)
    put(there, RECORD, b"there")
    put(here, RECORD, b"here")
    push(there, folder, tell=quiet)
    for copy in (push, pull):
        with refused("changed here, and otherwise in the store", where=RECORD):
            copy(here, folder, tell=quiet)
        assert get(here, RECORD) == b"here"
    push(here, folder, force=True, tell=quiet)
    pull(there, folder, tell=quiet)
    assert get(there, RECORD) == b"here"


def test_a_push_keeps_what_another_machine_put_there(here, there, folder):
    push(here, folder, tell=quiet)
    pull(there, folder, tell=quiet)
    put(there, "phases/03_diagnostics/record.json", b"new")
    push(there, folder, tell=quiet)
    put(here, RECORD, b"new here")
    push(here, folder, tell=quiet)
    pull(here, folder, tell=quiet)
    assert get(here, "phases/03_diagnostics/record.json") == b"new"


def test_a_fresh_clone_takes_what_came_of_its_own_commit_alone(here, tmp_path, folder):
    (here.root / ".gitignore").write_text(".mltrainer/\n")
    commit(here.root, new=True)
    put(here, RECORD, b"trained")
    push(here, folder, tell=quiet)
    for name in ("same", "other"):
        git(tmp_path, "clone", "--quiet", here.root, tmp_path / name)
    for _ in range(2):
        pull(Project(tmp_path / "same"), folder, tell=quiet)
        assert get(Project(tmp_path / "same"), RECORD) == b"trained"
        git(tmp_path / "same", "checkout", "--quiet", "--force", "--detach", "HEAD")
    put(Project(tmp_path / "other"), RECORD, b"planned anew")
    commit(tmp_path / "other")
    with pytest.raises(InputError, match="sent at commit"):
        pull(Project(tmp_path / "other"), folder, tell=quiet)


def test_two_pushes_at_once_do_not_take_each_others_place(here, there, folder, monkeypatch):
    sizes = ObjectStore.sizes

    def meanwhile(store: ObjectStore) -> dict[str, int]:
        monkeypatch.setattr(ObjectStore, "sizes", sizes)
        put(there, "phases/03_diagnostics/record.json", b"new")
        push(there, folder, tell=quiet)
        return sizes(store)

    monkeypatch.setattr(ObjectStore, "sizes", meanwhile)
    with pytest.raises(InUseError, match="meanwhile"):
        push(here, folder, tell=quiet)
    push(here, folder, tell=quiet)
    pull(there, folder, tell=quiet)
    assert paths(there) == set(SENT)


def test_another_projects_store_is_refused(here, tmp_path, folder):
    push(here, folder, tell=quiet)
    (tmp_path / "another").mkdir()
    other = write_rings(tmp_path / "another", name="another")
    for copy in (push, pull):
        with pytest.raises(InputError, match="holds the project 'rings', and this is 'another'"):
            copy(other, folder, tell=quiet)


# --- damage ---------------------------------------------------------------------------------------


def flipped(data: bytes) -> bytes:
    return data[:5] + bytes([data[5] ^ 1]) + data[6:]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(flipped(path.read_bytes())), "its content has the digest"),
        (lambda path: path.write_bytes(path.read_bytes()[:9]), "it has 9 bytes"),
        (Path.unlink, "it is missing"),
    ],
    ids=["a flipped byte", "a cut file", "a missing file"],
)
def test_damage_in_the_store_is_named_and_replaces_nothing(here, there, tmp_path, folder, cli, damage, said):
    put(there, RECORD, b"mine")
    push(there, folder, tell=quiet)
    pull(here, folder, force=True, tell=quiet)
    put(here, RECORD, b"new")
    push(here, folder, tell=quiet)
    damage(object_of(tmp_path, SENT[WEIGHTS]))
    told = cli("store", "pull", folder, "--project", there.root)
    assert (told.code, WEIGHTS in told.err, said in told.err) == (1, True, True), told
    assert paths(there) == {RECORD}
    assert get(there, RECORD) == b"mine"
    object_of(tmp_path, SENT[WEIGHTS]).unlink(missing_ok=True)
    push(here, folder, tell=quiet)  # as the message says
    cli("store", "pull", folder, "--project", there.root, code=0)
    assert (get(there, RECORD), get(there, WEIGHTS)) == (b"new", SENT[WEIGHTS])


def test_a_list_that_was_cut_off_or_edited_is_refused(here, there, tmp_path, folder):
    push(here, folder, tell=quiet)
    path = tmp_path / "store/manifest.json"
    whole = path.read_bytes()
    for text, said in ((whole[:-9], "not readable as JSON"), (whole.replace(b"rings", b"ringt"), "its seal does not hold")):
        path.write_bytes(text)
        with refused(said, where=f"{folder}/manifest.json"):
            pull(there, folder, tell=quiet)


CUT = """
import os, sys
from pathlib import Path
from mltrainer.project import object_store, syncing
from mltrainer.workspace import Project
syncing.AT_A_TIME = 1
send = object_store.ObjectStore.send
def last(store, file, row, moved):
    if file.name == "state.safetensors":
        (Path(sys.argv[2]) / "objects" / row.sha256[:2]).mkdir(parents=True, exist_ok=True)
        (Path(sys.argv[2]) / "objects" / row.sha256[:2] / row.sha256).write_bytes(b"half")
        os.kill(os.getpid(), 9)
    send(store, file, row, moved)
object_store.ObjectStore.send = last
syncing.push(Project(Path(sys.argv[1])), f"file://{sys.argv[2]}", tell=lambda event: None)
"""


@pytest.mark.slow
def test_of_a_push_that_was_killed_the_list_before_holds_and_the_next_one_ends_it(here, there, tmp_path, folder):
    push(here, folder, tell=quiet)
    put(here, RECORD, b"second")
    put(here, WEIGHTS, b"second" * 100)
    done = subprocess.run([sys.executable, "-c", CUT, here.root, tmp_path / "store"], check=False)
    assert done.returncode == -signal.SIGKILL
    pull(there, folder, tell=quiet)
    assert {path: get(there, path) for path in SENT} == SENT
    push(here, folder, tell=quiet)
    pull(there, folder, tell=quiet)
    assert (get(there, RECORD), get(there, WEIGHTS)) == (b"second", b"second" * 100)


def test_what_a_killed_push_left_half_written_goes_with_the_next_one(here, tmp_path, folder):
    push(here, folder, tell=quiet)
    left = [here.state_dir / ".tmp-012345", tmp_path / "store/.tmp-012345"]
    for path in left:
        path.write_bytes(b"half")
    push(here, folder, tell=quiet)
    assert [path for path in left if path.exists()] == []


def test_what_arrived_before_a_fault_is_not_fetched_again(here, there, tmp_path, folder, monkeypatch):
    monkeypatch.setattr(syncing, "AT_A_TIME", 1)
    push(here, folder, tell=quiet)
    fetched: list[str] = []
    fetch = ObjectStore._fetch

    def failing(store: ObjectStore, row: Listed, file: Any, moved: Any) -> str:
        fetched.append(row.sha256)
        if len(fetched) == 3:
            raise InputError("the network went away")
        return fetch(store, row, file, moved)

    monkeypatch.setattr(ObjectStore, "_fetch", failing)
    with pytest.raises(InputError, match="network"):
        pull(there, folder, tell=quiet)
    assert paths(there) == set()
    pull(there, folder, tell=quiet)
    assert paths(there) == set(SENT)
    assert [fetched.count(sha256) for sha256 in fetched[:2]] == [1, 1]
    assert not (there.state_dir / "arriving").exists()


# --- while a phase runs ---------------------------------------------------------------------------


def test_a_log_that_grows_is_sent_as_it_was_and_a_file_that_changes_is_looked_at_again(here, there, folder, monkeypatch):
    chain, send = here.root / ".mltrainer/runs/0123456789ab/chain.txt", ObjectStore.send
    changes = [b"1 2\n3 4\n", b"other\n"]

    def writing(store: ObjectStore, file: Path, row: Listed, moved: Any) -> None:
        if file == chain and changes:
            chain.write_bytes(changes.pop(0))
        send(store, file, row, moved)

    monkeypatch.setattr(ObjectStore, "send", writing)
    push(here, folder, tell=quiet)
    pull(there, folder, tell=quiet)
    assert get(there, ".mltrainer/runs/0123456789ab/chain.txt") == b"1 2\n"
    push(here, folder, tell=quiet)
    pull(there, folder, tell=quiet)
    assert get(there, ".mltrainer/runs/0123456789ab/chain.txt") == b"other\n"


def test_a_file_that_changes_all_the_time_is_named(here, folder, monkeypatch):
    send = ObjectStore.send

    def writing(store: ObjectStore, file: Path, row: Listed, moved: Any) -> None:
        if file.name == "report.md":
            file.write_bytes(os.urandom(2))
        send(store, file, row, moved)

    monkeypatch.setattr(ObjectStore, "send", writing)
    with pytest.raises(InputError, match=r"report\.md changed each time while it was sent"):
        push(here, folder, tell=quiet)


def test_a_large_file_is_sent_and_fetched_in_pieces(here, there, address, monkeypatch):
    monkeypatch.setattr(object_store, "AT_ONCE", 64)
    told: list[int] = []
    monkeypatch.setattr(syncing, "SHOWN_AFTER_S", 0)
    push(here, address, tell=lambda event: told.append(event["done"]))
    pull(there, address, tell=lambda event: told.append(event["done"]))
    assert get(there, WEIGHTS) == SENT[WEIGHTS]
    assert max(told) == sum(map(len, set(SENT.values())))


def test_records_are_read_before_the_runs_that_they_tell_of(here):
    found = files_of(here, [])
    places = [found.index(path) for path in (RECORD, ".mltrainer/runs/0123456789ab/result.json", WEIGHTS)]
    assert places == sorted(places)
    assert found[-1] == ".mltrainer/runs/0123456789ab/chain.txt"


def test_nothing_is_replaced_under_a_phase_that_runs(here, folder):
    push(here, folder, tell=quiet)
    with locked(here.state_dir / LOCK_FILE, "it"):
        push(here, folder, tell=quiet)
        with pytest.raises(InUseError):
            pull(here, folder, tell=quiet)


# --- a hostile list, addresses, keys --------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *("../x", "/etc/x", "phases/../../x", "", ".", "phases//x", "phases/./x", "a\0b", ".git/hooks/post-checkout"),
        *(".mltrainer/lock", ".mltrainer/environments/1/bin/python", ".mltrainer/store.json", ".mltrainer/.hidden/x", ".env"),
        *("mltrainer.yaml", "torch.py", "x.pth", "native.so", "configs/production_template.yaml", "my_task.py", ".mltrainer"),
        *(
            "phases/evil.py",
            "phases/02_baseline/workflow.md",
            "phases/02_baseline/report.md.j2",
            "phases/x.so",
            "phases/Makefile",
        ),
        *(
            "phases/02_baseline/Workflow.MD",
            "Phases/02_baseline/workflow.md",
            "MLTRAINER.YAML",
            "mltrainer.yam\u24db",
            "TORCH.PY",
        ),
        *(".mltrainer/runs/0123456789ab/evil.py", ".mltrainer/runs/0123456789ab/run.sh", ".MLTRAINER/runs/x.json"),
        *("phases/05_finalization/final_model/inference.py", "phases/05_finalization/final_model/libx.so.1", "Tools/x/README.md"),
        *("Makefile", "makefile.am", "requirements.txt", "Dockerfile", "pyproject.toml", "setup.cfg", "notebook.ipynb", "x.pyc"),
        *("not_declared.csv", "rings_of_others/x.csv", "data", "C:/x.csv", "phases\\..\\x.csv"),
    ],
)
def test_a_list_names_no_file_outside_and_none_that_decides_what_runs(here, there, tmp_path, folder, path):
    push(here, folder, tell=quiet)
    manifest, _ = ObjectStore(folder).listed()
    row = manifest.files[RECORD]
    hostile = manifest.model_copy(update={"files": {path: row}})
    (tmp_path / "store/manifest.json").write_bytes(written(hostile))
    before = {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file() and "lock" not in one.name}
    with refused(where=path):
        pull(there, folder, tell=quiet)
    assert {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file() and "lock" not in one.name} == before


@pytest.mark.parametrize(
    ("source", "path", "is_taken"),
    [
        ("rows.csv", "rows.csv", True),
        ("rows.csv", "rows.csv/x", True),
        ("rows.csv", "rows2.csv", False),
        ("parts/{000..004}.parquet", "parts/003.parquet", True),
        ("parts/*.csv", "other/1.csv", False),
        ("*.csv", "1.csv", True),
        ("*", "setup.py", False),
        (".", "x.csv", False),
    ],
)
def test_of_data_what_the_project_names_is_taken(tmp_path, source, path, is_taken):
    file = tmp_path / "mltrainer.yaml"
    file.write_text("name: x\ntask: {kind: tabular_regression}\nmodel: {name: mlp}\nmetric: {name: r2, mode: max}\n")
    file.write_text(f"{file.read_text()}data: {{source: '{source}', target: y}}\n")
    assert (refusal(path, set(), is_declared(Project(tmp_path), [])) is None) == is_taken


def test_a_list_names_no_file_below_another(here, there, tmp_path, folder):
    push(here, folder, tell=quiet)
    manifest, _ = ObjectStore(folder).listed()
    row = manifest.files[RECORD]
    (tmp_path / "store/manifest.json").write_bytes(
        written(manifest.model_copy(update={"files": {RECORD: row, f"{RECORD}/x.json": row}}))
    )
    with pytest.raises(InputError, match="in place of its folder"):
        pull(there, folder, tell=quiet)
    assert not (there.root / RECORD).exists()


def test_no_link_leads_out(here, there, tmp_path, folder):
    push(here, folder, tell=quiet)
    (tmp_path / "elsewhere").mkdir()
    (there.root / "phases").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="phases is in its way: a link"):
        pull(there, folder, tell=quiet)
    (there.root / "phases").unlink()
    (there.root / RECORD).parent.mkdir(parents=True)
    (there.root / RECORD).symlink_to(tmp_path / "elsewhere/record.json")
    with pytest.raises(InputError, match=r"record\.json is in its way: a link"):
        pull(there, folder, tell=quiet)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_git_has_is_neither_sent_nor_taken(here, folder):
    put(here, ".mltrainer/x", b"1")
    put(here, "inner/rows.csv", b"1")
    git(here.root, "init", "--quiet")
    assert tracked(here.root) == set()
    commit(here.root)
    assert refusal("inner/rows.csv", tracked(here.root)) == "git has this file"
    assert tracked(here.root / "inner") == {"rows.csv"}
    assert refusal("inner/other.csv", tracked(here.root)) is None


def test_a_secret_in_an_address_is_refused_and_stands_nowhere(here, cli):
    for address in ("s3://key:hunter2hunter2@bucket/prefix", "https://host/x?sig=0123456789abcdef"):
        said = cli("store", "push", address, "--project", here.root, code=1, err="the address contains a key, password or token")
        assert "hunter2" not in said.err
        assert "0123456789abcdef" not in said.err


def test_what_cannot_be_reached_is_told_with_what_to_install(here, cli):
    if "s3fs" in sys.modules:
        pytest.skip("s3fs is installed here")
    for address, hint in (
        ("s3://bucket/prefix", "pip install s3fs"),
        ("gs://bucket", "pip install gcsfs"),
        ("az://c/p", "pip install adlfs"),
    ):
        cli("store", "push", address, "--project", here.root, code=1, err=hint)
    cli("store", "push", "bucket/prefix", "--project", here.root, code=1, err="no address of a store")


def test_a_full_disk_of_a_folder_that_is_a_store_is_told_as_the_machines(here, folder, monkeypatch):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mltrainer.project.object_store.write_atomic", full)
    with pytest.raises(MachineError, match="No space left on device"):
        push(here, folder, tell=quiet)


def test_a_store_in_which_nothing_was_put_is_told(there, address):
    with pytest.raises(InputError, match="the store is empty"):
        pull(there, address, tell=quiet)
