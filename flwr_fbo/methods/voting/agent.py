"""The agent of voting: it evaluates the public list, and votes once for its best settings.

The server's request names how much of the list must be evaluated by now. An agent that was away
catches up with its next request. Only votes ever leave the agent, and only once in a run: to a
repeated request the agent sends the same votes again, whatever was evaluated since.
"""

from __future__ import annotations

import math

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.voting.settings import VotingSettings
from flwr_fbo.privacy.entropy import Entropy, system_entropy
from flwr_fbo.privacy.local import LocalBudget, LocalGaussian

KIND = "voting"
#: The word with which an agent declines where its owner's budget does not suffice for a vote.
BUDGET = "budget"
#: Purpose of the generator that breaks ties.
_TIES = 4


class VotingAgent:
    """The agent of one party, which votes for the best settings that it evaluated.

    Parameters
    ----------
    setup : Setup
        What the server sent: the settings of the run, and the list to vote on.
    evaluator : Evaluator
        Makes and records the evaluations.
    records : Records
        Where the votes are recorded before they leave.
    seed : tuple of int
        The seed with which ties are broken.
    limit : tuple of (LocalBudget, LocalGaussian), optional
        The owner's ledger over all runs, and the noise that it asks for.
    entropy : Entropy, optional
        The source of that noise; by default the operating system's.
    """

    #: The kind of the record of the votes that were sent.
    VOTES = "votes"

    def __init__(
        self,
        setup: Setup,
        evaluator: Evaluator,
        records: Records,
        seed: tuple[int, ...],
        *,
        limit: tuple[LocalBudget, LocalGaussian] | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        self.settings = setup.read(VotingSettings)
        self.listed: Array = setup.arrays["settings"]  # (G, D)
        self.evaluator, self.seed = evaluator, seed
        self._records, self._limit = records, limit
        self._entropy = entropy or system_entropy()

    def answer(self, request: Request) -> Reply:
        """Evaluate as much of the list as the request asks for, and vote where it asks for that."""
        if request.kind != "evaluate":
            raise ValueError(f"a request's `kind` must be evaluate, but got {request.kind!r}")
        sent = self._records.read(self.VOTES)
        voting = "votes" in request.expects
        if sent:
            return Reply({"votes": np.array(sent[0]["votes"])} if voting else {})
        # Before anything is evaluated for votes that could not be sent.
        if self._limit is not None and self._limit[0].would_exceed(self._limit[1]):
            return Reply(declined=BUDGET)
        self._evaluate(min(int(request.values["until"]), len(self.listed)))
        return Reply({"votes": self._send(request.round)} if voting else {})

    def _evaluate(self, until: int) -> None:
        """Evaluate the settings of the list up to this one that have no record yet."""
        batch, k = self.settings.batch, self.settings.parallel
        # The round is that of the plan, also for an agent that was away then.
        for first in range(0, until, batch):
            plays = range(min(batch, until - first))
            points = [(play, self.listed[first + play], "list") for play in plays]
            round = first // batch
            if k == 1:
                for play, unit, source in points:
                    self.evaluator(unit, round=round, play=play, source=source)
                continue
            for some in range(0, len(points), k):
                self.evaluator.at_once(points[some : some + k], round=round)

    def votes(self) -> Array:
        """Return 1 for each of the k best evaluated settings, and 0 for all others: (G,)."""
        batch, scores = self.settings.batch, np.full(len(self.listed), -np.inf)
        for number in range(len(self.listed)):
            done = self.evaluator.recorded(*divmod(number, batch))
            if done is not None and done.score is not None:
                scores[number] = done.score
        # Equal scores in an order of the agent's own: the first of the list must not win every tie.
        ties = np.random.default_rng([*self.seed, _TIES]).random(len(scores))
        best = np.lexsort((ties, -scores))[: self.settings.votes]
        votes = np.zeros(len(scores))
        votes[best[np.isfinite(scores[best])]] = 1.0  # a failed evaluation gets no vote
        return votes

    def _send(self, round: int) -> Array:
        """Return the votes, with noise where the owner asks for it, after they are recorded."""
        votes = self.votes()
        if self._limit is not None:
            budget, mechanism = self._limit
            votes = budget.answer(mechanism, votes, self._entropy, round)
        # A crash between the charge and this record costs one more charge, and never one less.
        self._records.append(self.VOTES, {"round": round, "votes": votes.tolist()})
        return votes


def make_agent(
    setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...], owner: Owner
) -> VotingAgent:
    """Make an agent that votes, with noise of its own where its owner sets an epsilon-limit."""
    budget, limit = owner.open_budget(), None
    if budget is not None:
        assert owner.epsilon_limit is not None
        # Votes have norm sqrt(k) at most. The owner's numbers hold, whatever the server asks.
        clip = math.sqrt(setup.read(VotingSettings).votes)
        noise = LocalGaussian.for_budget(clip, owner.epsilon_limit, owner.delta_limit, 1)
        limit = (budget, noise)
    return VotingAgent(setup, evaluator, records, seed, limit=limit)
