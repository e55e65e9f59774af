"""One job: samples of a run, such as those of a step or an epoch, with a checkpoint's score on each and their contents."""

from __future__ import annotations

import base64
import math
import statistics
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mltrainer.checkpointing.format import load
from mltrainer.checkpointing.weights import delivered
from mltrainer.companions.questions.rows import Content, Facts, Row, Samples
from mltrainer.configs.project import TrainingConfig
from mltrainer.errors import InputError
from mltrainer.records.job import RowsJob
from mltrainer.records.run import TargetKind
from mltrainer.reproducibility import fingerprint, seeds
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.tasks.opening import OpenTask
from mltrainer.tasks.structures import length, main_output, one_of, tensors_in
from mltrainer.tasks.user_code import user_code
from mltrainer.tools.loading import check_data, open_untrained, recorded_files
from mltrainer.tools.program import Events
from mltrainer.trainers.native.data.addresses import Plan, evaluation_batches, plan_for
from mltrainer.trainers.native.evaluation import evaluating
from mltrainer.trainers.native.optimization.precision import autocast, full
from mltrainer.trainers.native.signals.observing import answers_of, is_numbered
from mltrainer.trainers.native.signals.outputs import MARGINS_FILE
from mltrainer.workspace import write_json

SIDE, SMALLEST = 96, 6  # pixels: longest side of a shown picture, and shortest side of an array that counts as a picture
MOST_NUMBERS, MOST_LETTERS = 12, 400
CHANNELS = (1, 3)


def contents(opened: OpenTask, config: TrainingConfig, split: str, ids: list[int]) -> Iterator[Content]:
    """Yield the contents of some samples of a split."""
    place = {sample: position for position, sample in enumerate(np.asarray(opened.split(split).ids).tolist())}
    positions = np.array([place[sample] for sample in ids], dtype=np.int64)
    for sample, single in zip(ids, _singles(opened, config, split, positions), strict=True):
        cells = {name: cell[:MOST_LETTERS] for name, cell in opened.cells(sample).items()}
        inputs = None if cells else _inputs(single, opened.task.target_key)
        picture = None if inputs is None else picture_of(inputs)
        values = [] if inputs is None or picture is not None else inputs.flatten()[:MOST_NUMBERS].tolist()
        yield Content(place=opened.place(sample), cells=cells, picture=picture, values=values)


def _singles(opened: OpenTask, config: TrainingConfig, split: str, positions: np.ndarray) -> Iterator[Any]:
    """Yield samples of a split, each as a batch of one."""
    for batch in evaluation_batches(opened.split(split), positions, config, split):
        count = len(next(tensors_in(batch)))
        yield from (one_of(batch, place, count) for place in range(count))


def _inputs(batch: Any, target_key: str) -> Tensor | None:
    """Return the first input of a batch of one."""
    parts = [part for name, part in batch.items() if name != target_key] if isinstance(batch, dict) else batch[:-1]
    first_input = next(tensors_in(list(parts)), None)
    return None if first_input is None or not first_input.dim() else first_input[0]


def picture_of(values: Tensor) -> str | None:
    """Return a sample as a PNG in base64; None if its shape is not a picture's."""
    planes = values[None] if values.dim() == 2 else values
    if planes.dim() != 3 or planes.shape[0] not in CHANNELS or min(planes.shape[1:]) < SMALLEST:
        return None
    step = -(-max(planes.shape[1:]) // SIDE)
    pixels = planes[:, ::step, ::step].detach().cpu().float().nan_to_num().numpy()
    # Standardized numbers have no absolute levels: each picture's range is stretched to 0 to 255.
    low, high = (0.0, 255.0) if not values.is_floating_point() else (float(pixels.min()), float(pixels.max()))
    levels = ((pixels - low) / max(high - low, 1e-12) * 255).clip(0, 255).round().astype(np.uint8)
    return base64.b64encode(png(levels.transpose(1, 2, 0))).decode()


def png(pixels: np.ndarray) -> bytes:
    """Return uint8 pixels [height, width, 1 or 3] as a PNG file (PNG specification, 3rd edition, W3C)."""
    height, width, channels = pixels.shape
    colour = {1: 0, 3: 2}[channels]
    # Each line of a PNG begins with its filter; 0: none.
    lines = np.concatenate([np.zeros((height, 1), dtype=np.uint8), pixels.reshape(height, -1)], axis=1)
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)), (b"IDAT", zlib.compress(lines.tobytes(), 9))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, [*parts, (b"IEND", b"")]))


