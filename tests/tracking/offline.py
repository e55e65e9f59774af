"""The file that wandb writes offline, read with wandb's own messages.

It is a LevelDB log (https://github.com/google/leveldb/blob/main/doc/log_format.md) behind a header of seven bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEAD = 32768, 7
WHOLE, LAST = 1, 4


def records(path: Path) -> Iterator[Any]:
    """Yield the records of a `.wandb` file."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts = path.read_bytes(), HEAD, b""
    while at + HEAD <= len(data):
        if BLOCK - at % BLOCK < HEAD:
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + HEAD])
        parts += data[at + HEAD : at + HEAD + length]
        at += HEAD + length
        if kind in (WHOLE, LAST):
            record = Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


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
                self._take(record, record.WhichOneof("record_type"))

    def _take(self, record: Any, kind: str) -> None:
        if kind == "run":
            self.ids.add(record.run.run_id)
            self.tags = list(record.run.tags) or self.tags
            self.config |= _items(record.run.config.update)
        elif kind == "config":
            self.config |= _items(record.config.update)
        elif kind == "history":
            self.rows.append(_items(record.history.item))
        elif kind == "summary":
            self.summary |= _items(record.summary.update)
        elif kind == "artifact":
            self.files |= {entry.path for entry in record.artifact.manifest.contents}
        elif kind == "request" and record.request.WhichOneof("request_type") == "log_artifact":
            self.files |= {entry.path for entry in record.request.log_artifact.artifact.manifest.contents}

    def of(self, name: str) -> list[tuple[int, float]]:
        """Return the numbers of a name, with their steps."""
        return [(row["step"], row[name]) for row in self.rows if name in row]


def _items(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
