"""The cryptography of the secure sum, all of it from the package ``cryptography``.

=====================  =========================================================================
function               what it is
=====================  =========================================================================
:func:`agree`          X25519 (RFC 7748), then HKDF-SHA256 (RFC 5869) with the digest of the terms
:func:`expand`         the ChaCha20 key stream (RFC 8439) under a key that is used once
:func:`seal`           ChaCha20-Poly1305 (RFC 8439); the nonce is the number of the sender
:func:`confirmation`   HMAC-SHA256, cut to 16 bytes
=====================  =========================================================================

A private key and the seed of a self mask are uniform integers below the prime of
:mod:`flwr_fbo.privacy.secure.shamir`, so that both can be shared.
"""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from flwr_fbo.privacy.entropy import Entropy, Words
from flwr_fbo.privacy.secure.shamir import PRIME
from flwr_fbo.privacy.secure.terms import PROTOCOL, SecureSumError

#: Bytes of keys and secrets, and of confirmation codes.
KEY, CODE = 32, 16
#: Bytes that encryption adds.
TAG = 16


def new_secret(entropy: Entropy) -> int:
    """Return a uniform integer in [0, PRIME): a private key, or the seed of a self mask."""
    while True:
        drawn = int.from_bytes(entropy.words(4).tobytes(), "little") >> 1  # 255 bits
        if drawn < PRIME:  # fails once in 2^250
            return drawn


def public_key(secret: int) -> bytes:
    """Return the X25519 public key of a secret: 32 bytes."""
    public = private_key(secret).public_key()
    return public.public_bytes(Encoding.Raw, PublicFormat.Raw)


def private_key(secret: int) -> X25519PrivateKey:
    """Return the private key of a secret. Making it takes as long as an agreement."""
    return X25519PrivateKey.from_private_bytes(secret.to_bytes(KEY, "little"))


def agree(
    secret: int | X25519PrivateKey,
    public: bytes,
    purpose: bytes,
    digest: bytes,
    length: int = KEY,
) -> bytes:
    """Return the key that the owners of two key pairs share for a purpose under some terms."""
    key = private_key(secret) if isinstance(secret, int) else secret
    try:
        shared = key.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise SecureSumError("a public key must be a point of large order, but is not") from None
    return derive(shared, purpose, digest, length)


def derive(secret: bytes, purpose: bytes, digest: bytes, length: int = KEY) -> bytes:
    """Return a key for a purpose under some terms, from a secret."""
    kdf = HKDF(algorithm=SHA256(), length=length, salt=digest, info=PROTOCOL + b" " + purpose)
    return kdf.derive(secret)


def expand(key: bytes, length: int) -> Words:
    """Return the first words of the key stream, little-endian: (length,)."""
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * length)), dtype="<u8").astype(np.uint64)


def seal(key: bytes, sender: int, plain: bytes, bound: bytes) -> bytes:
    """Return encrypted bytes; ``bound`` is not encrypted, but must be the same to decrypt."""
    return ChaCha20Poly1305(key).encrypt(sender.to_bytes(12, "little"), plain, bound)


def unseal(key: bytes, sender: int, sealed: bytes, bound: bytes) -> bytes:
    """Return what :func:`seal` encrypted; raise SecureSumError for anything else."""
    try:
        return ChaCha20Poly1305(key).decrypt(sender.to_bytes(12, "little"), sealed, bound)
    except InvalidTag:
        raise SecureSumError(
            f"the shares from party {sender} must be encrypted for this party under the same "
            "terms, but are not: the keys of that party were swapped, or it received other terms"
        ) from None


def confirmation(key: bytes, sender: int, receiver: int, content: bytes) -> bytes:
    """Return the code by which a sender confirms a content to a receiver: 16 bytes."""
    text = sender.to_bytes(8, "little") + receiver.to_bytes(8, "little") + content
    return hmac.new(key, text, hashlib.sha256).digest()[:CODE]


def equal(left: bytes, right: bytes) -> bool:
    """Return whether two codes are equal, in a time that does not depend on them."""
    return hmac.compare_digest(left, right)
