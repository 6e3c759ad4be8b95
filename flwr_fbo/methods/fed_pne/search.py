r"""Phased node elimination: Algorithm 2 as a state machine that knows nothing of agents.

Notation

==================  ==================================================  ======
paper               here                                                shape
==================  ==================================================  ======
``K^p``             ``search.nodes``, and ``phase.nodes`` as pulled     K
``p``               ``search.phase``, counted from 0                    int
``h``               ``nodes.depth``
``t_{m,h,i}``       ``phase.pulls``                                     (K,)
``mu_{h,i}``        ``means`` (over agents), ``outcome.means``          (K,)
``b_{h,i}``         ``outcome.widths``                                  (K,)
``E^p``             ``outcome.eliminated``                              (K,)
==================  ==================================================  ======

Where the pseudo-code leaves or takes a choice:

- ``h`` there starts at 1 while ``K^1`` is the root at depth 0, and grows with ``K`` ever after:
  it runs one ahead. The proofs use the depth of the nodes, and so do we;
  ``depth_reading="literal"`` adds the one.
- The text's criterion to stop growing is ``|K| tau_h >= M``, the pseudo-code's negation adds
  "and ``tau_h > 1``" and is strict; the pseudo-code is followed.
- A root whose own threshold exceeds ``M`` (theory's constants, or privacy noise) would be pulled
  alone, compared with nothing. It is always split first.
- Growth saves pulls by skipping depths at which agents would pull more than they must. Where a
  limited number of means is what is scarce (``releases``), it would spend most of them on the
  first phase, so there every depth is a phase.
- The horizon is kept exactly. The last phase is cut: by default the children of the best nodes
  are pulled first until the budget ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.fed_pne.settings import Confidence
from flwr_fbo.search.partition import Mask, Nodes, Partition


@dataclass(frozen=True, eq=False)
class Phase:
    """What every agent is to do next: pull these nodes so many times."""

    nodes: Nodes
    pulls: Indices  # (K,)


@dataclass(frozen=True, eq=False)
class Outcome:
    """A closed phase."""

    phase: int
    depth: int
    index: tuple[int, ...]
    low: Array  # (K, D)
    high: Array  # (K, D)
    points: Array  # (K, D)
    pulls: Indices  # (K,), by each agent
    replies: int
    means: Array  # (K,)
    widths: Array  # (K,)
    eliminated: Mask  # (K,)

    def to_dict(self) -> dict[str, Any]:
        """Arrays and JSON values; indices as text, since they leave 64 bits."""
        return {**vars(self), "index": [str(i) for i in self.index]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Outcome:
        """The outcome that :meth:`to_dict` described."""
        return cls(**{**state, "index": tuple(int(i) for i in state["index"])})


class NodeElimination:
    """One search of the space, given a partition, a budget and the widths to trust."""

    def __init__(
        self,
        partition: Partition,
        confidence: Confidence,
        budget: int,
        *,
        last_phase: str = "best-first",
        releases: int | None = None,
    ) -> None:
        self.partition, self.confidence = partition, confidence
        self.budget, self.last_phase, self.releases = budget, last_phase, releases
        self.phase = self.used = self.released = 0
        self.outcomes: list[Outcome] = []
        self.nodes = partition.root()
        self._promise: Array = np.zeros(1)  # mean of each node's parent
        self._split()
        self._grow()
        self._check_first_phase()

    @property
    def finished(self) -> bool:
        """Whether the budget, or the number of means that may be sent, is spent."""
        if self.used >= self.budget:
            return True
        return self.releases is not None and self.released + len(self.nodes) > self.releases

    def next(self) -> Phase:
        """Algorithm 2, lines 8 and 9, cut to what is left of the budget."""
        K, left = len(self.nodes), self.budget - self.used
        pulls = np.full(K, self.confidence.pulls(self.nodes.depth))
        if K * int(pulls[0]) > left:
            pulls = self._cut(pulls, left)
        wanted = pulls > 0
        return Phase(self.nodes.take(wanted), pulls[wanted])

    def update(self, means: Array, replies: int) -> None:
        """Algorithm 2, lines 12 to 16: take in the means over ``replies`` agents."""
        phase = self.next()
        nodes, pulls = phase.nodes, phase.pulls
        widths = self.confidence.width(pulls.astype(np.float64), replies)
        best = int(means.argmax())
        bound = means + widths + self.confidence.variation(nodes.depth)
        eliminated = bound < means[best] - widths[best]  # equation (1)
        self.outcomes.append(
            Outcome(
                phase=self.phase,
                depth=nodes.depth,
                index=nodes.index,
                low=nodes.low,
                high=nodes.high,
                points=self.partition.centres(nodes),
                pulls=pulls,
                replies=replies,
                means=means,
                widths=widths,
                eliminated=eliminated,
            )
        )
        self.phase += 1
        self.used += int(pulls.sum())
        self.released += len(nodes)
        self.nodes, self._promise = nodes.take(~eliminated), means[~eliminated]
        self._split()
        if not self.finished:
            self._grow()

    def _grow(self) -> None:
        """Lines 5 to 7; growth beyond the budget's number of nodes can serve nothing."""
        if self.releases is not None:
            return
        most = self.budget - self.used
        while len(self.nodes) <= most:
            threshold = self.confidence.threshold(self.nodes.depth)
            if len(self.nodes) * threshold > self.confidence.agents and threshold > 1:
                return
            self._split()

    def _split(self) -> None:
        self.nodes, parent = self.partition.children(self.nodes)
        self._promise = self._promise[parent]

    def _cut(self, pulls: Indices, left: int) -> Indices:
        """``left`` pulls in all, given to the nodes as ``last_phase`` says."""
        K = len(pulls)
        first = np.argsort(-self._promise, kind="stable")
        cut = np.zeros(K, dtype=np.int64)
        if self.last_phase == "even":
            cut[first] = left // K + (np.arange(K) < left % K)
        else:
            order = np.arange(K) if self.last_phase == "in-order" else first
            before = np.concatenate([[0], np.cumsum(pulls[order])[:-1]])
            cut[order] = np.clip(left - before, 0, pulls[order])
        return cut

    def _check_first_phase(self) -> None:
        nodes, depth = len(self.nodes), self.nodes.depth
        need = nodes * self.confidence.pulls(depth)
        if need > self.budget:
            raise SettingsError(
                f"`budget` must be enough for one phase, but with {self.confidence.agents} agents "
                f"the first phase pulls {nodes} nodes {need // nodes} times each, and the budget "
                f"(of one search) is {self.budget}; {self._advice(depth)}"
            )
        if self.releases is not None and nodes > self.releases:
            raise SettingsError(
                f"`most-means` must be enough for one phase, but the first phase sends {nodes} "
                f"means and may send {self.releases}"
            )

    def _advice(self, depth: int) -> str:
        """What makes the first phase cheaper, whose cost first falls and then rises with nu_1."""
        if depth > 1:  # it grew beyond the root's children: a pull or two of many nodes
            return "a smaller `smoothness` begins with fewer nodes"
        return "fewer pulls are needed with more agents, a larger `smoothness`, or less noise"

    def state_dict(self) -> dict[str, Any]:
        """All that changes, as JSON values and arrays."""
        return {
            "phase": self.phase,
            "used": self.used,
            "released": self.released,
            "depth": self.nodes.depth,
            "index": [str(i) for i in self.nodes.index],
            "key": [str(k) for k in self.nodes.key.tolist()],
            "low": self.nodes.low,
            "high": self.nodes.high,
            "promise": self._promise,
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state."""
        self.phase, self.used, self.released = state["phase"], state["used"], state["released"]
        self.nodes = Nodes(
            state["depth"],
            tuple(int(i) for i in state["index"]),
            np.array([int(k) for k in state["key"]], dtype=np.uint64),
            np.asarray(state["low"]),
            np.asarray(state["high"]),
        )
        self._promise = np.asarray(state["promise"])
        self.outcomes = [Outcome.from_dict(o) for o in state["outcomes"]]
