"""The database that the machines of one search share: its URL, without a password, which a file would keep."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from mltrainer.errors import InputError

WHERE = "configs/tuning_template.yaml, key storage"
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_KIND = re.compile(r"(?:sqlite|postgresql|mysql)(?:\+\w+)?://")
FORMS = "sqlite:////shared/search.db, postgresql://user:${NAME}@host/database or mysql://user:${NAME}@host/database"


def fault_of(url: str) -> str | None:
    """Return the reason that a URL must not be in a file, or None; the reason never quotes the URL.

    Args:
        url: The URL as written, `${NAME}` for an environment variable's value; or one such name alone, for the whole URL.
    """
    if _VARIABLE.fullmatch(url):
        return None
    if not _KIND.match(url):
        return f"it is not one of {FORMS}, nor ${{NAME}} of an environment variable that holds one"
    # A password that consists of names of variables alone is none yet.
    if any(_VARIABLE.sub("", password) for password in secrets_of(url)):
        return "it contains a password, and files are committed: write ${NAME}, and set that environment variable"
    return None


def secrets_of(url: str) -> list[str]:
    """Return the passwords that stand in a URL, quoted as they stand there."""
    address, _, query = url.partition("://")[2].partition("?")
    # The address of a sqlite file is its path, in which : and @ mean nothing.
    own = [] if url.startswith("sqlite") else [address.rpartition("@")[0].partition(":")[2]]
    pairs = (pair.partition("=") for pair in query.split("&"))
    given = [value for key, _, value in pairs if "pass" in key.lower() and not key.lower().endswith("file")]
    return [password for password in own + given if password]


def filled(url: str, variables: Mapping[str, str], where: str = WHERE) -> str:
    """Return a URL with its `${NAME}` replaced; in user, password and options, what has a meaning in URLs is quoted.

    Args:
        url: The URL as written.
        variables: The environment's variables.
        where: The place where it is written, for messages.

    Raises:
        InputError: A variable is not set, or the whole is no URL of a database.
    """
    missing = [name for name in _VARIABLE.findall(url) if not variables.get(name)]
    if missing:
        raise InputError(f"the environment variable {missing[0]} is not set", where=where, hint=f"export {missing[0]}=...")
    if (whole := _VARIABLE.fullmatch(url)) is not None:
        found = variables[whole[1]]
    else:
        address, mark, query = url.partition("?")
        user, at, place = address.rpartition("@")
        found = (
            _quoted(user, variables)
            + at
            + _VARIABLE.sub(lambda name: variables[name[1]], place)
            + mark
            + _quoted(query, variables)
        )
    if not _KIND.match(found):
        raise InputError(f"its value is not one of {FORMS}", where=where, hint="set it to the database's URL")
    return found


def _quoted(part: str, variables: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda name: quote(variables[name[1]], safe=""), part)


def shown(url: str) -> str:
    """Return a URL reduced for messages: kind, host and database, without user, password and options."""
    kind, _, rest = url.partition("://")
    return f"{kind.partition('+')[0]}://{rest.partition('?')[0].rpartition('@')[2]}"
