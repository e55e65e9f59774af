"""The rooms: imports point down, no two modules import each other, and torch stays below the line of the tools."""

from __future__ import annotations

import ast
import functools
import graphlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import mltrainer

PACKAGE = Path(mltrainer.__file__).parent
FLOORS = [
    {"companions"},
    {"cli", "__main__"},
    {"project"},
    {"phases"},
    {"runs"},
    {"gates"},
    {"reports", "figures", "follow", "tools", "search", "trainers", "references", "exporters"},
    {"diagnostics", "checkpointing", "reproducibility", "integrations", "tasks", "tables", "programs"},
    {"observe"},
    {"records"},
    {"configs"},
    {"handbook"},
    {"executors"},
    {"workspace", "leftovers", "generated_files"},
    {"looking", "redaction", "plugins", "page_headers", "locks"},
    {"errors", "validation", "callbacks", "__init__"},
]
TORCH_FREE = [
    "cli",
    "project",
    "companions",
    "companions.questions",
    "companions.monitor",
    "companions.trackers",
    "companions.cluster",
    "companions.wrap",
    "companions.proof",
    "companions.proof.signatures",
    "companions.registry",
    "phases",
    "runs",
    "gates",
    "records",
    "reports",
    "figures",
    "follow",
    "diagnostics",
    "configs",
    "handbook",
    "executors",
    "workspace",
    "leftovers",
    "generated_files",
    "page_headers",
    "looking",
    "redaction",
    "plugins",
    "programs",
    "observe",
    "errors",
    "validation",
    "callbacks",
]


