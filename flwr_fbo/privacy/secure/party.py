r"""One party of a secure sum: a state machine with one method for each leg.

====  ==================  =================================  =====================================
leg   method              the server sends                   the party sends
====  ==================  =================================  =====================================
1     :meth:`keys`        the terms                          two public keys
2     :meth:`shares`      the neighbours' keys               its secrets' shares, encrypted
3     :meth:`masked`      the shares of its neighbours       its vector, noisy and masked
4     :meth:`confirm`     the list of survivors              a code for each neighbour
5     :meth:`open`        the codes of its neighbours        one share for each neighbour
====  ==================  =================================  =====================================

Every party has two secrets. The *mask key* gives, with a neighbour's public mask key, the mask that
the party with the smaller number adds and the other one subtracts. The *self seed* gives a mask of
the party's own. For a survivor the server is given shares of the self seed, for a party that
dropped out shares of the mask key, and never both.

**No mask is used twice.** The state is stored before a reply leaves, and says which legs were
answered. A leg is answered once. From :meth:`masked` on, the state holds neither secret any more.
A new sum has new secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy.entropy import Entropy, Words, system_entropy
from flwr_fbo.privacy.secure import primitives as p
from flwr_fbo.privacy.secure import shamir
from flwr_fbo.privacy.secure.identity import SIGNED, Identity, check_pinned, verify
from flwr_fbo.privacy.secure.noise_share import NoiseShare
from flwr_fbo.privacy.secure.terms import SecureSumError, Terms

LEGS = ("keys", "shares", "masked", "confirm", "open")
#: Bytes of the encrypted shares that one party sends another: a share of each secret.
SEALED = 2 * p.KEY + p.TAG


@dataclass(frozen=True)
class PublicKeys:
    """The public keys of a party, with the signature of its identity (zeros without one)."""

    channel: bytes
    mask: bytes
    signed: bytes = bytes(SIGNED)

    def content(self, party: int, digest: bytes) -> bytes:
        """Return what the signature covers."""
        return b"keys" + digest + party.to_bytes(8, "little") + self.channel + self.mask


@dataclass
class PartyState:
    """All that a party must remember between two legs. It holds secrets of one sum."""

    digest: str = ""
    number: int = -1
    leg: int = 0  # how many legs were answered
    channel: int = 0  # the secret of the channel key
    mask: int = 0  # the secret of the mask key
    seed: int = 0  # the self seed
    recover: int = 0
    keys: dict[str, list[str]] = field(default_factory=dict)  # the channel's, and the mask key
    held: dict[str, list[int]] = field(default_factory=dict)  # shares: of the seed, of the mask
    survivors: list[int] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, which later changes of the state do not change."""
        held = {v: list(pair) for v, pair in self.held.items()}
        copied = {"keys": dict(self.keys), "held": held, "survivors": list(self.survivors)}
        return {**vars(self), **copied}


def members_of(bits: bytes) -> frozenset[int]:
    """Return the parties whose bits are set in a list of survivors."""
    flags = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), bitorder="little")
    return frozenset(np.flatnonzero(flags).tolist())


