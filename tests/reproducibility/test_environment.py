import copy
import json
import platform
import socket
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from mltrainer.configs.pages import tool_page
from mltrainer.records.common import dumped
from mltrainer.records.partial import partial
from mltrainer.records.planning import Environment, GpuDevice
from mltrainer.reproducibility import environment
from mltrainer.reproducibility.environment import capture, record_digest

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture(scope="module")
def captured():
    return capture(1).model_dump()


@pytest.fixture
def other(captured):
    return copy.deepcopy(captured)


def environment_digest(found):
    return environment.environment_digest(partial(Environment, found))


def difference(expected, found):
    return dumped(environment.difference(partial(Environment, expected), partial(Environment, found)))


def package(found, name):
    return next(row for row in found["distributions"] if row["name"] == name)


def install(folder, name, version, record="a.py,sha256=abc,1\n", **files):
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: of the body\n")
    (info / "RECORD").write_text(record)
    for file, text in files.items():
        (info / file.replace("__", ".")).write_text(text)
    return info


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An empty folder that is all that is installed."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


# --- capturing ------------------------------------------------------------------------------------


def test_every_installed_distribution_is_recorded_with_its_version(captured):
    assert package(captured, "numpy")["version"] == metadata.version("numpy")
    assert package(captured, "torch")["record_sha256"]
    assert all(row["name"] and row["version"] for row in captured["distributions"])


def test_the_machine_is_recorded(captured):
    assert captured["python"]["version"] == platform.python_version()
    assert captured["cpu"]["cores"] >= 1
    assert captured["memory_mb"] > 100
    assert (captured["threads"], captured["sha256"]) == (1, environment_digest(captured))


def test_neither_host_nor_user_nor_paths_are_recorded(captured, tmp_path):
    text = json.dumps(captured)
    assert socket.gethostname() not in text or socket.gethostname() in ("localhost", "linux")
    assert sys.prefix not in text
    assert '"/' not in text


