"""What guards a pull request elsewhere: the very commands of hook, action and template, on a project that a job cloned."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from mltrainer.workspace import Project
from tests.conftest import commit, git
from tests.gates.evidence import reseal
from tests.handbook.reading import commands, unknown_part
from tests.projects import as_cloned

ROOT = Path(__file__).parents[1]
HOOKS, ACTION, GITLAB = (ROOT / name for name in (".pre-commit-hooks.yaml", "action.yml", "docs/ci/gitlab.yml"))
PAGE = ROOT / "docs/REVIEW.md"
POSTS = """#!{python}
import json, sys
given = sys.stdin.read() if "--config" in sys.argv else ""
body = next((word for word in sys.argv if word.startswith("body@") or word.startswith("body=@")), None)
text = open(body.partition("@")[2], encoding="utf-8").read() if body else None
with open({log!r}, "a") as log:
    log.write(json.dumps({{"words": sys.argv[1:], "given": given, "body": text}}) + "\\n")
if body is None:
    print({answer!r})
sys.exit({code})
"""


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


class Job:
    """A job's machine: a shallow clone of a pull request's branch, `mltrainer`, and programs that only write down."""

    def __init__(self, folder: Path, clone: Path) -> None:
        self.folder, self.clone, self.bin = folder, clone, folder / "bin"
        self.bin.mkdir()
        self.log = folder / "posted.jsonl"
        self._program("mltrainer", f"#!{sys.executable}\nimport sys\nfrom mltrainer.cli.main import main\nsys.exit(main())\n")

    def _program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def answering(self, name: str, answer: str = "", code: int = 0) -> None:
        self._program(name, POSTS.format(python=sys.executable, log=str(self.log), answer=answer, code=code))

    @property
    def posted(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def run(self, script: str, variables: Mapping[str, str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        path = f"{self.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        known = {"PATH": path, "HOME": str(self.folder), "PYTHONPATH": str(ROOT), "RUNNER_TEMP": str(self.folder)}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(
            command, cwd=folder or self.clone, env={**known, **variables}, capture_output=True, text=True, timeout=60
        )


@pytest.fixture
def job(digits_once: Path, tmp_path: Path) -> Job:
    """A pull request that changes nothing of a finished project, as a job clones it: its branch alone, one commit deep."""
    origin = as_cloned(digits_once, tmp_path / "origin").root
    git(origin, "init", "--quiet", "--initial-branch=main")
    commit(origin)
    git(origin, "checkout", "--quiet", "-b", "change")
    (origin / "notes.txt").write_text("more\n")
    commit(origin)
    git(tmp_path, "clone", "--quiet", "--depth=1", "--branch=change", f"file://{origin}", "clone")
    return Job(tmp_path, tmp_path / "clone")


def break_gate(job: Job) -> None:
    """Make the baseline's metric another one, as a person would who wants a better number."""
    reseal(Project(job.clone), lambda record: record["evidence"]["run"]["metrics"].update(accuracy=0.999), "baseline")


# --- pre-commit -----------------------------------------------------------------------------------


def hook() -> dict[str, Any]:
    (found,) = loaded(HOOKS)
    return dict(found)


def test_the_hook_runs_a_command_that_there_is():
    assert (hook()["id"], hook()["pass_filenames"], hook()["always_run"]) == ("mltrainer-gate-check", False, True)
    assert unknown_part(hook()["entry"]) is None


@pytest.mark.slow
def test_the_hook_lets_a_project_pass_whose_gates_hold_and_refuses_another(job):
    assert job.run(hook()["entry"], {}).returncode == 0
    break_gate(job)
    refused = job.run(hook()["entry"], {})
    assert (refused.returncode, "baseline: stale" in refused.stdout) == (4, True)


@pytest.mark.skipif(shutil.which("pre-commit") is None, reason="pre-commit is not installed")
def test_pre_commit_itself_takes_the_hook(job):
    definition = job.folder / "definition"
    definition.mkdir()
    shutil.copy(HOOKS, definition)
    git(definition, "init", "--quiet", "--initial-branch=main")
    commit(definition)
    used = {"repos": [{"repo": str(definition), "rev": git(definition, "rev-parse", "HEAD"), "hooks": [{"id": hook()["id"]}]}]}
    (job.clone / ".pre-commit-config.yaml").write_text(yaml.safe_dump(used))
    git(job.clone, "add", ".pre-commit-config.yaml")
    assert job.run("pre-commit run", {}).returncode == 0
    break_gate(job)
    git(job.clone, "add", "--all")
    refused = job.run("pre-commit run", {})
    assert (refused.returncode, "exit code: 4" in refused.stdout) == (1, True)


# --- the action -----------------------------------------------------------------------------------

