"""DSSE envelopes: statements signed with a key, and verified with the keys that a reviewer trusts."""

from __future__ import annotations

import binascii
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mltrainer.companions.proof.signatures import libraries
from mltrainer.companions.proof.signatures.keys import SigningKey

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUNDLE_FILE = "phases/signed.intoto.jsonl"  # in-toto's bundle: one envelope a line
SUMMARY_FILE = "verdict.intoto.jsonl"  # beside verdict.json, by its referee


class UntrustedError(Exception):
    """An envelope that no trusted key signed; the message says why."""


def bundle(payloads: Iterable[bytes], signing: SigningKey) -> bytes:
    """Return the statements as lines, each an envelope that the key signed."""
    with libraries():
        from securesystemslib.dsse import Envelope

    lines = []
    for payload in payloads:
        envelope = Envelope(payload, PAYLOAD_TYPE, {})
        envelope.sign(signing.signer)
        lines.append(f"{json.dumps(envelope.to_dict(), sort_keys=True)}\n")
    return "".join(lines).encode()


def verified(envelope: Any, keys: Sequence[SSlibKey]) -> bytes:
    """Return the payload of an envelope that one of the keys signed.

    Args:
        envelope: The envelope's JSON; whatever it holds is refused, where it is no envelope.
        keys: The trusted keys. The key that an envelope names is a hint alone: each is tried.

    Raises:
        UntrustedError: None of them signed it, or it is of another type.
    """
    with libraries():
        from securesystemslib.dsse import Envelope
        from securesystemslib.exceptions import UnverifiedSignatureError
        from securesystemslib.signer import Signature

    try:
        payload_type, rows = envelope["payloadType"], envelope["signatures"]
        payload = binascii.a2b_base64(envelope["payload"], strict_mode=True)
        signatures = [binascii.a2b_base64(row["sig"], strict_mode=True).hex() for row in rows]
        named = [str(row.get("keyid") or "") for row in rows]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UntrustedError("this is no DSSE envelope") from error
    if payload_type != PAYLOAD_TYPE:
        raise UntrustedError(f"its payload's type is {str(payload_type)[:60]!r}, expected {PAYLOAD_TYPE!r}")
    signed = Envelope(payload, payload_type, {}).pae()
    for signature in signatures:
        for key in keys:
            try:
                key.verify_signature(Signature(key.keyid, signature), signed)
            except UnverifiedSignatureError:
                continue
            return payload
    if {key.keyid for key in keys} & {*named}:
        raise UntrustedError("its content is not what a trusted key signed")
    raise UntrustedError("no trusted key signed it")
