"""The lines of a source that can make two runs differ, by kind; read from its syntax tree, without running it.

That a line is a suspect says nothing yet: most programs time their steps. Experiments decide the kind; a trace shows which
of its lines ran before the first difference.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from mltrainer.companions.wrap.data_flow import TEXT, DataFlow, Fate, called
from mltrainer.redaction import shortened

CLOCKS = frozenset(
    (
        *(f"time.{name}{unit}" for name in ("time", "perf_counter", "monotonic", "process_time") for unit in ("", "_ns")),
        *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
        *("os.path.getmtime", "os.path.getctime", "os.path.getatime", "time.localtime", "time.strftime", "time.ctime"),
    )
)
ENTROPY = frozenset(("os.urandom", "os.getrandom", "random.SystemRandom", "torch.seed", "torch.random.seed"))
UNSEEDED = frozenset(  # entropy where they are given no seed
    (
        *("random.Random", "random.seed", "numpy.random.seed", "numpy.random.default_rng", "numpy.random.RandomState"),
        *("numpy.random.SeedSequence", "numpy.random.PCG64", "numpy.random.MT19937", "numpy.random.Philox"),
    )
)
NO_DRAWS = frozenset(("seed", "getstate", "setstate", "get_state", "set_state", "default_rng", "get_bit_generator"))
ESTIMATORS = frozenset(  # of scikit-learn: fitting draws from that generator where they are given no random_state
    (
        *(
            f"{kind}{of}"
            for kind in (
                *("RandomForest", "ExtraTrees", "DecisionTree", "ExtraTree", "GradientBoosting", "HistGradientBoosting"),
                *("AdaBoost", "Bagging", "MLP", "SGD", "PassiveAggressive"),
            )
            for of in ("Classifier", "Regressor")
        ),
        *("Perceptron", "LinearSVC", "KMeans", "MiniBatchKMeans", "BisectingKMeans", "GaussianMixture"),
        *("BayesianGaussianMixture", "IsolationForest", "RandomTreesEmbedding", "RandomizedSearchCV", "TruncatedSVD", "NMF"),
        *("MiniBatchNMF", "FastICA", "TSNE", "LatentDirichletAllocation", "GaussianRandomProjection"),
        *("SparseRandomProjection", "RBFSampler", "Nystroem"),
    )
)
BY_SOLVER = frozenset(
    ("PCA", "KernelPCA", "SparsePCA", "SVC", "LogisticRegression", "Ridge", "RidgeClassifier", "SpectralClustering")
)
SOLVERS = frozenset(("svd_solver", "eigen_solver", "solver", "probability"))  # where these are chosen, those draw, too
SPLITTERS = frozenset(  # of scikit-learn: draw from NumPy's shared generator where they are given no random_state
    (
        *("train_test_split", "shuffle", "resample", "ShuffleSplit", "StratifiedShuffleSplit", "GroupShuffleSplit"),
        *("RepeatedKFold", "RepeatedStratifiedKFold"),
    )
)
LISTINGS = frozenset(("os.listdir", "os.scandir", "os.walk", "glob.glob", "glob.iglob"))
LISTING_METHODS = frozenset(("iterdir", "glob", "rglob"))
THREADS = frozenset(
    (
        *("threading.Thread", "threading.Timer", "concurrent.futures.ThreadPoolExecutor", "concurrent.futures.as_completed"),
        *("multiprocessing.pool.ThreadPool", "concurrent.futures.thread.ThreadPoolExecutor", "asyncio.as_completed"),
    )
)
THREAD_METHODS = frozenset(("imap_unordered",))
EMPTIES = frozenset(
    (
        *("torch.empty", "torch.empty_like", "torch.empty_strided", "numpy.empty", "numpy.empty_like", "numpy.ndarray"),
        *("torch.Tensor", "torch.FloatTensor", "torch.DoubleTensor"),
    )
)
OF_VALUES = frozenset(("torch.Tensor", "torch.FloatTensor", "torch.DoubleTensor"))  # or of a size: the arguments decide
SIZES = frozenset(("len", "int"))
PROCESSES = frozenset(
    f"{package}.{name}"
    for package in ("multiprocessing", "torch.multiprocessing")
    for name in ("Process", "Pool", "spawn", "start_processes")
)
PROCESS_METHODS = frozenset(("Process", "Pool"))  # of what multiprocessing.get_context() gives
EMPTY_METHODS = frozenset(("new_empty", "new_empty_strided", "resize_"))
IDENTITIES = frozenset(
    (
        *(
            "os.getpid",
            "os.getppid",
            "id",
            "threading.get_ident",
            "threading.get_native_id",
            "socket.gethostname",
            "os.getcwd",
            "uuid.uuid1",
            "uuid.uuid4",
        ),
        *(f"tempfile.{name}" for name in ("mkdtemp", "mkstemp", "mktemp", "TemporaryDirectory", "NamedTemporaryFile")),
    )
)
KEYS = {"id": "identity", "hash": "hash order"}  # by which a sort has another order in each run
ORDERED = frozenset(  # what takes the order of a set over
    (
        *("list", "tuple", "enumerate", "iter", "zip", "map", "filter", "reversed", "next", "dict.fromkeys"),
        *("numpy.array", "numpy.fromiter", "torch.tensor", "itertools.chain"),
    )
)
TEXT_MADE = (ast.JoinedStr, ast.FormattedValue)
SHOWING = frozenset(("print", "format", "str", "info", "debug", "warning", "error", "log", "write"))
UNORDERED = frozenset(("sorted", "len", "set", "frozenset", "sum", "min", "max", "any", "all"))  # no order comes through these
SET_METHODS = frozenset(("union", "intersection", "difference", "symmetric_difference"))


class Suspect(NamedTuple):
    """A line that can make two runs differ.

    Attributes:
        line: Number of the line, from 1.
        kind: Kind of cause, a key of `causes.KINDS`.
        call: Call in the line, as in messages.
        generator: Shared generator of a draw, random or numpy; if it was seeded, the line is no suspect.
        certain: Whether, by the source, it decides the computation: a clock that only times does not.
        is_kept: Whether the line only keeps a moment or a name, as it is or as text.
    """

    line: int
    kind: str
    call: str
    generator: str = ""
    certain: bool = True
    is_kept: bool = False


def suspects(source: str, elsewhere: Mapping[str, str] = MappingProxyType({})) -> list[Suspect]:
    """Return a source's suspects by line; none if it is not valid Python.

    Args:
        source: Text of the source.
        elsewhere: Names that the program's other sources import: cells of a notebook share theirs.
    """
    tree = _tree(source)
    return sorted(set(_SourceReader(tree, elsewhere).rows())) if tree is not None else []


def only_shown(source: str) -> set[int]:
    """Return the lines of a source that ask for a moment or a name which is only shown."""
    tree = _tree(source)
    return _SourceReader(tree, {}).only_shown() if tree is not None else set()


def imports(source: str) -> dict[str, str]:
    """Return the full name of each name that a source imports."""
    tree = _tree(source)
    return _imported(tree) if tree is not None else {}


def draws_when_fitted(suspect: Suspect) -> bool:
    """Return True for a line that makes an estimator of scikit-learn, which draws where another line fits it."""
    return suspect.call.startswith("sklearn.") and suspect.call.rpartition(".")[2] not in SPLITTERS


def _tree(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


class _SourceReader:
    def __init__(self, tree: ast.Module, elsewhere: Mapping[str, str]) -> None:
        self._tree = tree
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._names = {"dict": "dict", **elsewhere, **_imported(tree)}  # `dict.fromkeys` needs no import
        self._names |= self._other_names()
        self._data_flow = DataFlow(tree, self._dotted)
        self._shares = any(isinstance(n.func, ast.Attribute) and n.func.attr.startswith("share_memory") for n in _calls(tree))
        self._sets = self._names_of_sets()
        self._sorted = {
            ast.unparse(n.func.value) for n in _calls(tree) if isinstance(n.func, ast.Attribute) and n.func.attr == "sort"
        }

    def rows(self) -> Iterator[Suspect]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call):
                yield from self._of_call(node)
            if isinstance(node, ast.keyword) and node.arg == "key" and isinstance(node.value, ast.Name) and node.value.id in KEYS:
                yield Suspect(node.value.lineno, KEYS[node.value.id], f"key={node.value.id}")
            for taken in self._ordered(node):
                if self._is_set(taken):
                    yield Suspect(taken.lineno, "hash order", f"the order of {_short(taken)}")

    def only_shown(self) -> set[int]:
        asking = (node for node in _calls(self._tree) if self._dotted(node.func) in CLOCKS | IDENTITIES)
        return {node.lineno for node in asking if self._data_flow.fate(node) is Fate.SHOWN}

    def _of_call(self, node: ast.Call) -> Iterator[Suspect]:
        name, method = self._dotted(node.func), node.func.attr if isinstance(node.func, ast.Attribute) else ""
        kind, generator, certain = self._kind(name, method, node)
        if kind:
            is_kept = kind in ("clock", "identity") and self._is_kept(node)
            yield Suspect(node.lineno, kind, name or f"….{method}", generator, certain, is_kept)

    def _kind(self, name: str, method: str, node: ast.Call) -> tuple[str, str, bool]:
        """Return kind, shared generator and certainty of a call; no kind where it is no suspect."""
        given = [
            a for a in [*node.args, *(k.value for k in node.keywords)] if not (isinstance(a, ast.Constant) and a.value is None)
        ]
        last = name.rpartition(".")[2]
        if name in ENTROPY or name.startswith("secrets.") or (not given and (name in UNSEEDED or method == "seed")):
            return "random draw", "", True
        for module in ("numpy.random", "random"):
            if name.rpartition(".")[0] == module and last.islower() and last not in NO_DRAWS:
                return "random draw", module.partition(".")[0], True
        seed = next((keyword.value for keyword in node.keywords if keyword.arg == "random_state"), ast.Constant(None))
        is_none = isinstance(seed, ast.Constant) and seed.value is None
        if is_none and _draws_unasked(name, last, method, {keyword.arg or "" for keyword in node.keywords}):
            return "random draw", "numpy", True
        if not isinstance(seed, ast.Constant) and name.startswith("sklearn.") and last in ESTIMATORS:
            return "random draw", "numpy", False  # a name may hold None
        if name in CLOCKS or name in IDENTITIES:
            return self._of_moment("clock" if name in CLOCKS else "identity", node)
        if name in LISTINGS or (method in LISTING_METHODS and not name.startswith(("glob.", "re."))):
            return ("", "", False) if self._is_unordered(node) else ("listing order", "", True)
        is_process = name in PROCESSES or method in PROCESS_METHODS
        if name in THREADS or method in THREAD_METHODS or is_process:
            return "threads", "", not is_process or self._shares
        if name in OF_VALUES:
            return _of_sizes(node)
        if name in EMPTIES or method in EMPTY_METHODS:
            return "unwritten memory", "", True
        return ("hash order", "", True) if name == "hash" else ("", "", False)

    def _of_moment(self, kind: str, node: ast.Call) -> tuple[str, str, bool]:
        """Return kind, shared generator and certainty of a clock or an identity; no kind where its value is only shown."""
        fate = self._data_flow.fate(node)
        if fate is Fate.SHOWN:
            return "", "", False
        is_harmless = self._only_times(node) if kind == "clock" else self._is_shown(node)
        return kind, "", fate is Fate.DECIDES or not is_harmless

    def _dotted(self, node: ast.expr) -> str:
        """Return a callable's full name, its imports resolved; empty where it is no plain name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or (parts and node.id not in self._names):
            return ""
        return ".".join([self._names.get(node.id, node.id), *reversed(parts)])

    def _other_names(self) -> dict[str, str]:
        """Return the full names of renamed callables, such as `now = time.time`, whose new name has one meaning."""
        full_names: dict[str, set[str]] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                full_names.setdefault(node.targets[0].id, set()).add(self._dotted(node.value))
            elif isinstance(node, ast.arg):
                full_names.setdefault(node.arg, set()).add("")
        return {name: one for name, (one, *others) in full_names.items() if "." in one and not others and name not in self._names}

    # --- sets ---

    def _names_of_sets(self) -> set[str]:
        """Return the names and attributes that a set is given to somewhere, also by way of one another."""
        known: set[str] = set()
        self._sets = known
        # A name may be assigned to another one further up: a few rounds find cases that one pass misses.
        for _ in range(3):
            for node in ast.walk(self._tree):
                targets = (
                    node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
                )
                value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
                if value is not None and self._is_set(value):
                    known |= {ast.unparse(t) for t in targets if isinstance(t, (ast.Name, ast.Attribute))}
        return known

    def _is_set(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.Set, ast.SetComp)):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)):
            return ast.unparse(node) in self._sets
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)):
            return self._is_set(node.left) or self._is_set(node.right)
        if isinstance(node, ast.Call):
            by_method = isinstance(node.func, ast.Attribute) and node.func.attr in SET_METHODS and self._is_set(node.func.value)
            return by_method or (isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset"))
        return False

    def _ordered(self, node: ast.AST) -> list[ast.expr]:
        """Return the expressions that a node iterates over in order."""
        if isinstance(node, (ast.For, ast.AsyncFor)):
            return [node.iter]
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            return [] if self._is_unordered(node) else [part.iter for part in node.generators]
        if isinstance(node, ast.Starred):
            return [node.value]
        if isinstance(node, ast.Call):
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            popped = [node.func.value] if isinstance(node.func, ast.Attribute) and method == "pop" and not node.args else []
            is_ordered = self._dotted(node.func) in ORDERED or method == "join"
            return [*popped, *(node.args if is_ordered and not self._is_unordered(node) else [])]
        return []

    # --- the use of a value ---

    def _is_unordered(self, node: ast.AST) -> bool:
        """Return True where a value goes straight to a function that knows no order, or its name is sorted."""
        parent = self._parents.get(node)
        while isinstance(parent, (ast.GeneratorExp, ast.ListComp, ast.comprehension, ast.Starred)):
            parent = self._parents.get(parent)
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
            return parent.func.id in UNORDERED
        if isinstance(parent, ast.Assign):
            return any(ast.unparse(target) in self._sorted for target in parent.targets)
        return False

    def _is_kept(self, node: ast.AST) -> bool:
        """Return True where a moment, a sum or difference of moments, or a name is only given on, also as text or a share."""
        parent = self._parents[node]
        while not isinstance(parent, (ast.stmt, ast.withitem)):
            is_part = isinstance(parent, (ast.Attribute, ast.Subscript)) or (isinstance(parent, ast.Call) and parent.func is node)
            is_text = isinstance(parent, TEXT_MADE) or (isinstance(parent, ast.Call) and called(parent) in TEXT)
            if not (is_part or is_text or (isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.Add, ast.Sub, ast.Div)))):
                return False
            node, parent = parent, self._parents[parent]
        return isinstance(parent, (ast.Assign, ast.AnnAssign, ast.Return, ast.withitem))

    def _only_times(self, node: ast.AST) -> bool:
        """Return True where a clock's value is only subtracted or shown, also by way of a name."""
        parent = self._parents.get(node)
        if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            names = {ast.unparse(target) for target in targets}
            uses = [n for n in ast.walk(self._tree) if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)]
            return all(self._is_timing(use) for use in uses if ast.unparse(use) in names)
        return self._is_timing(node)

    def _is_timing(self, node: ast.AST) -> bool:
        parent = self._parents.get(node)
        return (isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Sub)) or self._is_shown(node)

    def _is_shown(self, node: ast.AST) -> bool:
        """Return True where a value goes into text, or is a statement by itself."""
        parent = self._parents.get(node)
        while isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node):  # a method of it
            node, parent = parent, self._parents.get(parent)
        if isinstance(parent, ast.Call):
            return called(parent) in SHOWING
        return isinstance(parent, (ast.Expr, ast.FormattedValue))


def _of_sizes(node: ast.Call) -> tuple[str, str, bool]:
    """Return kind, generator and certainty of a constructor that takes values or sizes; no kind for values, which it writes."""
    first = node.args[0] if node.args else None
    if len(node.args) != 1:
        return "unwritten memory", "", bool(node.args)
    if isinstance(first, (ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp)):
        return "", "", False
    if isinstance(first, ast.Call):
        is_size = isinstance(first.func, ast.Name) and first.func.id in SIZES
        return ("unwritten memory", "", True) if is_size else ("", "", False)
    return "unwritten memory", "", isinstance(first, ast.Constant)


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return the full name of each imported name."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return names


def _draws_unasked(name: str, last: str, method: str, keywords: set[str]) -> bool:
    """Return True where scikit-learn or pandas is left to draw from NumPy's shared generator."""
    by_pandas = method == "sample" and bool(keywords & {"frac", "n"})  # torch's distributions have neither
    by_sklearn = name.startswith("sklearn.") and (last in SPLITTERS | ESTIMATORS or (last in BY_SOLVER and keywords & SOLVERS))
    return bool(by_pandas or by_sklearn)


def _calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _short(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{shortened(text, 57)}..."
