"""A run's callbacks: made from the config, called with copies of plain values, and checked not to disturb training."""

from __future__ import annotations

import contextlib
import copy
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mltrainer.callbacks import Participant, Watcher
from mltrainer.checkpointing.weights import raw_bytes, weights_sha256
from mltrainer.configs.project import Callback, TrainingConfig
from mltrainer.errors import InputError
from mltrainer.reproducibility import determinism, seeds
from mltrainer.tasks.user_code import check_options, import_module, user_code
from mltrainer.trainers.native.observers import Observer
from mltrainer.trainers.native.recording import Recorder
from mltrainer.trainers.native.stepping import Stepper

WATCHES, TAKES_PART = ({name for name in vars(kind) if not name.startswith("_")} for kind in (Watcher, Participant))
STATE = {"state_dict", "load_state_dict"}
Mark = Callable[[nn.Module], object]


@dataclass(frozen=True)
class _Own:
    """One callback; `address` keeps its random draws apart from the others'."""

    use: str
    address: str
    it: Any

    @property
    def takes_part(self) -> bool:
        return hasattr(self.it, "state_dict")


class Callbacks(Observer):
    """The callbacks of one process's work on a run.

    Args:
        config: The run's config; it names the callbacks, and its seed addresses their draws.
        root: The project's folder, where the callbacks are imported from.

    Raises:
        InputError: A callback cannot be imported or made, or is no callback; with file and line, or the nearest name.
    """

    def __init__(self, config: TrainingConfig, root: Path) -> None:
        self._seed, self._root = config.seed, root
        seeds.seed_everything(seeds.key(config.seed, "callbacks"))
        self._own = [_adapter(number, given, root) for number, given in enumerate(config.callbacks)]
        self._participants = [own for own in self._own if own.takes_part]

    def attach(self, stepper: Stepper) -> None:
        """Have the participating callbacks called before each of a stepper's steps.

        Raises:
            InputError: The parameters are split among processes, so that there is no whole model to take part in.
        """
        if self._participants and stepper.parallel.splits:
            what = f"{self._participants[0].use} takes part in the steps of a model that is split among processes"
            hint = "tensor_parallel: 1, and launch.parallel: zero1, which keeps the model whole"
            raise InputError(what, where="callbacks", hint=hint)
        self._model, self._optimizer = stepper.model, stepper.optimizer
        if self._participants:
            stepper.before_step = self._before_step

    # --- events ---

    def start(self, run: dict[str, Any]) -> None:
        """Call `on_start`: a process begins to train."""
        self._tell("on_start", run["step"], [(run,)])

    def fetched(self, recorder: Recorder) -> None:
        """Call `on_step` for steps whose numbers have arrived: step, loss, gradient norm; weights are checked without hashing."""
        if recorder.fetched:
            self._tell("on_step", recorder.fetched[0][0], recorder.fetched, _versions)

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """Call `on_evaluation` with a new row of the history."""
        self._tell("on_evaluation", row["step"], [(dict(row),)])

    def checkpoint(self, step: int) -> None:
        """Call `on_checkpoint`: a checkpoint has been handed to its writer."""
        self._tell("on_checkpoint", step, [(step,)])

    def end(self, outcome: dict[str, Any]) -> None:
        """Call `on_end` with the outcome of the training."""
        self._tell("on_end", outcome["step"], [(outcome,)])

    def _tell(self, event: str, step: int, calls: Sequence[tuple[Any, ...]], mark: Mark | None = None) -> None:
        for own in self._own:
            if hasattr(own.it, event):
                with self._watched(own, event, mark or _digest), self._called(own, event, step):
                    # A copy for each callback: neither the next callback nor the history may see its changes to a row.
                    for arguments in copy.deepcopy(calls):
                        getattr(own.it, event)(*arguments)

    def _before_step(self, step: int) -> None:
        for own in self._participants:
            if hasattr(own.it, "on_before_step"):
                with self._called(own, "on_before_step", step), torch.no_grad():
                    own.it.on_before_step(step, self._model, self._optimizer)

    @contextlib.contextmanager
    def _called(self, own: _Own, event: str, step: int) -> Iterator[None]:
        """Address a call's random draws, restore training's generators after it, and report its faults as the user's."""
        # Restored afterwards and not only seeded before: the number of its draws must not shift those of training.
        with seeds.kept(), user_code(self._root, f"{own.use}, {event}"):
            seeds.seed_everything(seeds.key(self._seed, f"{own.address}/{event}", step))
            yield

    @contextlib.contextmanager
    def _watched(self, own: _Own, event: str, mark: Mark) -> Iterator[None]:
        """Refuse a call that changes the weights, or a setting that training depends on.

        Raises:
            InputError: The call changed one of them.
        """
        marks: dict[str, Mark] = {"the model's weights": mark, "settings of torch or of the model": _settings}
        before = {what: taken(self._model) for what, taken in marks.items()}
        yield
        if changed := [what for what, taken in marks.items() if taken(self._model) != before[what]]:
            raise InputError(
                f"{own.use} changed {' and '.join(changed)} in {event}, where a callback may only watch",
                where="callbacks",
                hint="change them in on_before_step, and give the class state_dict and load_state_dict",
            )

    # --- state ---

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the states of the participating callbacks."""
        return [{"use": own.use, "state": self._of_user(own, "state_dict")} for own in self._participants]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        """Load a checkpoint's states.

        Raises:
            InputError: The states belong to other callbacks, or one does not fit.
        """
        found, expected = [state["use"] for state in states], [own.use for own in self._participants]
        if found != expected:
            raise InputError(
                "callbacks with a state, of the checkpoint",
                expected=", ".join(expected) or "none",
                found=", ".join(found) or "none",
                where="callbacks",
                hint="name the callbacks that the checkpoint was made with, or train a new run",
            )
        for own, state in zip(self._participants, states, strict=True):
            self._of_user(own, "load_state_dict", state["state"])

    def _of_user(self, own: _Own, method: str, *arguments: Any) -> Any:
        with seeds.kept(), user_code(self._root, f"{own.use}, {method}"):
            return getattr(own.it, method)(*arguments)


def _digest(model: nn.Module) -> str:
    return weights_sha256(model.state_dict())


@torch.no_grad()
def _versions(model: nn.Module) -> tuple[list[int], bytes]:
    """Return the tensors' version counters and their norms, because a write to `.data` is not counted."""
    tensors = [*model.parameters(), *model.buffers()]
    norms = [torch.linalg.vector_norm(t.detach().to(torch.promote_types(t.dtype, torch.float32))).double() for t in tensors]
    return [tensor._version for tensor in tensors], raw_bytes(torch.stack(norms)).tobytes()


