"""A teacher's output for each training sample: computed once, in a file that is verified by its digest and mapped into memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mltrainer import __version__
from mltrainer.errors import InputError
from mltrainer.reproducibility import seeds
from mltrainer.reproducibility.code import imported_files
from mltrainer.reproducibility.numerics import numerics_class
from mltrainer.tasks.strategy import Reading
from mltrainer.workspace import Project, digest, locked, new_whole, read_if_whole, sha256_bytes, sha256_file, write_json

FORM = 1  # form of these files: one of another form is computed again
BATCH = 256  # samples in one call of the teacher, in the order of their ids: in other batches the last bits may differ
FOLDER = "teacher"  # in the state folder
HALVES = (torch.float16, torch.bfloat16)

Say = Callable[[Any, np.ndarray], Tensor]  # from a batch and its samples' ids to a row for each of them


@dataclass(frozen=True)
class KeptRows:
    """A row for each training sample.

    Attributes:
        ids: Ids of the samples, ascending.
        rows: Rows in the order of the ids, mapped from the file.
        source: Path of the file, and whether it was found or computed, in words.
    """

    ids: np.ndarray
    rows: np.ndarray
    source: str

    def of(self, ids: np.ndarray, device: torch.device) -> Tensor:
        """Return the rows of some samples on a device, which is not waited for."""
        return torch.from_numpy(np.asarray(self.rows[np.searchsorted(self.ids, ids)])).to(device, non_blocking=True)


def kept_rows(reading: Reading, root: Path, device: str, asked: Mapping[str, Any], say: Say, where: str) -> KeptRows:
    """Return a row for each training sample, found or computed now: the same bits.

    Args:
        reading: Samples in memory.
        root: The project's folder.
        device: Device of the computation.
        asked: Inputs that decide the rows, beside data, code and the machine's arithmetic, as plain data.
        say: Function that computes rows.
        where: Config key that asks for them.

    Raises:
        InputError: There is no row of one shape for each sample, or computing them draws.
        MachineError: There is no space, no permission, or the disk failed.
    """
    ids, places = np.unique(np.asarray(reading.samples.ids), return_index=True)
    known = {
        "form": FORM,
        "batch": BATCH,
        "data": [reading.data_sha256, sha256_bytes(ids.tobytes())],
        "code": [__version__, imported_files(root)],
        "computed": [device, numerics_class(device), torch.get_num_threads()],
    }
    # The name is the digest of all inputs that decide the rows: rows of another teacher or of other data have another name.
    path = Project(root).state_dir / FOLDER / f"{digest({**known, **asked})[:16]}.npy"
    state = "found"
    if not _holds(path):
        # One process computes them, and those that train beside it wait and find them.
        with locked(path.with_suffix(".lock"), str(path), may_wait=lambda: True):
            if not _holds(path):
                state = "damaged, and computed again" if path.is_file() else "computed"
                _make(path, len(ids), _computed_rows(reading, ids, torch.from_numpy(places), device, say, where), where)
    # Copy on write, as torch wants memory that is writable.
    return KeptRows(ids, np.load(path, mmap_mode="c", allow_pickle=False), f"{Project(root).relative(path)} ({state})")


def _holds(path: Path) -> bool:
    """Return True if the file is there and has the digest that was recorded when it was made."""
    return path.is_file() and read_if_whole(path.with_suffix(".json")).get("sha256") == sha256_file(path)


def _make(path: Path, count: int, said: Iterator[np.ndarray], where: str) -> None:
    with new_whole(path) as temporary, temporary.open("wb") as file:
        shape: tuple[int, ...] | None = None
        for rows in said:
            if shape is None:
                shape, kind = rows.shape[1:], np.lib.format.dtype_to_descr(rows.dtype)
                header = {"descr": kind, "fortran_order": False, "shape": (count, *shape)}
                np.lib.format.write_array_header_1_0(file, header)
            if rows.shape[1:] != shape:
                what = f"the teacher's outputs have several shapes for a sample: {[*shape]} and {[*rows.shape[1:]]}"
                raise InputError(what, where=where, hint="let them have one, or leave the key out")
            file.write(rows.tobytes())
    # Written last: without it the file before it is computed again.
    write_json(path.with_suffix(".json"), {"sha256": sha256_file(path)})


@torch.no_grad()
def _computed_rows(reading: Reading, ids: np.ndarray, places: Tensor, device: str, say: Say, where: str) -> Iterator[np.ndarray]:
    """Yield the rows of the samples, batch after batch.

    Raises:
        InputError: There is not one row for each sample, or computing them draws, so that they would differ the next time.
    """
    samples, count = reading.samples, math.ceil(len(ids) / BATCH)
    assert samples.tensors is not None
    expected = seeds.first_draws(0)
    seeds.seed_everything(seeds.key(0, "probe"))
    for done in range(count):
        own = slice(done * BATCH, (done + 1) * BATCH)
        batch = samples.batch([tensor.index_select(0, places[own]).to(device) for tensor in samples.tensors])
        rows = say(batch, ids[own])
        if len(rows) != len(ids[own]):
            what = f"the teacher gives {len(rows)} outputs for {len(ids[own])} samples; one for each can be kept"
            raise InputError(what, where=where, hint="leave the key out")
        yield (rows.float() if rows.dtype in HALVES else rows).cpu().contiguous().numpy()
        reading.progress(done + 1, count)
    if (next_draws := seeds.next_draws()) != expected:
        drawn = ", ".join(name for name, draw in next_draws.items() if draw != expected[name])
        what = f"the teacher's outputs are drawn, by the generator of {drawn}, and would be others in each step"
        raise InputError(what, where=where, hint="let forward draw nothing in evaluation mode, or leave the key out")
