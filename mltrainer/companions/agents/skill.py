"""`AGENTS.md` and the skill folder: the handbook's rules, gates and diagnostics as agents read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import mltrainer
from mltrainer import handbook
from mltrainer.cli.output import say
from mltrainer.configs.pages import diagnostic_page, phase_page
from mltrainer.configs.pages import page_path as phase_path
from mltrainer.diagnostics.rules import page_path, shipped_pages
from mltrainer.generated_files import DIGEST, MAX_BYTES, is_as_written, write_generated
from mltrainer.reports import markdown
from mltrainer.workspace import PHASES, Project, read_whole

RULES = "phases/agents.md"  # the page that both files hold
AGENTS_FILE = "AGENTS.md"
SKILL_FOLDER = ".claude/skills/mltrainer"
_WRITTEN = (
    f"<!-- Written by `mltrainer integrate agents` ({mltrainer.__version__}) from the handbook. "
    f"Yours to change: it is then not overwritten. {DIGEST} -->"
)
_SKILL = """---
name: mltrainer
description: Trains a model through mltrainer's five gated phases and reads its gates, findings and reports. \
Use it in a folder with mltrainer.yaml, before training, tuning, evaluating or changing anything there.
---
"""
_REFERENCES = """## More

- [gates.md](gates.md): each phase, with what its gate demands.
- [diagnostics.md](diagnostics.md): each finding, with its thresholds, causes and page.
- Any page of the handbook: `mltrainer guide PAGE`."""


def integrate(project: Project, force: bool) -> list[str]:
    """Write the files for agents into a project, print and return their paths; a person's own `AGENTS.md` is left, and said.

    Args:
        project: The project; its own pages of the handbook come first.
        force: Overwrite files that a person made or changed.

    Raises:
        InputError: A person changed a file of the skill, or a page of the project's is not valid.
    """
    texts = {project.root / name: text for name, text in files_of(project.root).items()}
    own = project.root / AGENTS_FILE
    is_left = own.is_file() and not force and not is_as_written(read_whole(own, MAX_BYTES))
    if is_left:
        del texts[own]
    written = write_generated(project, texts, force)
    for path in written:
        say(path)
    if is_left:
        line = f"Before you train or change anything, read {SKILL_FOLDER}/SKILL.md."
        say(f"{AGENTS_FILE} is yours, and left as it is; add this line to it: {line}")
    return written


def files_of(root: Path) -> Mapping[str, str]:
    """Return the text of each file by its path in the project, with zeros for the digest in its head.

    Args:
        root: The project's folder, whose own pages come first.
    """
    rules = handbook.read_page(RULES, root).body.rstrip()
    more = f"What each gate demands, and each finding: {SKILL_FOLDER}/gates.md and diagnostics.md there."
    return {
        AGENTS_FILE: _joined(_WRITTEN, rules, more),
        f"{SKILL_FOLDER}/SKILL.md": _SKILL + _joined(_WRITTEN, rules, _REFERENCES),
        f"{SKILL_FOLDER}/gates.md": _joined(_WRITTEN, "# What each gate demands", *(_gate(phase, root) for phase in PHASES)),
        f"{SKILL_FOLDER}/diagnostics.md": _joined(_WRITTEN, "# Findings", _findings(root)),
    }


def _joined(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"


def _gate(phase: str, root: Path) -> str:
    """Return a phase's section: its items, and which of them a person may waive."""
    page = phase_page(phase, root)
    rows = [(markdown.code(i.id), markdown.text(i.statement), "by a person" if i.waivable else "never") for i in page.items]
    command = f"`mltrainer phase run {phase}`; its page: `mltrainer guide {phase_path(phase)[:-3]}`"
    return "\n\n".join([f"## {markdown.text(page.title)}", command, markdown.table(["item", "what must hold", "waived"], rows)])


def _findings(root: Path) -> str:
    """Return the table of diagnostics: the thresholds of each, its causes, and the command that shows its page."""
    pages = {name: diagnostic_page(name, root) for name in shipped_pages()}
    rows = [
        (
            f"{markdown.text(page.title)} ({page.severity})",
            markdown.setting(dict(page.thresholds)),
            markdown.text(" ".join(page.causes)),
            f"`mltrainer guide {page_path(name)[:-3]}`",
        )
        for name, page in pages.items()
    ]
    return markdown.table(["finding", "thresholds", "causes", "page"], rows)
