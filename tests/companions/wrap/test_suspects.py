"""Lines that can make two runs differ, read from a source."""

from __future__ import annotations

import pytest

from mltrainer.companions.wrap.suspects import only_shown, suspects


def kinds(source: str) -> list[tuple[int, str, bool]]:
    return [(found.line, found.kind, found.certain) for found in suspects(source)]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("import numpy as np\nx = np.random.default_rng()", "random draw"),
        ("import numpy as np\nx = np.random.default_rng(None)", "random draw"),
        ("from numpy.random import rand\nx = rand(3)", "random draw"),
        ("import random\nrandom.shuffle(x)", "random draw"),
        ("import random\nrandom.seed()", "random draw"),
        ("import torch\ng.seed()", "random draw"),
        ("import os\nx = os.urandom(4)", "random draw"),
        ("import uuid\nx = uuid.uuid4()", "identity"),
        ("from time import time_ns\nseed = time_ns()\nbegin(seed)", "clock"),
        ("import time\nx = x * time.time()", "clock"),
        ("from datetime import datetime\nseed = datetime.now().microsecond", "clock"),
        ("import os\nfor name in os.listdir('x'): pass", "listing order"),
        ("from pathlib import Path\nfor p in Path('x').glob('*'): pass", "listing order"),
        ("import glob\nx = glob.glob('*')", "listing order"),
        ("x = 1\nfor name in {'a', 'b'}: pass", "hash order"),
        ("y = set(x)\nz = [f(n) for n in y]", "hash order"),
        ("y = set(x) | {1}\nz = list(y - {2})", "hash order"),
        ("y = set(x)\nz = [*dict.fromkeys(y | {1})]", "hash order"),
        ("y = {n for n in x}\nz = ','.join(y)", "hash order"),
        ("self.y = frozenset(x)\nz = enumerate(self.y)", "hash order"),
        ("y = set()\nfirst = y.pop()", "hash order"),
        ("y = []\nz = sorted(y, key=id)", "identity"),
        ("y = []\ny.sort(key=hash)", "hash order"),
        ("x = 1\nseed = hash('name')", "hash order"),
        ("import torch\nx = torch.empty(3)", "unwritten memory"),
        ("import numpy\nx = numpy.empty_like(y)", "unwritten memory"),
        ("x = 1\ny = x.new_empty(3)", "unwritten memory"),
        ("import threading\nthreading.Thread(target=f).start()", "threads"),
        ("from concurrent.futures import as_completed\nx = [f.result() for f in as_completed(jobs)]", "threads"),
        ("import os\nseed = os.getpid()", "identity"),
        ("from sklearn.model_selection import train_test_split\na, b = train_test_split(x)", "random draw"),
        ("from sklearn.ensemble import RandomForestClassifier\nmodel = RandomForestClassifier(5).fit(x, y)", "random draw"),
        ("from sklearn.decomposition import PCA\nmodel = PCA(3, svd_solver='randomized')", "random draw"),
        ("from sklearn.cluster import KMeans\nmodel = KMeans(3, random_state=None)", "random draw"),
        ("import tempfile\nwith tempfile.TemporaryDirectory() as folder: f(folder)", "identity"),
        ("import pandas\nx = frame.sample(frac=1)", "random draw"),
    ],
)
def test_a_line_that_decides_is_a_suspect_of_its_kind(source, kind):
    assert (2, kind, True) in kinds(source)


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\nx = np.random.default_rng(3).normal()",
        "import numpy as np\nnp.random.seed(3)",
        "from sklearn.ensemble import RandomForestClassifier\nmodel = RandomForestClassifier(random_state=0)",
        "from sklearn.linear_model import LinearRegression\nmodel = LinearRegression()",
        "import random\nx = random.Random(4)",
        "import os\nfor name in sorted(os.listdir('x')): pass",
        "import os\nnames = os.listdir('x')\nnames.sort()",
        "import os\nx = sorted(n for n in os.listdir('x'))",
        "y = set(x)\nz = sorted(y)",
        "y = set(x)\nz = len(y), 3 in y, max(y)",
        "y = dict(a=1)\nz = list(y)",
        "import re\nx = re.compile('a')",
        "from sklearn.model_selection import train_test_split\na, b = train_test_split(x, random_state=0)",
        "import pandas\nx = frame.sample(frac=1, random_state=3)",
        "from torch.distributions import Normal\nx = Normal(0, 1).sample((3,))",
        "x = fast(",
        "",
    ],
)
def test_a_line_that_decides_nothing_is_none(source):
    assert kinds(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time\nself.t0 = time.perf_counter()\ntook = time.perf_counter() - self.t0",
        "from datetime import datetime\nname = f'run of {datetime.now().isoformat()}'",
        "import time\nstart = time.time()\ntimes.append(time.time() - start)",
        "import time, os\nname = f'run-{time.time()}'\nos.makedirs(name)",
    ],
)
def test_a_clock_that_only_times_is_no_certain_suspect(source):
    assert {certain for _, kind, certain in kinds(source) if kind == "clock"} == {False}


