"""A stranger's project: what its files may do to somebody who only looks at it, which is nothing."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mltrainer.workspace import Project, seal
from tests.conftest import Cli, Said, git
from tests.projects import evidence_of

CANARY = "canary-5Rw81Kq7Zt"  # stands in files outside of the project, and in the environment
MOST_S = 10.0
LOOKING: tuple[tuple[str, ...], ...] = (
    ("status", "--json"),
    ("gate", "check"),
    ("runs", "list"),
    ("gate", "waive", "baseline", "within_time_budget", "--reason", "I looked"),
    ("report", "--against", "HEAD"),
    ("runs", "show", "baseline"),
    ("runs", "compare", "baseline", "finalization"),
    ("checkpoints", "list"),
    ("checkpoints", "verify"),
    ("diagnose", "baseline"),
    ("guide", "phases/01_planning/workflow"),
    ("doctor",),
    ("watch",),
    ("lineage",),
    ("registry", "add", "model", "--registry", "memory://registry"),
)


EACH = LOOKING[:3]


@dataclass(frozen=True)
class Place:
    """A project to plant in, and a folder outside that is none of its business."""

    root: Path
    outside: Path

    def replace(self, path: str, aim: Path | str) -> None:
        """Put a link where a file or a folder of the project was."""
        self.remove(path).symlink_to(aim)

    def write(self, path: str, content: bytes | str) -> None:
        self.remove(path).write_bytes(content.encode() if isinstance(content, str) else content)

    def remove(self, path: str) -> Path:
        found = self.root / path
        if found.is_dir() and not found.is_symlink():
            shutil.rmtree(found)
        found.unlink(missing_ok=True)
        found.parent.mkdir(parents=True, exist_ok=True)
        return found

    def evidence(self, phase: str) -> dict[str, Any]:
        """Return what a phase's record holds as measured."""
        return dict(evidence_of(self.root, phase))

    def record(self, phase: str, **changes: Any) -> None:
        """Change a phase's record and seal it anew, as an attacker would."""
        path = Project(self.root).phase_dir(phase) / "record.json"
        path.write_text(json.dumps(seal({**json.loads(path.read_bytes()), **changes})))


Plant = Callable[[Place], None]
RECORD = "phases/02_baseline/record.json"


def link(path: str, aim: str) -> Plant:
    return lambda place: place.replace(path, aim.format(outside=place.outside, root=place.root))


def text(path: str, content: Callable[[], bytes | str]) -> Plant:
    return lambda place: place.write(path, content())


def pipe(path: str) -> Plant:
    return lambda place: os.mkfifo(place.remove(path))


def sparse(path: str, size: int = 1 << 40) -> Plant:
    return lambda place: (place.write(path, "{"), os.truncate(place.root / path, size))[0]


def folder(path: str) -> Plant:
    return lambda place: place.remove(path).mkdir()


def chain(place: Place) -> None:
    """Links in the project, of which only the last leads out."""
    for number in range(5):
        place.replace(f"configs/hop{number}", f"hop{number + 1}")
    place.replace("configs/hop5", place.outside)
    place.replace("phases/02_baseline", "../configs/hop0")


def circle(place: Place) -> None:
    place.replace("phases/02_baseline", "03_diagnostics")
    place.replace("phases/03_diagnostics", "02_baseline")


def listening(place: Place) -> None:
    here = os.getcwd()
    os.chdir(place.remove(RECORD).parent)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("record.json")
    os.chdir(here)


def many(path: str, count: int) -> Plant:
    def plant(place: Place) -> None:
        for number in range(count):
            (place.root / path / f"{number:06d}.md").touch()

    return plant


def digest_of_secret(place: Place) -> None:
    inputs = [{"path": "data", "role": "data", "sha256": "0" * 64, "size": 1}]
    place.replace("data", place.outside / "secret.txt")
    place.record("baseline", inputs=inputs)


def huge_input(size: int | None) -> Plant:
    """A record that names a terabyte of nothing outside of the project as its data; None: in its very size."""

    def plant(place: Place) -> None:
        (place.outside / "big").touch()
        os.truncate(place.outside / "big", 1 << 40)
        row = {"path": str(place.outside / "big"), "role": "data", "sha256": "0" * 64, "size": size or 1 << 40}
        place.record("baseline", inputs=[row])

    return plant


