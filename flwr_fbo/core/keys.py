"""Key pairs of parties: read them, sign with them, and check signatures.

Two kinds of keys occur in a deployment. A SuperNode authenticates itself with an ECDSA key on a
NIST curve, made by ``ssh-keygen -t ecdsa -b 384``. Apps are signed with Ed25519 keys, the only kind
that ``flower-supernode --trusted-entities`` reads. This module treats both alike.

Private keys are in OpenSSH or PEM format. Public keys are text of one line in OpenSSH format, such
as the content of ``node-0.key.pub``.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
PublicKey: TypeAlias = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

_HASH = ec.ECDSA(hashes.SHA384())
#: The errors of the library for files and texts that are no keys.
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)


class KeyFileError(ValueError):
    """An error for a file or a text that holds no key of the two kinds; quotes no private key."""


def read_private_key(path: Path) -> PrivateKey:
    """Return the private key of a file without passphrase, in OpenSSH or PEM format.

    Parameters
    ----------
    path
        The file, such as ``node-0.key``.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise KeyFileError(f"{path}: the private key cannot be read: {error.strerror}") from None
    ssh = b"OPENSSH PRIVATE KEY" in data
    load = serialization.load_ssh_private_key if ssh else serialization.load_pem_private_key
    try:
        key = load(data, password=None)
    except _UNREADABLE:
        raise KeyFileError(
            f"{path} must hold a private key without passphrase in OpenSSH or PEM format"
        ) from None
    if not isinstance(key, (ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey)):
        raise KeyFileError(f"{path} must hold an ECDSA or Ed25519 key")
    return key


def read_public_key(text: str) -> PublicKey:
    """Return the public key of a text in OpenSSH format, such as a line of ``node-0.key.pub``."""
    try:
        key = serialization.load_ssh_public_key(text.strip().encode())
    except _UNREADABLE:
        raise KeyFileError(
            f"a public key must be a line such as 'ecdsa-sha2-nistp384 AAAA...', but got "
            f"{text.strip()[:40]!r}"
        ) from None
    if not isinstance(key, (ec.EllipticCurvePublicKey, ed25519.Ed25519PublicKey)):
        raise KeyFileError(f"a public key must be ECDSA or Ed25519, but got {text.strip()[:20]!r}")
    return key


def public_text(key: PrivateKey | PublicKey) -> str:
    """Return a public key as one line in OpenSSH format, without a comment.

    Two texts are equal exactly where the keys are equal. For a private key, this is the line of its
    public half.
    """
    if isinstance(key, (ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey)):
        key = key.public_key()
    form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    return key.public_bytes(*form).decode()


def fingerprint(key: PrivateKey | PublicKey) -> str:
    """Return the fingerprint of a key, as ``ssh-keygen -l`` prints it."""
    digest = hashlib.sha256(base64.b64decode(public_text(key).split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def sign(key: PrivateKey, message: bytes) -> bytes:
    """Return the signature of a message.

    Begin every message with words that say what it is for, so that a signature for one purpose is
    of no use for another.
    """
    return (
        key.sign(message, _HASH)
        if isinstance(key, ec.EllipticCurvePrivateKey)
        else key.sign(message)
    )


def verify(key: PublicKey, message: bytes, signature: bytes) -> bool:
    """Return whether a signature of this message is by the owner of a public key."""
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, message, _HASH)
        else:
            key.verify(signature, message)
    except InvalidSignature:
        return False
    return True