@pytest.mark.slow
def test_capturing_imports_nothing_heavy():
    code = (
        "import sys\nfrom mltrainer.reproducibility.environment import capture\n"
        "capture(1); print(*({'torch', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []


def test_capturing_twice_gives_the_same(captured):
    assert capture(1).model_dump() == captured


def test_only_listed_variables_are_recorded_and_no_secret_in_them(monkeypatch):
    found = environment.variables(
        {"OMP_DYNAMIC": "false", "OMP_API_KEY": "x", "XLA_FLAGS": f"--xla_dump={TOKEN}", "HOME": "/root"}
    )
    assert found["OMP_DYNAMIC"] == "false"
    assert set(found) == {"OMP_DYNAMIC", "XLA_FLAGS"}
    assert TOKEN not in str(found)


def test_the_list_of_variables_holds_no_pattern_and_no_secrets_name():
    assert all(name.isupper() and "*" not in name and "TOKEN" not in name and "KEY" not in name for name in environment.VARIABLES)
    assert set(environment.VARIABLES) >= environment.NOT_DECIDING


def test_what_the_shell_may_set_at_will_is_what_the_launcher_sets_anew():
    launched = tool_page("training_orchestrator", None).environment
    assert environment.NOT_DECIDING - {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"} == set(launched) & set(environment.VARIABLES)


def test_an_editable_installation_is_marked(site):
    install(site, "own", "1.0", direct_url__json='{"dir_info": {"editable": true}, "url": "file:///home/ada/own"}')
    assert [row.model_dump() for row in environment.distributions()] == [
        {"name": "own", "version": "1.0", "record_sha256": None, "editable": True}
    ]


def test_what_an_interrupted_installation_left_behind_is_not_recorded(site):
    install(site, "numpy", "2.4.6")
    info = install(site, "leftover", "2.0")
    (info / "METADATA").write_text("Name: numpy\nVersion: 2.0\n")
    info.rename(site / "~umpy-2.0.dist-info")
    assert [row.version for row in environment.distributions()] == ["2.4.6"]


def test_of_two_copies_the_one_that_is_imported_counts(tmp_path, monkeypatch):
    install(tmp_path / "first", "a_b", "2.0")
    install(tmp_path / "second", "A-b", "1.0")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second")])
    assert [row.version for row in environment.distributions()] == ["2.0"]


def test_a_package_without_metadata_has_no_version(site):
    (site / "broken-1.0.dist-info").mkdir()
    assert [row.model_dump() for row in environment.distributions()] == [
        {"name": "broken", "version": "", "record_sha256": None, "editable": False}
    ]


def test_the_current_folder_does_not_count_as_installed(site, monkeypatch):
    install(site, "here", "1.0")
    monkeypatch.chdir(site)
    monkeypatch.setattr(sys, "path", ["", str(site)])
    assert environment.distributions() == []


def test_a_records_digest_covers_the_packages_files_and_not_the_installers():
    own = "pack/a.py,sha256=abc,10\npack/b.so,sha256=def,20\n"
    added = "../../../bin/pack,sha256=path,99\npack-1.0.dist-info/INSTALLER,sha256=pip,4\npack/__pycache__/a.pyc,,\n"
    assert record_digest(added + own) == record_digest(own)
    assert record_digest(own.replace("abc", "abd")) != record_digest(own)


def test_the_cpus_instructions_are_those_that_compute(monkeypatch):
    flags = "fpu smep smap sse4_1 avx2 avx512f amx_bf16 fma"
    text = f"vendor_id\t: GenuineIntel\nmodel name\t: Xeon\nflags\t\t: {flags}\n\nprocessor : 1\n"
    monkeypatch.setattr(environment, "_text", lambda path: text if path == "/proc/cpuinfo" else "")
    found = environment.cpu()
    assert (found.model, found.vendor, found.quota) == ("Xeon", "GenuineIntel", None)
    assert found.flags == ["amx_bf16", "avx2", "avx512f", "fma", "sse4_1"]


def test_an_arm_processor_is_read_too(monkeypatch):
    text = "processor\t: 0\nFeatures\t: fp asimd sve bf16 crc32\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"
    monkeypatch.setattr(environment, "_text", lambda path: text if path == "/proc/cpuinfo" else "")
    assert environment.cpu().flags == ["asimd", "bf16", "sve"]


@pytest.mark.parametrize(
    ("files", "quota", "memory"),
    [
        ({"cpu.max": "150000 100000", "memory.max": "1073741824"}, 1.5, 1024),
        ({"cpu.max": "max 100000", "memory.max": "max"}, None, None),
        (
            {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000", "memory/memory.limit_in_bytes": "536870912"},
            2.0,
            512,
        ),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None, None),
    ],
)
def test_a_containers_limits_count(monkeypatch, files, quota, memory):
    whole = environment.memory_mb()
    monkeypatch.setattr(environment, "_text", lambda path: files.get(path.removeprefix("/sys/fs/cgroup/"), ""))
    assert environment.cpu().quota == quota
    assert environment.memory_mb() == (memory or whole) or memory is None


def test_a_system_without_glibc_still_names_its_library(monkeypatch):
    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr("os.confstr", unknown)
    assert environment.libc()


# --- GPUs -----------------------------------------------------------------------------------------


class FakeNvml(SimpleNamespace):
    class NVMLError(Exception):
        pass

    def __init__(self, count=2, broken=""):
        def call(name, value):
            def answer(*_arguments):
                if name == broken:
                    raise self.NVMLError(name)
                return value

            return answer

        answers = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlSystemGetCudaDriverVersion_v2": 13000,
            "nvmlDeviceGetCount": count,
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetName": b"NVIDIA H200",
            "nvmlSystemGetDriverVersion": "580.1",
            "nvmlDeviceGetUUID": "GPU-1234",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=141 * 2**30 + 5),
        }
        super().__init__(**{name: call(name, value) for name, value in answers.items()})


@pytest.fixture
def nvml(monkeypatch):
    def put(fake):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: fake)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return put


def test_gpus_are_named_with_driver_cuda_and_memory(nvml):
    nvml(FakeNvml())
    device = GpuDevice(name="NVIDIA H200", driver="580.1", cuda="13.0", memory_mb=141 * 1024)
    assert environment.gpus() == [device] * 2


def test_a_gpu_whose_memory_is_not_told_is_named_all_the_same(nvml):
    nvml(FakeNvml(broken="nvmlDeviceGetMemoryInfo"))
    assert [(row.name, row.memory_mb) for row in environment.gpus()] == [("NVIDIA H200", None)] * 2


def test_a_gpus_memory_decides_no_result(captured):
    rows = [[{"name": "H200", "driver": "1", "cuda": "13.0", "memory_mb": size}] for size in (1000, 2000)]
    assert len({environment_digest({**captured, "gpu": gpus}) for gpus in rows}) == 1


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetName", "nvmlDeviceGetCount"])
def test_a_driver_that_does_not_work_counts_as_no_gpu(nvml, broken):
    nvml(FakeNvml(broken=broken))
    assert environment.gpus() == []


