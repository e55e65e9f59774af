"""The environment of a run: installed packages, hardware, and the variables that change results.

Captured without importing torch or any other package that is recorded. What decides the results is one flat
table (`deciding`): the digest covers it, and the difference of two environments is the difference of two tables, so
equal digests and an empty difference mean the same thing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mltrainer.records.common import Difference
from mltrainer.records.planning import Cpu, Distribution, Environment, GpuDevice, Platform, Python
from mltrainer.redaction import shortened
from mltrainer.reproducibility.pins import INSTALLERS, normal
from mltrainer.workspace import digest

# Names only, never patterns: a pattern such as TORCH_* would one day record somebody's token.
VARIABLES = (
    *("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_CPU_ISA_HINTS", "ONEDNN_DEFAULT_FPMATH_MODE"),
    *("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "MKL_DYNAMIC", "MKL_THREADING_LAYER", "MKL_NUM_THREADS"),
    *("OMP_NUM_THREADS", "OMP_DYNAMIC", "OMP_PROC_BIND", "OMP_PLACES", "OMP_SCHEDULE", "OMP_THREAD_LIMIT"),
    *("OMP_MAX_ACTIVE_LEVELS", "KMP_AFFINITY", "KMP_DETERMINISTIC_REDUCTION", "GOMP_CPU_AFFINITY", "GLIBC_TUNABLES"),
    *("OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS"),
    *("NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES", "PYTHONHASHSEED", "PYTHONOPTIMIZE"),
    *("CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE"),
    *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE", "NCCL_ALGO", "NCCL_PROTO"),
    *("TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC", "TF_CUDNN_USE_AUTOTUNE", "TF_ENABLE_ONEDNN_OPTS", "TF_XLA_FLAGS"),
    *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "XLA_FLAGS"),
)
# Recorded, but they decide nothing: the launcher gives every tool its own value, whatever the shell says; and which of
# several equal GPUs is visible is the batch system's choice.
NOT_DECIDING = frozenset(
    (
        *("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"),
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_DYNAMIC"),
    )
)
ABSENT = "not installed"
_INSTRUCTIONS = re.compile(
    r"(?:s?sse\d?(?:_\d|a)?|pni|avx\w*|amx\w*|fma\d?|f16c|bmi[12]|abm|asimd\w*|neon|sve\w*|sme(?!p)\w*|bf16|i8mm|fphp|rvv|vsx)"
)
_FIELD = {name: re.compile(rf"^{name}:[ \t]*(\S+)", re.MULTILINE) for name in ("Name", "Version")}


# --- capturing ----------------------------------------------------------------------------------


def capture(threads: int) -> Environment:
    """Return this machine's environment: no host name, no user name, no path.

    Args:
        threads: CPU threads of one operation, as the run is configured.
    """
    environment = Environment(
        python=python(),
        platform=Platform(system=platform.system(), release=platform.release(), machine=platform.machine(), libc=libc()),
        cpu=cpu(),
        memory_mb=memory_mb(),
        distributions=distributions(),
        variables=variables(os.environ),
        gpu=gpus(),
        threads=threads,
        sha256="",
    )
    return environment.model_copy(update={"sha256": environment_digest(environment)})


def python() -> Python:
    """Return the interpreter: version, implementation, build, and what kind of installation it is."""
    kind = "virtual environment" if sys.prefix != sys.base_prefix else "system"
    if (Path(sys.prefix) / "conda-meta").is_dir():
        kind = "conda"
    return Python(
        version=platform.python_version(),
        implementation=platform.python_implementation(),
        build=" ".join((*platform.python_build(), platform.python_compiler())),
        executable_kind=kind,
    )


def libc() -> str:
    """Return the C library and its version, such as `glibc 2.36`; its mathematical functions round."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except (ValueError, OSError, AttributeError):  # musl and macOS do not know the name
        return " ".join(filter(None, platform.libc_ver())) or f"{platform.system()} {platform.release()}"


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the allow-list that are set, without secrets in their values."""
    return {name: shortened(environment[name], 500) for name in sorted(VARIABLES) if name in environment}


# --- distributions ------------------------------------------------------------------------------


def distributions() -> list[Distribution]:
    """Return the installed distributions, sorted by name.

    The digest covers the lines of RECORD that came with the package: the installer adds lines with the environment's own path
    in them, which differ from machine to machine. It is None for an editable installation, or without a RECORD.
    """
    here = os.getcwd()  # the current folder is on the path or not, depending on how the program was started
    by_name: dict[str, Distribution] = {}
    for distribution in importlib.metadata.distributions(path=[entry for entry in sys.path if entry not in ("", here)]):
        if not _folder(distribution).startswith("~"):  # the remains of an interrupted `pip install`
            row = _distribution(distribution)
            by_name.setdefault(normal(row.name), row)  # the first on the path is the one that is imported
    return [by_name[name] for name in sorted(by_name)]


def _folder(distribution: importlib.metadata.Distribution) -> str:
    return str(getattr(getattr(distribution, "_path", None), "name", ""))


def _distribution(distribution: importlib.metadata.Distribution) -> Distribution:
    """Return one row; the header is searched, because parsing it as an e-mail takes most of the time."""
    header = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    name, version = (match[1] if (match := _FIELD[key].search(header)) else "" for key in ("Name", "Version"))
    editable = '"editable": true' in (distribution.read_text("direct_url.json") or "").replace('":true', '": true')
    record = None if editable else distribution.read_text("RECORD")
    return Distribution(
        name=name or _folder(distribution).partition("-")[0],
        version=version,
        record_sha256=record_digest(record) if record else None,
        editable=editable,
    )


def record_digest(record: str) -> str:
    """Return the digest of a RECORD's lines that came with the package, whatever installed it and wherever."""
    hashed = (line for line in record.splitlines() if ",sha256=" in line and ".dist-info/" not in line)
    own = sorted(line for line in hashed if not line.startswith((".", "/")))
    return hashlib.sha256("\n".join(own).encode()).hexdigest()


