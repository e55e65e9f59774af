"""A program started under observation: its copy, what is changed, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mltrainer.errors import InputError
from mltrainer.executors import process_tree
from mltrainer.observe.disturbances import Perturbations
from mltrainer.observe.logs import rows_of
from mltrainer.observe.process import Settings
from mltrainer.programs import starting
from mltrainer.programs.chains import chains
from mltrainer.programs.starting import SCRATCH, FinishedRun, WrappedProgram, start
from tests.waiting import has_ended, until


def ran(
    tmp_path: Path,
    code: str,
    perturbations: Perturbations = Perturbations(),  # noqa: B008
    *arguments: str,
    steps: int = 0,
    signals: bool = False,
    trace: bool = False,
    files: bool = False,
    near: int = 0,
    quiet: bool = False,
    **more: object,
) -> FinishedRun:
    folder = tmp_path / "mine"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.py").write_text(code)
    program = WrappedProgram((sys.executable, "program.py", *arguments), folder, **more)  # type: ignore[arg-type]
    settings = Settings(steps=steps, signals=signals, trace=trace, files=files, near=near, quiet=quiet)
    return start(program, tmp_path / f"scratch-{time.monotonic_ns()}", perturbations, settings)


def said(ended: FinishedRun) -> str:
    return ended.log.read_text().strip()


def test_it_runs_in_a_copy_and_leaves_the_folder_as_it_was(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "data.txt").write_text("3")
    ended = ran(tmp_path, "open('data.txt', 'a').write('4'); open('new.txt', 'w'); print(open('data.txt').read())")
    assert (ended.code, said(ended)) == (0, "34")
    assert sorted(p.name for p in (tmp_path / "mine").iterdir()) == ["data.txt", "program.py"]
    assert (tmp_path / "mine" / "data.txt").read_text() == "3"


def test_in_place_it_runs_in_the_folder_itself(tmp_path):
    ran(tmp_path, "open('new.txt', 'w')", in_place=True)
    assert (tmp_path / "mine" / "new.txt").exists()


def test_a_path_that_leads_out_of_the_folder_is_found_from_the_copy(tmp_path):
    (tmp_path / "outside.txt").write_text("seen")
    ended = ran(tmp_path, "import sys; print(open(sys.argv[1]).read())", Perturbations(), "../outside.txt")
    assert said(ended) == "seen"


def test_environments_and_the_repository_are_linked_and_caches_left_out(tmp_path):
    for name in (".git", "venv", "__pycache__", "src"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        (tmp_path / "mine" / name / "file").touch()
    (tmp_path / "mine" / "venv" / "pyvenv.cfg").touch()
    ended = ran(tmp_path, "import os; print({n: os.path.islink(n) for n in sorted(os.listdir())})")
    assert said(ended) == "{'.git': True, 'program.py': False, 'src': False, 'venv': True}"


def test_the_copy_has_empty_folders_and_no_pipes_and_its_links_lead_into_it(tmp_path):
    mine = tmp_path / "mine"
    (mine / "results").mkdir(parents=True)
    (mine / "last.txt").symlink_to("first.txt")
    (mine / "here").symlink_to(".")
    (mine / "nowhere").symlink_to("missing")
    (mine / "first.txt").write_text("mine")
    (mine / "na me\nof two lines").touch()
    os.mkfifo(mine / "pipe")
    code = (
        "import os; open('last.txt', 'w').write('theirs'); open('here/new.txt', 'w'); open('results/x', 'w'); print(os.listdir())"
    )
    ended = ran(tmp_path, code)
    assert ended.code == 0, said(ended)
    assert sorted(eval(said(ended))) == [
        "first.txt",
        "here",
        "last.txt",
        "na me\nof two lines",
        "new.txt",
        "program.py",
        "results",
    ]
    assert ((mine / "first.txt").read_text(), (mine / "new.txt").exists(), os.listdir(mine / "results")) == ("mine", False, [])


def test_a_path_into_the_folder_and_the_shell_s_own_name_of_it_lead_into_the_copy(tmp_path):
    code = "import os, sys; print(os.path.samefile(sys.argv[1], os.getcwd()), os.path.samefile(os.environ['PWD'], '.'))"
    assert said(ran(tmp_path, code, Perturbations(), str(tmp_path / "mine"))) == "True True"


def test_temporary_files_within_the_folder_are_not_copied(tmp_path):
    inside = tmp_path / "mine" / "tmp" / f"{SCRATCH}x"
    inside.mkdir(parents=True)
    (tmp_path / "mine" / "t.py").write_text("import os; print(os.listdir('tmp'))")
    for number in range(2):
        ended = start(
            WrappedProgram((sys.executable, "t.py"), tmp_path / "mine"), inside / str(number), Perturbations(), Settings()
        )
        assert said(ended) == "[]"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_no_obstacle(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "secret").touch(mode=0)
    assert said(ran(tmp_path, "import os; print(os.path.lexists('secret'))")) == "True"


def test_a_folder_that_is_too_large_to_copy_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(starting, "MOST_BYTES", 10)
    with pytest.raises(InputError, match=r"copied for each run.*\n.*--in-place"):
        ran(tmp_path, "print('more than ten bytes')")


def test_what_is_changed_reaches_the_program_and_nothing_else_is(tmp_path):
    code = (
        "import os, tempfile; print(os.environ.get('PYTHONHASHSEED'), os.listdir('d'), os.path.basename(tempfile.gettempdir()))"
    )
    (tmp_path / "mine" / "d").mkdir(parents=True)
    for name in "ab":
        (tmp_path / "mine" / "d" / name).touch()
    plain, other = (said(ran(tmp_path, code, Perturbations(hashes=on, listing=on, folder=on))) for on in (False, True))
    assert plain.startswith("0 ")
    assert other.startswith("1 ")
    assert plain.split()[1:3] != other.split()[1:3]
    assert plain.endswith(" tmp")
    assert other.endswith(" temporary-files-of-another-run")


def test_a_hash_seed_that_the_user_set_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert said(ran(tmp_path, "import os; print(os.environ['PYTHONHASHSEED'])", Perturbations(hashes=True))) == "7"


def test_a_listing_is_whole_in_either_order(tmp_path):
    code = "import os, glob, pathlib; os.chdir('d'); print([os.listdir(), [e.name for e in os.scandir()], glob.glob('*')]); "
    code += "print(sorted(p.name for p in pathlib.Path().iterdir()), [sorted(f) for _, _, f in os.walk('.')])"
    (tmp_path / "mine" / "d").mkdir(parents=True)
    for name in "abcd":
        (tmp_path / "mine" / "d" / name).touch()
    plain, other = (said(ran(tmp_path, code, Perturbations(listing=on))).splitlines() for on in (False, True))
    assert plain[1] == other[1]
    assert eval(plain[0]) == [names[::-1] for names in eval(other[0])]


def test_a_site_customization_that_was_there_still_runs(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins; builtins.customized = 'yes'")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    assert said(ran(tmp_path, "print(customized)")) == "yes"


def test_a_program_imports_the_standard_library_and_its_own_modules_and_none_of_the_observers(tmp_path):
    (tmp_path / "mine" / "lib").mkdir(parents=True)
    (tmp_path / "mine" / "lib" / "chain.py").write_text("own = 'mine'")
    code = "import sys; sys.path.append('lib'); import chain, signal, trace\n"
    code += "counted = trace.Trace(count=1, trace=0); counted.runfunc(sorted, [2, 1])\n"
    code += "print(chain.own, signal.SIGINT == 2, trace.__file__ == sys.modules['os'].__file__.replace('os.py', 'trace.py'))\n"
    assert said(ran(tmp_path, code)) == "mine True True"


def test_nothing_but_the_site_customization_is_importable_from_where_the_observer_comes_in():
    assert {path.stem for path in starting.OBSERVER.glob("*.py")} == {"__init__", "sitecustomize"}


@pytest.mark.slow
def test_a_program_that_looks_for_torch_before_it_imports_it_is_observed(tmp_path):
    code = (
        "import importlib.util; assert importlib.util.find_spec('torch'); import torch; p = torch.ones(2, requires_grad=True); "
    )
    ended = ran(tmp_path, code + "o = torch.optim.SGD([p]); p.grad = torch.ones(2); o.step()")
    assert [len(chain.entries) for chain in chains(ended.lines).values()] == [1]


def test_folders_are_removed_by_descriptors_where_listings_are_reversed(tmp_path):
    (tmp_path / "mine" / "d" / "inner").mkdir(parents=True)
    code = "import os, shutil; print(shutil.rmtree.avoids_symlink_attacks); "
    code += "shutil.rmtree('inner', dir_fd=os.open('d', os.O_RDONLY)); print(os.listdir('d'))"
    assert said(ran(tmp_path, code, Perturbations(listing=True))).split() == ["True", "[]"]


@pytest.mark.slow
def test_a_fork_does_not_write_again_what_is_held_back(tmp_path):
    code = "import os, torch\nx = torch.ones(3)\nfor n in range(2):\n    x = x + n\n    if n and not os.fork(): os._exit(0)\n"
    rows = [str(row) for found in rows_of(ran(tmp_path, code, trace=True).lines, "trace").values() for row in found]
    assert len(rows) == len(set(rows)) > 1


@pytest.mark.slow
def test_a_program_that_closed_all_files_opens_its_own(tmp_path):
    code = "import os, torch; os.closerange(3, 1000); open('a', 'w').write('b'); print(open('a').read())"
    assert said(ran(tmp_path, code, files=True)) == "b"


@pytest.mark.slow
def test_a_program_that_is_killed_leaves_the_steps_that_it_made(tmp_path):
    code = "import os, torch; p = torch.ones(2, requires_grad=True); o = torch.optim.SGD([p]); p.grad = torch.ones(2);"
    ended = ran(tmp_path, f"{code} [o.step() for _ in range(3)]; os.kill(os.getpid(), 9)")
    [chain] = chains(ended.lines).values()
    assert ended.code == -9
    assert [entry.step for entry in chain.entries] == [1, 2, 3]


def test_processes_that_a_program_leaves_behind_are_ended(tmp_path):
    sleeper = "[sys.executable, '-c', 'import time; time.sleep(60)']"
    code = f"import subprocess, sys; print(subprocess.Popen({sleeper}, start_new_session=True).pid)"
    pid = said(ran(tmp_path, code))
    until(lambda: has_ended(pid))


@pytest.mark.slow
def test_weights_of_several_models_that_are_called_alike_are_told_apart(tmp_path):
    code = "import torch; models = [torch.nn.Linear(2, 2) for _ in range(2)]; both = [p for m in models for p in m.parameters()]"
    code += "\nfor o in [torch.optim.SGD(group, lr=0.1) for group in (both, models[0].parameters())]: o.step()"
    ended = ran(tmp_path, code, signals=True)
    [rows] = rows_of(ended.lines, "signals").values()
    assert [row[2:] for row in rows if row[1] == "about"] == [[["weight", "weight (2)"], 12]]


MADE_ANEW = """import gc, torch
models = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]
for model in (*models, models[0]):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    del optimizer
    gc.collect()
