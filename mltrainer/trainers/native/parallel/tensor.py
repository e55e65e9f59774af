"""A model whose matrices are split among processes by its plan; they compute each micro-batch together (tensor parallelism).

Source: Shoeybi et al., 2019, arXiv 1909.08053; the parts are those of `torch.distributed.tensor.parallel`. Sums over processes
are inside the forward pass, so that their number decides the bits: it is `tensor_parallel` of the config, and part of a run's
name. During steps, a process holds its parts of the planned parameters, and of their gradients and moments; whenever other code
reads weights, the parameters are whole.

torch's `parallelize_module` (2.13) gives the placements and the hooks, on stand-ins, and does not split the model itself: it put
other objects in the place of all planned parameters, after which a whole state did not load, while evaluations, callbacks,
checkpoints and digests read and write the same whole parameters around the steps.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.utils.hooks import RemovableHandle

from mltrainer.checkpointing.weights import weights_sha256
from mltrainer.errors import InputError, MltrainerError
from mltrainer.tasks.structures import tensors_in
from mltrainer.trainers.native.data.addresses import Step
from mltrainer.trainers.native.exchange import others_may_be_lost, tells_of_others
from mltrainer.trainers.native.objective import Objective, buffers_kept
from mltrainer.trainers.native.optimization.precision import full
from mltrainer.trainers.native.parallel.parallelism import Parallelism, gradients_of
from mltrainer.trainers.native.parallel.partition import Partition
from mltrainer.trainers.native.ranks import PARTS_APART, Ranks, require_alike

KEY, PLAN = "tensor_parallel", "tp_plan"
STYLES: dict[str, Callable[[], ParallelStyle]] = {  # the style names of Hugging Face's plans
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
    "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate()),
}
CLOSE = 1e-3  # tolerance of outputs in fp32, between a whole and a split model; wrong plans differ more
CLOSE_LOWERED = 0.1  # tolerance in bf16
NEGLIGIBLE = 1e-3  # share of all gradients' norm: a gradient below it, such as that of a key's bias, is only rounding
MEND = f"fix the model's {PLAN}, or train it in one process: mltrainer phase run planning --set {KEY}=1"


@dataclass(eq=False)
class Part:
    """A planned parameter.

    Attributes:
        whole: The model's own parameter, without memory while the model is split.
        own: The parameter that the optimizer updates in this process.
        split: The module's parameter while the model is split, in the memory of `own`.
        owner: The module of the parameter.
        key: The parameter's name in the module.
    """

    whole: nn.Parameter
    own: nn.Parameter
    split: nn.Parameter
    owner: nn.Module
    key: str

    @property
    def is_cut(self) -> bool:
        """Whether this process has only a part of the parameter."""
        return self.own is not self.whole

    def of(self, tensor: Tensor) -> Tensor:
        """Return this process's part of a whole tensor, in separate memory."""
        (place,) = self.dtensor.placements
        assert isinstance(place, Shard)
        mesh = self.dtensor.device_mesh
        return tensor.chunk(mesh.size(), place.dim)[mesh.get_local_rank()].clone(memory_format=torch.contiguous_format)

    def together(self, own: Tensor) -> Tensor:
        """Return the whole tensor from all processes' parts, cut like this parameter."""
        found = self.dtensor
        whole = _dtensor(own, found, found.device_mesh, found.placements)
        with others_may_be_lost():
            return whole.full_tensor().detach()

    @property
    def dtensor(self) -> DTensor:
        """Return the split parameter, typed as a DTensor."""
        assert isinstance(self.split, DTensor)
        return self.split

    def arrived(self, split: Tensor) -> None:
        """Move a gradient to the optimizer's parameter."""
        assert isinstance(split.grad, DTensor)
        part = split.grad.redistribute(placements=self.dtensor.placements).to_local()
        # Added: a module that is recomputed and used twice gets its gradient in parts.
        self.own.grad = part.contiguous() if self.own.grad is None else self.own.grad + part
        split.grad = None