def _chunk(part: tuple[bytes, bytes]) -> bytes:
    kind, data = part
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


OPEN = ("train", "validation")  # the test split stays sealed


@dataclass(frozen=True)
class Look:
    """An opened run.

    Attributes:
        asked: The job.
        config: The run's config.
        opened: The run's opened task.
        model: The model with the checkpoint's weights.
        plan: The run's plan of steps and epochs.
        folder: The run's folder.
    """

    asked: RowsJob
    config: TrainingConfig
    opened: OpenTask
    model: nn.Module
    plan: Plan
    folder: Path

    def scores(self, split: str, positions: np.ndarray | None = None) -> list[Score]:
        """Return the model's scores on samples of a split, in order; on all of them by default."""
        return list(scores(self.opened, self.model, self.config, split, positions))

    def named(self, value: int | float | None) -> float | str | None:
        """Return a class's name, or the value itself."""
        classes: Sequence[str] = getattr(self.opened.task, "classes", None) or ()
        return classes[value] if isinstance(value, int) and 0 <= value < len(classes) else value


@dataclass(frozen=True)
class Answer:
    """Samples with the model's score on each, and facts about all of them.

    Attributes:
        scores: Scores of the shown samples, in order.
        total: Number of all samples, of which the first are shown.
        facts: Facts about all of them.
        reasons: Reason of each sample, by id.
        then: Known losses in the step, by id.
    """

    scores: list[Score]
    total: int
    facts: Facts
    reasons: dict[int, str]
    then: Mapping[int, float] = field(default_factory=dict)


def work(job: RowsJob, root: Path, events: Events) -> int:
    """Answer one question; the answer goes to `result.json` in the job's folder.

    Args:
        job: The question.
        root: The project's folder.
        events: Sink of progress events.

    Raises:
        InputError: The run had no such step or epoch.
        GateError: The checkpoint is damaged, or the data is not the run's.
    """
    look = _opened(job, root)
    answer = ANSWERS[job.chosen](look)
    samples = Samples.of(answer.facts, total=answer.total, rows=_shown(look, answer))
    write_json(root / job.folder / RESULT_FILE, {"schema": 1, **samples.written()})
    look.opened.close()
    return 0


def _opened(asked: RowsJob, root: Path) -> Look:
    """Open the run's task, with the weights of the checkpoint, or those of a new model."""
    config = asked.config
    opened, model = open_untrained(config, root)
    if asked.checkpoint is not None:
        tree, manifest = load(root / asked.checkpoint, recorded_files(root, asked.run_folder, asked.checkpoint) or None)
        check_data(opened, manifest)
        model.load_state_dict(delivered(tree), strict=True)
    plan = plan_for(config, opened.split("train"))
    return Look(asked, config, opened, model.to(config.device), plan, root / asked.run_folder)


def _shown(look: Look, answer: Answer) -> list[Row]:
    """Return the rows of an answer's samples, with their contents."""
    looks: dict[int, Content] = {}
    for split in OPEN:
        ids = [score.sample for score in answer.scores if score.split == split]
        looks |= dict(zip(ids, contents(look.opened, look.config, split, ids), strict=True)) if ids else {}
    return [_row(look, score, looks[score.sample], answer) for score in answer.scores]


