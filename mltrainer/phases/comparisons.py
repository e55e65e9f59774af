"""The comparisons of a project's searches that were begun before, wherever they are still to be found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mltrainer.records.optimization import CountedComparison
from mltrainer.reproducibility import git
from mltrainer.search.counting import comparisons, ledger
from mltrainer.workspace import Project

RECORD = "record.json"
MOST_VERSIONS = 500  # of the record in git: more searches than anybody runs of one plan


def known_comparisons(project: Project, current: Mapping[str, Any] | None) -> list[CountedComparison]:
    """Return all comparisons that the project's state, its record, or any version of that in git tells of.

    Args:
        project: The project.
        current: Optimization's record as it lies here; None: there is none.
    """
    told = [*ledger(project.root), *_of_record(current), *_committed(project)]
    return [row for nr, row in enumerate(told) if row not in told[:nr]]


def _of_record(record: Any) -> list[CountedComparison]:
    """Return a record's comparison, and those before it."""
    try:
        found = record["evidence"]["comparison"]
        row = {key: found[key] for key in CountedComparison.model_fields}
        return comparisons([row, *({**row, "study": None, **one} for one in found["earlier"])])
    except (KeyError, TypeError):  # a skip, a record of a version that did not count, or no record at all
        return []


def _committed(project: Project) -> Iterator[CountedComparison]:
    """Yield the comparisons of the record's versions in all branches; nothing where there is no repository."""
    path = project.relative(project.phase_dir("optimization") / RECORD)
    try:
        root = git.locate(project.root)
        commits = git.run(project.root, "log", "--all", f"--max-count={MOST_VERSIONS}", "--format=%H", "--", path).split()
        names = "".join(f"{commit.decode()}:{root.prefix}{path}\n" for commit in commits)
        blobs = git.run(project.root, "cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=names.encode())
        held = dict.fromkeys(line.split()[0].decode() for line in blobs.splitlines() if line.endswith(b" blob"))
        texts = [git.run(project.root, "cat-file", "blob", blob) for blob in held]
    except git.GitError:
        return
    for text in texts:
        try:
            yield from _of_record(json.loads(text))
        except (ValueError, RecursionError):  # no record of any version
            continue
