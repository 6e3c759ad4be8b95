r"""The server of Fed-PNE and DP-Fed-PNE: Algorithms 2 and 4, with agents that come and go.

Notation

==================  ====================================================  ==========
paper               here                                                  shape
==================  ====================================================  ==========
``M``               ``server.agents``                                     int
``mu_{m,h,i}``      ``reply.arrays["means"]``, what an agent sends        (K,)
``mu_{h,i}``        their mean over the agents that answered              (K,)
``T_{h,i}``         replies times pulls: those that really happened       (K,)
==================  ====================================================  ==========

A phase takes one round: the request names all nodes of the phase, and each agent replies with
one mean for each node. An agent that is away misses the phase and nothing else. The server asks
a phase again in two cases: fewer agents answered than the quorum, or an agent is still working
on the phase (``pulls_per_message``). Agents that have answered are not asked again, so no agent
pays for a phase twice.

With ``searches`` above 1, several searches with different decays run side by side. Each has its
share of the budget, and their phases share the rounds. The best of their results is recommended.
Use several searches where ``nu_1`` and ``rho`` are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.protocol import Reply, ReplyError, Request, Setup, checked_reply
from flwr_fbo.core.space import Space
from flwr_fbo.methods.fed_pne import report, secure
from flwr_fbo.methods.fed_pne.privacy import Guarantees, guarantees, mean_noise
from flwr_fbo.methods.fed_pne.regret import regret_per_agent
from flwr_fbo.methods.fed_pne.search import NodeElimination, Phase, PhaseResult
from flwr_fbo.methods.fed_pne.settings import Confidence, FedPNESettings, MeanNoise
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.secure_sum import MORE_COLLUDING, PLAN, SecurePlan, SecureSum
from flwr_fbo.methods.summing_server import SummingServer
from flwr_fbo.privacy.budget import PrivacyBudget
from flwr_fbo.privacy.events import Event
from flwr_fbo.privacy.ledger import Ledger, MemoryLedger
from flwr_fbo.privacy.mechanisms import Integers
from flwr_fbo.privacy.secure.noise_share import charged_delta
from flwr_fbo.privacy.statement import NEVER_COVERED, PrivacyStatement, versions
from flwr_fbo.search.box_tree import BoxTree

KIND = "fed-pne"
#: The words of a declining agent that the server acts on; all others mean "not this time".
UNFINISHED, BUDGET = "unfinished", "budget"
#: The value of ``stopped`` where no agent answers any more.
STALLED = "stalled"


class FedPNEServer(SummingServer):
    """The server of Fed-PNE, which collects means of nodes and eliminates nodes.

    Parameters
    ----------
    space
        The search space.
    agents
        How many agents take part.
    settings
        The settings of the search and of its privacy.
    seed
        Chooses the partition of the space, and nothing else.
    """

    rounds: int | None = None  # as many as the elimination takes

    def __init__(self, space: Space, agents: int, settings: FedPNESettings, seed: int) -> None:
        if agents < 1:
            raise ValueError(f"`agents` must be >= 1, but got {agents}")
        settings = settings.for_agents(agents)
        self.space, self.agents, self.settings = space, agents, settings
        self.noise: MeanNoise = mean_noise(settings)
        self.quorum = max(1, math.ceil(settings.phase_quorum * agents))
        self._abandoned = 0  # secure sums in a row that were abandoned
        if settings.secure:
            assert settings.epsilon is not None
            self.secure_plan = secure.secure_plan(settings, agents)
            self.noise = secure.noise_of_one(settings, self.secure_plan)
            self.quorum = max(self.quorum, self.secure_plan.threshold)
            self.budget = PrivacyBudget(settings.epsilon, self._charged_delta, MemoryLedger())
        self.searches = self._new_searches(seed)
        self.round = self.phase = 0
        self.sent = np.zeros(agents, dtype=np.int64)  # numbers sent by each agent
        self.stopped = ""
        self._answered: dict[int, Array] = {}  # means of the open phase, by agent
        self._retired: set[int] = set()  # agents whose budget is spent
        self._idle = 0  # rounds in a row without a new answer
        self._opened = 0  # the round in which the open phase was first asked

    def _new_searches(self, seed: int) -> list[NodeElimination]:
        """Return one search for each decay, all over the same partition."""
        s = self.settings
        number = int(np.random.default_rng(seed).integers(2**63))
        partition = BoxTree(self.space, s.arity, s.dimension_order, number)
        return [
            NodeElimination(
                partition,
                Confidence.of(s, self.agents, decay, self.noise),
                share,
                last_phase=s.last_phase,
                releases=releases,
            )
            for decay, share, releases in zip(
                s.decays, self._shares(s.budget), self._releases(), strict=True
            )
        ]

    @classmethod
    def for_run(cls, run: RunParameters, settings: FedPNESettings, **options: Any) -> Self:
        """Make the server of one run."""
        server = cls(run.space, run.agents, settings, run.seed)
        if server.secure_plan is not None and run.ledger is not None:
            s = server.settings
            assert s.epsilon is not None
            header = {
                "strategy": "fed-pne",
                "agents": run.agents,
                "most-means": s.most_means,
                "delta": s.promised_delta,
                "epsilon": s.epsilon,
            }
            server._ledger = Ledger.open(run.ledger, header)
            server.budget = PrivacyBudget(s.epsilon, server._charged_delta, server._ledger)
        return server

    @property
    def _charged_delta(self) -> float:
        """Return the delta to account with; in a secure sum a part of delta pays for rounding."""
        return charged_delta(self.settings.promised_delta)

    @property
    def finished(self) -> bool:
        """Say whether every search has spent its budget, or too few agents still answer."""
        return bool(self.stopped) or all(search.finished for search in self.searches)

    def setup(self) -> Setup:
        """Return the space and the settings, which are public."""
        arrays = {} if self.secure_plan is None else {PLAN: self.secure_plan.to_array()}
        return Setup(KIND, self.space, self.settings.to_mapping(), arrays)

    def _round_requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the open phase, for the present agents that still owe an answer."""
        if self.finished:
            return {}
        request = self._request()
        asked = set(present) - set(self._answered) - self._retired
        return {agent: request for agent in sorted(asked) if 0 <= agent < self.agents}

    def _close_round(self, replies: Mapping[int, Reply]) -> None:
        """Take in one round; the phase ends with a quorum of answers and no agent at work."""
        self._check(replies)
        at_work, known = False, len(self._answered)
        for agent, reply in replies.items():
            if not reply.declined:
                # With secure sums a reply says that all pulls were made, and nothing else.
                means = reply.arrays.get("means", np.zeros(0))
                self._answered[agent] = means
                self.sent[agent] += len(means)
            elif reply.declined == BUDGET:
                self._retired.add(agent)
            at_work |= reply.declined == UNFINISHED
        self.round += 1
        self._idle = 0 if at_work or len(self._answered) > known else self._idle + 1
        if at_work or self.finished:
            return
        if len(self._answered) >= self.quorum:
            if self.secure_plan is None:
                replied = np.stack([self._answered[agent] for agent in sorted(self._answered)])
                self._end_phase(replied.mean(axis=0), len(replied))
            else:
                self._open_sum(self.secure_plan)
        # The quorum is out of reach once too many agents have no budget for this phase.
        elif len(self._retired - set(self._answered)) > self.agents - self.quorum:
            self.stopped = BUDGET
        elif self._idle >= self.settings.idle_rounds:
            self.stopped = STALLED

    def _open_sum(self, plan: SecurePlan) -> None:
        """Open the secure sum of the phase, or end the run where its cost is too much."""
        pulls = np.concatenate([phase.pulls for _, phase in self._phases()])
        assert self.budget is not None
        if self.budget.would_exceed(plan.event(len(pulls), self.round, replaced=True)):
            self.stopped = BUDGET
            return
        self._sum = secure.open_sum(
            plan, self.settings, self._bound_to, self.round, self.phase, pulls
        )

    def _sum_event(self, opened: SecureSum) -> Event:
        assert self.secure_plan is not None
        terms = opened.terms
        return self.secure_plan.event(terms.length, terms.release, replaced=True)

    def _take_sum(self, opened: SecureSum, total: Integers) -> None:
        """End the phase with the means of the agents in the sum."""
        self._abandoned = 0
        self.sent[list(opened.members)] += opened.terms.length
        means = opened.noise.lattice.values(total) / opened.survivors + 0.5
        self._end_phase(means, opened.survivors)

    def _sum_failed(self) -> None:
        """Ask all agents for the open phase again, unless that has been in vain too often."""
        self._answered = {}
        self._abandoned += 1
        if self._abandoned >= self.settings.idle_rounds:
            self.stopped = STALLED

    def _check(self, replies: Mapping[int, Reply]) -> None:
        """Raise ReplyError for a reply that was not asked for; check all before any is used."""
        request = self._request() if replies and not self.finished else None
        for agent, reply in replies.items():
            if request is None or not 0 <= agent < self.agents or agent in self._answered:
                raise ReplyError(f"agent {agent} answers phase {self.phase} without being asked")
            checked_reply(request, reply)

    def results(self) -> list[tuple[int, PhaseResult]]:
        """Return the closed phases of all searches, each with the number of its search."""
        return [(n, result) for n, search in enumerate(self.searches) for result in search.results]

    def guarantees(self) -> Guarantees | None:
        """Return an upper bound of what any agent's releases reveal; None without noise.

        A phase counts as released as soon as it was asked, because an answer may be lost on its
        way.
        """
        pulls = [result.pulls for _, result in self.results()]
        if self.round > self._opened:
            pulls += [phase.pulls for _, phase in self._phases()]
        return guarantees(self.settings, np.concatenate([np.zeros(0, dtype=np.int64), *pulls]))

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes; the partition follows from the arguments."""
        return {
            "round": self.round,
            "phase": self.phase,
            "sent": self.sent.copy(),
            "stopped": self.stopped,
            "idle": self._idle,
            "opened": self._opened,
            "retired": sorted(self._retired),
            "abandoned": self._abandoned,
            "answered": {str(agent): means for agent, means in self._answered.items()},
            "searches": [search.state_dict() for search in self.searches],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state."""
        self.round, self.phase = state["round"], state["phase"]
        self.sent = np.array(state["sent"], dtype=np.int64)
        self.stopped, self._idle, self._opened = state["stopped"], state["idle"], state["opened"]
        self._retired, self._abandoned = set(state["retired"]), state.get("abandoned", 0)
        self._answered = {int(a): np.asarray(means) for a, means in state["answered"].items()}
        for search, stored in zip(self.searches, state["searches"], strict=True):
            search.load_state_dict(stored)

    def _shares(self, total: int) -> list[int]:
        """Divide a total among the searches as evenly as integers allow."""
        n = self.settings.searches
        return [total // n + (i < total % n) for i in range(n)]

    def _releases(self) -> list[int] | list[None]:
        """Return how many means each search may have sent; None where there is no limit."""
        if self.settings.epsilon is not None:
            return self._shares(self.settings.most_means)
        return [None] * self.settings.searches

    def _phases(self) -> list[tuple[NodeElimination, Phase]]:
        """Return the open phase of every search that still runs."""
        return [(search, search.next()) for search in self.searches if not search.finished]

    def _request(self) -> Request:
        """Return the request for the open phases, whose nodes follow one another."""
        phases = [phase for _, phase in self._phases()]
        arrays = {"pulls": np.concatenate([p.pulls for p in phases]).astype(np.float64)}
        if self.settings.pull == "uniform":
            arrays["low"] = np.concatenate([p.nodes.low for p in phases])
            arrays["high"] = np.concatenate([p.nodes.high for p in phases])
        else:
            partition = self.searches[0].partition
            arrays["points"] = np.concatenate([partition.centres(p.nodes) for p in phases])
        return Request(
            kind="pull",
            round=self.round,
            values={"phase": self.phase},
            arrays=arrays,
            expects={} if self.settings.secure else {"means": (len(arrays["pulls"]),)},
        )

    def _end_phase(self, means: Array, replies: int) -> None:
        """Pass on the answers' means (K,) over this many replies (Algorithm 2, lines 11-16)."""
        start = 0
        for search, phase in self._phases():
            stop = start + len(phase.nodes)
            search.update(means[start:stop], replies)
            start = stop
        # The next phase opens, and every agent may be asked again.
        self._answered = {}
        self._opened = self.round
        self.phase += 1

    # -- what a run reports ------------------------------------------------------------------

    @property
    def completed(self) -> bool:
        """Say whether the run spent its budget, and did not stop for lack of answers."""
        return self.finished and not self.stopped

    def findings(self, histories: Sequence[Sequence[Evaluation]]) -> dict[str, Any]:
        """Return the recommended point, the tree that was searched, and what the run cost."""
        return {
            "cumulative_regret_per_agent": regret_per_agent(histories),
            **report.summarise(self),
            "tree": report.tree_rows(self),
        }

    def files(self) -> dict[str, str]:
        """Return the tree that was searched, as text."""
        return {"tree.txt": report.tree_text(self) + "\n"}

    def statement(self) -> PrivacyStatement:
        """Return the guarantee that the settings ask for, which holds against everybody."""
        found, s = self.guarantees(), self.settings
        if found is None:
            return super().statement()
        party = s.epsilon is not None
        promised = s.epsilon if party else s.epsilon_per_reward
        one_party = found.one_user_epsilon
        return PrivacyStatement(
            method=self.name,
            agents=self.agents,
            unit="party" if party else "reward",
            relation=(
                "all rewards of a party replaced by any others"
                if party
                else "one reward of a party replaced by any other"
            ),
            trust="local" if self.secure_plan is None else "secure-sum",
            mechanism=(
                "each party adds Gaussian noise to its own means, before they leave"
                if self.secure_plan is None
                else "sums of the parties' means with Gaussian noise, which the parties make"
            ),
            secure_sum=self._sum_facts,
            epsilon=promised,
            delta=s.promised_delta,
            spent=self._spent(one_party) if party else found.one_reward_epsilon,
            party_epsilon=None if party else self._whole_party(one_party),
            budget=promised,
            exhausted=self.stopped == BUDGET,
            not_covered=(
                NEVER_COVERED if self.secure_plan is None else (MORE_COLLUDING, *NEVER_COVERED)
            ),
            versions=versions(),
        )

    def _spent(self, one_party: float) -> float:
        """Return the epsilon of a party so far; that of the ledger where there is one."""
        return one_party if self.budget is None else self.budget.spent

    def _whole_party(self, so_far: float) -> float:
        """Return a bound on what a party loses over the whole run, by whatever nodes it pulls.

        Every evaluation enters one mean. A party's mu^2 is the sum of 1 / deviation^2 over its
        means; with noise on the mean it is largest where all pulls are of one node.
        """
        if self.finished:
            return so_far
        pulls = np.array([self.settings.budget])
        if self.settings.noise_on == "reward":  # t / sigma^2 a mean: the sum of t is the budget
            pulls = np.ones(self.settings.budget, dtype=np.int64)
        worst = guarantees(self.settings, pulls)
        return max(so_far, 0.0 if worst is None else worst.one_user_epsilon)
