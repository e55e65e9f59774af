"""The machine's capabilities, what is missing, and how to get it; collected without importing torch."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mltrainer import locks
from mltrainer.executors.executor import Command
from mltrainer.executors.local import answered
from mltrainer.records.planning import GpuDevice
from mltrainer.reports.values import counted, megabytes
from mltrainer.reproducibility import environment, git

PYTHON_FROM = (3, 11)
WSL = "use Linux; on Windows, WSL 2 is one"
MEMORY_MB = 4096  # chosen by us: two probes of a small model fit, with room for data
TRIAL_S = 120.0  # chosen by us: the first import of torch and the first use of a GPU may take half a minute
DISK_MB = 2048  # chosen by us: room for the checkpoints of some runs of a small model
# distribution, what it is for, how to get it
EXTRAS = (
    ("onnx", "ONNX export", "pip install 'mltrainer[onnx]'"),
    ("onnxscript", "ONNX export", "pip install 'mltrainer[onnx]'"),
    ("onnxruntime", "comparing the ONNX export with the trained model", "pip install 'mltrainer[onnx]'"),
    ("pillow", "folders of images", "pip install 'mltrainer[images]'"),
    ("fastexcel", "tables in workbooks such as .xlsx", "pip install 'mltrainer[excel]'"),
    ("tokenizers", "texts", "pip install 'mltrainer[text]'"),
    ("cmaes", "the search strategy CMA-ES", "pip install 'mltrainer[cmaes]'"),
    ("lightning", "Lightning modules as tasks", "pip install 'mltrainer[lightning]'"),
    ("transformers", "Hugging Face's models as tasks", "pip install 'mltrainer[hf]'"),
    ("peft", "low-rank adapters, the strategy lora", "pip install 'mltrainer[lora]'"),
    ("torchjd", "aggregators of the strategy balancing", "pip install 'mltrainer[multitask]'"),
    ("pytorch-metric-learning", "losses of the strategy contrastive", "pip install 'mltrainer[contrastive]'"),
    ("bitsandbytes", "AdamW with 8-bit moments, and weights in 8 or 4 bits beside adapters", "pip install 'mltrainer[eightbit]'"),
    ("fastapi", "serving the delivered model", "pip install 'mltrainer[serve]'"),
    ("mcp", "serving the project to an agent, `mltrainer mcp`", "pip install 'mltrainer[agents]'"),
    ("model-signing", "signing gates and model", "pip install 'mltrainer[sign]'"),
    ("pykcs11", "signing with a key in a token", "pip install 'mltrainer[tokens]'"),
    ("psycopg", "keeping the delivered model's answers in PostgreSQL", "pip install 'mltrainer[postgres]'"),
    ("pyarrow", "Parquet files by row groups", "pip install 'mltrainer[data]'"),
    ("fsspec", "data at addresses such as s3://, and `mltrainer store`", "pip install 'mltrainer[data]'"),
    ("lightgbm", "comparing with LightGBM on tables", "pip install 'mltrainer[boosting]'"),
    ("catboost", "comparing with CatBoost on tables", "pip install 'mltrainer[boosting]'"),
    ("pandas", "histories and runs as frames", "pip install 'mltrainer[pandas]'"),
    ("nvidia-ml-py", "GPU names, drivers and utilization", "pip install 'mltrainer[gpu]'"),
    ("tensorboard", "showing runs in TensorBoard", "pip install 'mltrainer[tensorboard]'"),
    ("mlflow-skinny", "showing runs in MLflow", "pip install 'mltrainer[mlflow]'"),
    ("wandb", "showing runs in Weights & Biases", "pip install 'mltrainer[wandb]'"),
    ("ray", "training the trials of a search on a Ray cluster", "pip install 'mltrainer[ray]'"),
    ("trackio", "showing runs in Trackio", "pip install 'mltrainer[trackio]'"),
    ("tensorflow", "deterministic operations of TensorFlow beside PyTorch", "pip install tensorflow"),
)


class Check(NamedTuple):
    """A capability of the machine, as `doctor --json` prints it.

    Attributes:
        what: The capability.
        state: "ok"; "missing": something that is needed; "note": worth knowing, nothing is broken.
        found: The state, in words.
        get: The way to get or fix it, or None.
    """

    what: str
    state: str
    found: str
    get: str | None = None


def extras() -> list[Check]:
    """Return a row for each optional package that is known."""
    return [_extra(*extra) for extra in EXTRAS]


def examine(folder: Path | None = None) -> list[Check]:
    """Return the state of the machine, capability by capability.

    Args:
        folder: The folder whose disk and git repository are checked; by default the current one.
    """
    place = (folder or Path.cwd()).resolve()
    gpus = environment.gpus()
    return [
        _python(),
        *_system(),
        *_required(),
        _torch_build(gpus),
        _gpu(gpus),
        *_git(place),
        _cores(),
        _memory(),
        _disk(place),
        _determinism(gpus),
    ]


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution, from its metadata, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


# --- software -----------------------------------------------------------------------------------


def _python() -> Check:
    python = environment.python()
    text = f"{python.version} ({python.implementation}, {python.executable_kind})"
    if sys.version_info < PYTHON_FROM:
        return Check("Python", "missing", text, f"install Python {'.'.join(map(str, PYTHON_FROM))} or newer")
    get = None if python.executable_kind != "system" else "python3 -m venv .venv keeps a project's packages to itself"
    return Check("Python", "note" if get else "ok", text, get)


def _required() -> list[Check]:
    """Return a row for all required packages, or one for each that is missing."""
    missing = [name for name in _requirements() if version_of(name) is None]
    if not missing:
        return [Check("packages", "ok", "everything that is required is installed")]
    return [Check(name, "missing", "not installed", f"pip install {name}") for name in missing]


def _requirements() -> list[str]:
    """Return the names of mltrainer's requirements, from its own metadata."""
    try:
        lines = importlib.metadata.requires("mltrainer") or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return ["torch", "numpy", "scikit-learn", "safetensors", "pydantic", "typer", "PyYAML", "rich"]
    needed = (line for line in lines if "extra ==" not in line)
    return [match[0] for line in needed if (match := re.match(r"[\w.-]+", line))]