def _settings(model: nn.Module) -> object:
    """Return the state, besides the weights, that decides the next step: torch's switches, `requires_grad` and train modes."""
    switches = (determinism.read_back(""), torch.is_grad_enabled(), torch.get_default_dtype())
    return switches, [p.requires_grad for p in model.parameters()], [module.training for module in model.modules()]


def _adapter(number: int, given: Callback, root: Path) -> _Own:
    where, name = f"callbacks[{number}]", given.use.partition(":")[2]
    module = import_module(given.use, root, where)
    kind = getattr(module, name, None)
    if not isinstance(kind, type):
        classes = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise InputError.unknown("class", name, classes, of=f"in {module.__name__}", where=where)
    if (fault := misfit(kind)) is not None:
        raise InputError(f"{given.use} {fault}", where=where, hint="see mltrainer.callbacks for the events and what each gets")
    if given.watch and hasattr(kind, "state_dict"):
        what = f"{given.use} takes part in training, and may not be declared to watch only"
        raise InputError(what, where=where, hint="leave watch out, or remove its state_dict()")
    # Before the class is made: a TypeError out of its constructor cannot distinguish a wrong option from a fault in its code.
    check_options(kind, given.options, where)
    with user_code(root, f"making {name}"):
        return _Own(given.use, f"callback {number}", kind(**given.options))


def misfit(kind: type) -> str | None:
    """Return the reason why a class is no callback; None if it is one."""
    methods = {name for name in dir(kind) if name.startswith("on_") or name in STATE}
    if unknown := sorted(methods - WATCHES - TAKES_PART):
        close = difflib.get_close_matches(unknown[0], WATCHES | TAKES_PART, n=1)
        return f"has {unknown[0]}, which is no event" + (f"; did you mean {close[0]}?" if close else "")
    if not methods - STATE:
        return f"has none of the events {', '.join(sorted((WATCHES | TAKES_PART) - STATE))}"
    if methods <= WATCHES:
        return None
    if lacking := sorted(STATE - methods):
        return f"may alter training, and must have {' and '.join(lacking)} too, so that a resumed run goes on with the same bits"
    if unfixed := sorted(methods - TAKES_PART):
        return f"has state and {unfixed[0]}, which comes at no fixed step: leave that to a second class, without state"
    return None