PULL = {"inputs.project": ".", "inputs.against": "main", "inputs.comment": "true", "github.event.pull_request.number": "7"}
TOKEN = "token-of-the-job"


def act(job: Job, **changes: str) -> dict[str, subprocess.CompletedProcess[str]]:
    """Run the action's steps as GitHub does, and return those that ran; after a failure only one whose `if` says so."""
    outputs, summary = job.folder / "outputs", job.folder / "summary.md"
    outputs.touch()
    known = {**PULL, "inputs.token": TOKEN, **changes}
    files = {"GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_REPOSITORY": "ada/rings"}
    done: dict[str, subprocess.CompletedProcess[str]] = {}
    for step in loaded(ACTION)["runs"]["steps"]:
        known["steps.report.outputs.report"] = outputs.read_text().partition("report=")[2].strip()
        if not _runs(step, any(one.returncode for one in done.values()), known):
            continue
        given = {name: re.sub(r"\$\{\{ (.+?) \}\}", lambda m: known[m[1]], text) for name, text in step.get("env", {}).items()}
        done[step["name"]] = job.run(step["run"], {**files, **given})
        outcome = "failure" if done[step["name"]].returncode else "success"
        known[f"steps.{step.get('id')}.outcome"] = outcome
    return done


def _runs(step: dict[str, Any], failed: bool, known: Mapping[str, str]) -> bool:
    """Return what GitHub makes of a step's `if`: terms that all hold, of which one may say that a failure does not matter."""
    terms = step.get("if", "${{ success() }}").removeprefix("${{").removesuffix("}}").strip().split(" && ")
    return all(_holds(term, failed, known) for term in terms)


def _holds(term: str, failed: bool, known: Mapping[str, str]) -> bool:
    if term in ("success()", "!cancelled()"):
        return term == "!cancelled()" or not failed
    name, sign, value = term.split(" ")
    assert sign in ("==", "!=")
    return (known.get(name, "") == value.strip("'")) is (sign == "==")


def codes(done: Mapping[str, subprocess.CompletedProcess[str]]) -> dict[str, int]:
    return {name: step.returncode for name, step in done.items()}


FINE = {"Install mltrainer, where the job has not": 0, "Gate check": 0, "Report": 0, "Comment": 0}


def test_the_action_says_what_it_takes_and_gives():
    action = loaded(ACTION)
    assert action["runs"]["using"] == "composite"
    assert all(step["shell"] == "bash" and step["name"] for step in action["runs"]["steps"])
    assert all(about["description"] and "default" in about for about in action["inputs"].values())


def test_no_expression_stands_in_a_script_where_a_branchs_name_could_act():
    assert not [step["name"] for step in loaded(ACTION)["runs"]["steps"] if "${{" in step["run"]]


def test_the_verdict_stands_before_the_step_that_holds_the_token_which_reads_nothing_of_the_project():
    steps = loaded(ACTION)["runs"]["steps"]
    assert [step["name"] for step in steps] == list(FINE)
    (step,) = [step for step in steps if "token" in json.dumps(step)]
    assert step is steps[-1]
    assert "mltrainer " not in step["run"]
    assert step["run"].splitlines()[1] == 'cd "$RUNNER_TEMP"'


@pytest.mark.parametrize("path", [ACTION, GITLAB], ids=lambda path: path.name)
def test_no_python_of_a_definition_starts_where_a_module_of_the_project_would_be_taken(path):
    starts = re.findall(r'python3?"? +(-\S+)', path.read_text("utf-8"))
    assert (len(starts) >= 2, set(starts)) == (True, {"-I"})


HOSTILE = "import os, pathlib\npathlib.Path(os.environ['RAN']).write_text('ran')\nraise SystemExit(0)\n"
SHADOWS = (
    "venv",
    "pip",
    "ensurepip",
    "json",
    "sitecustomize",
    "usercustomize",
    "mltrainer",
    "yaml",
    "jinja2",
    "typer",
    "pydantic",
)


def shadow(job: Job) -> Path:
    """Put modules into the clone that are named like those that a job starts, and return the file that they write."""
    for name in SHADOWS:
        (job.clone / f"{name}.py").write_text(HOSTILE)
    return job.folder / "ran"


@pytest.mark.slow
def test_the_action_runs_no_module_of_the_checkout_also_where_it_installs(job):
    ran = shadow(job)
    (job.bin / "mltrainer").unlink()
    steps = {step["name"]: step["run"] for step in loaded(ACTION)["runs"]["steps"]}
    away = steps["Install mltrainer, where the job has not"].replace("command -v mltrainer > /dev/null && exit", "")
    files = {"GITHUB_ACTION_PATH": str(job.folder), "GITHUB_PATH": str(job.folder / "path"), "RAN": str(ran), "PYTHONPATH": ""}
    done = job.run(away, files)
    assert "constraints.txt" in done.stderr, "pip ran, and found no list of versions"
    assert not ran.exists()