TRICKS: dict[str, Plant] = {
    "a record's input is a terabyte": huge_input(None),
    "a record's input is a terabyte of another size": huge_input(1),
    "the record is a link to a secret": link(RECORD, "{outside}/secret.txt"),
    "the record is a link to /dev/zero": link(RECORD, "/dev/zero"),
    "the record is a link to /proc/self/environ": link(RECORD, "/proc/self/environ"),
    "the record is a link to standard input": link(RECORD, "/dev/stdin"),
    "the record is a link by a relative path": link(RECORD, "../../../outside/secret.txt"),
    "a phase's folder is a link": link("phases/02_baseline", "{outside}"),
    "all phases are a link": link("phases", "{outside}"),
    "a phase is reached by a chain of links": chain,
    "two phases are links to each other": circle,
    "the state folder is a link": link(".mltrainer", "{outside}"),
    "the runs are a link": link(".mltrainer/runs", "{outside}"),
    "the cache is a link": link(".mltrainer/cache/digests.json", "{outside}/secret.txt"),
    "the lock is a link": link(".mltrainer/lock", "{outside}/secret.txt"),
    "the project's file is a link": link("mltrainer.yaml", "{outside}/secret.txt"),
    "the planned config is a link": link("phases/01_planning/training_config.yaml", "{outside}/secret.txt"),
    "the waivers are a link": link("phases/02_baseline/waivers.json", "{outside}/secret.txt"),
    "a report is a link": link("phases/02_baseline/baseline_report.md", "{outside}/secret.txt"),
    "a page of the handbook is a link": link("phases/01_planning/workflow.md", "{outside}/secret.txt"),
    "a report's template is a link": link("phases/02_baseline/report.md.j2", "{outside}/secret.txt"),
    "a diagnostic's page is a link": link("diagnostics/nan_loss.md", "{outside}/secret.txt"),
    "the answers that were kept are a link": link(".mltrainer/served.sqlite", "{outside}/secret.txt"),
    "the answers that were kept are a pipe": pipe(".mltrainer/served.sqlite"),
    "a delivered model's card is a link": link("phases/05_finalization/final_model/README.md", "{outside}/secret.txt"),
    "a delivered model's manifest is a pipe": pipe("phases/05_finalization/final_model/manifest.json"),
    "the private file is a pipe": pipe(".env"),
    "the private file is a link": link(".env", "{outside}/secret.txt"),
    "the git attributes are a link": link(".gitattributes", "{outside}/secret.txt"),
    "a record's input is a link to a secret": digest_of_secret,
    "the record is a pipe": pipe(RECORD),
    "the project's file is a pipe": pipe("mltrainer.yaml"),
    "a report is a pipe": pipe("phases/02_baseline/baseline_report.md"),
    "the cache is a pipe": pipe(".mltrainer/cache/digests.json"),
    "a page of the handbook is a pipe": pipe("phases/01_planning/workflow.md"),
    "the record is a socket": listening,
    "the record is a folder": folder(RECORD),
    "the project's file is a folder": folder("mltrainer.yaml"),
    "the lock is a folder": folder(".mltrainer/lock"),
    "the record is a terabyte of nothing": sparse(RECORD),
    "a report is a terabyte of nothing": sparse("phases/02_baseline/baseline_report.md"),
    "an artifact is a terabyte of nothing": sparse("phases/02_baseline/more.bin"),
    "the project's file is a terabyte of nothing": sparse("mltrainer.yaml"),
    "the cache is nested 100,000 deep": text(".mltrainer/cache/digests.json", lambda: "[" * 100_000),
    "the record is nested 100,000 deep": text(RECORD, lambda: '{"a":' * 100_000),
    "the record has a number of a million digits": text(RECORD, lambda: f'{{"schema": {"9" * 1_000_000}}}'),
    "the record is not UTF-8": text(RECORD, lambda: b"\xff\xfe\x00{"),
    "the project's file is nested 100,000 deep": text("mltrainer.yaml", lambda: "- " * 100_000),
    "the project's file nests keys": text("mltrainer.yaml", lambda: "? " * 100_000),
    "the project's file nests brackets": text("mltrainer.yaml", lambda: "[" * 100_000),
    "the project's file multiplies aliases": text(
        "mltrainer.yaml", lambda: "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(30))
    ),
    "the project's file has 50,000 keys": text("mltrainer.yaml", lambda: "".join(f"k{n}: 1\n" for n in range(50_000))),
    "a page's front matter is endless": text("phases/01_planning/workflow.md", lambda: "---\n" + "a: 1\n" * 190_000),
    "a page is not UTF-8": text("phases/01_planning/workflow.md", lambda: b"---\n\xff\n---\n"),
    "names that are not UTF-8": lambda place: (place.root / os.fsdecode(b"phases/02_baseline/\xff\xfe.md")).touch(),
    "names with escape sequences": lambda place: (place.root / "phases/02_baseline/\x1b]0;hi\x07.md").touch(),
    "a folder of 5,000 files": many("phases/02_baseline", 5_000),
}


