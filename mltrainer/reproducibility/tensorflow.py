"""Seeds and switches of TensorFlow and Keras, for tasks whose own code imports them beside PyTorch.

TensorFlow is never imported here: the project's import of it is read from the table of modules.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any


def imported() -> Any | None:
    """Return TensorFlow if the project's code imported it, else None."""
    return sys.modules.get("tensorflow")


def switch_on(threads: int) -> bool:
    """Make TensorFlow's operations deterministic, where it is imported; return whether it is.

    An operation without a deterministic form raises then, instead of giving other bits (TensorFlow's documentation of
    `enable_op_determinism`).

    Args:
        threads: CPU threads of one operation; the order of summation depends on it.
    """
    tf = imported()
    if tf is None:
        return False
    tf.config.experimental.enable_op_determinism()
    with contextlib.suppress(RuntimeError):  # it has already computed on import; the settings are then read back
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    return True


def seed(value: int) -> None:
    """Seed TensorFlow's global generator, and what Keras's layers without a seed of their own draw from, if imported.

    Call it before the other generators are seeded: Keras seeds those too.
    """
    keras, tf = sys.modules.get("keras"), imported()
    if keras is not None and tf is not None:
        keras.utils.set_random_seed(value & 0xFFFFFFFF)  # NumPy, which it seeds too, takes 32 bits
    elif tf is not None:
        tf.random.set_seed(value)


def read_back() -> dict[str, Any]:
    """Return TensorFlow's version and present switches; empty if not imported."""
    tf, config = imported(), sys.modules.get("tensorflow.python.framework.config")
    if tf is None:
        return {}
    return {
        "tensorflow": str(tf.__version__),
        "tensorflow_op_determinism": None if config is None else bool(config.is_op_determinism_enabled()),
        "tensorflow_threads": int(tf.config.threading.get_intra_op_parallelism_threads()),
    }


def first_draw() -> dict[str, str]:
    """Return the first draw of TensorFlow's generator, to compare between processes; empty if not imported."""
    tf = imported()
    return {} if tf is None else {"tensorflow": float(tf.random.uniform((), dtype=tf.float64)).hex()}
