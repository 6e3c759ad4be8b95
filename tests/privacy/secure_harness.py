"""Secure sums in one process: parties, a collector, and who drops out before which leg."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from flwr_fbo.privacy.entropy import Entropy, seeded_entropy
from flwr_fbo.privacy.secure.collector import Collector
from flwr_fbo.privacy.secure.noise_share import NoiseShare
from flwr_fbo.privacy.secure.party import LEGS, Party
from flwr_fbo.privacy.secure.terms import Terms, default_threshold


def terms_of(parties: int, length: int = 5, threshold: int | None = None, **given: Any) -> Terms:
    colluding = given.pop("colluding", 1)
    values: dict[str, Any] = {
        "run": "run", "release": 3, "nonce": bytes(range(16)), "parties": parties,
        "threshold": threshold or default_threshold(parties, colluding), "colluding": colluding,
        "length": length, "sensitivity": 1.5, "noise_multiplier": 2.0,
    }  # fmt: skip
    return Terms(**values | given)


@dataclass
class Sum:
    """One sum: every message passes through JSON-like state, as if each were a process.

    Parameters
    ----------
    vectors
        The vector of each party.
    drops
        For a party that drops out, the number of legs that it answers before.
    seed
        The seed of all secrets and noise.
    """

    terms: Terms
    vectors: np.ndarray
    drops: Mapping[int, int] = field(default_factory=dict)
    seed: int = 0
    order: Sequence[int] = ()
    options: Mapping[int, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.states: dict[int, dict[str, Any]] = {}
        self.entropies: dict[int, Entropy] = {
            u: seeded_entropy(1000 * self.seed + u) for u in range(self.terms.parties)
        }
        self.collector = Collector(self.terms, seeded_entropy(10**6 + self.seed))
        #: Everything that the server was sent, by leg and party.
        self.transcript: dict[str, dict[int, Any]] = {}

    def party(self, u: int) -> Party:
        return Party(
            u, self.terms, self.states.get(u), lambda s: self.states.__setitem__(u, s),
            entropy=self.entropies[u], **self.options.get(u, {}),
        )  # fmt: skip

    def asked(self, leg: int) -> list[int]:
        """Who answers a leg, in the order of arrival."""
        order = self.order or range(self.terms.parties)
        return [
            u for u in order
            if u in self.collector.present and self.drops.get(u, len(LEGS)) > leg
        ]  # fmt: skip

    def answer(self, u: int, leg: int) -> Any:
        c, party = self.collector, self.party(u)
        match LEGS[leg]:
            case "keys":
                return party.keys()
            case "shares":
                return party.shares(c.neighbour_keys(u), c.degree.recover)
            case "masked":
                return party.masked(c.shares_for(u), self.vectors[u])
            case "confirm":
                return party.confirm(c.survivors)
            case _:
                return party.open(c.codes_for(u))

    def leg(self) -> np.ndarray | None:
        """Run the next leg; the sum after the last one."""
        leg = self.collector.leg
        replies = {u: self.answer(u, leg) for u in self.asked(leg)}
        self.transcript[LEGS[leg]] = replies
        c = self.collector
        take = (c.take_keys, c.take_shares, c.take_masked, c.take_codes, c.take_opened)[leg]
        return take(replies)  # type: ignore[operator, no-any-return]

    def run(self, legs: int = len(LEGS)) -> np.ndarray | None:
        total = None
        for _ in range(legs):
            total = self.leg()
        return total


@contextlib.contextmanager
def recorded_contributions() -> Iterator[list[np.ndarray]]:
    """Every noisy vector on the lattice, as parties make them: what would be sent without masks."""
    made: list[np.ndarray] = []
    real = NoiseShare.contribution

    def spy(self: NoiseShare, vector: np.ndarray, entropy: Entropy) -> np.ndarray:
        made.append(real(self, vector, entropy))
        return made[-1]

    with mock.patch.object(NoiseShare, "contribution", spy):
        yield made
