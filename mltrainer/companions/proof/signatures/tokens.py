"""A key in a token, such as a security key or an HSM: it is named by a PKCS #11 URI (RFC 7512), and never leaves the token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mltrainer.companions.proof.signatures import libraries
from mltrainer.companions.proof.signatures.keys import SigningKey, password_of
from mltrainer.errors import InputError

if TYPE_CHECKING:
    from securesystemslib.signer import Signature, SSlibKey

PREFIX = "pkcs11:"
EXAMPLE = "pkcs11:token=NAME;object=LABEL?module-path=/usr/lib/softhsm/libsofthsm2.so"


class TokenSigner:
    """Signs envelopes with the key of a token, through the session that OpenSSF model signing opened.

    Args:
        public_key: The public key.
        token: The library's signer of models.
    """

    def __init__(self, public_key: SSlibKey, token: Any) -> None:
        self.public_key = public_key
        self._token = token

    def sign(self, payload: bytes) -> Signature:
        """Return the signature of a payload: ECDSA over the digest that the key's scheme names."""
        import hashlib

        import PyKCS11
        from asn1crypto.algos import DSASignature
        from securesystemslib.signer import Signature

        digest = hashlib.new(f"sha{self.public_key.scheme[-3:].replace('521', '512')}", payload).digest()
        mechanism = PyKCS11.Mechanism(PyKCS11.CKM_ECDSA, None)
        found = bytes(self._token.session.sign(self._token._private_key, digest, mechanism))
        return Signature(self.public_key.keyid, DSASignature.from_p1363(found).dump().hex())


def token_key(uri: str) -> SigningKey:
    """Return the key that a URI names; the PIN is taken from the environment, or asked for.

    Raises:
        InputError: There is no such token or key, the PIN is wrong, or a needed package is not installed.
    """
    with libraries("tokens"):
        import PyKCS11
        from model_signing._signing.pkcs11uri import Pkcs11URI
        from model_signing._signing.sign_pkcs11 import Signer
        from securesystemslib.signer import SSlibKey

    where = uri.partition("?")[0]  # the rest may hold a PIN
    try:
        named = Pkcs11URI()
        named.parse(uri)
        if named.has_pin():
            raise InputError("a PIN in the URI can be read by others", where=where, hint="leave it out: it is asked for")
        without_pin = named.format()
        named.set_query_attribute("pin-value", password_of("the token", where), pctencode=True)
        token = Signer(named.format())
        public = SSlibKey.from_crypto(token.public_key())
    except (ValueError, PyKCS11.PyKCS11Error) as error:
        raise InputError(f"no key of this token can sign: {error}", where=where, hint=f"name one: {EXAMPLE}") from error
    # A token knows the whole process once it has its PIN, and refuses a second one.
    signer: Any = TokenSigner(public, token)  # with what an envelope asks of a Signer, whose base class needs the library
    return SigningKey(public, signer, lambda config: config.use_pkcs11_signer(pkcs11_uri=without_pin))
