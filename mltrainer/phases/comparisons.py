"""The comparisons of a project's searches that were begun before, wherever they are still to be found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mltrainer.records.envelope import partial_record
from mltrainer.records.optimization import CountedComparison, Searched
from mltrainer.reproducibility import git
from mltrainer.search.counting import comparisons, ledger
from mltrainer.workspace import Project

RECORD = "record.json"
MOST_VERSIONS = 500  # of the record in git: more searches than anybody runs of one plan


def known_comparisons(project: Project, last: Any) -> list[CountedComparison]:
    """Return all comparisons that the project's state, its record, or any version of that in git tells of.

    Args:
        project: The project.
        last: The evidence of optimization's record as it lies here; None: there is none.
    """
    # All three: a search keeps its share of the level spent when the state folder is emptied, or its branch is given up.
    told = [*ledger(project.root), *_of_search(last), *_committed(project)]
    return [row for nr, row in enumerate(told) if row not in told[:nr]]


def _of_search(evidence: Any) -> list[CountedComparison]:
    """Return a search's comparison, and those before it; none of a skip, or of a version that did not count."""
    if not isinstance(evidence, Searched):
        return []
    found = evidence.comparison
    row = {key: getattr(found, key) for key in CountedComparison.model_fields}
    return comparisons([row, *({**row, "study": None, **dict(one)} for one in found.earlier)])


def _committed(project: Project) -> Iterator[CountedComparison]:
    """Yield the comparisons of the record's versions in all branches; nothing where there is no repository."""
    path = project.relative(project.phase_dir("optimization") / RECORD)
    try:
        root = git.locate(project.root)
        commits = git.run(project.root, "log", "--all", f"--max-count={MOST_VERSIONS}", "--format=%H", "--", path).split()
        names = "".join(f"{commit.decode()}:{root.prefix}{path}\n" for commit in commits)
        # Asked first: a commit that removed the record has no such blob, and reading it would fail.
        blobs = git.run(project.root, "cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=names.encode())
        held = dict.fromkeys(line.split()[0].decode() for line in blobs.splitlines() if line.endswith(b" blob"))
        texts = [git.run(project.root, "cat-file", "blob", blob) for blob in held]
    except git.GitError:
        return
    for text in texts:
        try:
            yield from _of_search(partial_record(json.loads(text), "optimization").evidence)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):  # no record of any version
            continue
