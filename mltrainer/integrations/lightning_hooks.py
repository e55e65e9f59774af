"""Analysis of a Lightning module's hooks by their source: whether training without them is the same.

A hook that is empty, or that only computes, logs, prints and resets metrics, changes no weight. Everything else may: a call or an
assignment passes only where it is known to be harmless.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

LIGHTNING = ("lightning", "pytorch_lightning")
# Hooks that do Lightning's own work: left empty, the work is not done; passing it on with `super` is all that changes nothing.
REPLACING = (
    "backward", "optimizer_step", "optimizer_zero_grad", "lr_scheduler_step", "configure_gradient_clipping",
    "on_validation_model_eval", "on_validation_model_train", "on_validation_model_zero_grad", "transfer_batch_to_device",
    "on_before_batch_transfer", "on_after_batch_transfer", "configure_sharded_model",
)  # fmt: skip
# The same work, written out; {0} is the hook's first argument. Gradients of zero are not the same as none: momentum acts on them.
SAME_WORK = {
    "optimizer_zero_grad": ("{2}.zero_grad()", "{2}.zero_grad(set_to_none=True)", "{2}.zero_grad(True)"),
    "optimizer_step": ("{2}.step(closure={3})", "{2}.step({3})"),
    "backward": ("{0}.backward()", "{0}.backward(*args, **kwargs)"),
}
RETURNS_BATCH = ("on_before_batch_transfer", "on_after_batch_transfer")
MEASURING = ("on_validation_epoch_start", "on_validation_epoch_end")  # hooks that mltrainer calls around an evaluation
UNTRAINED = ("__init__", "validation_step", "test_step", "predict_step")

PURE = {
    "len", "float", "int", "str", "bool", "min", "max", "sum", "round", "abs", "sorted", "isinstance", "getattr", "hasattr",
    "zip", "range", "enumerate", "list", "dict", "tuple", "set", "print", "any", "all", "repr", "type", "super",
}  # fmt: skip
PURE_OF = {
    "torch": {"stack", "cat", "mean", "tensor", "as_tensor", "no_grad", "inference_mode", "concat", "vstack", "hstack", "argmax"},
    "np": {"mean", "array", "stack", "concatenate", "asarray"},
    "numpy": {"mean", "array", "stack", "concatenate", "asarray"},
    "time": {"time", "perf_counter", "monotonic"},
    "math": {"sqrt", "exp", "log", "isnan", "isfinite"},
}  # fmt: skip
OF_VALUES = {
    "item", "mean", "sum", "std", "min", "max", "argmax", "detach", "cpu", "float", "double", "long", "numpy", "tolist", "size",
    "items", "values", "keys", "get", "format", "join",
}  # fmt: skip
OF_METRICS = {"reset", "update", "compute", "forward"}
OF_LISTS = {"append", "extend", "clear"}
OF_LOCALS = {"reset", "compute", "info", "debug", "warning", "error"}
DECORATORS = ("torch.no_grad()", "torch.inference_mode()", "override", "rank_zero_only", "typing.override")
OF_MODULE = {"log", "log_dict", "print"}


class Fault(NamedTuple):
    """The first place of a hook that may change the training: its line in the file, and the code there."""

    line: int
    code: str


def faults(made: Any, hooks: Collection[str], is_metric: Callable[[Any], bool]) -> dict[str, Fault]:
    """Return the hooks that may change a training, each with the first place that does.

    Args:
        made: Module or data module.
        hooks: Names of the hooks to check.
        is_metric: Function that says whether an attribute is an object of torchmetrics.
    """
    own = [kind for kind in type(made).__mro__ if kind.__module__.partition(".")[0] not in (*LIGHTNING, "torch", "builtins")]
    by_hook: dict[str, Fault] = {}
    for name in hooks:
        for kind in (kind for kind in own if name in vars(kind)):
            fault = _fault_of(made, kind, name, own, hooks, is_metric)
            if fault is not None:
                by_hook.setdefault(name, fault)
    return by_hook


def _fault_of(
    made: Any, kind: type, name: str, own: list[type], hooks: Collection[str], is_metric: Callable[[Any], bool]
) -> Fault | None:
    function, first = _parsed(vars(kind)[name])
    if function is None:
        return Fault(0, "its source cannot be read")
    skipped = {*hooks, *UNTRAINED} if name in MEASURING else {*hooks, "__init__"} - set(MEASURING)
    read = set().union(*(_attributes(kind, skipped) for kind in own))
    node = _passes_on(function) if name in REPLACING else _Judge(made, name, function, read, is_metric).first()
    return None if node is None else Fault(first + node.lineno - 1, ast.unparse(node).splitlines()[0])


def _parsed(method: Any) -> tuple[ast.FunctionDef | None, int]:
    """Return a method's syntax tree, and the line on which its source begins; None without source."""
    try:
        lines, first = inspect.getsourcelines(method)
        (found,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None, 0
    return (found, first) if isinstance(found, ast.FunctionDef) else (None, 0)


def _attributes(kind: type, skipped: Collection[str]) -> set[str]:
    """Return the names of attributes that a class's methods and properties read, except some of them."""
    methods = (method for name, found in vars(kind).items() if name not in skipped for method in _functions(found))
    trees = (tree for tree in (_parsed(method)[0] for method in methods) if tree is not None)
    return {name for tree in trees for node in ast.walk(tree) if (name := _read_by(node)) is not None}


def _functions(found: Any) -> Iterator[Any]:
    """Yield the functions of a method, a property or a method of the class."""
    held = (getattr(found, name, None) for name in ("fget", "fset", "func", "__func__"))
    yield from (one for one in (found, *held) if inspect.isfunction(one))


def _read_by(node: ast.AST) -> str | None:
    """Return the name of the attribute that a node reads; None for another node."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        return node.attr
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr") and len(node.args) > 1:
        named = node.args[1]
        return named.value if isinstance(named, ast.Constant) and isinstance(named.value, str) else None
    return None


def _passes_on(function: ast.FunctionDef) -> ast.stmt | None:
    """Return a hook's first statement that differs from Lightning's default; None without one."""
    body = [one for one in function.body if not _is_text(one)]
    is_same = (_is_super_call, _returns_batch, _does_same_work)
    if len(body) == 1 and any(judge(body[0], function) for judge in is_same):
        return None
    return body[0] if body else function


def handed_on_to(made: Any) -> str | None:
    """Return the name of the part to which a module's `forward` only passes its arguments; None for any other `forward`."""
    function, _ = _parsed(type(made).forward)
    body = [one for one in function.body if not _is_text(one)] if function is not None else []
    call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    if (
        function is None
        or not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Attribute)
        or not _is_self(call.func.value)
    ):
        return None
    given = [ast.unparse(one) for one in (*call.args, *call.keywords)]
    name = call.func.attr
    return name if given == [one.arg for one in function.args.args[1:]] and name in made._modules else None


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_super_call(statement: ast.stmt, function: ast.FunctionDef) -> bool:
    value = statement.value if isinstance(statement, ast.Expr | ast.Return) else None
    return isinstance(value, ast.Call) and ast.unparse(value.func) == f"super().{function.name}"


