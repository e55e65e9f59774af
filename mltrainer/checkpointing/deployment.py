"""The files beside the exported model: how to run it, what it was made from, and the checksums of all of it. Needs no torch."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from mltrainer.configs import yaml
from mltrainer.workspace import machine_faults, sha256_file, write_atomic, write_json

CHECKSUMS_FILE = "SHA256SUMS"
MANIFEST_FILE = "manifest.json"
SCRIPT = Path(__file__).with_name("inference_script.py")  # the script's text: a module, so that it is checked like one


def write_deployment(
    folder: Path,
    exports: Sequence[dict[str, Any]],
    inference: dict[str, Any],
    config: dict[str, Any],
    manifest: dict[str, Any],
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Write what a model needs beside its exported files, the checksums last.

    Args:
        folder: Where the exported files are.
        exports: Rows of `export.export`.
        inference: What `task.inference()` returned; it becomes `inference.json`, never code.
        config: The training config.
        manifest: Where the model comes from, plain values.
        files: What else `inference.py` needs, by name, such as a tokenizer.

    Raises:
        MachineError: There is no space, no permission, or the disk failed.
    """
    for name, data in (files or {}).items():
        write_atomic(folder / name, data)
    write_atomic(folder / "inference.py", SCRIPT.read_bytes())
    write_json(folder / "inference.json", inference)
    write_atomic(folder / "requirements.txt", requirements(exports, inference).encode())
    write_atomic(folder / "config.yaml", yaml.dump(config).encode())
    write_json(folder / MANIFEST_FILE, {**manifest, "schema": 1, "exports": list(exports)})
    write_checksums(folder)


def requirements(exports: Sequence[dict[str, Any]], inference: Mapping[str, Any] | None = None) -> str:
    """Return what `inference.py` needs, pinned to what the exports were compared with here."""
    written = {row["format"] for row in exports if row["state"] == "written"}
    onnx, torch = _pin("onnxruntime"), _pin("torch")
    lines = ["# what inference.py needs", _pin("numpy"), *([_pin("tokenizers")] if (inference or {}).get("tokenizer") else [])]
    if "onnx" in written:
        lines += ["# runs model.onnx", onnx]
    if "torch_export" in written:
        lines += ["# runs model.pt2, where onnxruntime is not wanted", f"# {torch}" if "onnx" in written else torch]
    return "\n".join(lines) + "\n"


def _pin(package: str) -> str:
    """Return a package's name and version; a local suffix such as `+cpu` is on no public index."""
    try:
        return f"{package}=={importlib.metadata.version(package).partition('+')[0]}"
    except importlib.metadata.PackageNotFoundError:
        return package


def write_checksums(folder: Path, leave_out: Collection[str] = ()) -> None:
    """Write `SHA256SUMS` over a folder's files, for `sha256sum --check SHA256SUMS`.

    Args:
        folder: The folder; names that begin with a dot are left out.
        leave_out: Names that are left out too, such as of files that are written later.

    Raises:
        MachineError: There is no space, no permission, or the disk failed.
    """
    with machine_faults(str(folder)):
        names = sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
        lines = [f"{sha256_file(folder / name)}  {name}\n" for name in names if name != CHECKSUMS_FILE and name not in leave_out]
    write_atomic(folder / CHECKSUMS_FILE, "".join(lines).encode())
