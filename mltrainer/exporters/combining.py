"""One combination job, from the checkpoints of several models to the checkpoint of one, measured like them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from mltrainer.checkpointing.combinations import is_kept
from mltrainer.checkpointing.ensembles import average, ensemble, model_of, unlike
from mltrainer.checkpointing.format import load, save, snapshot
from mltrainer.checkpointing.manifest import MANIFEST_FILE, STATE_FILES, folder_name
from mltrainer.checkpointing.ranking import rank
from mltrainer.checkpointing.weights import delivered, weights_sha256
from mltrainer.configs.strategies import Probing
from mltrainer.configs.strategy_limits import moves_embeddings
from mltrainer.errors import InputError
from mltrainer.records.checkpoint import Manifest
from mltrainer.records.common import FileRow, digests_by_name
from mltrainer.records.finalization import Addition, LeftOut, Member
from mltrainer.records.job import Combined, CombineJob, Ingredient
from mltrainer.reproducibility.evidence import RESULT_FILE
from mltrainer.tasks.opening import OpenTask
from mltrainer.tools.loading import check_data, open_untrained
from mltrainer.trainers.native.costs import costs
from mltrainer.trainers.native.data.addresses import evaluation_batches
from mltrainer.trainers.native.evaluation import measured
from mltrainer.trainers.native.optimization.averages import measure_statistics
from mltrainer.workspace import locked, plain, write_json

State = dict[str, Tensor]
Metrics = dict[str, float]


@dataclass(frozen=True)
class Candidate:
    """A model that may be combined.

    Attributes:
        given: The job's entry for the model, with its path.
        manifest: The manifest of its checkpoint.
        state: The weights that it would deliver.
        metrics: The metrics of the validation split.
    """

    given: Ingredient
    manifest: Manifest
    state: State
    metrics: Metrics


@dataclass(frozen=True)
class Mixture:
    """The result of combining some candidates.

    Attributes:
        used: Their places among the candidates.
        state: Its weights.
        metrics: The metrics of the validation split.
        additions: The tried additions, in order, of a greedy combination.
    """

    used: list[int]
    state: State
    metrics: Metrics
    additions: list[Addition]


def combine(job: CombineJob, root: Path) -> dict[str, Any]:
    """Run one job, and write its result, which is returned.

    The result holds `members`, `left_out`, `additions`, `files`, `weights_sha256`, `measured` and `metrics` as
    `records.finalization.Combination` has them, and where passes are timed `single_cost` and `cost`.

    Raises:
        GateError: A checkpoint is damaged, or the final run's data is another.
        InputError: The models' outputs cannot be averaged.
    """
    with locked(root / job.folder / "lock", f"the combination of {job.run}"):
        result = _Combiner(job, root).combined()
        write_json(root / job.folder / RESULT_FILE, {"schema": 1, **result})
    return result


def _refuse_strategies_within(job: CombineJob) -> None:
    """Refuse an ensemble if a strategy measures one layer of a model: each member has that layer.

    Raises:
        InputError: Such a strategy is configured; the message names it.
    """
    within: list[str] = [one.name for one in job.config.strategies if isinstance(one, Probing)]
    within += [f"{one.name}, on embeddings," for one in job.config.strategies if moves_embeddings(one, job.config.task.kind)]
    if job.how == "ensemble" and within:
        message = f"the strategy {within[0]} measures a layer of the model, and an ensemble has one in each member"
        raise InputError(message, where="combine.how", hint="how: greedy, or leave combine out")


class _Combiner:
    """The final run's task and model, which measure all candidates."""

    def __init__(self, job: CombineJob, root: Path) -> None:
        self.job, self.root, self.config = job, root, job.config
        _refuse_strategies_within(job)
        self.task, self.model = open_untrained(job.config, root)
        self.model.to(self.config.device)
        self.left_out: list[LeftOut] = []
        self.statistics = _statistics(self.model)

    def combined(self) -> dict[str, Any]:
        """Return the job's result."""
        candidates = self._candidates()
        first, best = candidates[0], sorted(candidates, key=self._rank, reverse=True)[: self.job.most]
        mixture = self._mixture(best)
        made = self._saved(first.manifest, mixture)
        costs = self._costs(first, [best[place] for place in mixture.used], mixture) if self.job.timed else {}
        return {
            "members": [_member(one, nr in mixture.used).written() for nr, one in enumerate(best)],
            "left_out": [row.written() for row in self.left_out],
            "additions": [row.written() for row in mixture.additions],
            "files": [row.written() for row in made],
            "weights_sha256": weights_sha256(mixture.state),
            "measured": [] if self.job.how == "ensemble" else self.statistics,
            "metrics": plain(mixture.metrics),
            **costs,
        }

    def _rank(self, one: Candidate) -> tuple[float, float]:
        return rank(one.metrics, self.config.metric)

    # --- one model ------------------------------------------------------------------------------

    def _candidates(self) -> list[Candidate]:
        """Return the models that fit, in the order given; of equal weights only the first, as a twin adds no information."""
        by_weights: dict[str, Candidate] = {}
        for given in self.job.ingredients:
            one = self._candidate(given)
            if one is None:
                continue
            twin = by_weights.setdefault(weights_sha256(one.state), one)
            if twin is not one:
                self._leave_out(given, f"it has the weights of {twin.given.path}")
        return [*by_weights.values()]

    def _candidate(self, given: Ingredient) -> Candidate | None:
        """Return a candidate with its validation metrics, or None if it does not fit, which is noted."""
        expected = digests_by_name(given.files)
        tree, manifest = load(self.root / given.path, expected)
        state = delivered(tree)
        is_final = given is self.job.ingredients[0]
        if (reason := None if is_final else self._misfit(given, manifest, state)) is not None:
            self._leave_out(given, reason)
            return None
        check_data(self.task, manifest)
        model = self.model if given.config is None else model_of(given.config, self.task, self.root).to(self.config.device)
        metrics = self._metrics_with(state, model)
        # The same tensors in another function, such as one of another activation, are no weights to average.
        if model is not self.model and self.job.how != "ensemble" and metrics != self._metrics_with(state, self.model):
            self._leave_out(given, "its weights predict otherwise in the final run's model")
            return None
        return Candidate(given, manifest, state, metrics)

    def _leave_out(self, given: Ingredient, reason: str) -> None:
        self.left_out.append(LeftOut(run=given.run, path=given.path, reason=reason))

    def _misfit(self, given: Ingredient, manifest: Manifest, state: State) -> str | None:
        """Return the reason that a model cannot be combined with the final run's."""
        if manifest.contract.get("data_sha256") != self.task.data_sha256:
            return "it was trained on other data"
        if given.config is not None and given.config.split.fold != self.config.split.fold:
            return "it was validated on another fold"
        if self.job.how == "ensemble":
            return None
        difference = unlike(self.model.state_dict(), state)
        return f"weights of another form: {difference}" if difference else None

    def _metrics_with(self, state: State, model: nn.Module) -> Metrics:
        model.load_state_dict(state, strict=True)
        return self._measured(model)

    def _measured(self, model: nn.Module) -> Metrics:
        return measured(self.task, model.eval(), self.task.split("validation"), "validation").metrics

    # --- several --------------------------------------------------------------------------------

    def _mixture(self, best: Sequence[Candidate]) -> Mixture:
        if self.job.how == "uniform":
            return Mixture([*range(len(best))], *self._average(best), [])
        kept, additions = [0], []
        # Of one alone its own, which an ensemble of it would have but for the last bits.
        state, metrics = self._made(best[:1])[0], best[0].metrics
        for place in range(1, len(best)):
            tried, tried_metrics = self._made([best[nr] for nr in [*kept, place]])
            stays = is_kept(self.job.how, rank(tried_metrics, self.config.metric), rank(metrics, self.config.metric))
            additions.append(Addition(member=place + 1, metrics=plain(tried_metrics), kept=stays))
            if stays:
                kept, state, metrics = [*kept, place], tried, tried_metrics
        return Mixture(kept, state, metrics, additions)

    def _made(self, some: Sequence[Candidate]) -> tuple[State, Metrics]:
        """Return the combined weights of some models and their validation metrics; of a mean of one model, that model's own."""
        if self.job.how == "ensemble":
            return self._ensemble(some)
        return self._average(some) if len(some) > 1 else (some[0].state, some[0].metrics)

    def _average(self, some: Sequence[Candidate]) -> tuple[State, Metrics]:
        """Return the mean of some weights, with batch-norm statistics computed for it, and its validation metrics."""
        self.model.load_state_dict(average([one.state for one in some]), strict=True)
        if self.statistics:
            samples = self.task.split("train")
            batches = evaluation_batches(samples, np.arange(len(samples)), self.config, "train")
            measure_statistics(self.task.task, self.model, self.config, batches)
        state = {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}
        return state, self._measured(self.model)

    def _ensemble(self, some: Sequence[Candidate]) -> tuple[State, Metrics]:
        model = self._together(some)
        return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}, self._measured(model)

    def _together(self, some: Sequence[Candidate]) -> nn.Module:
        configs = [one.given.config or self.config for one in some]
        model = ensemble(self.task, configs, self.root).to(self.config.device)
        for member, one in zip(model.members, some, strict=True):
            member.load_state_dict(one.state, strict=True)
        return model.eval()

    # --- what is left ---------------------------------------------------------------------------

    def _saved(self, first: Manifest, mixture: Mixture) -> list[FileRow]:
        """Save the combination as a checkpoint, and return its files."""
        folder = self.root / self.job.out / folder_name(first.step)
        origin = {"run": self.job.run, "step": first.step, "epoch": first.epoch, "contract": first.contract, "periodic": False}
        metrics = plain(mixture.metrics)
        chosen = metrics[self.config.metric.name]
        save(folder, snapshot({"model": mixture.state}), {**origin, "metric": chosen, "metrics": metrics})
        paths = [folder / name for name in (*STATE_FILES, MANIFEST_FILE)]
        return [FileRow.of(path, path.relative_to(self.root).as_posix()) for path in paths]

    def _costs(self, single: Candidate, used: Sequence[Candidate], mixture: Mixture) -> dict[str, Any]:
        """Return the sizes and times of the final run's model and of the combination."""
        self.model.load_state_dict(single.state, strict=True)
        if self.job.how == "ensemble":
            alone, all_of_them = costs(self.task, self.config, [self.model, self._together(used)])
        else:  # whose form is the single model's
            (alone,) = costs(self.task, self.config, [self.model])
            self.model.load_state_dict(mixture.state, strict=True)
            (all_of_them,) = costs(self.task, self.config, [self.model])
        return {"single_cost": alone.written(), "cost": all_of_them.written()}


def _member(one: Candidate, used: bool) -> Member:
    config = one.given.config
    return Member(
        run=one.given.run,
        path=one.given.path,
        step=one.manifest.step,
        files=one.given.files,
        weights_sha256=weights_sha256(one.state),
        metrics=plain(one.metrics),
        used=used,
        **({} if config is None else {"config": config.model_dump()}),
    )


def _statistics(model: nn.Module) -> list[str]:
    """Return the names of a model's batch-norm statistics."""
    norms = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    return sorted(f"{path}.{name}".removeprefix(".") for path, norm in norms for name, _ in norm.named_buffers())


def combined_model(combined: Combined, task: OpenTask, model: nn.Module, root: Path) -> nn.Module:
    """Return the untrained model that a combination's weights belong to."""
    return ensemble(task, combined.configs, root) if combined.how == "ensemble" else model