@pytest.mark.slow
def test_the_template_runs_no_module_of_the_checkout_also_where_it_installs(job):
    ran = shadow(job)
    done = job.run(
        loaded(GITLAB)[CHECK]["before_script"][1].replace("command -v mltrainer > /dev/null", "false"),
        OFFLINE | {"RAN": str(ran)},
    )
    assert "Invalid requirement: '/nowhere'" in done.stderr, "pip ran, and was given what there is not"
    assert not ran.exists()


OFFLINE = {"MLTRAINER_REQUIREMENT": "/nowhere", "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null", "PYTHONPATH": ""}


@pytest.mark.slow
def test_the_action_comments_on_a_pull_request_and_passes(job):
    job.answering("gh")
    done = act(job)
    assert codes(done) == FINE, done
    written = job.posted[-1]
    assert written["words"][:2] == ["api", "repos/ada/rings/issues/7/comments"]
    assert "every gate that there is holds" in written["body"]
    assert "Compared with `origin/main`" in written["body"]
    assert (job.folder / "summary.md").read_text("utf-8") == written["body"]


@pytest.mark.slow
def test_the_action_tells_of_a_gate_that_does_not_hold_and_fails(job):
    job.answering("gh")
    break_gate(job)
    done = act(job)
    assert codes(done) == {**FINE, "Gate check": 4}
    assert "❌ the records say what cannot be true" in job.posted[-1]["body"]
    assert "no clear difference (" in job.posted[-1]["body"]


@pytest.mark.slow
def test_the_action_writes_its_comment_anew_in_place(job):
    job.answering("gh", "4711")
    act(job)
    assert '.user.type == "Bot"' in " ".join(job.posted[0]["words"])
    assert job.posted[-1]["words"][:4] == ["api", "--method", "PATCH", "repos/ada/rings/issues/comments/4711"]


@pytest.mark.slow
def test_where_the_token_may_not_comment_the_gates_decide_all_the_same(job):
    job.answering("gh", code=1)
    done = act(job)
    assert codes(done) == FINE
    assert "::warning::" in done["Comment"].stdout


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"inputs.against": "", "github.event.pull_request.number": ""}, {"inputs.comment": "false"}])
def test_without_a_pull_request_or_a_comment_the_gates_are_checked_alone(job, changes):
    job.answering("gh")
    assert set(codes(act(job, **changes)).values()) == {0}
    assert job.posted == []


# --- the template ---------------------------------------------------------------------------------

MERGE = {
    "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
    "CI_API_V4_URL": "https://gitlab.example/api/v4",
    "CI_PROJECT_ID": "5",
    "CI_MERGE_REQUEST_IID": "7",
}


def gitlab(job: Job, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the template's jobs as GitLab does, the note's in a folder with the artifact alone, and return the first's end."""
    check, note = loaded(GITLAB)[CHECK], loaded(GITLAB)[NOTE]
    script = "\n".join([*check["before_script"], *check["script"]])
    done = job.run(script, {**check["variables"], **MERGE, **variables})
    beside = job.folder / "note"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    (report,) = check["artifacts"]["paths"]
    shutil.copy(job.clone / report, beside)
    noted = job.run("\n".join(note["script"]), {**note["variables"], **MERGE, **variables}, folder=beside)
    assert (noted.returncode, note["rules"][0]["when"], note["needs"]) == (0, "always", [CHECK]), noted.stderr
    return done


CHECK, NOTE = "mltrainer gate check", "mltrainer note"


def test_the_templates_token_is_for_a_job_that_has_the_report_and_nothing_of_the_project():
    check, note = loaded(GITLAB)[CHECK], loaded(GITLAB)[NOTE]
    assert check["before_script"][0].startswith("unset MLTRAINER_TOKEN")
    assert "TOKEN" not in json.dumps([check["before_script"][1:], check["script"], check["variables"]])
    assert (note["variables"], note["environment"]["name"]) == ({"GIT_STRATEGY": "none"}, "mltrainer-note")
    assert not re.search(r"pip|mltrainer (gate|report)|git ", "\n".join(note["script"]))


@pytest.mark.slow
def test_the_template_reports_and_passes_without_a_token(job):
    job.answering("curl")
    done = gitlab(job)
    assert (done.returncode, job.posted) == (0, []), done.stderr
    (report,) = loaded(GITLAB)[CHECK]["artifacts"]["paths"]
    assert "every gate that there is holds" in (job.clone / report).read_text("utf-8")


@pytest.mark.slow
def test_the_template_writes_a_note_and_its_token_stands_in_no_command(job):
    job.answering("curl", "[]")
    assert gitlab(job, MLTRAINER_TOKEN="glpat-secret").returncode == 0
    asked, written = job.posted
    assert written["words"][-3:-1] == ["https://gitlab.example/api/v4/projects/5/merge_requests/7/notes", "--data-urlencode"]
    assert "every gate that there is holds" in written["body"]
    assert "glpat-secret" in asked["given"]
    assert "glpat-secret" not in json.dumps([asked["words"], written["words"]])


@pytest.mark.slow
def test_the_template_writes_its_note_anew_in_place(job):
    job.answering("curl", "[]")
    gitlab(job, MLTRAINER_TOKEN="t")
    first = job.posted[-1]["body"].splitlines()[0]
    job.answering("curl", json.dumps([{"id": 3, "body": "hello"}, {"id": 11, "body": f"{first}\n\nold"}]))
    gitlab(job, MLTRAINER_TOKEN="t")
    assert "--request PUT https://gitlab.example/api/v4/projects/5/merge_requests/7/notes/11" in " ".join(job.posted[-1]["words"])


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 22])
def test_the_template_fails_where_a_gate_does_not_hold_and_only_there(job, code):
    job.answering("curl", "[]", code)
    assert gitlab(job, MLTRAINER_TOKEN="t").returncode == 0
    break_gate(job)
    assert gitlab(job, MLTRAINER_TOKEN="t").returncode == 4