def _torch_build(gpus: list[GpuDevice]) -> Check:
    version = version_of("torch")
    if version is None:
        return Check("PyTorch", "missing", "not installed", "pip install torch")
    if gpus and version.endswith("+cpu"):
        get = "pip install torch from https://pytorch.org/get-started/locally, the build for your CUDA"
        return Check("PyTorch", "note", f"{version}: a CPU build beside a GPU, which will not be used", get)
    return Check("PyTorch", "ok", version)


def _extra(distribution: str, purpose: str, get: str) -> Check:
    version = version_of(distribution)
    if version is None:
        return Check(distribution, "note", f"not installed; needed only for {purpose}", get)
    return Check(distribution, "ok", f"{version}, for {purpose}")


def _git(folder: Path) -> list[Check]:
    """Return git's version, and the folder's state in git."""
    try:
        version = git.run(folder, "--version").decode().removeprefix("git version ").strip()
    except git.GitError as error:
        return [Check("git", "note", f"{error}: file digests stand for commits", "install git, for instance apt-get install git")]
    commit, branch, dirty, note = map(git.describe(folder).get, ("commit", "branch", "dirty", "note"))
    if commit is None:
        start = "mltrainer init, or git init" if dirty is None else "git add and git commit"
        return [Check("git", "ok", version), Check("repository", "note", str(note), start)]
    text = f"{commit[:12]} on {branch or 'no branch'}" + (", with uncommitted changes" if dirty else "")
    return [Check("git", "ok", version), Check("repository", "ok", f"{text}; {note}" if note else text)]


# What Windows or macOS may lack: its name, whether it is here, the state without it, and what is lost.
_SYSTEM: tuple[tuple[str, Callable[[], bool], str, str], ...] = (
    (
        "locks",
        lambda: bool(locks.fcntl or locks.msvcrt),
        "missing",
        "no phase runs: two commands could work on one project at once",
    ),
    ("programs", lambda: os.name == "posix", "missing", "mltrainer starts no git and no training here"),
    (
        "fork",
        lambda: hasattr(os, "fork"),
        "note",
        "each process of a search imports its modules by itself, and starts more slowly",
    ),
    (
        "resource",
        lambda: _has("resource"),
        "note",
        "memory is recorded as it is at the end, not at its peak; custom checks do not run",
    ),
    ("termios", lambda: _has("termios"), "note", "`wrap` gives no program a terminal"),
    (
        "/proc",
        lambda: Path("/proc/self/statm").exists(),
        "note",
        "no memory and CPU use of a running training; no `batch-size` on the CPU",
    ),
    ("namespaces", lambda: platform.system() == "Linux", "note", "no process can be closed off from the machine's other files"),
)


