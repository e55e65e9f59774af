"""The files beside the exported model: how to run it, its origin, and the checksums of all files. Needs no torch."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mltrainer.configs import yaml
from mltrainer.errors import InputError
from mltrainer.executors.executor import Command
from mltrainer.executors.local import answered
from mltrainer.leftovers import scratch
from mltrainer.records.common import Export
from mltrainer.workspace import (
    MODEL_CARD,
    files_of_model,
    machine_faults,
    pretty_json,
    sha256_file,
    write_atomic,
    write_json,
    write_text,
)

CHECKSUMS_FILE = "SHA256SUMS"
MANIFEST_FILE = "manifest.json"
INTERFACE = "inference.json"
PREPROCESS = "preprocess"  # the key of inference.json that names the user's module, and the function in it
OWN_FILES = ("inference.py",)
SCRIPT = Path(__file__).with_name("inference_script.py")  # the script's text: a module, so that it is checked like one


def write_deployment(
    folder: Path,
    exports: Sequence[Export],
    inference: dict[str, Any],
    config: dict[str, Any],
    manifest: dict[str, Any],
    files: Mapping[str, bytes] | None = None,
    preprocess: Path | None = None,
) -> None:
    """Write the files that a model needs beside its exported files, the checksums last.

    Args:
        folder: The folder of the exported files.
        exports: Rows of `export.export`.
        inference: The value that `task.inference()` returned; it becomes `inference.json`, never code.
        config: The training config.
        manifest: The model's origin, plain values.
        files: Further files that `inference.py` needs, by name, such as a tokenizer.
        preprocess: The user's module that makes raw input the model's; it is copied as it is.

    Raises:
        MachineError: There is no space, no permission, or the disk failed.
    """
    for name, data in (files or {}).items():
        write_atomic(folder / name, data)
    write_atomic(folder / "inference.py", SCRIPT.read_bytes())
    named = {} if preprocess is None else {PREPROCESS: preprocess.name}
    # not redacted: categories and names of classes are the data's, and predictions need them
    write_atomic(folder / INTERFACE, pretty_json({**inference, **named}))
    module = {}
    if preprocess is not None:
        write_atomic(folder / preprocess.name, preprocess.read_bytes())
        module = {PREPROCESS: {"file": preprocess.name, "sha256": sha256_file(preprocess)}}
    write_text(folder / "requirements.txt", requirements(exports, inference, preprocess))
    write_text(folder / "config.yaml", yaml.dump(config))
    write_json(folder / MANIFEST_FILE, {**manifest, **module, "schema": 1, "exports": [_described(row) for row in exports]})
    write_checksums(folder, leave_out=(MODEL_CARD,))  # the card of an earlier export is rewritten after these sums


def _described(row: Export) -> dict[str, Any]:
    """Return a row without measured times, so that a repeated export has the same bytes."""
    row_values = row.written()
    if "quantized" in row_values:
        row_values["quantized"] = {key: value for key, value in row_values["quantized"].items() if not key.endswith("latency_ms")}
    return row_values


def preprocess_of(inference: dict[str, Any], root: Path) -> Path | None:
    """Return the module that a task's `inference()` names under `preprocess`, after a test that it imports packages only.

    Args:
        inference: The task's description of its inputs.
        root: The project's folder, to which the module's path is relative.

    Raises:
        InputError: There is no such file, it has no function `preprocess`, or it needs files of the project.
    """
    given = inference.get(PREPROCESS)
    if given is None:
        return None
    path = root / str(given)
    if not isinstance(given, str) or not path.is_file() or not path.resolve().is_relative_to(root.resolve()):
        _refuse(given, "is no file of the project", "name it relative to the project's folder, such as our_pre.py")
    if not path.stem.isidentifier() or path.suffix != ".py" or path.name in OWN_FILES:
        _refuse(given, "is not a valid module name beside inference.py", "rename it, such as our_pre.py")
    # Last, as it runs the module: what can be refused by its name is refused before.
    _try_alone(path, given)
    return path


# Runs where nothing of the project can be imported, as beside the delivered model.
_ALONE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("preprocess", sys.argv[1])
module = sys.modules["preprocess"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
if not callable(getattr(module, "preprocess", None)):
    raise AttributeError("it has no function preprocess(rows, spec)")
"""


