"""Addresses of data, without keys, passwords and tokens: configs and records are committed."""

from __future__ import annotations

import re

from mltrainer.configs.storage import secrets_of
from mltrainer.redaction import redact

_NAME = re.compile(r"(?:.*[-_])?(?:token|sig|signature|secret|passw(?:or)?d|credentials?|key)", re.IGNORECASE)
REFUSED = (
    "the address contains a key, password or token, and files are committed: leave it out; fsspec takes it from the "
    "environment, such as AWS_SECRET_ACCESS_KEY or FSSPEC_S3_SECRET, or from the files in ~/.config/fsspec"
)


def holds_secret(source: str) -> bool:
    """Return True if a source is an address with a key, password or token in it, also one that is signed."""
    if "://" not in source:
        return False
    given = (pair.partition("=") for pair in source.partition("?")[2].split("&"))
    is_signed = any(value and _NAME.fullmatch(name) for name, _, value in given)
    # Of what is taken out of records, no run could be made again.
    return is_signed or bool(secrets_of(source)) or redact(source) != source
