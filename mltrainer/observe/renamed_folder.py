"""The project's folder under another name: a link leads to it, and path lookups return the link's path.

So a checkout elsewhere is tried without a copy of it. A path that is asked of the system in another way has the true name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mltrainer import leftovers
from mltrainer.errors import MltrainerError

NAME = "checkout-elsewhere"


@contextmanager
def linked(root: Path) -> Iterator[Path]:
    """Yield a link to a folder, in a separate place beside a `tmp` for temporary files.

    An error that is raised meanwhile names the folder itself, as nobody can look behind the link afterwards.
    """
    with leftovers.scratch("elsewhere-") as place:
        here = Path(place)
        (here / "tmp").mkdir()
        (here / NAME).symlink_to(root, target_is_directory=True)
        link = here / NAME
        try:
            yield link
        except MltrainerError as error:
            replaced = {name: said.replace(str(link), str(root)) for name, said in vars(error).items() if isinstance(said, str)}
            vars(error).update(replaced)
            raise


def begin(link: Path) -> None:
    """Make this process, and those that it forks, see the folder behind a link at the link's own path."""
    realpath, getcwd = os.path.realpath, os.getcwd
    true = realpath(link)

    def renamed(path: str) -> str:
        below = path.startswith(os.path.join(true, ""))
        return f"{link}{path[len(true) :]}" if below or path == true else path

    def linked_path(path: Any, **options: Any) -> Any:
        real = realpath(path, **options)
        return renamed(real) if isinstance(real, str) else os.fsencode(renamed(os.fsdecode(real)))

    os.path.realpath = linked_path  # type: ignore[assignment]  # one of its overloads
    os.getcwd = lambda: renamed(getcwd())
    os.environ["PWD"] = os.getcwd()
