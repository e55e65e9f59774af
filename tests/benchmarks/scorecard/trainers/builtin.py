"""mltrainer with tasks that come with it: a table, texts and pictures, each one generated."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.scorecard.case import SAMPLES, SEED, Case
from tests.benchmarks.scorecard.trainers.ours import Mltrainer, shared_settings

ALL = SAMPLES * 5 // 4  # a fifth is for validation
FAULTS = "from tests.benchmarks.scorecard.work import Faults as Faults\n"
PROJECT = """name: scored
seed: {seed}
task: {{kind: {kind}}}
data: {data}
split: {{validation: 0.2, test: 0.0, stratify: false}}
model: {model}
metric: {{name: accuracy, mode: max}}
"""
GOOD, BAD = ("fine", "warm", "clear", "kind", "quick"), ("poor", "cold", "noisy", "rude", "slow")
PLAIN = ("the", "room", "was", "and", "staff", "but", "breakfast", "view", "we", "had")
SIDE = 12
AUGMENT = "{crop: 1, flip: horizontal, affine: {rotate: 10}, randaugment: {operations: 1}, mixup: 0.2}"


class BuiltIn(Mltrainer):
    """A task of this project's own; a callback that only watches brings the faults about."""

    kind: str
    data: str
    model: str
    noise: str | None = None  # what a case with random augmentation adds, where the kind of data has any

    @property
    def files(self) -> dict[str, str]:  # type: ignore[override]
        """The project's files, by name."""
        project = PROJECT.format(seed=SEED, kind=self.kind, data=self.data, model=self.model)
        return {"my_faults.py": FAULTS, "mltrainer.yaml": project}

    def settings(self, case: Case) -> dict[str, Any]:
        """Return the config's values for a case."""
        noise = {"augment": self.noise} if case.noise and self.noise else {}
        return {**shared_settings(case), **noise, "callbacks": "[{use: 'my_faults:Faults', watch: true}]"}


class Table(BuiltIn):
    """Numbers with gaps and a category, and the ensemble of perceptrons."""

    name = "table"
    kind, data = "tabular_classification", "{source: rows.csv, target: kind}"
    model = "{name: tabular_mlp, hidden: [16], members: 4, dropout: 0.3}"

    def write_data(self, folder: Path, seed: int) -> None:
        """Write a table of six numbers, one in twenty missing, and a category."""
        draw = np.random.default_rng(seed)
        x, town = draw.normal(size=(ALL, 6)), draw.integers(0, 3, ALL)
        y = x[:, 0] * x[:, 1] + town - 1 + 0.3 * draw.normal(size=ALL) > 0
        shown = np.where(draw.random(x.shape) < 0.05, "", x.round(6).astype(str))
        rows = [",".join([*cells, "nsw"[place], "ab"[int(label)]]) for cells, place, label in zip(shown, town, y, strict=True)]
        (folder / "rows.csv").write_text("\n".join(["a,b,c,d,e,f,town,kind", *rows]) + "\n")


class Texts(BuiltIn):
    """Sentences of a few words, and a recurrent network over a tokenizer that planning trains."""

    name = "text"
    kind = "text_classification"
    data = "{source: texts.csv, text: text, target: kind, tokens: {kind: bpe, vocabulary: 300, length: 16}}"
    model = "{name: gru, width: 16, hidden: 16, dropout: 0.3}"

    def write_data(self, folder: Path, seed: int) -> None:
        """Write texts of twelve words, some of which praise or blame."""
        draw = np.random.default_rng(seed)
        rows = [f"{_sentence(draw, label)},{'ab'[label]}" for label in draw.integers(0, 2, ALL)]
        (folder / "texts.csv").write_text("\n".join(["text,kind", *rows]) + "\n")


def _sentence(draw: np.random.Generator, label: int) -> str:
    words = [_word(draw, (BAD, GOOD)[label], 3), _word(draw, (BAD, GOOD)[1 - label], 1), _word(draw, PLAIN, 8)]
    return " ".join(draw.permutation(np.concatenate(words)))


def _word(draw: np.random.Generator, words: Sequence[str], count: int) -> np.ndarray:
    return draw.choice(words, count)


class Pictures(BuiltIn):
    """A folder of small pictures for each of two classes, and a residual network."""

    name = "images"
    kind, data = "image_classification", f"{{source: pictures, image: {{size: [{SIDE}, {SIDE}], colour: rgb}}}}"
    model = "{name: resnet, stages: 2, blocks: 1, width: 8, dropout: 0.3}"
    noise = AUGMENT

    def write_data(self, folder: Path, seed: int) -> None:
        """Write pictures of noise, those of one class brighter in the middle."""
        from PIL import Image

        shutil.rmtree(folder / "pictures", ignore_errors=True)
        draw = np.random.default_rng(seed)
        for number, label in enumerate(draw.integers(0, 2, ALL)):
            pixels = draw.integers(0, 180, (SIDE, SIDE, 3)).astype(np.uint8)
            pixels[4:8, 4:8] += np.uint8(40 * label)
            path = folder / "pictures" / "ab"[label] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
