"""Identities: signatures by which parties know each other's keys, whatever the server says.

Without signatures a server could put its own keys in the place of a party's, and read everything.
A party signs its keys with a long-lived private key, such as the key of its SuperNode, and accepts
only keys that are signed by one of the *pinned* identities: public keys whose fingerprints its
owner has received from the other owners, not from the server. Fingerprints are those that
``ssh-keygen -lf KEY.pub`` prints (:mod:`flwr_fbo.core.keys`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flwr_fbo.core import keys
from flwr_fbo.privacy.secure.terms import SecureSumError

#: Bytes of a signed identity on the wire: two lengths, the public key, the signature, and zeros.
SIGNED = 256


@dataclass(frozen=True)
class Identity:
    """A party's long-lived key pair: ECDSA (a SuperNode's) or Ed25519.

    Parameters
    ----------
    key
        The private key.
    """

    key: keys.PrivateKey

    @classmethod
    def load(cls, path: Path) -> Identity:
        """Read a private key without a passphrase, in PEM or OpenSSH format."""
        try:
            return cls(keys.read_private_key(path))
        except keys.KeyFileError as error:
            raise SecureSumError(str(error)) from None

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the public key."""
        return keys.fingerprint(self.key)

    def sign(self, content: bytes) -> bytes:
        """Return the public key and the signature of a content: ``SIGNED`` bytes."""
        public = base64.b64decode(keys.public_text(self.key).split()[1])
        signature = keys.sign(self.key, content)
        if 2 + len(public) + len(signature) > SIGNED:
            raise SecureSumError(
                f"a public key and its signature must fit into {SIGNED - 2} bytes, but this key "
                "does not fit: use a P-256, P-384 or Ed25519 key"
            )
        return (bytes([len(public), len(signature)]) + public + signature).ljust(SIGNED, b"\0")


def verify(signed: bytes, content: bytes) -> str:
    """Return the fingerprint of who signed a content; raise SecureSumError for no signature."""
    first, second = (signed[0], signed[1]) if len(signed) == SIGNED else (0, 0)
    if not first or not second or 2 + first + second > SIGNED:
        raise SecureSumError("the keys of a party must be signed, but are not")
    public, signature = signed[2 : 2 + first], signed[2 + first : 2 + first + second]
    # The bytes of a key begin with the length and the name of its kind.
    kind = public[4 : 4 + int.from_bytes(public[:4], "big")].decode(errors="replace")
    try:
        key = keys.read_public_key(f"{kind} {base64.b64encode(public).decode()}")
    except keys.KeyFileError:
        raise SecureSumError("an identity must be an ECDSA or Ed25519 key, but is not") from None
    if not keys.verify(key, content, signature):
        raise SecureSumError("the signature of a party's keys must be valid, but is not")
    return keys.fingerprint(key)


def check_pinned(pinned: frozenset[str], signers: Mapping[int, str]) -> None:
    """Raise SecureSumError unless the signers are different pinned identities."""
    for party, name in sorted(signers.items()):
        if name not in pinned:
            raise SecureSumError(
                f"the keys of party {party} must be signed by a pinned identity, but {name} is "
                "not pinned at this node: the server may have swapped keys"
            )
    if len(set(signers.values())) < len(signers):
        raise SecureSumError(
            "each identity must belong to one party, but one identity belongs to two"
        )


def pinned_identities(text: str) -> frozenset[str]:
    """Return the fingerprints that a text names, joined by commas, or the lines of a file.

    A line of a file is a fingerprint, or a public key in OpenSSH format. Lines that are empty or
    begin with ``#`` are left out.
    """
    if text.startswith("SHA256:"):
        found = [name.strip() for name in text.split(",")]
    else:
        try:
            lines = Path(text).read_text().splitlines()
        except (OSError, ValueError) as error:
            raise SecureSumError(f"{text}: the pinned identities cannot be read: {error}") from None
        lines = [line.strip() for line in lines if line.strip() and line.strip()[0] != "#"]
        found = [
            line.split()[0] if line.startswith("SHA256:") else _of_line(line) for line in lines
        ]
    wrong = [name for name in found if len(name) != 50 or not name.startswith("SHA256:")]
    if wrong or not found:
        raise SecureSumError(
            "pinned identities must be fingerprints such as those of `ssh-keygen -lf KEY.pub`, "
            f"but got {wrong[0]!r}"
            if wrong
            else f"{text} must pin at least one identity"
        )
    return frozenset(found)


def _of_line(line: str) -> str:
    """Return the fingerprint of a public key."""
    try:
        return keys.fingerprint(keys.read_public_key(line))
    except keys.KeyFileError as error:
        raise SecureSumError(str(error)) from None
