"""Some of the backward passes are computed twice: gradients of other bits show a device that computes wrong.

Also loaded by its path into a program: it imports the standard library alone.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mltrainer.observe.process import Process, Settings

COMPILED = "CompiledFunctionBackward"  # torch.compile's: it hands its memory on in a first pass
HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")  # of a tensor: what acts once a gradient is there


def begin(settings: Settings, process: Process) -> RepeatedBackward:
    """Return the observer of this process."""
    return RepeatedBackward(settings.replay, process)


class RepeatedBackward:
    """Computes one of `every` backward passes twice, from the same forward pass, and compares all bits of the gradients.

    Gradients and PyTorch's generators are put back in between, so that the second pass leaves what one alone would.

    Args:
        every: The number of passes from one that is repeated to the next.
        process: Its name, and where the lines go.
    """

    def __init__(self, every: int, process: Process) -> None:
        self._every, self._process, self._lines = every, process, process.lines("repeated")
        self._passes = 0

    def attach(self, torch: Any) -> None:
        """Begin to observe, once torch has been imported."""
        self._torch, self._backward = torch, torch.autograd.backward
        torch.autograd.backward = self._observed  # which Tensor.backward calls, too

    def _observed(
        self,
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        *rest: Any,
        **named: Any,
    ) -> None:
        """Compute the gradients, as PyTorch's `backward` does; twice where it is time, and raise where the bits differ."""
        self._passes += 1
        is_due = self._passes % self._every == 0 and not create_graph
        leaves = _leaves(self._torch, tensors) if is_due else []
        if not leaves or self._is_acted_on(leaves):
            if is_due:
                self._lines.write("left out", self._passes)
            self._backward(tensors, grad_tensors, retain_graph, create_graph, *rest, **named)
            return
        before = [(leaf, leaf.grad, None if leaf.grad is None else leaf.grad.clone()) for leaf in leaves]
        with self._torch.random.fork_rng():
            self._backward(tensors, grad_tensors, True, create_graph, *rest, **named)
        first = [None if leaf.grad is None else leaf.grad.clone() for leaf in leaves]
        with self._torch.no_grad():
            for leaf, gradient, values in before:
                leaf.grad = None if gradient is None else gradient.copy_(values)
        self._backward(tensors, grad_tensors, retain_graph, create_graph, *rest, **named)
        self._compare(leaves, first)

    def _is_acted_on(self, leaves: list[Any]) -> bool:
        """Return True where something acts on gradients at once, such as an exchange: a second pass would act again."""
        distributed = self._torch.distributed
        is_exchanged = distributed.is_available() and distributed.is_initialized()
        return is_exchanged or any(getattr(leaf, name, None) for leaf in leaves for name in HOOKS)

    def _compare(self, leaves: list[Any], first: list[Any]) -> None:
        pairs = zip(leaves, first, strict=True)
        differing = [leaf for leaf, gradient in pairs if not _same_bits(self._torch, leaf.grad, gradient)]
        if not differing:
            self._lines.write("same", self._passes)
            return
        where = _name(self._torch, differing)
        what = f"gradients of {len(differing)} of {len(leaves)} tensors differ{where}, on {differing[-1].device}"
        self._lines.write("differ", self._passes, what)
        raise RuntimeError(f"backward pass {self._passes}, computed twice, gave other bits: {what}")


def _leaves(torch: Any, tensors: Any) -> list[Any]:
    """Return the tensors whose gradients a backward pass computes, each once; none if the pass cannot be made twice."""
    given = [tensors] if isinstance(tensors, torch.Tensor) else [*tensors]
    nodes, seen, leaves = [tensor.grad_fn for tensor in given], set[Any](), list[Any]()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == COMPILED:
            return []
        nodes += [other for other, _ in node.next_functions]
        if hasattr(node, "variable"):  # the node that adds to a tensor's gradient
            leaves.append(node.variable)
    return leaves


def _same_bits(torch: Any, one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    rows = [(tensor.to_dense() if tensor.is_sparse else tensor).detach().contiguous() for tensor in (one, other)]
    return bool(torch.equal(*(row.reshape(-1).view(torch.uint8) for row in rows)))


def _name(torch: Any, differing: list[Any]) -> str:
    """Return the place of the last differing tensor in a module's order, in words; empty where no module has one."""
    places = {id(leaf) for leaf in differing}

    def holds(module: Any) -> tuple[int, int]:
        parameters = [*module.parameters()]
        return sum(id(p) in places for p in parameters), len(parameters)

    modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
    largest = max(modules, key=holds, default=None)
    names = [name for name, p in largest.named_parameters() if id(p) in places] if largest is not None else []
    if not names:
        return ""
    module, _, name = names[-1].rpartition(".")
    return f", the last in module {module or type(largest).__name__} ({name})"