def _row(look: Look, score: Score, content: Content, answer: Answer) -> Row:
    then = {"then": answer.then[score.sample]} if score.sample in answer.then else {}
    return Row.of(
        content,
        sample=score.sample,
        split=score.split,
        loss=score.loss,
        label=look.named(score.label),
        answer=look.named(score.answer),
        share=score.share,
        reason=answer.reasons.get(score.sample),
        **then,
    )


# --- the samples of a step or an epoch ------------------------------------------------------------


def of_step(look: Look) -> Answer:
    """Return the samples of a step; draws are addressed, so that no log of them is needed.

    The run's chain holds a digest of each step's samples: `as_recorded` is True if it matches, None without a digest.
    """
    step = _within(look.asked.number, look.plan.steps, "step")
    epoch, number = look.plan.place(step)
    samples = look.opened.split("train")
    size = look.plan.step_samples
    slots = samples.order(look.config.seed, epoch)[number * size : (number + 1) * size]
    positions = slots[slots >= 0]
    chain = map(str.split, fingerprint.read(look.folder / fingerprint.CHAIN_FILE))
    line = next((row for row in chain if row[0] == str(step)), None)
    if line is not None and len(positions) and line[1] == fingerprint.ids_digest(b""):
        line = None  # the step was left out
    same = None if line is None else line[1] == fingerprint.ids_digest(samples.ids[positions].tobytes())
    recorded = None if line is None else fingerprint.float_of(line[2])
    then = {row.sample: float(row.loss) for row in look.asked.then}
    scores = sorted(by_loss(look.scores("train", positions)), key=lambda score: -then.get(score.sample, -math.inf))
    facts = Facts(step=step, epoch=epoch + 1, as_recorded=same, recorded_loss=recorded)
    return Answer(scores[: look.asked.most], len(scores), facts, {}, then)