def _system() -> list[Check]:
    """Return a row for the system, and one for each of its parts that mltrainer does without here."""
    name = f"{platform.system()} {platform.release()}"
    lacks = [
        Check(part, state, f"not here: {loss}", WSL if state == "missing" else None)
        for part, is_here, state, loss in _SYSTEM
        if not is_here()
    ]
    if platform.system() == "Linux":
        return [Check("system", "ok", name), *lacks]
    return [Check("system", "note", f"{name}: mltrainer was tried on Linux alone", WSL), *lacks]


def _has(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


# --- the machine --------------------------------------------------------------------------------


def _gpu(gpus: list[GpuDevice]) -> Check:
    if gpus:
        names = ", ".join(device.name for device in gpus)
        return Check("GPU", "ok", f"{names}; driver {gpus[0].driver}, CUDA up to {gpus[0].cuda}")
    if Path("/proc/driver/nvidia/version").exists() and version_of("nvidia-ml-py") is None:
        return Check("GPU", "note", "an NVIDIA driver is loaded, but nothing here can ask it", "pip install 'mltrainer[gpu]'")
    return Check("GPU", "note", "none that is visible; training runs on the CPU, GPU items are 'not applicable'")


def gpu_trial(device: str = "cuda") -> Check:
    """Return the check of a GPU: work of some seconds, computed twice in a separate process, must have the same bits.

    Args:
        device: The device.
    """
    what, command = "GPU trial", [sys.executable, "-P", "-m", "mltrainer.tools.gpu_trial", device]
    own = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # without it cuBLAS has no deterministic form
    ended = answered(Command(arguments=command, folder=Path.cwd(), environment=own), timeout=TRIAL_S)
    if ended.code != 0:
        why = ended.last_words if ended.in_time else f"no end after {TRIAL_S:g} s"
        return Check(what, "missing", f"failed: {why}", "compare the versions of driver, CUDA and PyTorch")
    works: dict[str, bool] = json.loads(ended.out)
    if not works:
        return Check(what, "note", "PyTorch sees no GPU: nothing was tried")
    if other := [name for name, is_same in works.items() if not is_same]:
        return Check(what, "missing", f"computed twice, with other bits: {', '.join(other)}", "train on another GPU")
    return Check(what, "ok", f"computed twice, with the same bits: {', '.join(works)}")


def _cores() -> Check:
    cpu = environment.cpu()
    quota = f", limited to {cpu.quota:g} by the container" if cpu.quota else ""
    return Check("CPU", "ok", f"{cpu.model}, {counted(cpu.cores, 'core')}{quota}; {_widest(cpu.flags)}")


def _widest(flags: list[str]) -> str:
    names = (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("sve", "SVE"), ("asimd", "NEON"))
    return next((name for flag, name in names if flag in flags), "no wide instructions known")


def _memory() -> Check:
    memory = environment.memory_mb()
    text = megabytes(memory)
    return (
        Check("memory", "ok", text)
        if memory >= MEMORY_MB
        else Check("memory", "note", text, "expect small batches and models only")
    )


def _disk(folder: Path) -> Check:
    try:
        free = shutil.disk_usage(folder).free >> 20
    except OSError as error:
        return Check("disk", "missing", f"cannot be asked: {error.strerror}", "choose a folder on a disk that works")
    text = f"{megabytes(free)} free"
    return Check("disk", "ok", text) if free >= DISK_MB else Check("disk", "note", text, "free some space for checkpoints")


def _determinism(gpus: list[GpuDevice]) -> Check:
    """Return the row on the reproducibility to expect; the planning phase measures it."""
    same = "bit for bit on this machine with the same packages and thread count"
    gpu = "; GPU operations without a deterministic form stop the run instead of differing" if gpus else ""
    other = "another CPU type or thread count may round otherwise"
    return Check("determinism", "ok", f"{same}{gpu}; {other}", "mltrainer guide reproducibility/determinism")
