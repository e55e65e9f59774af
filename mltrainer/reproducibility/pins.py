"""A recorded environment as pins: the packages that pip can install, and those that it cannot. Pure functions of the record."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mltrainer.records.planning import Distribution, Environment

OWN = "mltrainer"  # the usual package index has another package under this name
INSTALLERS = frozenset(("pip", "uv", "wheel"))  # they install packages and take no part in a run
_PUBLISHED = re.compile(r"(?:\d+!)?\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?")  # versions that an index takes


def normal(name: str) -> str:
    """Return a distribution's normalized name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _build_tag(version: str) -> str | None:
    """Return the build that only PyTorch's own package index has, such as `cpu` of `2.13.0+cpu`, or None."""
    match = re.fullmatch(r"[^+]+\+(cpu|cu\d+|rocm[\d.]+|xpu)", version)
    return match[1] if match else None


def requirements(environment: Environment) -> str:
    """Return the pins that rebuild an environment: a file for `pip install -r`; `builds` are not among them."""
    pins = (_pin(row) for row in environment.distributions if _build_tag(row.version) is None)
    return "\n".join([f"# {_host(environment)}", *pins]) + "\n"


def builds(environment: Environment) -> dict[str, str]:
    """Return the pins of builds such as `torch==2.13.0+cpu`, each with its index if the usual one lacks it."""
    rows = [(row, tag) for row in environment.distributions if (tag := _build_tag(row.version))]
    return {_pin(row): f"https://download.pytorch.org/whl/{tag}" for row, tag in rows}


def requirements_file(environment: Environment) -> str:
    """Return the file with which pip installs a recorded environment; packages that pip cannot install are comments.

    Left out are pip and its kin, which take no part in a run. Builds that only PyTorch's own index has come with its address.
    """
    of_build = builds(environment)
    rows = [row for row in environment.distributions if normal(row.name) not in INSTALLERS]
    lines = [
        f"# The environment that planning recorded: {_host(environment)}.",
        "# Into a new virtual environment of this Python:",
        "#   pip install --no-deps --requirement requirements.txt",
        "",
        *(f"--extra-index-url {index}" for index in dict.fromkeys(of_build.values())),
        *(_installable(row, of_build) for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _host(environment: Environment) -> str:
    return f"Python {environment.python.version}, {environment.platform.libc}, {environment.platform.machine}"


def _installable(row: Distribution, of_build: Mapping[str, str]) -> str:
    """Return a package's pin, or a comment where no index has its version: a local build, or an invalid version."""
    pin = _pin(row)
    if pin.startswith("#") or pin in of_build or _PUBLISHED.fullmatch(row.version):
        return pin
    return f"# {row.name} {row.version} was built locally, and no index has it: build it from its source"


def _pin(row: Distribution) -> str:
    if normal(row.name) == OWN:
        return f"# {row.name} {row.version}: install it from its own source or wheel; the index has another package of that name"
    if row.editable:
        return f"# {row.name} {row.version} was an editable installation: install its source at the recorded commit"
    if not row.version:
        return f"# {row.name} has no version in its metadata"
    return f"{row.name}=={row.version}"
