"""Signatures of a project: who answers for its gates, for the origin of its model, and for the model's files.

    records, gate.json --signed_statements--> Statement      `statements.py`: what is signed, pure
    key file --signing_key--> SigningKey                     `keys.py`: read once, written nowhere
    PKCS #11 URI --token_key--> SigningKey                   `tokens.py`: a key that never leaves its token
    Statement, SigningKey --bundle--> signed.intoto.jsonl    `envelopes.py`: one DSSE envelope a line
    final_model/, SigningKey --model_signature--> model.sig  `model.py`: OpenSSF model signing
    files, trusted keys --faults--> lines                    `verify.py`: what is unsigned, signed by others, or changed since

`sign.py` is the command. Only functions import the libraries, which an extra installs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mltrainer.errors import InputError


@contextlib.contextmanager
def libraries(extra: str = "sign") -> Iterator[None]:
    """Let a block import the libraries of signatures, which an extra installs.

    Raises:
        InputError: One is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(f"signatures need the package {error.name}", hint=f"pip install 'mltrainer[{extra}]'") from error
