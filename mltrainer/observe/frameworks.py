"""Seeds and switches of TensorFlow and JAX in a program: set as soon as it has imported one of them, and read back.

A generator that the program has seeded, or drawn from, before that stays as it is.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mltrainer.observe.process import Process, Settings

FRAMEWORKS = ("tensorflow", "jax")
GENERATORS = {"random": "python", "numpy.random": "numpy"}  # modules, and their generators' names in records
XLA_FLAG = "--xla_gpu_deterministic_ops=true"  # OpenXLA's flags: run-to-run determinism, without autotuning
AfterImport = Callable[[Iterable[str], Callable[[ModuleType], None]], None]


def begin(settings: Settings, process: Process, after_import: AfterImport) -> None:
    """Seed the generators and set the switches in this process, once it imports TensorFlow or JAX."""
    assert settings.seed is not None
    frameworks = Frameworks(settings.seed, process)
    after_import(GENERATORS, frameworks.note_generator)
    after_import(FRAMEWORKS, frameworks.switch_on)
    sys.meta_path.insert(0, frameworks)


class Frameworks:
    """Seeds the global generators, makes operations deterministic, and notes the switches as read back at the process's end.

    Args:
        seed: The run's seed.
        process: Its name, and where the line goes.
    """

    def __init__(self, seed: int, process: Process) -> None:
        self._seed, self._lines = seed, process.lines("frameworks")
        self._generators: dict[str, ModuleType] = {}
        self._starts: dict[str, str] = {}
        self._used: set[str] | None = None
        self._draws: dict[str, str] = {}
        self._is_on = False

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> None:
        """Note which generators the program has used before it imports a framework, whose import draws from them."""
        if name in FRAMEWORKS and self._used is None:  # the first time: it is looked for again during its import
            self._used = {each for each, module in self._generators.items() if _state(module) != self._starts[each]}

    def note_generator(self, module: ModuleType) -> None:
        """Note a module's global generator as it is at its import; seed it where a framework is there."""
        name = GENERATORS[module.__name__]
        self._generators[name], self._starts[name] = module, _state(module)
        if self._is_on:
            self._seed_generator(name)

    def switch_on(self, framework: ModuleType) -> None:
        """Make a framework's operations deterministic, and seed its generator and the others'."""
        if not self._is_on:
            self._is_on = True
            for name in self._generators:
                self._seed_generator(name)
            atexit.register(self._read_back)  # now: it runs before the framework's own exit handlers
        with contextlib.suppress(Exception):  # not in this version: the value read back shows that it is off
            SWITCHES[framework.__name__](framework, self._seed)

    def _seed_generator(self, name: str) -> None:
        module = self._generators[name]
        if name not in (self._used or ()):
            module.seed(self._seed & 0xFFFFFFFF)  # NumPy takes 32 bits
        self._draws[name] = _next_draw(module)

    def _read_back(self) -> None:
        draws, switches = dict(self._draws), dict[str, Any]()
        for name, read in READERS.items():
            if name in sys.modules:
                with contextlib.suppress(Exception):  # not in this version: a value that was not read is not noted
                    read(sys.modules[name], draws, switches)
        self._lines.write("read", draws, switches)


def _state(module: Any) -> str:
    return repr(module.get_state() if hasattr(module, "get_state") else module.getstate())


def _next_draw(module: Any) -> str:
    """Return the next draw of a module's global generator, taken from a copy."""
    if hasattr(module, "get_state"):
        copy = module.RandomState()
        copy.set_state(module.get_state())
        return float(copy.random_sample()).hex()
    copy = module.Random()
    copy.setstate(module.getstate())
    return str(copy.random().hex())


def _switch_tensorflow(tf: Any, seed: int) -> None:
    # Its generator first: with deterministic operations a draw without a seed raises (TensorFlow's `enable_op_determinism`).
    tf.random.set_seed(seed)
    tf.config.experimental.enable_op_determinism()


def _switch_jax(_: Any, __: int) -> None:
    # XLA ends the process at a flag that it does not know: nothing is set where no GPU needs it.
    flags = os.environ.get("XLA_FLAGS", "")
    if importlib.metadata.entry_points(group="jax_plugins") and "xla_gpu_deterministic_ops" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {XLA_FLAG}".strip()


def _read_tensorflow(tf: Any, draws: dict[str, str], switches: dict[str, Any]) -> None:
    modules: dict[str, Any] = dict(sys.modules)
    is_on = modules["tensorflow.python.framework.config"].is_op_determinism_enabled()
    switches.update(tensorflow=str(tf.__version__), tensorflow_op_determinism=bool(is_on))
    # Read and not drawn: a draw would need the mode in which the program left TensorFlow.
    draws["tensorflow"] = str(modules["tensorflow.python.eager.context"].global_seed())


def _read_jax(jax: Any, _: dict[str, str], switches: dict[str, Any]) -> None:
    switches["jax"] = str(jax.__version__)
    switches["jax_backend"] = str(jax.default_backend())
    switches["jax_deterministic_ops"] = XLA_FLAG in os.environ.get("XLA_FLAGS", "").split()


SWITCHES: dict[str, Callable[[Any, int], None]] = {"tensorflow": _switch_tensorflow, "jax": _switch_jax}
READERS = {"tensorflow": _read_tensorflow, "jax": _read_jax}
