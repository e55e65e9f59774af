"""The signature over the delivered model's folder, as OpenSSF model signing makes it: `final_model/model.sig`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mltrainer.companions.proof.signatures import libraries
from mltrainer.companions.proof.signatures.envelopes import UntrustedError, verified
from mltrainer.companions.proof.signatures.keys import SigningKey
from mltrainer.leftovers import scratch
from mltrainer.workspace import MODEL_SIGNATURE, from_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securesystemslib.signer import SSlibKey

PREDICATE = "https://model_signing/signature/v1.0"


def model_signature(folder: Path, signing: SigningKey) -> bytes:
    """Return the signature over all files of a model's folder but an earlier signature."""
    with libraries():
        from model_signing.hashing import Config as Hashing
        from model_signing.signing import Config

    signer = Config().set_hashing_config(Hashing().set_ignored_paths(paths=[MODEL_SIGNATURE], ignore_git_paths=False))
    signing.use_for_model(signer)
    with scratch() as place:
        # The library writes a file as it goes; here one appears whole.
        signer.sign(folder, place / MODEL_SIGNATURE)
        return (place / MODEL_SIGNATURE).read_bytes()


def signed_files(content: bytes, keys: Sequence[SSlibKey]) -> dict[str, str]:
    """Return the digests of the files that a signature covers, by name.

    Raises:
        UntrustedError: No trusted key signed it, or it is no signature over a folder's files.
    """
    try:
        envelope = from_json(content)["dsseEnvelope"]
    except (ValueError, KeyError, TypeError) as error:
        raise UntrustedError("this is no signature of OpenSSF model signing") from error
    payload = verified(envelope, keys)
    try:
        statement: Any = from_json(payload)
        if statement["predicateType"] != PREDICATE:
            raise UntrustedError(f"expected the predicate {PREDICATE}, found {statement['predicateType']}")
        rows = statement["predicate"]["resources"]
        return {str(row["name"]): f"{row['algorithm']}:{row['digest']}".removeprefix("sha256:") for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise UntrustedError("its statement names no files") from error


def file_faults(signed: Mapping[str, str], recorded: Mapping[str, str]) -> Iterator[str]:
    """Yield the differences between the files that were signed and those that the gate of finalization records."""
    for name in sorted(signed.keys() | recorded.keys()):
        one, other = signed.get(name), recorded.get(name)
        if one != other:
            yield f"{name}: signed {_short(one)}, recorded {_short(other)}"


def _short(sha256: str | None) -> str:
    return f"with sha256 {sha256[:12]}" if sha256 else "not at all"
