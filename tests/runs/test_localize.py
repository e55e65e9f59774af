"""A user's task that does not repeat: planning fails, and names the kind of the cause and what differed first."""

from __future__ import annotations

import html
from pathlib import Path

import pytest

from mltrainer.records.common import Call, Cause
from mltrainer.reproducibility.causes import first_difference, sentence
from tests.conftest import Cli
from tests.projects import TASK, evidence_of, write_rings

SAMPLE = "return torch.tensor(self.x[i] + noise, dtype=torch.float32), int(self.y[i])"
LOSS = "return nn.functional.cross_entropy(outputs, targets)"
LAYER = """

class Noise(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = 0

    def forward(self, x):
        return x + {noise}

    def count(self):
        self.seen += 1
        return 1e-3 * self.seen

    def garbage(self, x):
        return torch.empty_like(x).isnan().all() * x

    def race(self):
        import threading, time
        found = []
        def work(value):
            time.sleep(0.001)
            found.append(value)
        threads = [threading.Thread(target=work, args=(v,)) for v in range(48)]  # of few, all may end in their order
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 1e-4 * sum(v * 0.9**k for k, v in enumerate(found))
"""


def with_layer(noise: str) -> str:
    """Return the rings' module with a layer of its own in front of the model."""
    return TASK.replace("nn.Sequential(", "nn.Sequential(Noise(), ") + LAYER.format(noise=noise)


WORDS = "{'red', 'green', 'blue', 'grey', 'cyan'}"
FAULTS = {
    "an unseeded draw in the data set": (
        TASK.replace(SAMPLE, f"noise += np.random.default_rng().normal()\n        {SAMPLE}"),
        (
            "random draw",
            "the samples that Noisy gives",
            0,
            "default_rng in noise += np.random.default_rng().normal()",
        ),
    ),
    "an unseeded draw when the samples are made": (
        TASK.replace("default_rng(7)", "default_rng()"),
        ("random draw", "the samples that Noisy gives", 0, "numpy.random.default_rng in g = np.random.default_rng()"),
    ),
    "a clock in the model": (
        "import time\n" + with_layer("time.time() % 1"),
        ("clock", "the forward pass of 0 (Noise)", 1, "time.time in return x + time.time() % 1"),
    ),
    "a draw in the loss": (
        TASK.replace(LOSS, f"import random\n        {LOSS} * random.Random().random()"),
        ("random draw", "the loss of Rings", 1, "random.Random in return nn.functional.cross_entropy"),
    ),
    "a set of strings": (
        with_layer(f"0.1 * list({WORDS}).index('red')"),
        ("hash order", "the forward pass of 0 (Noise)", 1, f"the order of {WORDS} in return x + 0.1"),
    ),
    "threads that race": (
        with_layer("self.race()"),
        ("threads", "the forward pass of 0 (Noise)", None, "threading.Thread in "),
    ),
    "memory that was never written": (
        with_layer("self.garbage(x)"),
        ("unwritten memory", "the forward pass of 0 (Noise)", 1, "torch.empty_like in return torch.empty_like(x)"),
    ),
    "state outside of the checkpoint": (
        with_layer("self.count()"),
        ("state", "the training that was stopped and gone on with", None, "Sequential.0.seen in Noise"),
    ),
}


@pytest.mark.usefixtures("tools_here")
@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "a set of strings"])
@pytest.mark.slow
def test_planning_names_the_cause_of_a_difference(tmp_path, cli, fault):
    assert_named(tmp_path, cli, fault)


@pytest.mark.slow
@pytest.mark.usefixtures("real_tools")
@pytest.mark.long
def test_planning_names_an_order_that_depends_on_hash_values(tmp_path, cli):
    assert_named(tmp_path, cli, "a set of strings")


MOVED = "self.x = np.stack([np.cos(angle), np.sin(angle)], 1)"
ELSEWHERE = {
    "listing order": ("import os\n", "next(iter(os.listdir('files'))) == 'a'", "os.listdir"),
    "folder": ("import os, zlib\n", "zlib.crc32(os.path.abspath('files').encode()) % 97", "folder"),
    "clock": ("import datetime\n", "datetime.date.today().toordinal() % 97", "date.today"),
}


@pytest.mark.slow
@pytest.mark.usefixtures("real_tools")
@pytest.mark.long
@pytest.mark.parametrize("kind", ELSEWHERE)
def test_planning_names_what_another_machine_or_another_day_would_change(tmp_path, cli, kind):
    imported, value, said = ELSEWHERE[kind]
    project = write_rings(tmp_path, imported + TASK.replace(MOVED, f"angle = angle + ({value})\n        {MOVED}"))
    (tmp_path / "files").mkdir()
    for name in "cab":
        (tmp_path / "files" / name).touch()
    told = cli("phase", "run", "planning", "--project", project.root)
    probe = evidence_of(project, "planning")["probe"]
    assert (told.code, probe["identical"], probe["cause"]["kind"]) == (4, False, kind)
    assert {"order of listings", "folders", "date and time zone"} <= set(probe["changed"])
    assert "machine" in probe["not_changed"]
    assert said in told.err


def assert_named(tmp_path: Path, cli: Cli, fault: str) -> None:
    """Plan a task with a fault, and see it refused and told, on the screen and in the report."""
    source, (kind, what, step, said) = FAULTS[fault]
    project = write_rings(tmp_path, source)
    told = cli("phase", "run", "planning", "--project", project.root)
    probe = evidence_of(project, "planning")["probe"]
    cause = probe["cause"]
    assert (told.code, probe["identical"]) == (4, False)
    assert (cause["kind"], cause["what"]) == (kind, what)
    assert step is None or cause["step"] == step
    assert said in told.err
    report = html.unescape((project.phase_dir("planning") / "reproducibility_manifest.md").read_text())
    assert said in report.replace("\\", "")  # which Markdown has before braces


def test_the_first_line_that_differs_is_the_difference():
    one = [(1, "data", "Noisy", "a"), (1, "forward", "0 (Linear)", "b")]
    assert first_difference(one, one) is None
    assert first_difference(one, [one[0], (1, "forward", "0 (Linear)", "c")]) == (1, "the forward pass of 0 (Linear)")
    assert first_difference(one, one[:1]) == (1, "how much is computed")


def test_a_cause_is_told_with_the_lines_to_look_at():
    call = Call(kind="clock", call="time.time", where="my_task.py:3", function="Noise.forward")
    cause = Cause(kind="clock", what="the forward pass of 0 (Noise)", step=1, calls=[call])
    assert sentence(cause) == (
        "the forward pass of 0 (Noise) first differs at step 1: "
        "likely the clock or the date (my_task.py:3: time.time in Noise.forward)"
    )
