"""Faults planted in `mltrainer/reproducibility`."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        "the seed is no part of a draw's address",
        "mltrainer/reproducibility/seeds.py",
        'address = f"{seed}/{purpose}/',
        'address = f"{purpose}/',
        "tests/reproducibility/test_seeds.py",
    ),
    Fault(
        "the number of threads decides nothing",
        "mltrainer/reproducibility/environment.py",
        '        "threads": str(threads),\n        "GPU":',
        '        "GPU":',
        "tests/reproducibility/test_environment.py",
    ),
    Fault(
        "the chain does not cover the entry before",
        "mltrainer/reproducibility/fingerprint.py",
        'f"{value} {entry}".encode()',
        'f"{entry}".encode()',
        "tests/reproducibility/test_fingerprint.py",
    ),
    Fault(
        "base64 of a secret is looked for one character too early",
        "mltrainer/reproducibility/secrets.py",
        "first, last = -(-before * 8 // 6), (",
        "first, last = before * 8 // 6, (",
        "tests/reproducibility/test_secrets.py",
    ),
    Fault(
        "base64 of a secret is looked for at two of three places",
        "mltrainer/reproducibility/secrets.py",
        "for before in range(3)",
        "for before in range(2)",
        "tests/reproducibility/test_secrets.py",
    ),
    Fault(
        "a secret in capital hexadecimal stays",
        "mltrainer/reproducibility/secrets.py",
        "raw.hex(), raw.hex().upper(), *encoded",
        "raw.hex(), *encoded",
        "tests/reproducibility/test_secrets.py",
    ),
    Fault(
        "a model's end token is taken for a secret",
        "mltrainer/reproducibility/secrets.py",
        "(?<!eos[_-])",
        "",
        "tests/reproducibility/test_secrets.py",
    ),
    Fault(
        "a netrc password of an ordinary length stays",
        "mltrainer/reproducibility/secrets.py",
        "password\\s{1,4}(?P<secret>\\S{4,255})",
        "password\\s{1,4}(?P<secret>\\S{40,255})",
        "tests/reproducibility/test_secrets.py",
    ),
    Fault(
        "an ordinary word in a variable is taken for a secret",
        "mltrainer/reproducibility/secrets.py",
        "disabled|required|optional",
        "disabled|optional",
        "tests/reproducibility/test_secrets.py",
    ),
)
