"""The files that wandb writes offline, read back by wandb's own command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

INSPECT = (str(Path(sys.executable).with_name("wandb")), "leet", "inspect", "--json")


def records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a `.wandb` file."""
    done = subprocess.run([*INSPECT, path], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=120)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Offline:
    """All that offline files of one run tell.

    Attributes:
        ids: The run's id, as each file has it.
        config: The config, by key.
        rows: What was logged, in this order.
        summary: The summary, by key.
        tags: The tags.
        files: Names of the files in artifacts.
    """

    def __init__(self, folder: Path) -> None:
        self.ids: set[str] = set()
        self.config: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self.tags: list[str] = []
        self.files: set[str] = set()
        for path in sorted(folder.glob("offline-run-*/*.wandb")):
            for record in records(path):
                self._take(record["type"], record.get(record["type"], {}))

    def _take(self, kind: str, held: dict[str, Any]) -> None:
        if kind == "run":
            self.ids.add(held["run_id"])
            self.tags = held.get("tags") or self.tags
            self.config |= held.get("config", {}).get("update", {})
        elif kind == "config":
            self.config |= held["update"]
        elif kind == "history":
            self.rows.append(held["item"])
        elif kind == "summary":
            self.summary |= held.get("update", {})
        elif kind == "artifact":
            self.files |= {entry["path"] for entry in held["manifest"]["contents"]}

    def of(self, name: str) -> list[tuple[int, float]]:
        """Return the numbers of a name, with their steps."""
        return [(row["step"], row[name]) for row in self.rows if name in row]
