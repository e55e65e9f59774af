"""`python -m tests.versions.bounds`: whether the lowest and the newest versions that pyproject.toml allows go together.

Nothing is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.versions.resolving import SilentIndexError, project, resolved

ALONE = ("trackio",)  # extras that exclude others
SIDES = {"lowest": "lowest-direct", "newest": "highest"}


def faults() -> Iterator[str]:
    """Yield what cannot be installed, and why.

    Raises:
        SilentIndexError: The package index does not answer.
    """
    named = [name for name, needed in project()["optional-dependencies"].items() if needed]
    groups = [[name for name in named if name not in ALONE], *([name] for name in ALONE)]
    for side, resolution in SIDES.items():
        for extras in groups:
            done = resolved("--resolution", resolution, *(f"--extra={extra}" for extra in extras))
            if done.returncode:
                yield f"the {side} versions with the extras {', '.join(extras)}: {done.stderr.strip()}"


def main() -> int:
    try:
        found = [*faults()]
    except SilentIndexError as error:
        print(f"the bounds of versions were not tried: {error}")
        return 0
    print("\n".join(found) or "the lowest and the newest versions that pyproject.toml allows can be installed, with their extras")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
