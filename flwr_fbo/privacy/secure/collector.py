"""The server of a secure sum: a state machine that passes messages on and opens one sum.

The collector is given the replies of each leg, by party, and makes the requests of the next leg.
A party without a usable reply has dropped out, and is asked nothing more in this sum. With fewer
than t parties left the sum is abandoned (:class:`AbandonedError`): all that the server has is
masked. The state is never stored: after a crash another sum begins, with new keys.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from flwr_fbo.privacy.entropy import Entropy, Words, system_entropy
from flwr_fbo.privacy.mechanisms import Integers
from flwr_fbo.privacy.secure import primitives as p
from flwr_fbo.privacy.secure import shamir
from flwr_fbo.privacy.secure.graph import Degree, degree, neighbours
from flwr_fbo.privacy.secure.noise_share import NoiseShare
from flwr_fbo.privacy.secure.party import (
    LEGS,
    SEALED,
    PublicKeys,
    bits_of,
    pair_mask,
    self_mask,
)
from flwr_fbo.privacy.secure.terms import NONCE, SecureSumError, Terms

V = TypeVar("V")


class AbandonedError(SecureSumError):
    """The sum cannot be opened; nothing of it was revealed."""


class Collector:
    """The server's side of one sum.

    Parameters
    ----------
    terms : Terms
        The terms of the sum.
    entropy : Entropy, optional
        The source of the neighbour graph's order; by default the operating system's.
    """

    def __init__(self, terms: Terms, entropy: Entropy | None = None) -> None:
        self.terms = terms
        self._entropy = entropy or system_entropy()
        #: The number of legs whose replies were taken in.
        self.leg = 0
        #: The parties that answered all legs so far; all parties before the first leg.
        self.present: tuple[int, ...] = tuple(range(terms.parties))
        self.degree = Degree(0, 0)
        self._keys: dict[int, PublicKeys] = {}
        self._near: dict[int, tuple[int, ...]] = {}
        self._sealed: dict[int, dict[int, bytes]] = {}
        self._masked: dict[int, Words] = {}
        self._codes: dict[int, dict[int, bytes]] = {}

    # -- replies -----------------------------------------------------------------------------

    def take_keys(self, replies: Mapping[int, PublicKeys]) -> None:
        """Take in the public keys, and draw the neighbours of each party."""
        self._keys = self._usable("keys", replies, lambda u, keys: True)
        t = self.terms
        self.degree = degree(len(self.present), t.threshold, t.colluding)
        self._near = neighbours(self.present, self.degree.neighbours, self._entropy)

    def take_shares(self, replies: Mapping[int, Mapping[int, bytes]]) -> None:
        """Take in the encrypted shares of each party, by the neighbour that they are for."""

        def usable(u: int, sealed: Mapping[int, bytes]) -> bool:
            right = set(sealed) == set(self._near[u])
            return right and all(len(content) == SEALED for content in sealed.values())

        kept = self._usable("shares", replies, usable)
        self._sealed = {u: dict(sealed) for u, sealed in kept.items()}

    def take_masked(self, replies: Mapping[int, Words]) -> None:
        """Take in the masked vectors, whose senders are the survivors."""

        def usable(u: int, masked: Words) -> bool:
            return masked.shape == (self.terms.length,) and masked.dtype == np.uint64

        self._masked = self._usable("masked", replies, usable)

    def take_codes(self, replies: Mapping[int, Mapping[int, bytes]]) -> None:
        """Take in the codes by which each survivor confirms the list of survivors."""
        kept = self._usable("confirm", replies, lambda u, codes: True)
        self._codes = {u: dict(codes) for u, codes in kept.items()}

    def take_opened(self, replies: Mapping[int, Mapping[int, int]]) -> Integers:
        """Take in the shares, and return the sum of the survivors' noisy vectors: (d,)."""
        opened = self._usable("open", replies, lambda u, shares: True)
        total = np.zeros(self.terms.length, dtype=np.uint64)
        for masked in self._masked.values():
            total = total + masked
        for u in self._masked:
            total = total - self_mask(self._secret(u, opened), u, self.terms)
        for gone in set(self._sealed) - set(self._masked):
            total = total - self._left_by(gone, opened)
        return total.astype(np.int64)

    def _left_by(self, gone: int, opened: Mapping[int, Mapping[int, int]]) -> Words:
        """Return what the masks with a party that dropped out left in the sum: (d,)."""
        total = np.zeros(self.terms.length, dtype=np.uint64)
        near = [v for v in self._near[gone] if v in self._masked]
        if not near:
            return total
        secret = self._secret(gone, opened)
        if p.public_key(secret) != self._keys[gone].mask:
            raise AbandonedError(
                f"the shares of party {gone} do not fit: some party sent a wrong one"
            )
        key = p.private_key(secret)
        for v in near:
            mask = pair_mask(key, self._keys[v].mask, self.terms, gone, v)
            total = total + mask if v < gone else total - mask
        return total

    def _secret(self, party: int, opened: Mapping[int, Mapping[int, int]]) -> int:
        """Return the secret of a party whose shares were opened."""
        shares = {
            v + 1: opened[v][party]
            for v in (party, *self._near[party])
            # A party that dropped out holds its own self seed's share only.
            if v in opened and party in opened[v]
        }
        if len(shares) < self.degree.recover:
            raise AbandonedError(
                f"a secret of party {party} needs {self.degree.recover} shares, "
                f"but {len(shares)} came"
            )
        try:
            return shamir.recover(shares, self.degree.recover)
        except SecureSumError as error:
            raise AbandonedError(str(error)) from None

    def _usable(
        self, leg: str, replies: Mapping[int, V], usable: Callable[[int, V], bool]
    ) -> dict[int, V]:
        """Return the usable replies of the parties that are present; abandon with too few."""
        if LEGS[self.leg] != leg:
            raise SecureSumError(f"leg `{leg}` must follow leg `{LEGS[self.leg]}`, but does not")
        kept = {u: replies[u] for u in self.present if u in replies and usable(u, replies[u])}
        self.present = tuple(kept)
        if len(kept) < self.terms.threshold:
            raise AbandonedError(
                f"{self.terms.threshold} of {self.terms.parties} parties must answer leg `{leg}`, "
                f"but {len(kept)} did"
            )
        self.leg += 1
        return kept

    # -- requests ----------------------------------------------------------------------------

    def neighbour_keys(self, party: int) -> dict[int, PublicKeys]:
        """Return what leg 2 sends a party: the keys of its neighbours."""
        return {v: self._keys[v] for v in self._near[party]}

    def shares_for(self, party: int) -> dict[int, bytes]:
        """Return what leg 3 sends a party: the shares that its neighbours encrypted for it."""
        return {v: self._sealed[v][party] for v in self._near[party] if v in self._sealed}

    @property
    def survivors(self) -> bytes:
        """Return what leg 4 sends every survivor: the list of them."""
        return bits_of(self._masked, self.terms.parties)

    @property
    def survivor_count(self) -> int:
        """Return how many parties' vectors are in the sum."""
        return len(self._masked)

    def codes_for(self, party: int) -> dict[int, bytes]:
        """Return what leg 5 sends a party: the codes that its neighbours made for it."""
        return {
            v: self._codes[v][party]
            for v in self._near[party]
            if v in self._codes and party in self._codes[v]
        }

    def noise(self) -> NoiseShare:
        """Return the noise that each survivor has added."""
        return NoiseShare.of(self.terms)


def new_nonce() -> bytes:
    """Return fresh random bytes for the terms of a sum."""
    return os.urandom(NONCE)
