"""Other trainers on the same work, each with its quick settings: no logger, no progress bar, best and last checkpoint."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.benchmarks.loops.by_hand import on_device, validate
from tests.benchmarks.loops.work import CLIP, DEVICE, EVALUATION_BATCH, LR, WORKS, Work, accuracy, loss_of


@contextlib.contextmanager
def _quiet() -> Iterator[str]:
    """Yield a folder for checkpoints; nothing is printed, warned or logged within."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield folder


def _loaders(work: Work) -> tuple[DataLoader[Any], DataLoader[Any]]:
    train, validation = work.sets()
    return DataLoader(train, work.batch, shuffle=True), DataLoader(validation, EVALUATION_BATCH)


def _timed(train: Callable[[], Any]) -> float:
    started = time.perf_counter()
    train()
    return time.perf_counter() - started


def lightning(name: str) -> float:
    """Train with Lightning's Trainer; return the seconds of `fit`."""
    import lightning as library
    from lightning.pytorch.callbacks import ModelCheckpoint

    work = WORKS[name]

    class Module(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = work.model()

        def training_step(self, batch: Any, _number: int) -> Any:
            return loss_of(self.net(batch[0]), batch[1])

        def validation_step(self, batch: Any, _number: int) -> None:
            self.log("accuracy", accuracy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), LR)

    with _quiet() as folder:
        trainer = library.Trainer(
            max_epochs=work.epochs,
            accelerator=DEVICE,
            devices=1,
            gradient_clip_val=CLIP,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            default_root_dir=folder,
            callbacks=[ModelCheckpoint(dirpath=folder, monitor="accuracy", mode="max", save_last=True)],
        )
        train, validation = _loaders(work)
        return _timed(lambda: trainer.fit(Module(), train, validation))


class _Named(Dataset[Any]):
    """Samples by the names that a model of transformers takes."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, place: int) -> dict[str, Any]:
        x, y = self.samples[place]
        return {"x": x, "labels": y}


class _WithLoss(nn.Module):
    """A model that returns its loss."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        outputs = self.net(x)
        return {"loss": loss_of(outputs, labels), "logits": outputs}


def huggingface(name: str) -> float:
    """Train with the Trainer of transformers; return the seconds of `train`."""
    from transformers import Trainer, TrainingArguments

    work = WORKS[name]
    train, validation = map(_Named, work.sets())
    with _quiet() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=work.epochs,
            per_device_train_batch_size=work.batch,
            per_device_eval_batch_size=EVALUATION_BATCH,
            learning_rate=LR,
            lr_scheduler_type="constant",
            max_grad_norm=CLIP,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=2,
            load_best_model_at_end=True,
            metric_for_best_model="accuracy",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=DEVICE == "cpu",
        )
        trainer = Trainer(
            _WithLoss(work.model()),
            arguments,
            train_dataset=train,
            eval_dataset=validation,
            compute_metrics=lambda found: {"accuracy": (found.predictions.argmax(-1) == found.label_ids).mean()},
        )
        return _timed(trainer.train)


def accelerate(name: str) -> float:
    """Train with a loop around Accelerate; return its seconds."""
    from accelerate import Accelerator

    work = WORKS[name]
    accelerator = Accelerator(cpu=DEVICE == "cpu")
    net = work.model()
    prepared = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), LR), *_loaders(work))

    def train(folder: str) -> None:
        net, optimizer, batches, validation = prepared
        best = -1.0
        for _ in range(work.epochs):
            for x, y in batches:
                optimizer.zero_grad()
                accelerator.backward(loss_of(net(x), y))
                accelerator.clip_grad_norm_(net.parameters(), CLIP)
                optimizer.step()
            found = validate(net, validation)
            accelerator.save_state(f"{folder}/last")
            if found > best:
                accelerator.save_state(f"{folder}/best")
            best = max(best, found)

    with _quiet() as folder:
        return _timed(lambda: train(folder))


def skorch(name: str) -> float:
    """Train with skorch's NeuralNet; return the seconds of `fit`."""
    from skorch import NeuralNet
    from skorch.callbacks import Checkpoint, EpochScoring, GradientNormClipping
    from skorch.helper import predefined_split

    work = WORKS[name]
    train, validation = work.sets()

    class Loss(nn.Module):
        def forward(self, outputs: Any, targets: Any) -> Any:
            return loss_of(outputs, targets)

    def score(net: Any, samples: Any, _targets: Any) -> float:
        return validate(net.module_, net.get_iterator(samples, training=False))

    with _quiet() as folder:
        net = NeuralNet(
            work.model(),
            criterion=Loss,
            optimizer=torch.optim.AdamW,
            lr=LR,
            batch_size=work.batch,
            iterator_train__shuffle=True,
            iterator_valid__batch_size=EVALUATION_BATCH,
            max_epochs=work.epochs,
            train_split=predefined_split(validation),
            verbose=0,
            device=DEVICE,
            callbacks=[
                EpochScoring(score, lower_is_better=False, name="accuracy", use_caching=False),
                Checkpoint(dirname=f"{folder}/best", monitor="accuracy_best"),
                Checkpoint(dirname=f"{folder}/last", monitor=None),
                GradientNormClipping(CLIP),
            ],
        )
        return _timed(lambda: net.fit(train, None))


def ignite(name: str) -> float:
    """Train with Ignite's engines; return the seconds of `run`."""
    from ignite.engine import Engine, Events
    from ignite.handlers import Checkpoint, DiskSaver

    work = WORKS[name]
    net = work.model().to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters(), LR)
    train, validation = _loaders(work)

    def step(_engine: Any, batch: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(net(batch[0].to(DEVICE)), batch[1].to(DEVICE)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()

    trainer = Engine(step)
    found: list[float] = []
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda _engine: found.append(validate(net, on_device(validation))))
    with _quiet() as folder:
        state = {"model": net, "optimizer": optimizer}
        best = Checkpoint(state, DiskSaver(f"{folder}/best"), n_saved=1, score_function=lambda _engine: found[-1])
        last = Checkpoint(state, DiskSaver(f"{folder}/last"), n_saved=1)
        for saver in (best, last):
            trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
        return _timed(lambda: trainer.run(train, max_epochs=work.epochs))


PEERS: dict[str, tuple[str, Callable[[str], float]]] = {
    "Ignite": ("pytorch-ignite", ignite),
    "Accelerate": ("accelerate", accelerate),
    "HF Trainer": ("transformers", huggingface),
    "skorch": ("skorch", skorch),
    "Lightning": ("lightning", lightning),
}
