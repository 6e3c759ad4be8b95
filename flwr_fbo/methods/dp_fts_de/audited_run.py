r"""A run under audit: its claim, the worst input, and what its releases show.

Notation

=====================  ============================================  ==========
symbol                 here                                          shape
=====================  ============================================  ==========
``K``                  ``len(run.rounds)``, releases of a trial      int
``d_k``                ``run.directions``, of the canary's message   (K, M)
``phi_n^(i)``          ``run.weights``, of every release             (K, P, N)
``S / sqrt(P)``        ``run.bound``                                 scalar
``Delta_k``            ``run.sensitivity``, of the sum of release k  (K,)
``r_k``                ``run.response``, see below                   (K, P M)
=====================  ============================================  ==========

The *canary* is the agent with the largest weights. Its message is ten times as long as the clip,
or absent. Release k is shown in deviations of the claimed noise, :math:`z \Delta_k`. In that unit
the canary moves the release by :math:`r_k = (\phi_c^{(i)} d_k)_i\, S / (\sqrt P z \Delta_k)`.

All other agents send fixed vectors at right angles to d_k, so that the sampling of the others
hides nothing of the canary: the worst case. The signs of the d_k differ between any two releases,
so that noise that is used twice cancels. The sensitivity is computed here a second time, from
the weights alone, so that an error in the server's own formula shows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.protocol import Reply
from flwr_fbo.methods.dp_fts_de.release_audit import SPACE
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.privacy.accountants import make_accountant
from flwr_fbo.privacy.attack import Schedule, Trials
from flwr_fbo.privacy.audit import CANARY_LENGTH
from flwr_fbo.privacy.budget import PrivacyBudget
from flwr_fbo.privacy.entropy import Entropy
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.ledger import LedgerLike, MemoryLedger

#: The most agents that send vectors in a trial; all further ones are absent.
SENDERS = 64


class AuditedRun:
    """The claim of a run, its canary, and servers that close its rounds.

    Parameters
    ----------
    settings : DPFTSDESettings
        The settings of a private run with Poisson sampling.
    agents, rounds : int
        N and T.
    entropy : Entropy, optional
        The source of noise and samples; by default every server's own.
    """

    def __init__(
        self,
        settings: DPFTSDESettings,
        agents: int,
        rounds: int,
        entropy: Entropy | None = None,
    ) -> None:
        claimed = DPFTSDEServer(SPACE, agents, settings, rounds)
        self.agents, self.planned_rounds, self.rounds = agents, rounds, paid_rounds(claimed)
        if not self.rounds:
            raise ValueError(
                f"an audit needs a run with at least one release, but {rounds} rounds have none"
            )
        z, q, delta = claimed.noise_multiplier, claimed.release_plan.sampling_rate, claimed.delta
        assert z is not None
        assert delta is not None
        self.schedule = Schedule(z, q, len(self.rounds), delta)
        self._entropy = entropy
        # Few features make an audit fast, and do not change the cost of a release. The plan may
        # depend on their number, and is fixed first.
        listed = settings.finalists_from == "list"  # whose rounds depend on the finalists alone
        self.settings = dataclasses.replace(
            settings,
            features=max(4, math.ceil(math.log2(len(self.rounds) + 2)) + 1),
            releases="auto" if listed else ",".join(map(str, self.rounds)),
            sampling_rate=q,
        )

    def server(self, entropy: Entropy | None = None) -> DPFTSDEServer:
        """Return a new server of the run."""
        source = entropy or self._entropy
        return DPFTSDEServer(SPACE, self.agents, self.settings, self.planned_rounds, entropy=source)

    # -- the worst input ---------------------------------------------------------------------

    @cached_property
    def weights(self) -> Array:
        """Return the weights of the agents in every release: (K, P, N)."""
        aggregation = self.server().aggregation
        return np.stack([aggregation.weights(t) for t in self.rounds])

    @cached_property
    def bound(self) -> float:
        """Return the norm to which the server clips a vector."""
        bound = self.server().aggregation.bound
        assert bound is not None
        return bound

    @cached_property
    def sensitivity(self) -> Array:
        """Return the sensitivity of every release, before the division by q: (K,)."""
        if self.settings.sensitivity == "paper":  # phi_max S
            largest = np.abs(self.weights).max(axis=(1, 2)) * math.sqrt(self.settings.regions)
        else:
            largest = np.linalg.norm(self.weights, axis=1).max(axis=1)
        return np.asarray(largest * self.bound)

    @cached_property
    def canary(self) -> int:
        """Return the agent that moves the releases most."""
        shares = np.linalg.norm(self.weights, axis=1) / self.sensitivity[:, None]  # (K, N)
        return int(np.argmax((shares**2).sum(axis=0)))

    @cached_property
    def directions(self) -> Array:
        """Return the directions of the canary's messages: (K, M)."""
        length = self.settings.vector_length
        # The binary digits of k are the signs, and the highest digit is always 0: no two
        # directions are equal, not even after the change of all signs from release to release.
        number = np.arange(1, len(self.rounds) + 1)[:, None]
        digits = (number >> np.arange(length)[None, :]) & 1
        signs = np.where(digits == 1, -1.0, 1.0) * (-1.0) ** number
        return np.asarray(signs / math.sqrt(length))

    @cached_property
    def response(self) -> Array:
        """Return how the canary moves each release, in deviations of the noise: (K, P M)."""
        unit = self.bound / (self.schedule.noise_multiplier * self.sensitivity)  # (K,)
        phi = self.weights[:, :, self.canary]  # (K, P)
        moved = unit[:, None, None] * phi[:, :, None] * self.directions[:, None, :]
        return np.asarray(moved.reshape(len(moved), -1))

    @cached_property
    def replies(self) -> list[tuple[dict[int, Reply], dict[int, Reply]]]:
        """Return the replies of every release, without and with the canary."""
        rng = np.random.default_rng(0)  # the attacker may know the vectors of the others
        senders = [n for n in range(self.agents) if n != self.canary][: SENDERS - 1]
        found = []
        for d in self.directions:
            others = rng.standard_normal((len(senders), len(d)))
            others -= np.outer(others @ d, d)  # at right angles to the canary's
            lengths = self.bound * rng.uniform(0.5, 2.0, (len(senders), 1))  # clipped or not
            others *= lengths / np.linalg.norm(others, axis=1, keepdims=True)
            absent = {n: Reply({"omega": v}) for n, v in zip(senders, others, strict=True)}
            canary = Reply({"omega": CANARY_LENGTH * self.bound * d})
            found.append((absent, {**absent, self.canary: canary}))
        return found

    # -- trials ------------------------------------------------------------------------------

    def trials(self, count: int) -> Trials:
        """Return the releases of ``count`` runs, for each of the two inputs."""
        absent, present = zip(*self.replies, strict=True)
        return Trials(self._runs(absent, count), self._runs(present, count))

    def noise(self, count: int) -> Array:
        """Return the releases of ``count`` runs without any reply, by two servers: (t, K, P M)."""
        nobody: list[dict[int, Reply]] = [{}] * len(self.rounds)
        # Noise from a seed is the same at both servers.
        return np.concatenate([self._runs(nobody, count // 2), self._runs(nobody, -(-count // 2))])

    def _runs(self, replies: Sequence[dict[int, Reply]], count: int) -> Array:
        """Return the releases of many runs of one server with the same replies: (t, K, P M)."""
        due = dict(zip(self.rounds, replies, strict=True))
        server = self.server()
        start = server.state_dict()
        released = np.stack([self._releases(server, start, due) for _ in range(count)])
        deviation = self.schedule.noise_multiplier * self.sensitivity / self.schedule.sampling_rate
        return np.asarray(released / deviation[:, None])

    def _releases(
        self,
        server: DPFTSDEServer,
        start: Mapping[str, object],
        due: Mapping[int, dict[int, Reply]],
    ) -> Array:
        """Run the schedule once, and return its releases: (K, P M)."""
        restart(server, start, MemoryLedger())
        seen = np.zeros_like(self.response)  # a release that is not made shows nothing
        for t in range(self.rounds[-1] + 1):
            server.close(due.get(t, {}))
            release = server.release()
            if t in due and release is not None and release.round == t:
                seen[self.rounds.index(t)] = release.vector.ravel()
        return seen


def paid_rounds(server: DPFTSDEServer) -> tuple[int, ...]:
    """Return the planned rounds whose releases a budget pays for.

    Noise that is computed from epsilon must pay for all of them. Where the noise is given as well,
    the budget may stop the releases earlier.
    """
    s, rounds = server.settings, server.release_plan.rounds
    if s.epsilon is None or s.noise_multiplier is None:
        return rounds
    assert server.delta is not None
    accountant, paid = make_accountant(s.account), []
    for t in rounds:
        event = GaussianRelease(s.noise_multiplier, server.release_plan.sampling_rate, t)
        if accountant.would_exceed(event, s.epsilon, server.delta):
            break
        accountant.compose(event)
        paid.append(t)
    return tuple(paid)


def restart(server: DPFTSDEServer, start: Mapping[str, object], ledger: LedgerLike) -> None:
    """Put a server back to the state before its first round, with a new ledger."""
    budget = server.budget
    assert budget is not None
    server.budget = PrivacyBudget(budget.epsilon, budget.delta, ledger, budget.name)
    server.load_state_dict(start)