def of_epoch(look: Look) -> Answer:
    """Return the hardest samples of an epoch, and the first step that took each; a curriculum takes some of them often."""
    epoch = _within(look.asked.number, look.plan.epochs, "epoch")
    samples, first = look.opened.split("train"), (epoch - 1) * look.plan.steps_per_epoch
    slots = samples.order(look.config.seed, epoch - 1)[:]
    places = np.flatnonzero(slots >= 0)[::-1]  # of a sample that is taken several times, the first place stays
    order = zip(places.tolist(), samples.ids[slots[places]].tolist(), strict=True)
    steps = {sample: first + 1 + place // look.plan.step_samples for place, sample in order}
    scores = [score for score in by_loss(look.scores("train")) if score.sample in steps]
    shown = scores[: look.asked.most]
    return Answer(shown, len(scores), Facts(epoch=epoch), {score.sample: f"step {steps[score.sample]}" for score in shown})


def _within(number: int | None, most: int, what: str) -> int:
    """Return the number of a step or an epoch, which the plan must have.

    Raises:
        InputError: The plan has no such number.
    """
    if number is None or not 1 <= number <= most:
        said, hint = f"the {what} of the run's plan", f"--{what} {most} is the last one"
        raise InputError(said, expected=f"a number from 1 to {most}", found=number, where=f"--{what}", hint=hint)
    return number


# --- samples of the whole run ---------------------------------------------------------------------


def hardest(look: Look) -> Answer:
    """Return the samples with the largest losses, of training and validation."""
    scores = by_loss([score for split in OPEN for score in look.scores(split)])
    return Answer(scores[: look.asked.most], len(scores), Facts(), {})


def mislabelled(look: Look) -> Answer:
    """Return the samples whose label is probably wrong: training ones by margins during training, others by the model.

    Raises:
        InputError: The task has no classes.
    """
    validation = look.scores("validation")
    if not any(score.probabilities for score in validation):
        what, hint = "only a task with one output per class shows doubtful labels", "--hardest shows the largest losses"
        raise InputError(what, where="--mislabelled", hint=hint)
    margins = _margins(look)
    ids = look.opened.split("train").ids
    # NaN is sorted to the end and is not below 0: samples without a margin are never among them.
    below = np.argsort(margins[ids], kind="stable")[: int((margins[ids] < 0).sum())]
    trained = look.scores("train", below[: look.asked.most]) if len(below) else []
    doubted = [(float(margins[score.sample]), score) for score in trained]
    unseen = doubtful(validation)
    shown = sorted([*doubted, *unseen], key=lambda pair: (pair[0], pair[1].sample))[: look.asked.most]
    reasons = {score.sample: f"margin {margin:.3g}, rather {look.named(score.other)}" for margin, score in shown}
    return Answer([score for _, score in shown], len(below) + len(unseen), Facts(notes=_notes(margins)), reasons)


def _margins(look: Look) -> np.ndarray:
    """Return the mean margin of each training sample by id, NaN for the others; all are NaN if the run recorded none."""
    path = look.folder / MARGINS_FILE
    size = int(np.asarray(look.opened.split("train").ids).max()) + 1
    margins = np.fromfile(path, dtype="<f4") if path.is_file() else np.zeros(0, dtype=np.float32)
    # Another number of margins belongs to other samples: it would blame the wrong ones.
    return margins if len(margins) == size else np.full(size, np.nan, dtype=np.float32)


def _notes(margins: np.ndarray) -> list[str]:
    how = "A training sample's margin is the mean over training of its label's output less the largest other one."
    none = "The run recorded no margins of its training samples (signals: true records them), so that only validation is judged."
    return [none if np.isnan(margins).all() else how]


@torch.no_grad()
def nonfinite(look: Look) -> Answer:
    """Return the samples with NaN or infinity, each with the part that holds it."""
    reasons: dict[int, str] = {}
    scored: list[Score] = []
    for split in OPEN:
        ids = look.opened.split(split).ids
        singles = enumerate(_singles(look.opened, look.config, split, np.arange(len(ids))))
        bad = {position: reason for position, single in singles if (reason := _not_finite(single))}
        reasons |= {int(ids[position]): reason for position, reason in bad.items()}
        scored += look.scores(split, np.array([*bad][: look.asked.most], dtype=np.int64)) if bad else []
    return Answer(scored[: look.asked.most], len(reasons), Facts(), reasons)


def _not_finite(batch: Any) -> str | None:
    parts = batch.items() if isinstance(batch, dict) else enumerate(batch)
    for name, part in parts:
        for tensor in tensors_in(part):
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                places = (~tensor[0].isfinite()).nonzero().tolist()
                return f"part {name}: {len(places)} numbers are not finite, the first at {places[0]}"
    return None


ANSWERS: dict[str, Callable[[Look], Answer]] = {
    "step": of_step,
    "epoch": of_epoch,
    "hardest": hardest,
    "mislabelled": mislabelled,
    "nonfinite": nonfinite,
}


@dataclass(frozen=True)
class Score:
    """A model's score on a sample.

    Attributes:
        sample: Its id.
        split: The sample's split.
        loss: Loss of the sample by itself.
        label: The sample's class number or value; None if the target is neither.
        answer: The model's prediction, in the same form; None without one.
        probabilities: Probabilities of the classes; empty without classes.
    """

    sample: int
    split: str
    loss: float
    label: int | float | None
    answer: int | float | None
    probabilities: list[float]

    @property
    def other(self) -> int | None:
        """The most probable of the other classes."""
        others = {place: share for place, share in enumerate(self.probabilities) if place != self.label}
        return max(others, key=lambda place: others[place], default=None)

    @property
    def share(self) -> float | None:
        """The probability that the model gives to the sample's own class."""
        return self.probabilities[int(self.label or 0)] if self.probabilities else None


@torch.no_grad()
def scores(
    opened: OpenTask, model: nn.Module, config: TrainingConfig, split: str, positions: np.ndarray | None = None
) -> Iterator[Score]:
    """Yield a model's scores, in evaluation mode, on single samples of a split; training's draws change none of them.

    Args:
        opened: The task.
        model: The model, on its device.
        config: Config with seed, device and precision.
        split: "train" or "validation".
        positions: Indices of the samples in the split; None for all.

    Raises:
        InputError: The task's loss fails on a single sample; the message names the line.
    """
    samples, task = opened.split(split), opened.task
    positions = np.arange(len(samples)) if positions is None else positions
    begins = 0
    with evaluating(model):
        for number, batch in enumerate(evaluation_batches(samples, positions, config, split)):
            seeds.seed_everything(seeds.key(config.seed, "rows", number))
            with autocast(config):
                outputs, targets = task.forward(model, batch)
            outputs, count = full(outputs), length(targets)
            ids = samples.ids[positions[begins : begins + count]].tolist()
            with user_code(opened.root, "the loss of one sample"):
                losses = [float(task.loss(one_of(outputs, n, count), one_of(targets, n, count))) for n in range(count)]
            yield from _rows(ids, split, losses, main_output(outputs), targets, opened.target_kind)
            begins += count


def _rows(ids: list[int], split: str, losses: list[float], output: Any, targets: Any, kind: TargetKind | None) -> Iterator[Score]:
    labels, answers = _plain(targets), _plain(output)
    probabilities = None
    if isinstance(targets, Tensor) and isinstance(output, Tensor) and is_numbered(targets, kind):
        predicted = answers_of(output)
        answers = [None] * len(ids) if predicted is None or predicted.shape != targets.shape else predicted.tolist()
        # A single output separates two classes by its sign: its softmax would be 1 for every sample.
        if output.dim() == 2 and output.shape[1] > max(1, int(targets.max())):
            probabilities = output.softmax(1).tolist()
    for place, (sample, loss) in enumerate(zip(ids, losses, strict=True)):
        yield Score(sample, split, loss, labels[place], answers[place], probabilities[place] if probabilities else [])


def _plain(value: Any) -> list[Any]:
    """Return one number for each sample; None if it has none or several."""
    if not isinstance(value, Tensor) or value[:1].numel() != 1:
        return [None] * length(value)
    return list(value.flatten().tolist())


def by_loss(scores: list[Score]) -> list[Score]:
    """Return the samples, the hardest first; a loss of NaN comes before all others."""
    return sorted(scores, key=lambda score: (-math.inf if math.isnan(score.loss) else -score.loss, score.split, score.sample))


# --- labels ---------------------------------------------------------------------------------------


def doubtful(scores: list[Score]) -> list[tuple[float, Score]]:
    """Return the held-out samples whose label is probably wrong, each with its margin, the worst first.

    That is where the model gives another class at least the probability that it gives that class on average over the samples
    that are labelled so, and the sample's own class less than it (confident learning: Northcutt et al., 2021, arXiv 1911.00068).
    The margin is the logarithm of the ratio of the two probabilities, which is the difference of their outputs.
    """
    known = [score for score in scores if score.probabilities]
    labels = {score.label for score in known}
    usual = {label: statistics.fmean(score.share or 0.0 for score in known if score.label == label) for label in labels}
    wrong = [score for score in known if score.probabilities[score.other or 0] >= usual.get(score.other or 0, math.inf)]
    margins = [(margin_of(score), score) for score in wrong]
    return sorted(((margin, score) for margin, score in margins if margin < 0), key=lambda pair: (pair[0], pair[1].sample))


def margin_of(score: Score) -> float:
    """Return the margin: the output of a sample's own class less the largest other one."""
    own, other = score.share or 0.0, score.probabilities[score.other or 0]
    # A probability may underflow to 0, whose logarithm raises.
    return math.log(max(own, 1e-30)) - math.log(max(other, 1e-30))