"""


@pytest.mark.slow
def test_an_optimizer_that_is_made_anew_where_another_one_lay_has_its_own_weights_names(tmp_path):
    ended = ran(tmp_path, MADE_ANEW, signals=True)
    [rows] = rows_of(ended.lines, "signals").values()
    assert [row[2:] for row in rows if row[1] == "about"] == [[["weight"], 6], [["weight (2)"], 6]]
    assert [list(row[3]) for row in rows if row[1] == "layers"] == [["weight"], ["weight (2)"], ["weight"]]


def test_a_program_ends_with_the_process_that_started_it_however_that_one_ends(tmp_path):
    (tmp_path / "mine").mkdir()
    told = tmp_path / "pid.txt"
    (tmp_path / "mine" / "program.py").write_text(
        f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    )
    code = "import sys; from pathlib import Path; from mltrainer.programs import starting as it; "
    code += "program = it.WrappedProgram((sys.executable, 'program.py'), Path(sys.argv[1])); "
    code += "it.start(program, Path(sys.argv[2]), it.Perturbations(), it.Settings())"
    starter = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "mine"), str(tmp_path / "scratch")])
    until(lambda: told.exists() and told.read_text() != "")
    starter.kill()
    starter.wait()
    until(lambda: has_ended(told.read_text()))


def test_the_path_of_a_temporary_socket_is_short_enough_in_the_deepest_folder(tmp_path):
    code = "import multiprocessing.connection as c, os; print(len(c.arbitrary_address('AF_UNIX')) < 108)"
    assert said(ran(tmp_path / ("deep" * 30), code, Perturbations(folder=True))) == "True"


def test_a_process_has_the_same_name_in_another_folder(tmp_path):
    code = "import os, subprocess, sys, tempfile; from pathlib import Path; f = Path('one.py');"
    code += "f.write_text('import gc; print([o.name for o in gc.get_objects() if type(o).__name__ == \"Process\"])');"
    code += "subprocess.run([sys.executable, f.resolve(), '--out', tempfile.gettempdir() + '/out'])"
    one, other = (said(ran(tmp_path, code, Perturbations(folder=on))) for on in (False, True))
    assert one == other != ""


def test_shared_memory_of_a_program_that_is_ended_is_removed(tmp_path):
    code = "import os; from multiprocessing.shared_memory import SharedMemory as S; print(S(create=True, size=9).name)"
    name = said(ran(tmp_path, f"{code}; sys.stdout.flush(); os._exit(0)")).splitlines()[0]
    assert not Path("/dev/shm", name).exists()


@pytest.mark.slow
def test_a_program_that_waits_for_what_was_ended_is_ended_too(tmp_path, monkeypatch):
    monkeypatch.setattr(process_tree, "STILL_S", 0.2)
    code = (
        "import json, os, time; folder = json.loads(os.environ['MLTRAINER_WRAP'])['folder'];"
        "open(folder + '/chain-a-1.jsonl', 'w').write('a step\\n' * 2); time.sleep(60)"
    )
    assert ran(tmp_path, code, steps=2, timeout=30.0).code == 0
    with pytest.raises(InputError, match="longer"):
        ran(tmp_path, code, steps=3, timeout=2.0)  # its last step is still to come


def test_a_program_that_takes_too_long_is_given_up(tmp_path):
    with pytest.raises(InputError, match=r"longer than 0\.3 s"):
        ran(tmp_path, "import time; time.sleep(60)", timeout=0.3)


def test_a_program_that_is_missing_is_told(tmp_path):
    with pytest.raises(InputError, match="there is no program 'no-such-program'"):
        start(WrappedProgram(("no-such-program",), tmp_path), tmp_path / "s", Perturbations(), Settings())


FORKS = """
import multiprocessing
import torch

