"""Keys: the private key that signs, read once and written nowhere, and the public keys that a reviewer trusts."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mltrainer.companions.proof.signatures import libraries
from mltrainer.errors import InputError
from mltrainer.reproducibility.history import repository_of
from mltrainer.workspace import read_whole

if TYPE_CHECKING:
    from model_signing.signing import Config as ModelSigning
    from securesystemslib.signer import Signer, SSlibKey

PASSWORD = "MLTRAINER_KEY_PASSWORD"  # noqa: S105 - the name of the variable, not a password
CURVES = ("secp256r1", "secp384r1", "secp521r1")  # those that OpenSSF model signing takes
MAKE = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem"
PUBLIC = "openssl pkey -in key.pem -pubout -out key.pub"
MOST = 1 << 20  # bytes of a key's file


@dataclass(frozen=True)
class SigningKey:
    """A private key, which is known by the ways in which it signs.

    Attributes:
        public: Its public key.
        signer: Signs envelopes.
        use_for_model: Lets a configuration of OpenSSF model signing sign with it.
    """

    public: SSlibKey
    signer: Signer = field(repr=False)
    use_for_model: Callable[[ModelSigning], object] = field(repr=False)


def signing_key(path: Path) -> SigningKey:
    """Return the private key of a PEM file; the password of an encrypted one is taken from the environment, or asked for.

    Raises:
        InputError: The file has no such key, the password is wrong, or a needed package is not installed.
    """
    with libraries():
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from securesystemslib.signer import CryptoSigner, SSlibKey

    content, password = _content(path), None
    try:
        try:
            key = load_pem_private_key(content, None)
        except TypeError:  # it is encrypted
            password = password_of(path.name, str(path)).encode()
            key = load_pem_private_key(content, password)
    except ValueError as error:
        what = "the password does not open the key" if password is not None else "expected a private key as PEM"
        hint = f"set {PASSWORD}, or type the password at a terminal" if password is not None else f"make one: {MAKE}"
        raise InputError(what, where=str(path), hint=hint) from error
    if not isinstance(key, EllipticCurvePrivateKey) or key.curve.name not in CURVES:
        message = "expected an elliptic-curve key of P-256, P-384 or P-521, which OpenSSF model signing needs, found another kind"
        raise InputError(message, where=str(path), hint=f"make one: {MAKE}")
    return SigningKey(
        SSlibKey.from_crypto(key.public_key()),
        CryptoSigner(key),
        lambda config: config.use_elliptic_key_signer(private_key=path, password=password),  # type: ignore[arg-type]  # bytes, as cryptography asks
    )


def dangers(path: Path, root: Path | None) -> Iterator[str]:
    """Yield the ways in which others may come to read a private key's file: by its mode, or with the project in a folder."""
    if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        yield f"{path} can be read by others; next: chmod 600 {path}"
    if root is not None and path.resolve().is_relative_to(root):
        yield f"{path} is in the project, and may be committed with it; next: move it elsewhere"


def trusted_keys(path: Path, root: Path) -> list[SSlibKey]:
    """Return the public keys of a PEM file, or of all files in a folder that hold one.

    Args:
        path: The file or folder.
        root: The folder of the project whose signatures are judged: keys in its repository are as trustworthy as the project.

    Raises:
        InputError: There is none, one is in the project's repository, the file holds something else, or a needed package is not
            installed.
    """
    files = sorted(entry for entry in path.iterdir() if entry.is_file()) if path.is_dir() else [path]
    holding = [file for file in files if b"-----BEGIN PUBLIC KEY-----" in _content(file) or file == path]
    if not holding:
        raise InputError("no file in it holds a public key", where=str(path), hint=f"of your own key: {PUBLIC}")
    _refuse_inside(holding, repository_of(root) or root)
    return [_public_key(file) for file in holding]


def _refuse_inside(files: Sequence[Path], repository: Path) -> None:
    for file in files:
        # The folders of its path, too: the repository can hold the file, or a link by which it is found.
        places = (file, *Path(os.path.abspath(file)).parents)
        if any(place.resolve().is_relative_to(repository.resolve()) for place in places):
            message = "a trusted key in the repository that it judges: whoever wrote the project may have put it there"
            hint = "take the key from its owner, keep it outside, and name it: mltrainer gate check --trust ../keys/"
            raise InputError(message, where=str(file), hint=hint)


def _public_key(path: Path) -> SSlibKey:
    with libraries():
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
        from securesystemslib.signer import SSlibKey

    content = _content(path)
    if b"PRIVATE KEY-----" in content:
        message = "this is a private key: a reviewer has, and needs, the public one alone"
        raise InputError(message, where=str(path), hint=PUBLIC)
    try:
        return SSlibKey.from_crypto(load_pem_public_key(content))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError("expected a public key as PEM", where=str(path), hint=f"of your own key: {PUBLIC}") from error


def _content(path: Path) -> bytes:
    try:
        return read_whole(path, MOST)
    except OSError as error:
        raise InputError(error.strerror or "cannot be read", where=str(path), hint="name the file of a key") from error


def password_of(name: str, where: str) -> str:
    """Return the password of a key, or the PIN of its token, from the environment or as typed at a terminal.

    Raises:
        InputError: There is none.
    """
    given = os.environ.get(PASSWORD)
    if given is None and sys.stdin.isatty():
        import typer

        given = str(typer.prompt(f"Password of {name}", hide_input=True, err=True))
    if given is None:
        raise InputError("the key needs a password", where=where, hint=f"set {PASSWORD}, or type the password at a terminal")
    return given