class TensorParallel(Parallelism):
    """A model with a plan, whole until a step splits it.

    Args:
        model: The model, on its device; its `tp_plan` maps modules' names to styles; `*` is any part between two dots.
        ranks: The processes.

    Attributes:
        parts: The planned parameters by name.

    Raises:
        InputError: The model has no plan, or one that cannot split it.
    """

    splits = True

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self.parts: dict[str, Part] = {}
        self._hooks: list[tuple[nn.Module, Any, Any]] = []
        self._handles: list[RemovableHandle] = []
        super().__init__(model, ranks)
        self.leaves = [*self.partition.own.values()]
        self._is_proven = self._is_alike = False

    def _partition(self) -> Partition:
        _refuse_shared(self.model, styles := _styles(self.model))
        mesh = init_device_mesh(next(self.model.parameters()).device.type, (self.ranks.size,))
        for path, style in styles.items():
            self._plan(path, self.model.get_submodule(path), style, mesh)
        return Parts(self.ranks, self.trained, {name: self.parts[name] for name in self.trained if name in self.parts})

    def _plan(self, path: str, module: nn.Module, style: str, mesh: DeviceMesh) -> None:
        # A stand-in without memory shows torch's style for a module: its placements, and the hooks before and after it.
        like = parallelize_module(_stand_in(path, module), mesh, STYLES[style](), src_data_rank=None)
        (before,), (after,) = like._forward_pre_hooks.values(), like._forward_hooks.values()
        self._hooks.append((module, before, after))
        for key, whole in list(module.named_parameters(recurse=False)):
            split = like.get_parameter(key)
            assert isinstance(split, DTensor)
            (place,) = split.placements
            _refuse_uneven(f"{path}.{key}", whole, place, mesh.size())
            self.parts[f"{path}.{key}"] = _part(module, key, whole, place, mesh)

    # --- a step ---

    def backward(self, objective: Objective, number: int, step: Step) -> Tensor:
        """Leave the gradients of a step's mean loss where this process's updates read them; return that loss, with its terms.

        Raises:
            InputError: Split by its plan, the model computes something else.
        """
        with others_may_be_lost(tells_of_others):
            self._require_same_results(objective, number, step)
            loss = super().backward(objective, number, step)
            self._require_alike_gradients()
        return loss

    # --- between steps ---

    @torch.no_grad()
    def _free(self) -> None:
        """Free all but this process's parts."""
        for part in self.parts.values():
            setattr(part.owner, part.key, part.split)
            if part.is_cut:
                part.own.copy_(part.of(part.whole))  # the whole may have been loaded
                part.whole.data = torch.empty(0, dtype=part.own.dtype, device=part.own.device)
        for module, before, after in self._hooks:
            self._handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]

    def _make_whole(self) -> None:
        for part in self.parts.values():
            if part.is_cut:
                part.whole.data = part.together(part.own.detach())
            setattr(part.owner, part.key, part.whole)
        for handle in self._handles:
            handle.remove()
        self._handles = []

    # --- the check of the plan ---

    def _require_same_results(self, objective: Objective, number: int, step: Step) -> None:
        """Refuse, once, a plan by which the model computes something else than whole; the model is split afterwards.

        Raises:
            InputError: An output, the loss or a gradient differs; with its name.
        """
        if self._is_proven:
            self._split()
            return
        self.gather()
        compute = partial(self._tried, objective, number, step)
        outputs, expected = self._results(compute)
        self._split()
        split_outputs, found = self._results(partial(_explained, compute))
        self._is_proven = True
        for one, other in zip(outputs, split_outputs, strict=True):
            if one.shape != other.shape:
                what = f"split by its plan, the model gives {list(other.shape)}, where whole it gives {list(one.shape)}"
                raise InputError(what, where=PLAN, hint=f"let the last module gather: colwise_gather_output; {MEND}")
            _require_near("its output", one, other, 0.0, objective.lowers)
        # Outputs alone do not show a part that is multiplied by zero at first, or a term of the loss outside of them.
        total = math.hypot(*(float(gradient.norm()) for gradient in expected.values()))
        for what, one in expected.items():
            _require_near(what, one, found[what], NEGLIGIBLE * total, objective.lowers)

    def _tried(self, objective: Objective, number: int, step: Step) -> tuple[Any, Tensor]:
        """Return outputs and loss of a step's first micro-batch in evaluation mode, and leave its gradients in the parameters."""
        self.clear()
        objective.seed(number, 0)
        # Module by module: a norm that is frozen for this step stays as it is.
        modes = [(module, module.training) for module in self.model.modules()]
        with buffers_kept(self.model), objective.autocast:
            self.model.eval()
            # A copy: a forward pass may change its batch in place, and the batch is still needed for training.
            outputs, targets = objective.task.forward(self.model, copy.deepcopy(step.micro_batches[0]))
            loss = objective.task.loss(full(outputs), targets)
        loss.backward()
        for module, training in modes:
            module.training = training
        return outputs, loss.detach()

    def _results(self, compute: Callable[[], tuple[Any, Tensor]]) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Return the outputs of a batch, and its loss and whole gradients by description; clear the gradients."""
        outputs, loss = compute()
        found = {"its loss": loss}
        for name, p in self.trained.items():
            part = self.parts.get(name) if self.is_split else None
            leaf = p if part is None else part.own
            gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.to_dense()
            found[f"the gradient of {name}"] = gradient if part is None or not part.is_cut else part.together(gradient)
            leaf.grad = None
        return [tensor.detach() for tensor in tensors_in(outputs)], found

    def _require_alike_gradients(self) -> None:
        """Refuse, once, gradients that differ among processes for a parameter that every process has whole.

        Raises:
            InputError: A gradient differs; with the parameter's name.
        """
        if not self._is_alike:
            whole = {f"the gradient of {name}": self.partition.own[name] for name in self.partition.small}
            self.require_alike(dict(zip(whole, gradients_of(whole.values()), strict=True)))
            self._is_alike = True

    def require_alike(self, state: Mapping[str, Tensor]) -> None:
        """Refuse whole tensors that differ among processes after their separate updates.

        Raises:
            InputError: A tensor differs; with its name.
        """
        require_alike(self.ranks, {name: weights_sha256({name: tensor}) for name, tensor in state.items()}, PARTS_APART)


class Parts(Partition):
    """This process's updates in a model with a plan: its parts of the cut parameters, all of the rest.

    Args:
        ranks: The processes.
        parameters: The trainable parameters, by name.
        planned: The trainable parameters that have a plan, by name.
    """

    def __init__(self, ranks: Ranks, parameters: Mapping[str, nn.Parameter], planned: Mapping[str, Part]) -> None:
        super().__init__(ranks, parameters, {})
        self._parts = {name: part for name, part in planned.items() if part.is_cut}
        self.own |= {name: part.own for name, part in self._parts.items()}

    @property
    def cut(self) -> list[str]:
        """The names of the parameters that are cut."""
        return [*self._parts]

    def _norms_of_all(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the norms of all processes' parts."""
        norms = self._ranks.gather_blocks(torch.stack(torch._foreach_norm([*gradients.values()]))).clone()
        return {name: norms[:, place].to(own.dtype) for place, (name, own) in enumerate(gradients.items())}

    def whole(self, name: str, rows: Tensor) -> Tensor:
        """Return the whole tensor from all processes' parts, such as a moment; a tensor that is not cut is whole already."""
        return self._parts[name].together(rows) if name in self._parts else rows

    def marked(self, name: str, tensor: Tensor) -> Tensor:
        """Return a tensor in its form for a checkpoint: whole in the first process, which writes all."""
        if tensor.shape != self.own[name].shape:
            return tensor
        whole = self.whole(name, tensor)
        return whole if self._ranks.writes else tensor

    def _own_part(self, name: str, tensor: Tensor) -> Tensor:
        part = self._parts[name]
        return part.of(tensor) if tensor.shape == part.dtensor.shape else tensor