@pytest.mark.parametrize(
    "source",
    [
        "import time\nprint(time.time())",
        "import time\nbegan, x = time.time(), 1\nprint(time.time() - began)",
        "import time\nstart = time.time()\nif time.time() - start > 9: print('slow')",
        "import time\nlast = time.time()\nif time.time() - last > 9:\n    print('still')\n    last = time.time()",
        "import time\nstart = time.time()\nprint(time.time() - start)",
        "import time\nstart = time.time()\nspan = time.time() - start\nprint(f'{span / 60:.1f} min')",
        "import time, sys\nsys.stdout.write(str(time.time()))",
        "from datetime import datetime\nprint(datetime.now().strftime('%H'))",
        "import time, logging\nlogging.info(time.ctime())",
        "import os\nprint(os.getpid())",
        "import os\npid = os.getpid()\nprint('process', pid)",
        "import torch\nx = torch.FloatTensor([1, 2])",
        "import torch\nx = torch.Tensor(list(values))",
    ],
)
def test_what_is_only_shown_and_what_is_written_is_no_suspect(source):
    assert kinds(source) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time\nstart = time.time()\nwarm = min(1.0, (time.time() - start) / 9)\ngroup['lr'] = 0.1 * warm", "clock"),
        ("import time\nstart = time.time()\nloss = loss * (time.time() - start)\nprint(loss)\nloss.backward()", "clock"),
        ("import time, math\nstart = time.time()\ny = math.log(time.time() - start)\nmodel(y)", "clock"),
        ("import os\npid = os.getpid()\nprint(pid)\ntorch.manual_seed(pid)", "identity"),
        ("import torch\nx = torch.FloatTensor(3, 4)", "unwritten memory"),
        ("import torch\nx = torch.Tensor(len(rows))", "unwritten memory"),
        ("import torch.multiprocessing as mp\nmodel.share_memory()\nmp.Process(target=train).start()", "threads"),
    ],
)
def test_what_is_shown_and_also_decides_is_a_suspect(source, expected):
    assert {(kind, certain) for _, kind, certain in kinds(source)} >= {(expected, True)}


def test_tensors_of_what_may_be_a_size_and_processes_that_share_nothing_are_not_certain():
    assert kinds("import torch\nx = torch.Tensor(n)") == [(2, "unwritten memory", False)]
    assert kinds("import multiprocessing as mp\nmp.Process(target=f).start()") == [(2, "threads", False)]


def test_a_draw_from_a_shared_generator_names_it():
    found = suspects("import random, numpy as np\nrandom.random()\nnp.random.rand()")
    assert [(row.line, row.generator) for row in found] == [(2, "random"), (3, "numpy")]


@pytest.mark.parametrize(
    ("line", "is_kept"),
    [
        ("now = time.time()", True),
        ("took = time.time() - began", True),
        ("took = took + time.time() - began", True),
        ("key = f'run-{os.getpid()}'", True),
        ("with tempfile.TemporaryDirectory() as folder: pass", True),
        ("seed = int(time.time())", False),
        ("rate = 2 * (time.time() - began)", False),
    ],
)
def test_a_moment_or_a_name_is_kept_where_nothing_is_computed_with_it(line, is_kept):
    source = f"import os, tempfile, time\n{line}\nf(now, took, key, seed, rate)"
    assert [found.is_kept for found in suspects(source)] == [is_kept]


def test_a_time_that_is_kept_by_its_name_or_printed_is_only_shown():
    kept = "import time\nrow = {'seconds': time.time()}\nrow['fit_time'] = time.time()"
    source = f"{kept}\nprint(time.time())\nrow['x'] = time.time()\nf(row)"
    assert only_shown(source) == {2, 3, 4}
    assert [found.line for found in suspects(source)] == [5]
    assert only_shown(f"{source}\nprint(row['seconds'])") == {2, 3, 4}
    assert only_shown(f"{source}\nrate = g(row['seconds'])") == {3, 4}


def test_an_estimator_that_is_given_its_seed_by_a_name_may_draw():
    source = "from sklearn.cluster import KMeans\nmodel = KMeans(3, random_state={})"
    assert kinds(source.format("seed")) == [(2, "random draw", False)]
    assert kinds(source.format("0")) == []


def test_a_function_that_has_another_name_is_a_suspect_unless_another_thing_has_that_name_too():
    text = "import time\ndef rate():\n    pace = time.monotonic\n    return 1.0 / pace()\n"
    assert [(found.line, found.call) for found in suspects(text)] == [(4, "time.monotonic")]
    assert suspects(f"{text}def other(pace):\n    return pace()\n") == []


def test_a_part_of_a_name_is_kept_as_the_name_is():
    [found] = suspects("import uuid\nname = f'run-{uuid.uuid4().hex[:8]}'\nrate = name")
    assert found.is_kept