@functools.cache
def modules() -> dict[str, Path]:
    return {".".join(("mltrainer", *p.relative_to(PACKAGE).with_suffix("").parts)): p for p in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def imports(path: Path) -> set[str]:
    """Return the modules of the package that a file imports when it is loaded."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("mltrainer"):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & set(modules())


def floor(module: str) -> int:
    room = module.split(".")[1]
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


def test_imports_point_down():
    assert not [
        f"{module} -> {other}" for module, path in modules().items() for other in imports(path) if floor(other) < floor(module)
    ]


def test_the_core_imports_and_names_no_companion():
    core = {name: path for name, path in modules().items() if not name.startswith("mltrainer.companions")}
    imported = [(name, other) for name, path in core.items() for other in all_imports(path) if "companions" in other.split(".")]
    assert not imported
    assert not [name for name, path in core.items() if re.search(r"mltrainer\.companions\.\w+\.", path.read_text("utf-8"))]


def all_imports(path: Path) -> set[str]:
    """Return the modules of the package that a file imports anywhere: in functions and for type checkers, too."""
    found = [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.ImportFrom) and n.module]
    names = {name for node in found for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))}
    return names & set(modules()) - {"mltrainer"}


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle():
    order = graphlib.TopologicalSorter({name: all_imports(path) for name, path in modules().items()})
    assert set(order.static_order()) >= set(modules())


@pytest.mark.slow
def test_nothing_above_the_tools_imports_torch():
    code = (
        "import pkgutil, importlib, sys, mltrainer\n"
        f"for room in {TORCH_FREE!r}:\n"
        "    module = importlib.import_module(f'mltrainer.{room}')\n"
        "    for found in pkgutil.iter_modules(getattr(module, '__path__', [])):\n"
        "        importlib.import_module(f'mltrainer.{room}.{found.name}')\n"
        "sys.exit(', '.join(n for n in ('torch', 'numpy', 'sklearn', 'scipy') if n in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == ""


@pytest.mark.slow
def test_what_few_trainings_need_is_not_imported_by_the_trainer():
    code = "import sys, mltrainer.trainers.native.job; print({'sklearn', 'scipy', 'pandas'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


@pytest.mark.slow
def test_without_companions_their_commands_are_gone_and_a_finished_project_is_checked(tmp_path):
    for name in ("mltrainer", "phases", "reproducibility", "diagnostics", "configs", "checkpointing", "tools"):
        companions = shutil.ignore_patterns("__pycache__", *(path.name for path in (PACKAGE / "companions").glob("*/")))
        shutil.copytree(PACKAGE.parent / name, tmp_path / name, ignore=companions if name == "mltrainer" else None)
    with tarfile.open(PACKAGE.parent / "tests/kept/0.9/digits.tar.gz") as archive:
        archive.extractall(tmp_path / "project", filter="data")

    def said(*words: str) -> str:
        command = [sys.executable, "-P", "-m", "mltrainer", *words]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path / "project", env=environment, check=True
        ).stdout

    assert "reproduce" in said("--help")
    assert "serve" not in said("--help")
    assert said("gate", "check").endswith("all gates hold\n")


# --- who writes ----------------------------------------------------------------------------------

# What is written past the one redaction of `workspace.write_text`, `write_json` and `append_json_line`: how often, and why.
RAW = {
    "workspace.py": (6, "the writers themselves, and the lock"),
    "reproducibility/packs.py": (1, "files of runs that are written already"),
    "leftovers.py": (1, "empty files that are held"),
    "cli/output.py": (1, "the null device"),
    "cli/faults.py": (2, "a fault's traceback, redacted there: private, and through no link"),
    "companions/questions/rows.py": (1, "pictures"),
    "companions/proof/cite.py": (1, "the user's own text"),
    "companions/proof/referee/hold_out.py": (1, "the user's own rows"),
    "companions/proof/signatures/sign.py": (2, "statements of records that were redacted, and digests of files"),
    "companions/proof/replay/cases.py": (1, "tensors, and numbers about them"),
    "companions/proof/forget.py": (5, "a page of ours, and the user's own config, rows and card"),
    "tools/life.py": (1, "lines of code on a stack, in a scratch folder"),
    "trainers/native/beginning.py": (2, "numbers and digests of a run that are written already"),
    "checkpointing/ledger.py": (1, "numbers and digests alone"),
    "configs/schema.py": (1, "schemas of our own models"),
    "records/schemas/__init__.py": (1, "schemas of our own models"),
    "handbook.py": (1, "our own pages"),
    "gates/releases.py": (1, "our own pages"),
    "executors/entering.py": (4, "the kernel's files"),
    "executors/fork_server.py": (3, "processes print into it, likewise; and a pipe"),
    "executors/local.py": (1, "a process prints into it; redacted by who started it, when that has ended"),
    "executors/signs.py": (1, "stacks of processes, into their log, which is redacted by who started them"),
    "executors/machines.py": (1, "a process prints into it, likewise"),
    "companions/questions/measurements/batch_size.py": (1, "the kernel's file"),
    "project/start.py": (2, "the user's own project file, refused where it holds a secret, and .gitignore"),
    "companions/questions/remediation.py": (1, "the user's own files, refused where they hold a secret"),
    "phases/planning.py": (1, "the training config, whose digest is bound: with a secret, planning stops before it"),
    "phases/optimization.py": (1, "the training config, likewise"),
    "project/object_store.py": (5, "the project's own files, there and back, compared by their digests"),
    "project/engine.py": (3, "a record that was redacted before it was sealed, and what is rendered of it and compared with it"),
    "gates/digests.py": (1, "digests by path"),
    "gates/sandboxed_check.py": (1, "a pipe to who redacts"),
    "integrations/reporting.py": (1, "numbers for who observes a program, in a scratch folder"),
    "observe/opened_files.py": (1, "lines of what is observed, in a scratch folder"),
    "observe/process.py": (4, "lines of what is observed, in a scratch folder"),
    "reproducibility/fingerprint.py": (2, "digests of steps"),
    "trainers/native/recording.py": (2, "numbers of steps"),
    "trainers/native/signals/outputs.py": (1, "numbers of samples"),
    "trainers/native/tracing.py": (1, "digests by the names of modules"),
    "checkpointing/format.py": (1, "tensors, and a manifest that was redacted before it was sealed"),
    "checkpointing/deployment.py": (6, "the model, the user's preprocessing, our own program, and digests of files"),
    "phases/finalization.py": (1, "digests of files"),
    "companions/serving/watching.py": (1, "the user's own rows with their labels, where they are asked for"),
    "runs/predict.py": (1, "predictions for the user's own rows"),
    "runs/predicted_table.py": (1, "the user's own rows with their predictions"),
    "tasks/images/pictures.py": (1, "the user's own data, prepared"),
    "tasks/tables/table_cache.py": (2, "the user's own data, prepared"),
    "tasks/text/token_file.py": (2, "the user's own data, prepared"),
    "companions/strategies/kept_rows.py": (1, "numbers that a teacher gave"),
    "runs/rebuild.py": (1, "a process prints into it; redacted when that has ended"),
}


def _writes(call: ast.Call) -> bool:
    """Return whether a call writes a file as it is given."""
    name = ast.unparse(call.func).rpartition(".")[2]
    modes = {str(part.value) for part in ast.walk(call) if isinstance(part, ast.Constant)} & {
        *(f"{mode}{sign}" for mode in "wax" for sign in ("", "b", "t", "+", "b+", "+b")),
        *("r+", "r+b", "rb+"),
    }
    opens = name in ("open", "fdopen") and (bool(modes) or "os.O_CREAT" in ast.unparse(call))
    return opens or name in ("write_atomic", "write_bytes") or (name == "write_text" and isinstance(call.func, ast.Attribute))


@pytest.mark.slow
def test_nothing_is_written_past_the_redaction_but_for_a_reason():
    found = {
        path.relative_to(PACKAGE).as_posix(): sum(
            isinstance(n, ast.Call) and _writes(n) for n in ast.walk(ast.parse(path.read_text()))
        )
        for path in modules().values()
    }
    assert {name: count for name, count in found.items() if count} == {name: count for name, (count, _) in RAW.items()}


def test_processes_are_started_by_executors_alone():
    starts = re.compile(r"Popen\(|import subprocess|subprocess\.run\(|os\.(system|popen|spawn|posix_spawn)")
    found = {path.relative_to(PACKAGE).parts[0] for path in modules().values() if starts.search(path.read_text("utf-8"))}
    assert found == {"executors"}


EXEMPT = re.compile(r"# (?:noqa|type: ignore|pragma: no cover)")
REASON = re.compile(r"# (?:noqa: [A-Z0-9]+ - |type: ignore\[[a-z,-]+\]  # |pragma: no cover - )\w")


def test_an_exemption_from_a_check_has_its_reason_beside_it():
    lines = [(path.name, line) for path in modules().values() for line in path.read_text("utf-8").splitlines()]
    assert not [(name, line) for name, line in lines if EXEMPT.search(line) and not REASON.search(line)]


CLAUSE = re.compile(r"(Return|Yield|Say|Tell|Give)s? (what|how|whether|which|who|where|when|by what|from what)\b")
HELP_TEXTS = ("Tell what a pull request brings", "Tell whether more data or more epochs")  # of commands


def docstrings(path: Path) -> list[str]:
    nodes = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    return [doc for node in nodes if (doc := ast.get_docstring(node))]


@pytest.mark.slow
def test_a_docstring_says_the_noun_that_is_returned():
    found = [doc for path in modules().values() for doc in docstrings(path)]
    assert not [doc for doc in found if CLAUSE.match(doc) and not doc.startswith(HELP_TEXTS)]
