"""The handbook: guides whose front matter is the policy that mltrainer enforces.

A page is looked up in the project first (a team's override), then in the shipped handbook.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mltrainer.errors import InputError
from mltrainer.workspace import read_whole, write_atomic

FOLDERS = ("phases", "reproducibility", "diagnostics", "configs", "checkpointing", "tools")
ABLATION = "phases/04_optimization/ablation.md.j2"
FRAMES = ("phases/frame.md.j2", "phases/card_frame.md.j2", "phases/parts.md.j2")  # of the phases' reports
FIXED = (*FRAMES, ABLATION)  # no project replaces them
MOST_PAGE_BYTES = 1_000_000  # of a page; the longest shipped one has a tenth of it
_FENCE = "---\n"


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes:
        path: The path in the handbook, such as `diagnostics/nan_loss.md`.
        meta: The front matter, as YAML text; it begins on line 2 of the file.
        name: The file's name, for messages.
        body: The Markdown below the front matter.
        overridden: Whether the project's own file was read.
    """

    path: str
    meta: str
    name: str
    body: str
    overridden: bool

    @property
    def text(self) -> str:
        """The body, and below it the front matter without the title."""
        lines = [line for line in self.meta.splitlines() if not line.startswith("title:")]
        return "\n".join([self.body, "## What this page declares\n", "```yaml", *lines, "```\n"]) if lines else self.body


@functools.cache
def shipped_folder() -> Path:
    """Return the folder of the shipped handbook: in the installed package, else in the checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "_handbook"
    return installed if installed.is_dir() else package.parent


@functools.cache
def page_paths() -> tuple[str, ...]:
    """Return the path of every shipped file of the handbook, sorted."""
    root = shipped_folder()
    return tuple(sorted(p.relative_to(root).as_posix() for folder in FOLDERS for p in _files(root / folder)))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix in (".md", ".yaml", ".j2") and path.is_file())


def locate(path: str, project: Path | None) -> tuple[Path, bool]:
    """Return the file of a page and whether it is the project's own.

    Raises:
        InputError: There is no such page.
    """
    own = project / path if project and path not in FIXED else None
    # In the checkout of mltrainer itself, the project's folder may be the handbook's.
    is_own = own is not None and own.is_file() and own != shipped_folder() / path
    if own is not None and is_own and (path in page_paths() or _is_manifest(path)):
        return own, True
    if path in page_paths():
        return shipped_folder() / path, False
    if _is_manifest(path):
        hint = "write its manifest, as `mltrainer guide tools/INDEX` shows"
        raise InputError(f"there is no tool {path.split('/')[1]!r}", where=path, hint=hint)
    raise InputError.unknown("page", path, page_paths(), of="of the handbook", hint="`mltrainer guide` lists the pages")


def copy_page(path: str, project: Path) -> Path:
    """Copy a page of the handbook into a project, as a start for its own, and return the file.

    Raises:
        InputError: There is no such page, or the project has its own.
        MachineError: The file cannot be written.
    """
    shipped, own = locate(path, None)[0], project / path
    if own.exists() and not is_empty(own):
        raise InputError("this project has its own page already", where=path, hint="edit it, or remove it and copy it again")
    write_atomic(own, shipped.read_bytes())
    return own


def is_empty(file: Path) -> bool:
    """Return True if a file is blank; a shell empties a file before it redirects a command's output there."""
    return not read_whole(file, MOST_PAGE_BYTES).strip()


def _is_manifest(path: str) -> bool:
    """Return True for the path of a tool's manifest, which a project may add."""
    folder, _, rest = path.partition("/")
    return folder == "tools" and rest.count("/") == 1 and rest.endswith("/README.md") and not rest.startswith(".")


def exists(path: str, project: Path | None) -> bool:
    """Return True if the handbook has a page at a path, or the project a manifest there."""
    return path in page_paths() or (_is_manifest(path) and project is not None and (project / path).is_file())


def read_page(path: str, project: Path | None) -> Page:
    """Return a page, the project's own where it has one.

    Args:
        path: The page's path, such as `diagnostics/nan_loss.md`.
        project: The project's folder, or None outside a project.

    Raises:
        InputError: There is no such page, or its front matter has no closing line.
    """
    file, overridden = locate(path, project)
    text = page_text(file)
    name = path if overridden else f"handbook {path}"
    meta, body = _split(text, name)
    return Page(path, meta, name, body, overridden)


def front_matter(raw: bytes, name: str) -> str:
    """Return the front matter of a page that is no file here, such as a committed one; `name` is for messages.

    Raises:
        InputError: It is not UTF-8, or its front matter has no closing line.
    """
    return _split(_decoded(raw, name), name)[0]


def page_text(file: Path) -> str:
    """Return the text of a page's file.

    Raises:
        InputError: The file is too large for a page, or not UTF-8.
    """
    return _decoded(read_whole(file, MOST_PAGE_BYTES), str(file))


def _decoded(raw: bytes, name: str) -> str:
    try:
        # Line ends of Windows are replaced, as the fence of the front matter is searched with a newline alone.
        return raw.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text at byte {error.start}", where=name, hint="save it as UTF-8") from error


def _split(text: str, name: str) -> tuple[str, str]:
    if not text.startswith(_FENCE):
        return "", text
    meta, fence, body = text[len(_FENCE) :].partition(f"\n{_FENCE}")
    if not fence:
        hint = "write --- on a line of its own below the front matter"
        raise InputError("the front matter has no closing ---", where=f"{name}:1", hint=hint)
    return meta, body.lstrip("\n")


def overrides(project: Path) -> list[str]:
    """Return the pages that the project replaces by its own, sorted.

    The phases' folders in a project hold its artifacts; only files at a page's exact path count.
    """
    return [path for path in page_paths() if locate(path, project)[1]]