def train():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=train)
        process.start()
        process.join()
"""


@pytest.mark.slow
def test_the_last_steps_of_a_process_that_another_began_are_seen(tmp_path):
    ended = ran(tmp_path, FORKS)
    assert ended.code == 0, said(ended)
    assert [len(chain.entries) for chain in chains(ended.lines).values()] == [6, 6]


BY_HAND = {
    "data of a model's parameters": """
for step in range(4):
    model.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.1)
""",
    "the wider one of two tensors": """
v, w = torch.zeros(1, requires_grad=True), torch.zeros(3, 1, requires_grad=True)
for step in range(4):
    (x @ w + v - y).pow(2).mean().backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = v.grad = None
""",
    "tensors alone": """
w = torch.zeros(3, 1, requires_grad=True)
for step in range(4):
    (x @ w - y).pow(2).mean().backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
""",
    "an optimizer of one's own make": """
class Own:
    def step(self):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
for step in range(4):
    model.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    Own().step()
""",
}
BEFORE = "import torch\ntorch.manual_seed(0)\nx, y = torch.randn(8, 3), torch.randn(8, 1)\nmodel = torch.nn.Linear(3, 1)\n"


@pytest.mark.slow
@pytest.mark.parametrize("how", BY_HAND)
def test_weights_that_are_updated_by_hand_are_steps(tmp_path, how):
    ended = ran(tmp_path, BEFORE + BY_HAND[how])
    assert ended.code == 0, said(ended)
    (chain,) = chains(ended.lines).values()
    assert [entry.step for entry in chain.entries] == [1, 2, 3, 4]
    assert len({entry.weights for entry in chain.entries}) == 4
    assert chain.end != ()


@pytest.mark.slow
def test_where_an_optimizer_steps_nothing_is_taken_for_a_step_by_hand(tmp_path):
    code = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nreal = torch.autograd.backward\nfor step in range(3):\n"
    code += "    model(x).sum().backward(); optimizer.step(); model.weight.data.add_(1.0)\nprint(real is torch.autograd.backward)"
    ended = ran(tmp_path, BEFORE + code)
    (chain,) = chains(ended.lines).values()
    assert (len(chain.entries), said(ended)) == (3, "False")  # the function around it is gone once the optimizer is seen


@pytest.mark.slow
def test_values_that_a_constructor_is_given_are_written_memory(tmp_path):
    code = "import torch\nx = torch.FloatTensor([1.0, 2.0, 3.0])\ny = x * 2\nz = torch.empty(3) * 2\n"
    code += "p = torch.ones(1, requires_grad=True); p.sum().backward(); torch.optim.SGD([p]).step()"
    ended = ran(tmp_path, code, trace=True)
    rows = [
        row for found in rows_of(ended.lines, "trace").values() for row in found if row[1] == "op" and row[3] == "aten.mul.Tensor"
    ]
    assert [(row[8], row[-1]) for row in rows] == [(3, False), (4, True)]


@pytest.mark.slow
@pytest.mark.long
def test_near_a_step_lines_are_looked_at_anew_and_until_then_nothing_is_noted_where_that_is_asked_for(tmp_path):
    code = (
        BEFORE + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor step in range(6):\n    for turn in range(500):\n"
    )
    code += "        seen = step\n    model(x).sum().backward(); optimizer.step()\n"
    [rows] = rows_of(ran(tmp_path, code, trace=True, near=5, quiet=True).lines, "trace").values()
    assert sorted({row[2] for row in rows if row[1] == "op"}) == [1, 5, 6]
    assert [row[2] for row in rows if row[1] == "generators"] == [*range(1, 7)]
    assert len([row for row in rows if row[1] == "value" and row[6] == code.splitlines().index("        seen = step") + 1]) == 800
