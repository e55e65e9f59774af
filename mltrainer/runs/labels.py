"""Names and tags that people give to runs: a file of this machine, which is in no record and no digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mltrainer.errors import InputError
from mltrainer.leftovers import sweep
from mltrainer.runs.recorded import keep_out_of_git
from mltrainer.workspace import Project, locked, read_if_whole, read_json, write_json

FILE = "labels.json"
MOST_NAME, MOST_TAG, MOST_TAGS = 60, 30, 12  # characters, characters, and tags of a run


@dataclass(frozen=True)
class Labels:
    """A run's labels.

    Attributes:
        name: The run's name; None if it has none.
        tags: The tags, in the order in which they were given.
    """

    name: str | None = None
    tags: tuple[str, ...] = ()

    def written(self) -> dict[str, Any]:
        """Return them as JSON has them."""
        return {**asdict(self), "tags": list(self.tags)}


def labels_file(project: Project) -> Path:
    """Return the file of a project's labels."""
    return project.state_dir / FILE


def read_labels(project: Project) -> dict[str, Labels]:
    """Return the labels of the runs that have some, without damaged entries."""
    return {run: _known(entry) for run, entry in read_if_whole(labels_file(project)).items()}


def label_run(project: Project, run: str, name: str | None = None, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Labels:
    """Change a run's labels, and return them; without a change, return them as they are.

    Args:
        project: The project.
        run: The run's id.
        name: Its new name; empty takes it away, None leaves it.
        add: Further tags.
        remove: Tags to take away.

    Raises:
        InputError: A label is none, there are too many tags, or the file is damaged.
    """
    added, dropped = [_checked(tag, MOST_TAG, "a tag") for tag in add], set(remove)
    named = None if name is None else _checked(name, MOST_NAME, "a name") if name else ""
    if named is None and not added and not dropped:
        return read_labels(project).get(run, Labels())
    file = labels_file(project)
    keep_out_of_git(project)
    with locked(file.with_suffix(".lock"), "the names and tags of runs"):
        sweep(file.parent)
        known = _whole(file)
        before = _known(known.get(run))
        tags = tuple(tag for tag in dict.fromkeys([*before.tags, *added]) if tag not in dropped)
        if len(tags) > MOST_TAGS:
            raise InputError(expected=f"at most {MOST_TAGS} tags of a run", found=len(tags), hint="remove some with --remove")
        labels = Labels(before.name if named is None else named or None, tags)
        others = {other: labels for other, labels in known.items() if other != run}
        write_json(file, others if labels == Labels() else {**others, run: labels.written()})
    return labels


def _whole(file: Path) -> Mapping[str, Any]:
    """Return the labels as the file holds them; an unreadable file is not overwritten."""
    content = read_json(file) if file.exists() else {}
    if not isinstance(content, dict):
        raise InputError("expected names and tags by run", where=str(file), hint="remove the file")
    return content


def _known(entry: Any) -> Labels:
    """Return an entry's valid labels: a person may have edited the file."""
    if not isinstance(entry, dict):
        return Labels()
    name, tags = entry.get("name"), entry.get("tags")
    kept = [tag for tag in (tags if isinstance(tags, list) else []) if _is_label(tag, MOST_TAG) and " " not in tag]
    return Labels(name if _is_label(name, MOST_NAME) else None, tuple(kept[:MOST_TAGS]))


def _checked(text: str, most: int, what: str) -> str:
    text, is_tag = text.strip(), what == "a tag"
    if not _is_label(text, most) or (is_tag and " " in text):
        rule = "letters, digits and signs without a space" if is_tag else "letters, digits, signs and spaces"
        hint = "mltrainer runs tag RUN good" if is_tag else "mltrainer runs tag RUN --name 'first try'"
        raise InputError(what, expected=f"{rule}, at most {most} characters", found=repr(text[:80]), hint=hint)
    return text


def _is_label(text: Any, most: int) -> bool:
    return isinstance(text, str) and 0 < len(text) <= most and text.isprintable()