def test_without_the_bindings_there_is_no_gpu(nvml, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert environment.gpus() == []


@pytest.mark.parametrize(
    ("wanted", "order", "names"),
    [
        (None, None, "ABC"),
        ("", None, ""),
        ("-1", None, ""),
        ("1", "PCI_BUS_ID", "B"),
        ("1", None, "ABC"),
        ("GPU-c", None, "C"),
        ("MIG-x", None, "ABC"),
    ],
)
def test_only_visible_gpus_count(wanted, order, names):
    devices = [(f"GPU-{name.lower()}", GpuDevice(name=name, driver="1", cuda="13.0")) for name in "ABC"]
    assert "".join(device.name for device in environment._visible(devices, wanted, order)) == names


# --- comparing ------------------------------------------------------------------------------------


def change(path, value):
    def apply(found):
        *parents, last = path
        for key in parents:
            found = found[key]
        found[last] = value

    return apply


def upgrade(found):
    package(found, "numpy").update(version="9.0", record_sha256="0" * 64)


DECIDING = {
    "numpy": upgrade,
    "files of numpy": lambda found: package(found, "numpy").update(record_sha256="0" * 64),
    "typer": lambda found: found["distributions"].remove(package(found, "typer")),
    "rich": lambda found: package(found, "rich").update(editable=True),
    "Python": change(("python", "version"), "3.99.0"),
    "C library": change(("platform", "libc"), "glibc 9.9"),
    "system": change(("platform", "machine"), "riscv"),
    "CPU instructions": change(("cpu", "flags"), ["avx"]),
    "CPU vendor": change(("cpu", "vendor"), "Other"),
    "threads": change(("threads",), 64),
    "GPU": change(("gpu",), [{"name": "H200", "driver": "1", "cuda": "13.0"}]),
    "MKL_CBWR": change(("variables", "MKL_CBWR"), "COMPATIBLE"),
}


@pytest.mark.parametrize("what", DECIDING)
def test_what_decides_results_changes_digest_and_difference(captured, other, what):
    DECIDING[what](other)
    assert environment_digest(other) != environment_digest(captured)
    assert difference(captured, other)[0]["what"] == what


NOT_DECIDING = {
    "memory": change(("memory_mb",), 1),
    "kernel": change(("platform", "release"), "9.9"),
    "build date": change(("python", "build"), "another day"),
    "more cores": change(("cpu", "cores"), 512),
    "hash seed of the shell": change(("variables", "PYTHONHASHSEED"), "7"),
    "chosen GPU": change(("variables", "CUDA_VISIBLE_DEVICES"), "3"),
    "pip": lambda found: package(found, "pip").update(version="1.0"),
}


@pytest.mark.parametrize("what", NOT_DECIDING)
def test_what_decides_nothing_changes_neither(captured, other, what):
    NOT_DECIDING[what](other)
    assert environment_digest(other) == environment_digest(captured)
    assert difference(captured, other) == []


def test_a_difference_reads_like_a_changelog(captured, other):
    upgrade(other)
    other["threads"] = 2
    other["cpu"]["cores"] = 64
    told = [f"{row['what']} {row['expected']} -> {row['found']}" for row in difference(captured, other)]
    assert told == ["threads 1 -> 2", f"numpy {metadata.version('numpy')} -> 9.0"]


def test_what_is_new_or_gone_is_said_in_words(captured, other):
    other["distributions"].remove(package(other, "typer"))
    other["variables"]["MKL_CBWR"] = "AVX2"
    rows = {row["what"]: (row["expected"], row["found"]) for row in difference(captured, other)}
    assert rows["typer"] == (metadata.version("typer"), "not installed")
    assert rows["MKL_CBWR"] == ("not set", "AVX2")


def test_of_the_cpus_instructions_only_the_different_ones_are_told(captured, other):
    captured, other["cpu"]["flags"] = copy.deepcopy(captured), ["avx", "avx2"]
    captured["cpu"]["flags"] = ["avx", "avx512f"]
    (row,) = difference(captured, other)
    assert (row["expected"], row["found"]) == ("with avx512f", "with avx2")


def test_more_threads_than_cores_depend_on_the_cores(captured, other):
    captured = {**captured, "threads": 4, "cpu": {**captured["cpu"], "cores": 2}}
    other.update(threads=4, cpu={**other["cpu"], "cores": 3})
    assert [row["what"] for row in difference(captured, other)] == ["cores for these threads"]