def _try_alone(path: Path, given: str) -> None:
    """Import a module away from its project, in a separate process.

    Raises:
        InputError: It fails.
    """
    with scratch() as folder:
        # Copied away from the project: beside its neighbours an import of one of them would succeed here and fail there.
        copied = Path(folder) / path.name
        copied.write_bytes(path.read_bytes())
        arguments = [sys.executable, "-I", "-c", _ALONE, str(copied)]
        ended = answered(Command(arguments=arguments, folder=folder, environment=os.environ))
    if ended.code:
        last = ended.last_words if ended.err.strip() else f"its import ended with exit code {ended.code}"
        _refuse(given, f"cannot be imported beside the delivered model: {last}", "let it import packages only")


def _refuse(given: Any, what: str, hint: str) -> None:
    raise InputError(f"preprocess {given!r} {what}", where="inference() of your task", hint=hint)


def requirements(exports: Sequence[Export], inference: Mapping[str, Any] | None = None, preprocess: Path | None = None) -> str:
    """Return the text of `requirements.txt`: packages of `inference.py` and `preprocess`, at the versions installed here."""
    written = {row.format for row in exports if row.state == "written"}
    onnx, torch = _pin("onnxruntime"), _pin("torch")
    lines = ["# what inference.py needs", _pin("numpy"), *([_pin("tokenizers")] if (inference or {}).get("tokenizer") else [])]
    given = (inference or {}).get("input")
    if isinstance(given, Mapping) and "picture" in given:
        lines += ["# reads pictures; another version may give other pixels", _pin("pillow")]
    if (inference or {}).get("conversations"):
        lines += ["# renders conversations by their chat template", _pin("transformers"), _pin("jinja2")]
    by_onnx = any(name.startswith("onnx") for name in written)
    if by_onnx:
        lines += [f"# runs {'model.onnx' if 'onnx' in written else 'the model in 8 bits'}", onnx]
    if "torch_export" in written:
        lines += ["# runs model.pt2, where onnxruntime is not wanted", f"# {torch}" if by_onnx else torch]
    if preprocess is not None and (packages := _imported(preprocess)):
        lines += [f"# {preprocess.name} imports", *map(_pin, packages)]
    return "\n".join(lines) + "\n"


def _imported(path: Path) -> list[str]:
    """Return the installed packages that a module imports, beside NumPy."""
    tree = ast.parse(path.read_bytes())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    installed = importlib.metadata.packages_distributions()
    return sorted({package for name in names for package in installed.get(name.partition(".")[0], [])} - {"numpy"})


def _pin(package: str) -> str:
    """Return a package's name and version; a local suffix such as `+cpu` is dropped, as no public index has it."""
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


def checksum_faults(folder: Path) -> Iterator[str]:
    """Yield the differences between a delivered folder and its `SHA256SUMS`: files that are missing, changed or not listed."""
    try:
        lines = (folder / CHECKSUMS_FILE).read_text("utf-8").splitlines()
    except (OSError, ValueError):
        yield "SHA256SUMS is missing or not readable"
        return
    listed = {name: sha256 for sha256, _, name in (line.partition("  ") for line in lines) if name != MODEL_CARD}
    present = {path.name: path for path in files_of_model(folder) if path.parent == folder and path.name != CHECKSUMS_FILE}
    for name in sorted(listed.keys() | present.keys()):
        if name not in present:
            yield f"{name} is not here"
        elif name not in listed:
            yield f"{name} is a file that was not delivered"
        elif sha256_file(present[name]) != listed[name]:
            yield f"{name} is not the file that was delivered"
