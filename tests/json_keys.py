"""The keys that docs/COMMANDS.md promises of each command's JSON."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs/COMMANDS.md"


def promised() -> dict[str, set[str]]:
    """Return the keys by command, as the page's table has them."""
    section = PAGE.read_text("utf-8").partition("\n## JSON\n")[2]
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", section, flags=re.MULTILINE)
    return {command: set(re.findall(r"`(\w+)`", keys)) for command, keys in rows}