# --- all three ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [HOOKS, ACTION, GITLAB], ids=lambda path: path.name)
def test_every_command_in_a_definition_is_one_that_there_is(path):
    typed = re.findall(r"mltrainer (?:gate check|report)[^\n|>&]*", path.read_text("utf-8").replace('"', ""))
    lines = [line for line in typed if "--" in line or path == HOOKS]
    assert lines
    assert not {command: part for command in lines if (part := unknown_part(command.split(" ||")[0]))}


def closure(names: list[str]) -> set[str]:
    """Return distributions with all that they need."""
    found: set[str] = set()
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name not in found:
            found.add(name)
            needed = [re.match(r"[\w.-]+", row) for row in importlib.metadata.requires(name) or [] if "extra ==" not in row]
            names += [match[0] for match in needed if match and _is_installed(match[0])]
    return found


def _is_installed(name: str) -> bool:
    return any(True for _ in importlib.metadata.distributions(name=name))


@pytest.mark.slow
@pytest.mark.parametrize("path", [ACTION, GITLAB], ids=lambda path: path.name)
def test_what_a_definition_installs_is_enough(path, job):
    """Nothing that the listed packages do not bring is imported."""
    (listed,) = re.findall(r"(typer [\w ]+)\n", path.read_text("utf-8"))
    brought = closure(shlex.split(listed))
    modules = importlib.metadata.packages_distributions()
    others = sorted(
        module for module, names in modules.items() if not {re.sub(r"[-_.]+", "-", n).lower() for n in names} & brought
    )
    others = [module for module in others if module != "mltrainer"]
    assert "torch" in others
    code = f"import sys\nsys.modules.update(dict.fromkeys({others!r}))\nfrom mltrainer.cli.main import run\n"
    code += "codes = [run(line.split()) for line in ('gate check', 'report --against HEAD', 'status')]\nsys.exit(any(codes))"
    done = subprocess.run([sys.executable, "-c", code], cwd=job.clone, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


# --- the page -------------------------------------------------------------------------------------


def _shown() -> list[Any]:
    """Return what the page's part on other people's tools shows as YAML: how each of the three is used."""
    ready_made = PAGE.read_text("utf-8").partition("## pre-commit")[2]
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", ready_made, flags=re.DOTALL)]


def test_the_page_uses_the_names_that_the_definitions_have():
    used_hook, workflow, pipeline = _shown()
    assert used_hook["repos"][0]["hooks"][0]["id"] == hook()["id"]
    (job_,) = workflow["jobs"].values()
    assert job_["steps"][-1]["with"].keys() <= loaded(ACTION)["inputs"].keys()
    (name, template), (_, changed) = next(iter(loaded(GITLAB).items())), list(pipeline.items())[-1]
    assert changed["variables"].keys() <= template["variables"].keys()
    assert (name in pipeline, ROOT / pipeline["include"][0]["file"]) == (True, GITLAB)


def test_the_pages_inputs_and_commands_are_those_that_there_are():
    text = PAGE.read_text("utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)) == set(loaded(ACTION)["inputs"])
    assert not {command: part for command in commands(text) if (part := unknown_part(command))}
