"""Secure sums as requests and replies: the legs of :mod:`flwr_fbo.privacy.secure` on the wire.

A server whose method needs the sum of the agents' vectors, and nothing else of them, opens a
:class:`SecureSum` instead of asking for the vectors. Agents answer by :class:`SecureAnswers`.

Requests of a sum (bytes are packed into 64-bit words)

====================  ==================================  ==========================
kind                  values, arrays and words            words of the reply
====================  ==================================  ==========================
all                   ``party, nonce, length,
                      sensitivity``
``secure-keys``       -                                   ``keys`` (40,)
``secure-shares``     ``recover``; ``neighbours`` (k,),   ``sealed`` (k, 10)
                      ``keys`` (k, 40), or (k, 8) where
                      no party signs
``secure-masked``     the method's own; ``senders``       ``masked`` (d,)
                      (n,), ``sealed`` (n, 10)
``secure-confirm``    ``survivors`` (N / 64,)             ``codes`` (k, 2)
``secure-open``       ``senders`` (n,), ``codes`` (n, 2)  ``shares`` (held, 4)
====================  ==================================  ==========================

Rows of a reply are in the ascending order of the neighbours' numbers; in ``shares`` the agent's own
row is among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Protocol

import numpy as np

from flwr_fbo.core.arrays import Array, Words
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.core.settings import Scalar, SettingsError
from flwr_fbo.methods.owner import OWNER, Owner
from flwr_fbo.privacy.budget import BudgetExceeded
from flwr_fbo.privacy.entropy import Entropy, system_entropy
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.local import LocalBudget
from flwr_fbo.privacy.mechanisms import Integers
from flwr_fbo.privacy.secure.collector import Collector
from flwr_fbo.privacy.secure.graph import degree
from flwr_fbo.privacy.secure.identity import SIGNED
from flwr_fbo.privacy.secure.noise_share import NoiseShare
from flwr_fbo.privacy.secure.party import LEGS, SEALED, Party, PublicKeys, members_of
from flwr_fbo.privacy.secure.primitives import CODE, KEY
from flwr_fbo.privacy.secure.terms import (
    SecureSumError,
    Terms,
    check_threshold,
    default_threshold,
)

PREFIX = "secure-"
KINDS = tuple(PREFIX + leg for leg in LEGS)
#: The name of the array of a setup that holds the :class:`SecurePlan`.
PLAN = "secure"
#: Bytes of a party's public keys with the signature.
KEYS = 2 * KEY + SIGNED
#: What the guarantee of no secure sum covers.
MORE_COLLUDING = (
    "more colluding parties than stated, and a server that swaps keys nobody has pinned"
)
#: The word with which an agent declines a sum that its run did not plan, or its owner's limit.
BUDGET = "budget"


@dataclass(frozen=True)
class SecurePlan:
    """The public facts of all sums of a run, which every agent receives in its setup.

    Parameters
    ----------
    parties, threshold, colluding
        N, t and c of :class:`~flwr_fbo.privacy.secure.terms.Terms`.
    noise_multiplier
        z of every release.
    allowance
        How much an agent sends at most in masked vectors over the whole run.
    by_number
        Whether the allowance counts the numbers in the vectors, and not the vectors. The cost of a
        vector is then that of its share of the allowance.
    """

    parties: int
    threshold: int
    colluding: int
    noise_multiplier: float
    allowance: int
    by_number: bool = False

    def use(self, length: int) -> int:
        """Return how much of the allowance a masked vector uses."""
        return length if self.by_number else 1

    def event(self, length: int, round: int, replaced: bool = False) -> GaussianRelease:
        """Return what a sum of vectors costs: a release of the plan's noise, or of a share.

        With ``replaced``, neighbours have any two vectors of a party, which are twice as far apart
        as a vector and zero.
        """
        used = length / self.allowance if self.by_number else 1.0
        z = self.noise_multiplier / math.sqrt(used)
        return GaussianRelease(z / 2.0 if replaced else z, 1.0, round)

    @property
    def excess(self) -> float:
        """Return the deviation of the noise where nobody drops out, over the one charged."""
        return math.sqrt(self.parties / (self.threshold - self.colluding))

    def facts(self) -> dict[str, Any]:
        """Return the facts about the sums that a privacy statement holds."""
        near = degree(self.parties, self.threshold, self.colluding)
        return {
            "threshold": self.threshold,
            "colluding": self.colluding,
            "neighbours": near.neighbours,
            "recover": near.recover,
            "excess_noise": self.excess,
            "server_sees": "who answers, public keys, encrypted shares, masked vectors, and the "
            "noisy sum",
        }

    def to_array(self) -> Array:
        """Return the plan as the array of a setup."""
        return np.array(astuple(self), dtype=np.float64)

    @classmethod
    def of(cls, setup: Setup) -> SecurePlan | None:
        """Return the plan of a setup; None where the run has no secure sums."""
        if PLAN not in setup.arrays:
            return None
        parties, threshold, colluding, z, allowance, by_number = setup.arrays[PLAN].tolist()
        whole = (int(parties), int(threshold), int(colluding))
        return cls(*whole, z, int(allowance), bool(by_number))

    def terms(
        self, setup: str, release: int, nonce: bytes, length: int, sensitivity: float
    ) -> Terms:
        """Return the terms of one sum; ``setup`` is the digest of the setup."""
        return Terms(
            setup, release, nonce, self.parties, self.threshold, self.colluding, length,
            sensitivity, self.noise_multiplier,
        )  # fmt: skip


def plan_sums(
    agents: int,
    share: float,
    colluding: int,
    noise_multiplier: float,
    allowance: int,
    by_number: bool = False,
) -> SecurePlan:
    """Return the plan of a run's sums; raise SettingsError where no sum is possible.

    Parameters
    ----------
    agents, share, colluding
        The agents of the run, the share of them that must answer, and how many may collude.
    noise_multiplier, allowance, by_number
        As in :class:`SecurePlan`.
    """
    threshold = default_threshold(agents, colluding, share)
    try:
        check_threshold(agents, threshold, colluding)
    except SecureSumError as error:
        raise SettingsError(
            f"`aggregation=secure` is not possible with {agents} agents, `secure-threshold` "
            f"{share:g} and `secure-colluding` {colluding}: {error}"
        ) from None
    return SecurePlan(agents, threshold, colluding, noise_multiplier, allowance, by_number)


# -- the server ----------------------------------------------------------------------------------


class SecureSum:
    """The legs of one sum at the server.

    Parameters
    ----------
    terms : Terms
        The terms of the sum.
    own : Callable
        Returns, for an agent, the values and arrays from which it computes its vector.
    """

    def __init__(
        self,
        terms: Terms,
        own: Callable[[int], tuple[Mapping[str, Scalar], Mapping[str, Array]]],
    ) -> None:
        self.terms, self._own = terms, own
        self._collector = Collector(terms)

    @property
    def leg(self) -> str:
        """Return the leg whose replies come next."""
        return LEGS[self._collector.leg]

    @property
    def survivors(self) -> int:
        """Return how many agents' vectors are in the sum."""
        return self._collector.survivor_count

    @property
    def members(self) -> frozenset[int]:
        """Return the agents whose vectors are in the sum."""
        return members_of(self._collector.survivors)

    @property
    def noise(self) -> NoiseShare:
        """Return the noise that each survivor adds."""
        return self._collector.noise()

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the request of the open leg, for each agent that is present and not lost."""
        asked = set(present) & set(self._collector.present)
        return {n: self._request(n) for n in sorted(asked)}

    def _request(self, n: int) -> Request:
        c, t, leg = self._collector, self.terms, self.leg
        values: dict[str, Scalar] = {
            "party": n,
            "nonce": t.nonce.hex(),
            "length": t.length,
            "sensitivity": t.sensitivity,
        }
        arrays: Mapping[str, Array] = {}
        words: dict[str, Words] = {}
        near = c.degree.neighbours
        if leg == "keys":
            expects: dict[str, tuple[int, ...]] = {"keys": (KEYS // 8,)}
        elif leg == "shares":
            keys = c.neighbour_keys(n)
            values["recover"] = c.degree.recover
            # Where nobody signs, the room for signatures is left out: four fifths of the message.
            size = KEYS if any(map(_is_signed, keys.values())) else 2 * KEY
            words = {
                "neighbours": np.array(sorted(keys), dtype=np.uint64),
                "keys": rows({v: _packed(k)[:size] for v, k in keys.items()}, size),
            }
            expects = {"sealed": (near, SEALED // 8)}
        elif leg == "masked":
            own, arrays = self._own(n)
            values |= own
            words = _sent("sealed", c.shares_for(n), SEALED)
            expects = {"masked": (t.length,)}
        elif leg == "confirm":
            words = {"survivors": np.frombuffer(c.survivors, dtype="<u8").astype(np.uint64)}
            expects = {"codes": (near, CODE // 8)}
        else:
            words = _sent("codes", c.codes_for(n), CODE)
            expects = {"shares": (len(c.shares_for(n)) + 1, KEY // 8)}
        return Request(PREFIX + leg, t.release, values, arrays, {}, words, expects)

    def close(self, replies: Mapping[int, Reply]) -> Integers | None:
        """Take in the replies of a leg; return the sum after the last leg.

        Raises AbandonedError where too few agents are left.
        """
        c, leg = self._collector, self.leg
        good = {n: reply.words for n, reply in replies.items() if not reply.declined}
        if leg == "keys":
            c.take_keys({n: _unpacked(w["keys"].astype("<u8").tobytes()) for n, w in good.items()})
        elif leg == "shares":
            c.take_shares({n: self._by_neighbour(n, w["sealed"]) for n, w in good.items()})
        elif leg == "masked":
            c.take_masked({n: w["masked"] for n, w in good.items()})
        elif leg == "confirm":
            c.take_codes({n: self._by_neighbour(n, w["codes"]) for n, w in good.items()})
        else:
            opened = {}
            for n, w in good.items():
                held = sorted([n, *c.shares_for(n)])
                shares = dict(zip(held, contents(w["shares"]), strict=True))
                opened[n] = {v: int.from_bytes(s, "little") for v, s in shares.items()}
            return c.take_opened(opened)
        return None

    def _by_neighbour(self, n: int, words: Words) -> dict[int, bytes]:
        """Return the rows of a reply by the neighbour that each row is for."""
        return dict(zip(sorted(self._collector.neighbour_keys(n)), contents(words), strict=True))


def rows(content: Mapping[int, bytes], size: int) -> Words:
    """Return contents of one size as words, one row each, in the order of their keys."""
    data = b"".join(content[v] for v in sorted(content))
    return np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(len(content), size // 8)


def contents(words: Words) -> list[bytes]:
    """Return the rows of an array of words as bytes."""
    return [row.astype("<u8").tobytes() for row in words]


def _sent(name: str, content: Mapping[int, bytes], size: int) -> dict[str, Words]:
    """Return contents and who sent them, as the words of a request."""
    return {
        "senders": np.array(sorted(content), dtype=np.uint64),
        name: rows(content, size),
    }


def _packed(keys: PublicKeys) -> bytes:
    return keys.channel + keys.mask + keys.signed


def _unpacked(data: bytes) -> PublicKeys:
    return PublicKeys(data[:KEY], data[KEY : 2 * KEY], data[2 * KEY :] or bytes(SIGNED))


def _is_signed(keys: PublicKeys) -> bool:
    return any(keys.signed)


# -- the agent -----------------------------------------------------------------------------------


class SecretStore(Protocol):
    """The place where an agent keeps what it must remember between two legs, and nobody reads."""

    def load(self) -> dict[str, Any] | None:
        """Return the last stored state; None before the first."""

    def save(self, state: Mapping[str, Any]) -> None:
        """Store a state in place of the last one, before the reply of its leg leaves."""


class SecureAnswers:
    """An agent's answers to the legs of secure sums.

    Parameters
    ----------
    setup : Setup
        The setup of the run, whose plan all sums must follow.
    vector : Callable
        Returns the agent's vector for a request; called in one leg only.
    store : SecretStore
        Where the state between legs is kept.
    owner : Owner
        The owner, with its identity, the identities that it has pinned, and its limits.
    entropy : Entropy, optional
        The source of keys and noise; by default the operating system's.
    """

    def __init__(
        self,
        setup: Setup,
        vector: Callable[[Request], Array],
        store: SecretStore,
        owner: Owner,
        entropy: Entropy | None = None,
    ) -> None:
        plan = SecurePlan.of(setup)
        if plan is None:
            raise SecureSumError("a secure sum must be part of the setup of its run, but is not")
        self._plan, self._digest, self._vector = plan, setup.digest, vector
        self._store, self._owner = store, owner
        self._entropy = entropy or system_entropy()
        self._state = store.load() or {"party": None, "masked": 0}

    def answer(self, request: Request) -> Reply:
        """Return the reply to one leg."""
        if request.kind not in KINDS:
            raise SecureSumError(f"a leg must be one of {', '.join(KINDS)}")
        party, words = self._party(request), request.words
        leg = request.kind.removeprefix(PREFIX)
        if leg == "keys":
            return _reply(keys=_words(_packed(party.keys())))
        if leg == "shares":
            listed = map(_unpacked, contents(words["keys"]))
            keys = dict(zip(words["neighbours"].tolist(), listed, strict=True))
            recover = int(request.values["recover"])
            return _reply(sealed=rows(party.shares(keys, recover), SEALED))
        if leg == "masked":
            return self._masked(party, request)
        if leg == "confirm":
            return _reply(codes=rows(party.confirm(_bytes(words["survivors"])), CODE))
        opened = party.open(_received("codes", words))
        shares = {v: share.to_bytes(KEY, "little") for v, share in opened.items()}
        return _reply(shares=rows(shares, KEY))

    def _masked(self, party: Party, request: Request) -> Reply:
        """Return the masked vector, unless the plan or the owner's limit is used up."""
        length = int(request.values["length"])
        used = self._plan.use(length)
        if self._state["masked"] + used > self._plan.allowance:
            return Reply(declined=BUDGET)
        vector = self._vector(request)
        limit = self._owner.epsilon_limit
        if limit is not None:
            # The owner's ledger counts for any two vectors, which are up to 2 S apart.
            event = self._plan.event(length, request.round, replaced=True)
            try:
                with LocalBudget.open(
                    self._owner.ledger_file, OWNER, limit, self._owner.delta_limit
                ) as budget:
                    budget.charge(event)
            except BudgetExceeded:
                return Reply(declined=BUDGET)
        # Counted on the disk before the vector leaves, by the call that stores the party's state.
        self._state["masked"] += used
        return _reply(masked=party.masked(_received("sealed", request.words), vector))

    def _party(self, request: Request) -> Party:
        values = request.values
        terms = self._plan.terms(
            self._digest,
            request.round,
            bytes.fromhex(str(values["nonce"])),
            int(values["length"]),
            float(values["sensitivity"]),
        )

        def store(state: dict[str, Any]) -> None:
            self._state["party"] = state
            self._store.save(self._state)

        return Party(
            int(values["party"]), terms, self._state["party"], store,
            self._owner.identity, self._owner.pinned, self._entropy,
        )  # fmt: skip


def _reply(**words: Words) -> Reply:
    return Reply(words=words)


def _received(name: str, words: Mapping[str, Words]) -> dict[int, bytes]:
    """Return what a request passes on, by who sent it."""
    return dict(zip(words["senders"].tolist(), contents(words[name]), strict=True))


def _bytes(words: Words) -> bytes:
    return words.astype("<u8").tobytes()


def _words(data: bytes) -> Words:
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)