def bits_of(members: Iterable[int], parties: int) -> bytes:
    """Return a list of survivors: one bit for each party, padded to words of 64 bits."""
    flags = np.zeros(-(-parties // 64) * 64, dtype=np.uint8)
    flags[list(members)] = 1
    return np.packbits(flags, bitorder="little").tobytes()


class Party:
    """One party in one sum, made anew for each message from its stored state.

    Parameters
    ----------
    number : int
        The number of the party, from 0.
    terms : Terms
        The terms that the server sent; the caller has compared them with the setup of the run.
    state : Mapping, optional
        The stored state; without one, and with that of another sum, only leg 1 is answered.
    store : Callable, optional
        Stores a state; called before the reply of a leg is returned.
    identity : Identity, optional
        The key that signs this party's keys.
    pinned : frozenset of str, optional
        The fingerprints of identities whose keys are accepted; None accepts unsigned keys.
    entropy : Entropy, optional
        The source of keys and noise: the operating system, unless a test gives another.
    """

    def __init__(
        self,
        number: int,
        terms: Terms,
        state: Mapping[str, Any] | None = None,
        store: Callable[[dict[str, Any]], None] = lambda state: None,
        identity: Identity | None = None,
        pinned: frozenset[str] | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        if not 0 <= number < terms.parties:
            raise SecureSumError(f"`number` must be in [0, {terms.parties}), but got {number!r}")
        if pinned is not None and identity is None:
            raise SecureSumError("a party that pins identities must have one of its own")
        self.number, self.terms, self._digest = number, terms, terms.digest
        self._state = PartyState() if state is None else PartyState(**state)
        self._store, self._entropy = store, entropy or system_entropy()
        self._identity, self._pinned = identity, pinned

    # -- leg 1 -------------------------------------------------------------------------------

    def keys(self) -> PublicKeys:
        """Make the secrets of this sum, and return the public keys."""
        if self._state.digest == self._digest.hex():
            raise SecureSumError("leg `keys` must be asked for once in a sum, but was repeated")
        channel, mask, seed = (p.new_secret(self._entropy) for _ in range(3))
        # The secrets of the sum before are gone: nothing of it can be answered any more.
        self._state = PartyState(self._digest.hex(), self.number, 0, channel, mask, seed)
        public = PublicKeys(p.public_key(channel), p.public_key(mask))
        if self._identity is not None:
            signed = self._identity.sign(public.content(self.number, self._digest))
            public = PublicKeys(public.channel, public.mask, signed)
        self._answered("keys")
        return public

    # -- leg 2 -------------------------------------------------------------------------------

    def shares(self, neighbours: Mapping[int, PublicKeys], recover: int) -> dict[int, bytes]:
        """Return the encrypted shares of both secrets, one for each neighbour.

        Parameters
        ----------
        neighbours : Mapping
            The public keys of the neighbours.
        recover : int
            T, how many of the neighbours and this party together recover a secret.
        """
        self._expect("shares")
        self._check_neighbours(neighbours, recover)
        state, everybody = self._state, [self.number, *neighbours]
        points = [v + 1 for v in everybody]
        of_seed = shamir.share(state.seed, recover, points, self._entropy)
        of_mask = shamir.share(state.mask, recover, points, self._entropy)
        channel = p.private_key(state.channel)
        state.keys = {
            str(v): [self._agreed(channel, k.channel).hex(), k.mask.hex()]
            for v, k in neighbours.items()
        }
        state.channel = 0  # the keys that it led to are kept instead
        # A party never needs a share of its own mask key: it is asked for it only if it is gone.
        state.held = {str(self.number): [of_seed[0], 0]}
        state.recover = recover
        sealed = {
            v: p.seal(self._channel(v)[: p.KEY], self.number, _pack(seed, mask), self._bound(v))
            for v, seed, mask in zip(neighbours, of_seed[1:], of_mask[1:], strict=True)
        }
        self._answered("shares")
        return sealed

    def _check_neighbours(self, neighbours: Mapping[int, PublicKeys], recover: int) -> None:
        """Raise SecureSumError for neighbours that would not protect this party."""
        count = len(neighbours) + 1
        if self.number in neighbours or not all(0 <= v < self.terms.parties for v in neighbours):
            raise SecureSumError("the neighbours of a party must be other parties of the run")
        if not (count >= recover > self.terms.colluding and 3 * recover > count):
            raise SecureSumError(
                "more than a third of a neighbourhood, and more parties than may collude, must be "
                f"needed to recover a secret, but {recover} of {count} are"
            )
        public = [key for k in neighbours.values() for key in (k.channel, k.mask)]
        if len({*public}) < len(public):
            raise SecureSumError("all keys of all neighbours must differ, but two are equal")
        if self._pinned is None:
            return
        # Against a server that swaps keys, every party must see every other one.
        if count < self.terms.threshold or recover < self.terms.threshold:
            raise SecureSumError(
                f"a party that pins identities needs {self.terms.threshold} neighbours or more, "
                f"all of whose shares are needed, but got {recover} of {count}"
            )
        signers = {v: verify(k.signed, k.content(v, self._digest)) for v, k in neighbours.items()}
        assert self._identity is not None
        check_pinned(self._pinned, signers | {self.number: self._identity.fingerprint})

    # -- leg 3 -------------------------------------------------------------------------------

    def masked(self, sealed: Mapping[int, bytes], vector: Array) -> Words:
        """Return the vector on the lattice, with noise and all masks, modulo 2^64: (d,).

        Parameters
        ----------
        sealed : Mapping
            The encrypted shares of the neighbours that sent any.
        vector : Array
            The party's vector, (d,). It is clipped to the sensitivity here.
        """
        self._expect("masked")
        state, length = self._state, self.terms.length
        if not {*map(str, sealed)} <= {*state.keys}:
            raise SecureSumError("shares must be those of neighbours, but some are not")
        if len(sealed) + 1 < state.recover:
            raise SecureSumError(
                f"{state.recover} parties of the neighbourhood must have sent shares, "
                f"but {len(sealed) + 1} have"
            )
        if np.shape(vector) != (length,) or not np.all(np.isfinite(vector)):
            raise SecureSumError(f"a vector must hold {length} finite numbers, but does not")
        for v, content in sealed.items():
            plain = p.unseal(self._channel(v)[: p.KEY], v, content, self._bound(v, received=True))
            state.held[str(v)] = _unpack(plain)
        noisy = NoiseShare.of(self.terms).contribution(vector, self._entropy)
        total = noisy.astype(np.uint64) + self_mask(state.seed, self.number, self.terms)
        key = p.private_key(state.mask)
        for v in sealed:
            public = bytes.fromhex(state.keys[str(v)][1])
            mask = pair_mask(key, public, self.terms, self.number, v)
            total = total + mask if self.number < v else total - mask
        # From here on this party cannot make these masks again, not even after a crash.
        state.mask = state.seed = 0
        self._answered("masked")
        return total

    # -- leg 4 -------------------------------------------------------------------------------

    def confirm(self, survivors: bytes) -> dict[int, bytes]:
        """Return a code for each neighbour, which says that this party saw this list."""
        self._expect("confirm")
        listed = members_of(survivors)
        if self.number not in listed or not listed <= set(range(self.terms.parties)):
            raise SecureSumError("the survivors must be parties of the run, this one among them")
        if len(listed) < self.terms.threshold:
            raise SecureSumError(
                f"{self.terms.threshold} parties must survive, but {len(listed)} have"
            )
        known = {int(v) for v in self._state.held}
        if not listed & {self.number, *map(int, self._state.keys)} <= known:
            raise SecureSumError("a survivor must have sent its shares, but one has not")
        # With every other party as a neighbour, the list is checked as a whole.
        complete = len(self._state.keys) + 1 >= self.terms.threshold
        if complete and not listed <= known:
            raise SecureSumError("every survivor must be a party whose keys are known")
        self._state.survivors = sorted(listed)
        codes = {
            int(v): p.confirmation(
                self._channel(int(v))[p.KEY :], self.number, int(v), self._digest + survivors
            )
            for v in self._state.keys
        }
        self._answered("confirm")
        return codes

    # -- leg 5 -------------------------------------------------------------------------------

    def open(self, codes: Mapping[int, bytes]) -> dict[int, int]:
        """Return a share of the self seed of each survivor, and of the mask key of each other.

        The shares are those of this party's neighbourhood. Enough neighbours must have confirmed
        the same list: otherwise a server that shows two lists could learn both secrets.
        """
        self._expect("open")
        state = self._state
        content = self._digest + bits_of(state.survivors, self.terms.parties)
        survivors = {*state.survivors}
        agreed = {
            v
            for v, code in codes.items()
            if v in survivors
            and str(v) in state.keys
            and p.equal(code, p.confirmation(self._channel(v)[p.KEY :], v, self.number, content))
        }
        if len(agreed) + 1 < state.recover:
            raise SecureSumError(
                f"{state.recover} parties of the neighbourhood must have confirmed the list of "
                f"survivors, but {len(agreed) + 1} have"
            )
        opened = {int(v): pair[int(v) not in survivors] for v, pair in state.held.items()}
        state.held, state.keys = {}, {}
        self._answered("open")
        return opened

    # -- what the legs share -------------------------------------------------------------------

    def _channel(self, other: int) -> bytes:
        """Return the keys of the channel with a neighbour: to encrypt, and to confirm."""
        return bytes.fromhex(self._state.keys[str(other)][0])

    def _agreed(self, channel: X25519PrivateKey, public: bytes) -> bytes:
        """Return the keys of the channel with the owner of a public key."""
        return p.agree(channel, public, b"channel", self._digest, 2 * p.KEY)

    def _bound(self, other: int, received: bool = False) -> bytes:
        """Return what encrypted shares are bound to: the sum, sender, receiver and T."""
        pair = (other, self.number) if received else (self.number, other)
        return b"".join([self._digest, *(n.to_bytes(8, "little") for n in pair)]) + bytes(
            [self._state.recover & 255, self._state.recover >> 8]
        )

    def _expect(self, leg: str) -> None:
        """Raise SecureSumError unless a leg is the next one of this sum."""
        if (self._state.digest, self._state.number) != (self._digest.hex(), self.number):
            raise SecureSumError(f"leg `{leg}` must belong to the last sum that this party joined")
        if self._state.leg != LEGS.index(leg):
            raise SecureSumError(f"leg `{leg}` must be asked for once and in order, but was not")

    def _answered(self, leg: str) -> None:
        """Store that a leg was answered, before its reply leaves."""
        self._state.leg = LEGS.index(leg) + 1
        self._store(self._state.to_dict())


def self_mask(seed: int, party: int, terms: Terms) -> Words:
    """Return the mask of a party's own, from its self seed: (d,)."""
    purpose = b"self " + party.to_bytes(8, "little")
    key = p.derive(seed.to_bytes(p.KEY, "little"), purpose, terms.digest)
    return p.expand(key, terms.length)


def pair_mask(
    secret: int | X25519PrivateKey, public: bytes, terms: Terms, one: int, other: int
) -> Words:
    """Return the mask of two parties, from the mask key of one and the public key of the other."""
    low, high = sorted((one, other))
    purpose = b"pair " + low.to_bytes(8, "little") + high.to_bytes(8, "little")
    return p.expand(p.agree(secret, public, purpose, terms.digest), terms.length)


def _pack(seed: int, mask: int) -> bytes:
    return seed.to_bytes(p.KEY, "little") + mask.to_bytes(p.KEY, "little")


def _unpack(plain: bytes) -> list[int]:
    if len(plain) != 2 * p.KEY:
        raise SecureSumError("shares must be two numbers of 32 bytes, but are not")
    return [int.from_bytes(plain[: p.KEY], "little"), int.from_bytes(plain[p.KEY :], "little")]