# --- the plan -------------------------------------------------------------------------------------


def _styles(model: nn.Module) -> dict[str, str]:
    """Return the style of each planned module by its name.

    Raises:
        InputError: There is no plan, or an entry matches nothing or has an unknown style.
    """
    plan = getattr(model, PLAN, None)
    plan = plan() if callable(plan) else plan
    if not isinstance(plan, Mapping) or not plan:
        what = f"the model has no plan by which it could be split: {PLAN} of {type(model).__name__} is {plan!r:.60}"
        hint = f'in its class, write such as {PLAN} = {{"layers.*.up": "colwise", "layers.*.down": "rowwise"}}'
        raise InputError(what, where=KEY, hint=hint)
    found: dict[str, str] = {}
    for pattern, style in plan.items():
        matching = re.compile(re.escape(str(pattern)).replace(r"\*", "[^.]+")).fullmatch
        names = [name for name, _ in model.named_modules() if name and matching(name)]
        if style not in STYLES:
            raise InputError(
                f"the style of {pattern}", expected=f"one of {', '.join(STYLES)}", found=repr(style), where=PLAN, hint=MEND
            )
        if not names:
            shown = ", ".join([name for name, m in model.named_modules() if isinstance(m, (nn.Linear, nn.Embedding))][:5])
            raise InputError(f"{pattern!r} matches no module; there are {shown}, ...", where=PLAN, hint=MEND)
        found |= dict.fromkeys(names, style)
    return found