@pytest.fixture
def place(digits_once: Path, tmp_path: Path) -> Place:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(f"password: {CANARY}\n")
    shutil.copytree(digits_once, tmp_path / "clone", symlinks=True)
    return Place(tmp_path / "clone", outside)


@contextlib.contextmanager
def untouched(folder: Path) -> Iterator[None]:
    """Hold that no process reads or writes a folder or a file in it: the kernel tells (inotify), whoever did it."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK)
    accessed, modified, moved, created, deleted = 0x1, 0x2, 0xC0, 0x100, 0x200
    assert libc.inotify_add_watch(descriptor, os.fsencode(folder), accessed | modified | moved | created | deleted) >= 0
    try:
        yield
        with pytest.raises(BlockingIOError):
            os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def commit_links(place: Place) -> None:
    """Make the planted links the project's, as in a clone."""
    links = [str(path) for path in place.root.rglob("*") if path.is_symlink()]
    if links:
        git(place.root, "add", "--force", "--", *links)


def look(cli: Cli, place: Place, command: tuple[str, ...]) -> Said:
    """Run a command on a planted project; hold that it says nothing of what lies outside, and ends soon and in plain words."""
    begun = time.process_time()
    said = cli(*command, *(() if command == ("doctor",) else ("--project", place.root)))
    assert said.code in (0, 1, 4), (command, said)
    assert CANARY not in said.out + said.err, command
    assert time.process_time() - begun < MOST_S, command
    return said


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
@pytest.mark.parametrize("trick", [pytest.param(name, marks=pytest.mark.slow if n % 6 else ()) for n, name in enumerate(TRICKS)])
def test_a_file_of_a_strangers_project_makes_no_command_look_elsewhere_or_hang(place, cli, trick):
    TRICKS[trick](place)
    commit_links(place)
    more = LOOKING[len(EACH) + list(TRICKS).index(trick) % (len(LOOKING) - len(EACH))]  # every trick meets one of the others
    with untouched(place.outside):
        for command in (*EACH, more):
            look(cli, place, command)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_with_files_works_on_any_command(place, cli, trick):
    TRICKS[trick](place)
    commit_links(place)
    with untouched(place.outside):
        for command in LOOKING:
            look(cli, place, command)


def test_data_behind_a_committed_link_is_not_read_and_the_gate_says_so(place, cli):
    digest_of_secret(place)
    commit_links(place)
    with untouched(place.outside):
        said = look(cli, place, ("gate", "check", "baseline"))
    assert "data: not read, because it is a link out of the project" in said.out


def test_a_refused_link_is_named_with_where_it_leads_and_what_to_do(place, cli):
    chain(place)
    commit_links(place)
    said = look(cli, place, ("status",))
    assert f"configs/hop5: is a link out of the project, to {place.outside}" in said.err
    assert "MLTRAINER_FOLLOW_LINKS=1" in said.err


@pytest.mark.parametrize("how", ["kept out of git", "the user says so"])
def test_a_users_own_link_is_followed(place, cli, how, monkeypatch):
    shutil.move(place.root / ".mltrainer", place.outside / "state")
    place.replace(".mltrainer", place.outside / "state")
    if how == "the user says so":
        commit_links(place)
        monkeypatch.setenv("MLTRAINER_FOLLOW_LINKS", "1")
    assert len(look(cli, place, ("runs", "list", "--json")).json["runs"]) == 2
    assert look(cli, place, ("checkpoints", "verify")).code == 0


def test_without_git_a_link_out_of_the_project_is_not_followed(place, cli):
    shutil.rmtree(place.root / ".git")
    place.replace(RECORD, place.outside / "secret.txt")
    assert look(cli, place, ("status",)).code == 1


@pytest.mark.slow
def test_a_project_that_is_reached_through_a_link_is_like_any_other(place, cli):
    (place.outside / "link").symlink_to(place.root)
    cli("status", "--project", place.outside / "link", code=0)
