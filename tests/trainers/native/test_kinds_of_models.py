"""Models of every kind have one chain and one digest, whatever the number of processes and whatever they share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltrainer.trainers.native.parallel import kinds as parallelisms
from tests.integrations import nets, texts
from tests.trainers.native.digits_runs import train
from tests.trainers.native.test_ranks import bits, train_on

STEPS: dict[str, Any] = {"accumulate": 3, "epochs": 2, "metric": {"name": "loss", "mode": "min"}}
LARGE = {"n_embd": 264, "n_layer": 2, "n_head": 4}
OF_TEXTS = {**STEPS, "split": {"validation": 0.2, "test": 0.1}, "batch_size": 11}
KINDS: dict[str, dict[str, Any]] = {
    "table": {
        **STEPS,
        "task": {"kind": "tabular_classification"},
        "data": {"source": "rows.csv", "target": "kind"},
        "model": {"name": "mlp", "hidden": [600, 300]},
        "batch_size": 25,
    },
    "GPT-2": {**OF_TEXTS, "task": texts.task("CausalLM", texts.GPT2 | LARGE, data="story.txt")},
    "BERT": {
        **OF_TEXTS,
        "task": texts.task(
            "MaskedLM",
            texts.BERT | {"hidden_size": 264, "num_attention_heads": 4, "intermediate_size": 520, "num_hidden_layers": 2},
        ),
    },
    "Lightning": {
        **STEPS,
        **nets.keys(),
        "accumulate": 3,
        "optimizer": {"name": "adamw"},
        "schedule": {"name": "cosine"},
    },
}
WIDE = (
    ("nn.Linear(64, 32)", "nn.Linear(64, 1100)"),
    ("BatchNorm1d(32)", "BatchNorm1d(1100)"),
    ("nn.Linear(32, 10)", "nn.Linear(1100, 10)"),
)


def make(root: Path, kind: str) -> Path:
    """Write the data and the code of a kind of model into a folder."""
    root.mkdir()
    if kind == "Lightning":
        nets.make(root)
        path = next(path for path in root.glob("*.py") if "BatchNorm1d(32)" in path.read_text())
        content = path.read_text()
        for narrow, wide in WIDE:
            content = content.replace(narrow, wide)
        path.write_text(content)
    elif kind == "table":
        values = np.random.default_rng(0).normal(size=(400, 6))
        kinds = np.array(["low", "middle", "high"])[np.digitize(values[:, 0] + values[:, 1], [-0.6, 0.6])]
        lines = [",".join([*(f"{v:.4f}" for v in row), kind]) for row, kind in zip(values, kinds, strict=True)]
        (root / "rows.csv").write_text("\n".join(["a,b,c,d,e,f,kind", *lines]) + "\n")
    else:
        texts.write_texts(root, 120)
    return root


PROCESSES = ((2, "ddp"), (2, "zero1"), (2, "fsdp"), (4, "ddp"), (4, "zero1"), (4, "fsdp"), (2, "pipeline"))


def test_each_kind_of_parallelism_is_compared_with_one_process():
    assert {parallel for _, parallel in PROCESSES} == parallelisms.KINDS.keys(), "add pairs of processes and kind to PROCESSES"


@pytest.mark.parametrize("page", ["configs/README.md", "docs/PROCESSES.md"])
def test_each_kind_of_parallelism_is_on_its_pages(page):
    text = (Path(__file__).parents[3] / page).read_text("utf-8")
    missing = [name for name in parallelisms.KINDS if f"`{name}`" not in text]
    assert not missing, f"add {missing} to the kinds of parallelism in {page}"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
@pytest.mark.filterwarnings("ignore:The `srun` command is available:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_one_chain_and_one_digest(tmp_path, monkeypatch, kind):
    pytest.importorskip("lightning" if kind == "Lightning" else "transformers")
    given = KINDS[kind]
    one = make(tmp_path / "one", kind)
    expected = bits(train(one, **given), one)
    for processes, parallel in PROCESSES:
        root = make(tmp_path / f"{parallel}-{processes}", kind)
        assert bits(train_on(root, processes, launch={"parallel": parallel}, **given), root) == expected, (processes, parallel)