def _stand_in(path: str, module: nn.Module) -> nn.Module:
    """Return a module without memory that torch splits like the given one.

    Raises:
        InputError: torch cannot split a module of this kind.
    """
    if isinstance(module, nn.Linear):
        return nn.Linear(module.in_features, module.out_features, module.bias is not None, device="meta")
    if isinstance(module, nn.Embedding) and not module.sparse and module.max_norm is None and module.padding_idx is None:
        return nn.Embedding(module.num_embeddings, module.embedding_dim, device="meta")
    what = f"{path} is a {type(module).__name__}; Linear is split, and Embedding without sparse, max_norm and padding_idx"
    raise InputError(what, where=PLAN, hint=MEND)


def _refuse_shared(model: nn.Module, planned: Mapping[str, str]) -> None:
    """Refuse planned modules whose parameters other modules use too.

    Raises:
        InputError: A parameter is shared; with its names.
    """
    names: dict[int, str] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        other = names.setdefault(id(p), name)
        if other != name and not planned.keys().isdisjoint({name.rpartition(".")[0], other.rpartition(".")[0]}):
            raise InputError(f"{name} is {other} at the same time, and each module is split by itself", where=PLAN, hint=MEND)


def _refuse_uneven(name: str, whole: Tensor, place: Placement, size: int) -> None:
    """Refuse a size that the number of processes does not divide.

    Raises:
        InputError: The size cannot be divided; with the parameter's name.
    """
    if isinstance(place, Shard) and whole.shape[place.dim] % size:
        what = f"{name} is {list(whole.shape)}, and {size} processes do not divide its dimension {place.dim}"
        raise InputError(what, where=KEY, hint=f"take a number of processes that divides it, or leave it out of {PLAN}")


def _part(owner: nn.Module, key: str, whole: nn.Parameter, place: Placement, mesh: DeviceMesh) -> Part:
    own, rank = whole, mesh.get_local_rank()
    if isinstance(place, Shard):
        held = whole.detach().chunk(mesh.size(), place.dim)[rank].clone(memory_format=torch.contiguous_format)
        own = nn.Parameter(held, whole.requires_grad)
    split = nn.Parameter(_dtensor(own.detach(), whole, mesh, [place]), whole.requires_grad)
    part = Part(whole, own, split, owner, key)
    if whole.requires_grad:
        part.split.register_post_accumulate_grad_hook(part.arrived)
    return part


def _require_near(what: str, one: Tensor, other: Tensor, least: float, lowers: bool) -> None:
    """Refuse a difference above the tolerance, relative to the first tensor's norm or to `least`.

    Raises:
        InputError: The difference is too large; with the tensor's description.
    """
    off = _distance(one, other, least)
    if not off <= (CLOSE_LOWERED if lowers else CLOSE):
        said = f"split by its plan, the model computes something else: {what}, which is off by {off:.2g} of its norm"
        raise InputError(said, where=PLAN, hint=MEND)


def _distance(one: Tensor, other: Tensor, least: float) -> float:
    """Return the norm of a difference divided by that of the first tensor; numbers that are not finite, as in masks, count as 0.

    Args:
        one: The first tensor.
        other: The second tensor.
        least: The divisor if the first tensor's norm is smaller.
    """
    first, second = (torch.nan_to_num(tensor.double(), 0.0, 0.0, 0.0) for tensor in (one, other))
    return float((first - second).norm() / max(float(first.norm()), least, 1e-12))


def _dtensor(own: Tensor, like: Tensor, mesh: DeviceMesh, places: Sequence[Placement]) -> DTensor:
    """Return a tensor of which this process has a part, of the shape of another one."""
    return DTensor.from_local(own, mesh, places, run_check=False, shape=like.shape, stride=like.stride())


def _explained(compute: Callable[[], tuple[Any, Tensor]]) -> tuple[Any, Tensor]:
    """Return the results of a split model.

    Raises:
        InputError: The split model cannot be computed.
    """
    try:
        with others_may_be_lost(tells_of_others):
            return compute()
    except MltrainerError:
        raise
    except Exception as error:
        what = f"split by its plan, the model cannot be computed: {type(error).__name__}: {error!s:.300}"
        sizes = "let modules take sizes from what they are given: x.view(*x.shape[:-1], -1, self.head_size)"
        hint = f"let the last module gather (colwise_gather_output), and {sizes}; {MEND}"
        raise InputError(what, where=PLAN, hint=hint) from error