# --- the machine --------------------------------------------------------------------------------


def cpu() -> Cpu:
    """Return the CPU as this process may use it."""
    fields = _cpuinfo(_text("/proc/cpuinfo"))
    words = _first(fields, "flags", "features").split()
    flags = sorted({word for word in words if _INSTRUCTIONS.fullmatch(word)})
    return Cpu(
        model=_first(fields, "model name", "cpu part") or platform.processor() or platform.machine(),
        vendor=_first(fields, "vendor_id", "cpu implementer") or "unknown",
        cores=cores(),
        quota=_cpu_quota(),
        flags_sha256=digest(flags),
        flags=flags,
    )


def _first(fields: dict[str, str], *names: str) -> str:
    """Return the first existing field: x86 and Arm use different names."""
    return next((fields[name] for name in names if fields.get(name)), "")


def _cpuinfo(text: str) -> dict[str, str]:
    """Return the fields of the first CPU."""
    rows = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in rows}


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _cpu_quota() -> float | None:
    """Return a container's CPU quota in cores, or None without a limit."""
    quota, period = (*_text("/sys/fs/cgroup/cpu.max").split(), "", "")[:2]
    if not quota:
        quota, period = (_text(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def memory_mb() -> int:
    """Return the memory in MiB that this process may use: the machine's, or its container's smaller limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else _psutil_total()
    limits = (_text(f"/sys/fs/cgroup/{name}").strip() for name in ("memory.max", "memory/memory.limit_in_bytes"))
    return min([total, *(int(limit) for limit in limits if limit.isdigit())]) >> 20


def _psutil_total() -> int:
    import psutil  # here: its import takes a while, and Windows alone needs it

    return int(psutil.virtual_memory().total)


def available_mb() -> int:
    """Return the memory in MiB that is free now for a new process, within this process's limit."""
    lines = _text("/proc/meminfo").splitlines()
    free = next((int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable:")), memory_mb())
    return min(free, memory_mb())


def _text(path: str) -> str:
    """Return a file of the kernel's, or an empty text without it."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def gpus() -> list[GpuDevice]:
    """Return the NVIDIA GPUs that a run would see, in the driver's order.

    Empty without a driver or without the package nvidia-ml-py; `memory_mb` is None if the driver does not report it.
    """
    if importlib.util.find_spec("pynvml") is None:
        return []
    import pynvml  # here, because it is optional and takes 20 ms

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        return _visible(list(_nvml_rows(pynvml)), *map(os.environ.get, ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")))
    except (pynvml.NVMLError, ValueError):
        return []
    finally:
        pynvml.nvmlShutdown()


def _nvml_rows(nvml: Any) -> Iterator[tuple[str, GpuDevice]]:
    """Yield each GPU's uuid with its recorded values."""
    version = nvml.nvmlSystemGetCudaDriverVersion_v2()
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        device = GpuDevice(
            name=_string(nvml.nvmlDeviceGetName(handle)),
            driver=_string(nvml.nvmlSystemGetDriverVersion()),
            cuda=f"{version // 1000}.{version % 1000 // 10}",
            memory_mb=_gpu_memory_mb(nvml, handle),
        )
        yield _string(nvml.nvmlDeviceGetUUID(handle)), device


def _gpu_memory_mb(nvml: Any, handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20
    except nvml.NVMLError:  # a GPU that shares the machine's memory, or one that is split
        return None


def _string(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value  # older bindings return bytes


def _visible(devices: list[tuple[str, GpuDevice]], wanted: str | None, order: str | None) -> list[GpuDevice]:
    """Return the GPUs, of all with their uuid, that CUDA_VISIBLE_DEVICES leaves.

    Numbers follow the driver's order only with CUDA_DEVICE_ORDER=PCI_BUS_ID; without it all of them are listed.
    """
    names = [name.strip() for name in (wanted or "").split(",")]
    if wanted is not None and (not names[0] or names[0].startswith("-") or names[0] == "NoDevFiles"):
        return []
    if names[0].startswith("GPU-"):
        return [device for uuid, device in devices if uuid.startswith(tuple(names))]
    if all(name.isdigit() for name in names) and order == "PCI_BUS_ID":
        return [devices[int(name)][1] for name in names if int(name) < len(devices)]
    return [device for _, device in devices]


# --- comparing ----------------------------------------------------------------------------------


def environment_digest(environment: Environment) -> str:
    """Return the digest of the entries that decide results: without memory (a GPU's too), core count, kernel or build date."""
    return digest(deciding(environment))


def deciding(environment: Environment) -> dict[str, str]:
    """Return the entries of an environment that decide results as one flat table, each with a readable name."""
    python, host, cpu = environment.python, environment.platform, environment.cpu
    table = {
        "Python": f"{python.version} ({python.implementation})",
        "system": f"{host.system} {host.machine}",
        "C library": host.libc,
        "CPU vendor": cpu.vendor or "unknown",
        "CPU instructions": " ".join(cpu.flags),
        "threads": str(environment.threads),
        "GPU": ", ".join(sorted({device.name for device in environment.gpu})) or "none",
        "GPU driver": ", ".join(sorted({device.driver for device in environment.gpu})) or "none",
    }
    if environment.threads > cpu.cores:  # a library may then use fewer threads than set, and sum in another order
        table["cores for these threads"] = str(cpu.cores)
    values = {name: value for name, value in environment.variables.items() if name not in NOT_DECIDING}
    return {**table, **values, **_packages(environment.distributions)}


def _packages(distributions: list[Distribution]) -> dict[str, str]:
    rows = [row for row in distributions if normal(row.name) not in INSTALLERS]
    versions = {normal(row.name): f"{row.version} (editable)" if row.editable else row.version for row in rows}
    files = {f"files of {normal(row.name)}": row.record_sha256[:12] for row in rows if row.record_sha256}
    return {**versions, **files}


def difference(expected: Environment, environment: Environment) -> list[Difference]:
    """Return the differences between two environments, to be read like a changelog: `numpy 2.4.6 -> 2.5.0`.

    There are none exactly where the digests are equal.
    """
    left, right = deciding(expected), deciding(environment)
    changed = [what for what in [*left, *(what for what in right if what not in left)] if left.get(what) != right.get(what)]
    # another version has other files: one line says it
    named = [what for what in changed if what.removeprefix("files of ") not in changed or not what.startswith("files of ")]
    return [_difference(what, left.get(what), right.get(what)) for what in named]


def _difference(what: str, expected: str | None, found: str | None) -> Difference:
    if what == "CPU instructions" and expected is not None and found is not None:
        left, right = set(expected.split()), set(found.split())
        expected, found = (f"with {' '.join(sorted(only))}" if only else "without" for only in (left - right, right - left))
    missing = "not set" if what in VARIABLES else ABSENT if what == normal(what) else "none"
    return Difference(kind="environment", what=what, expected=expected or missing, found=found or missing)
