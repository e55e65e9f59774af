"""The address of a tracker's server, whose secrets stand in environment variables alone."""

from __future__ import annotations

import os
from urllib.parse import quote

from mltrainer.configs.tracking import VARIABLE
from mltrainer.errors import InputError


def filled(url: str) -> str:
    """Return a URL with its `${NAME}` replaced by environment variables; beside other text, quoted as URLs need it.

    Raises:
        InputError: A variable is not set.
    """
    missing = [name for name in VARIABLE.findall(url) if not os.environ.get(name)]
    if missing:
        raise InputError(f"the environment variable {missing[0]} is not set", where="tracking", hint=f"export {missing[0]}=...")
    if (whole := VARIABLE.fullmatch(url)) is not None:
        return os.environ[whole[1]]
    return VARIABLE.sub(lambda name: quote(os.environ[name[1]], safe=""), url)