def _does_same_work(statement: ast.stmt, function: ast.FunctionDef) -> bool:
    arguments = [one.arg for one in function.args.args[1:]]
    forms = (form for form in SAME_WORK.get(function.name, ()) if len(arguments) > max(map(int, re.findall(r"{(\d)}", form))))
    return ast.unparse(statement) in [form.format(*arguments) for form in forms]


def _returns_batch(statement: ast.stmt, function: ast.FunctionDef) -> bool:
    returned = statement.value if isinstance(statement, ast.Return) and function.name in RETURNS_BATCH else None
    return isinstance(returned, ast.Name) and returned.id in [one.arg for one in function.args.args[1:2]]


class _Judge:
    """Searches a hook for the first statement that may change a training."""

    REFUSED = (ast.Delete, ast.Global, ast.Nonlocal, ast.Raise, ast.Await, ast.Yield, ast.YieldFrom)

    def __init__(self, made: Any, name: str, function: ast.FunctionDef, read: set[str], is_metric: Callable[[Any], bool]) -> None:
        self._made, self._name, self._read, self._is_metric = made, name, read, is_metric
        self._function = function
        self._given = {one.arg for one in function.args.args}

    def first(self) -> Any:
        """Return the first harmful node; None without one."""
        return next(self._harmful(), None)

    def _harmful(self) -> Iterator[ast.AST]:
        yield from (one for one in self._function.decorator_list if ast.unparse(one) not in DECORATORS)
        nodes = (node for statement in self._function.body for node in ast.walk(statement))
        yield from (node for node in nodes if isinstance(node, self.REFUSED) or self._is_returned_work(node) or self._acts(node))

    def _acts(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return not self._is_harmless(node.func)
        if isinstance(node, ast.AugAssign):
            return isinstance(node.target, ast.Name)  # of a tensor, in place
        is_set = isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)
        return is_set and not self._may_be_set(node)

    def _is_returned_work(self, node: ast.AST) -> bool:
        """Return True if a hook returns a value that Lightning acts on, such as callbacks or -1 to skip an epoch."""
        nothing = (None, "None", "[]", "super().configure_callbacks()")
        return isinstance(node, ast.Return) and (node.value and ast.unparse(node.value)) not in nothing

    def _may_be_set(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and _is_self(node.value) and self._is_private(node.attr)

    def _is_private(self, name: str) -> bool:
        """Return True if no training code reads an attribute."""
        known = any(hasattr(kind, name) for kind in type(self._made).__mro__ if kind.__module__.partition(".")[0] in LIGHTNING)
        return name not in self._read and name != "training" and not known and name not in dict(self._made.named_children())

    def _is_harmless(self, called: ast.expr) -> bool:
        if isinstance(called, ast.Name):
            return called.id in PURE
        if not isinstance(called, ast.Attribute):
            return False
        owner, name = called.value, called.attr
        if ast.unparse(owner) == "super()":
            return name in (self._name, *OF_MODULE)
        if _is_self(owner):
            return name in OF_MODULE or self._is_metric(getattr(self._made, name, None))
        if ast.unparse(owner).startswith(("self.logger", "self.trainer.logger")):
            return True
        if name in OF_VALUES:
            return not hasattr(self._held(owner), "named_parameters")  # `double()` of a part changes it
        if isinstance(owner, ast.Name):
            return name in PURE_OF.get(owner.id, ()) or (owner.id not in self._given and name in OF_LOCALS)
        return self._is_of_metrics(owner, name)

    def _is_of_metrics(self, owner: ast.expr, name: str) -> bool:
        """Return True for a metric's methods, and for those of a list that no training code reads."""
        held = self._held(owner)
        if name in OF_LISTS and isinstance(held, list) and isinstance(owner, ast.Attribute):
            return self._is_private(ast.unparse(owner).removeprefix("self."))
        return name in OF_METRICS and self._is_metric(held)

    def _held(self, owner: ast.expr) -> Any:
        """Return the module's attribute of an expression such as `self.net`; None for another expression."""
        held: Any = self._made
        for part in ast.unparse(owner).removeprefix("self.").split("."):
            held = getattr(held, part, None)
        return held


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
