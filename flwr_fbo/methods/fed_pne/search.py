r"""Phased node elimination: Algorithm 2 as a state machine that knows nothing of agents.

Notation

==================  ==================================================  ======
paper               here                                                shape
==================  ==================================================  ======
``K^p``             ``search.nodes``, and ``phase.nodes`` as pulled     K
``p``               ``search.phase``, counted from 0                    int
``h``               ``nodes.depth``                                     int
``t_{m,h,i}``       ``phase.pulls``                                     (K,)
``mu_{h,i}``        ``means`` (over agents), ``result.means``           (K,)
``b_{h,i}``         ``result.widths``                                   (K,)
``E^p``             ``result.eliminated``                               (K,)
==================  ==================================================  ======

Decisions where the pseudo-code leaves a choice, or differs from the text:

- In the pseudo-code ``h`` starts at 1 while ``K^1`` is the root at depth 0, and both grow
  together: ``h`` runs one ahead. The proofs use the depth of the nodes, and so does this module;
  ``depth_reading="literal"`` adds the one.
- The text stops growing at ``|K| tau_h >= M``. The pseudo-code's negation adds "and ``tau_h > 1``"
  and is strict. The pseudo-code is followed.
- A root whose own threshold exceeds ``M`` (theory's constants, or privacy noise) would be pulled
  alone, compared with nothing. The root is always split first.
- Growth saves pulls by skipping depths at which agents would pull more than they must. Where the
  number of means is limited (``releases``), growth would spend most of the means on the first
  phase. There every depth is a phase.
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
from flwr_fbo.search.box_tree import BoxTree, Mask, Nodes


@dataclass(frozen=True, eq=False)
class Phase:
    """The nodes that every agent pulls next, and how often each agent pulls each node."""

    nodes: Nodes
    pulls: Indices  # (K,)


@dataclass(frozen=True, eq=False)
class PhaseResult:
    """The pulled nodes of a closed phase: their boxes, means, widths and eliminations."""

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
        """Return the result as arrays and JSON values."""
        # Indices are stored as text: deep in the tree they exceed 64 bits.
        return {**vars(self), "index": [str(i) for i in self.index]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> PhaseResult:
        """Return the result that :meth:`to_dict` described."""
        return cls(**{**state, "index": tuple(int(i) for i in state["index"])})


class NodeElimination:
    """One search of the space, given a partition, a budget and the confidence widths.

    Parameters
    ----------
    partition
        The tree of boxes.
    confidence
        The widths and thresholds.
    budget
        Pulls that each agent makes in all, kept exactly.
    last_phase
        How the last phase is cut to the budget: ``"best-first"``, ``"in-order"`` or ``"even"``.
    releases
        Most means that each agent may send in all; None is no limit.
    """

    def __init__(
        self,
        partition: BoxTree,
        confidence: Confidence,
        budget: int,
        *,
        last_phase: str = "best-first",
        releases: int | None = None,
    ) -> None:
        self.partition, self.confidence = partition, confidence
        self.budget, self.last_phase, self.releases = budget, last_phase, releases
        self.phase = self.used = self.released = 0
        self.results: list[PhaseResult] = []
        self.nodes = partition.root()
        self._parent_means: Array = np.zeros(1)  # mean of each node's parent: (K,)
        self._split()
        self._grow()
        self._check_first_phase()

    @property
    def finished(self) -> bool:
        """Say whether the budget, or the number of means that may be sent, is spent."""
        if self.used >= self.budget:
            return True
        return self.releases is not None and self.released + len(self.nodes) > self.releases

    def next(self) -> Phase:
        """Return the next phase, cut to what is left of the budget (Algorithm 2, lines 8-9)."""
        K, left = len(self.nodes), self.budget - self.used
        pulls = np.full(K, self.confidence.pulls(self.nodes.depth))
        if K * int(pulls[0]) > left:
            pulls = self._cut(pulls, left)
        wanted = pulls > 0
        return Phase(self.nodes.take(wanted), pulls[wanted])

    def update(self, means: Array, replies: int) -> None:
        """Take in the phase's means (K,) over ``replies`` agents (Algorithm 2, lines 12-16)."""
        phase = self.next()
        nodes, pulls = phase.nodes, phase.pulls
        widths = self.confidence.width(pulls.astype(np.float64), replies)
        best = int(means.argmax())
        bound = means + widths + self.confidence.variation(nodes.depth)
        eliminated = bound < means[best] - widths[best]  # equation (1)
        self.results.append(
            PhaseResult(
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
        self.nodes, self._parent_means = nodes.take(~eliminated), means[~eliminated]
        self._split()
        if not self.finished:
            self._grow()

    def _grow(self) -> None:
        """Split all nodes until each deserves a pull by every agent (Algorithm 2, lines 5-7)."""
        if self.releases is not None:
            return
        most = self.budget - self.used  # more nodes than this could not be pulled even once
        while len(self.nodes) <= most:
            threshold = self.confidence.threshold(self.nodes.depth)
            if len(self.nodes) * threshold > self.confidence.agents and threshold > 1:
                return
            self._split()

    def _split(self) -> None:
        """Replace every node by its children."""
        self.nodes, parent = self.partition.children(self.nodes)
        self._parent_means = self._parent_means[parent]

    def _cut(self, pulls: Indices, left: int) -> Indices:
        """Divide the last ``left`` pulls among the nodes as ``last_phase`` says: (K,)."""
        K = len(pulls)
        first = np.argsort(-self._parent_means, kind="stable")
        cut = np.zeros(K, dtype=np.int64)
        if self.last_phase == "even":
            cut[first] = left // K + (np.arange(K) < left % K)
        else:
            order = np.arange(K) if self.last_phase == "in-order" else first
            before = np.concatenate([[0], np.cumsum(pulls[order])[:-1]])
            cut[order] = np.clip(left - before, 0, pulls[order])
        return cut

    def _check_first_phase(self) -> None:
        """Raise SettingsError where the budget or the means do not pay for one phase."""
        nodes, depth = len(self.nodes), self.nodes.depth
        need = nodes * self.confidence.pulls(depth)
        if need > self.budget:
            raise SettingsError(
                f"`budget` must be enough for one phase, but with {self.confidence.agents} agents "
                f"the first phase pulls {nodes} nodes {need // nodes} times each, and the budget "
                f"(of one search) is {self.budget}; {self._remedy(depth)}"
            )
        if self.releases is not None and nodes > self.releases:
            raise SettingsError(
                f"`most-means` must be enough for one phase, but the first phase sends {nodes} "
                f"means, and the limit (of one search) is {self.releases}"
            )

    def _remedy(self, depth: int) -> str:
        """Return what makes the first phase cheaper."""
        # The cost of the first phase first falls and then rises with nu_1. Beyond the root's
        # children the search has grown: a pull or two of many nodes.
        if depth > 1:
            return "a smaller `smoothness` begins with fewer nodes"
        return "fewer pulls are needed with more agents, a larger `smoothness`, or less noise"

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes, as JSON values and arrays."""
        return {
            "phase": self.phase,
            "used": self.used,
            "released": self.released,
            "depth": self.nodes.depth,
            "index": [str(i) for i in self.nodes.index],
            "key": [str(k) for k in self.nodes.key.tolist()],
            "low": self.nodes.low,
            "high": self.nodes.high,
            "parent_means": self._parent_means,
            "results": [result.to_dict() for result in self.results],
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
        self._parent_means = np.asarray(state["parent_means"])
        self.results = [PhaseResult.from_dict(r) for r in state["results"]]
