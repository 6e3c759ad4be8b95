r"""FN-UCB (Dai, Shu, Verma, Fan, Low and Jaillet 2023): federated neural bandits over a mesh.

Notation

==========================  ===============================================  ==========
paper                       here                                             shape
==========================  ===============================================  ==========
``m``                       ``width``, hidden units                          int
``f(x; theta)``             ``network.value(x, theta)``                      (n,)
``g(x; theta_0)/sqrt(m)``   ``network.gradient(x)``                          (n, p)
``W_sync, B_sync``          ``gram``, ``moment``: sums over all agents       (p, p), (p,)
``theta_sync,NN``           ``theta``, the mean of the agents' networks      (p,)
``V_sync,NN^-1``            ``inverse``, the mean of the agents' own         (p, p)
``alpha``                   ``alpha``, the least over agents                 scalar
==========================  ===============================================  ==========

An agent pulls the arm that maximises ``(1 - alpha) UCB^a + alpha UCB^b``. ``UCB^a`` is from the
linear model in the network's gradients at ``theta_0``, with the sums of all agents. ``UCB^b`` is
from the averaged network. Two things differ from the paper:

- Agents synchronise after every ``period`` pulls. The paper's trigger (a determinant that grew)
  keeps all agents in step pull by pull, which needs a message for every pull.
- Inputs are ``(x, 1)``, scaled to at most unit norm. Without the 1 a network of one hidden layer
  and no bias is linear on [0, 1].

With the public code's ``nu = 0.1`` agents may settle on the first arm they try. The gradients of
all arms are much alike, so a fair reward anywhere raises the prediction everywhere, and the
widths are too small to make up for it. ``confidence = 1`` explores.

The network is small (width 20, one hidden layer, 30 steps of gradient descent) and needs numpy
only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Reply, ReplyError, Request, Setup, checked_reply
from flwr_fbo.core.settings import above, at_least, setting
from flwr_fbo.core.space import Space
from flwr_fbo.methods.comparators.base import ComparatorServer, ComparatorSettings
from flwr_fbo.methods.comparators.fed1_ucb import mesh
from flwr_fbo.methods.owner import Owner
from flwr_fbo.privacy.checks import PrivacyError

KIND = "fn-ucb"


@dataclass(frozen=True)
class FNUCBSettings(ComparatorSettings):
    """Settings of the mesh, the network and the two confidence bounds."""

    arms: int = setting(50, "arms along each dimension of the mesh (K)", at_least(1))
    width: int = setting(20, "hidden units of the network (m)", at_least(1))
    ridge: float = setting(
        0.1, "ridge of the linear model and of the network's training (lambda)", above(0)
    )
    confidence: float = setting(0.1, "factor on both confidence bounds (nu)", above(0))
    steps: int = setting(30, "training steps before each synchronisation", at_least(1))
    rate: float = setting(0.01, "step size of the training (Adam)", above(0))
    period: int = setting(
        50, "pulls that each agent makes between two synchronisations", at_least(1)
    )


@dataclass(frozen=True, eq=False)
class Network:
    """A network with one hidden layer of rectified units: ``sqrt(m) w2' relu(W1 x)``."""

    width: int
    start: Array  # (p,): theta_0

    @classmethod
    def draw(cls, width: int, inputs: int, rng: np.random.Generator) -> Network:
        """Return a network with weights N(0, 4/m) and N(0, 2/m), as is usual for these bounds."""
        first = rng.standard_normal((width, inputs)) * math.sqrt(4.0 / width)
        second = rng.standard_normal(width) * math.sqrt(2.0 / width)
        return cls(width, np.concatenate([first.ravel(), second]))

    def _layers(self, theta: Array) -> tuple[Array, Array]:
        """Return the weights W1 (m, E) and w2 (m,) that the parameters theta (p,) hold."""
        return theta[: -self.width].reshape(self.width, -1), theta[-self.width :]

    def value(self, x: Array, theta: Array) -> Array:
        """Return the network at the rows of x (n, E): (n,)."""
        first, second = self._layers(theta)
        return np.asarray(math.sqrt(self.width) * np.maximum(x @ first.T, 0.0) @ second)

    def jacobian(self, x: Array, theta: Array) -> Array:
        """Return the gradient of the network in its parameters, at the rows of x: (n, p)."""
        first, second = self._layers(theta)
        hidden = x @ first.T  # (n, m)
        inner = ((hidden > 0) * second)[:, :, None] * x[:, None, :]  # (n, m, E)
        outer = np.maximum(hidden, 0.0)
        return math.sqrt(self.width) * np.concatenate([inner.reshape(len(x), -1), outer], axis=1)

    def gradient(self, x: Array) -> Array:
        """Return ``g(x; theta_0) / sqrt(m)`` at the rows of x: (n, p)."""
        return self.jacobian(x, self.start) / math.sqrt(self.width)

    def train(self, x: Array, y: Array, ridge: float, steps: int, rate: float) -> Array:
        """Return parameters trained by Adam from theta_0: (p,).

        The loss is the mean squared error plus ``ridge`` times the distance to theta_0.
        """
        theta = self.start.copy()
        first, second = np.zeros_like(theta), np.zeros_like(theta)  # Adam's moments
        for step in range(1, steps + 1):
            error = self.value(x, theta) - y
            slope = self.jacobian(x, theta).T @ error / len(y)
            slope += ridge * self.width * (theta - self.start) / len(y)
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
            scale = np.sqrt(second / (1 - 0.999**step)) + 1e-8
            theta = theta - rate * first / (1 - 0.9**step) / scale
        return theta


def inputs_of(space: Space, units: Array) -> Array:
    """Return the network's inputs: coordinates and a 1, scaled to at most unit norm: (n, E + 1)."""
    embedded = space.embed(units)
    ones = np.ones((len(embedded), 1))
    return np.concatenate([embedded, ones], axis=1) / math.sqrt(embedded.shape[1] + 1)


def _inverse(matrix: Array) -> Array:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


class FNUCBServer(ComparatorServer[FNUCBSettings]):
    """The server of FN-UCB: it adds up sums, averages networks, and sends both back."""

    def __init__(self, space: Space, agents: int, settings: FNUCBSettings, seed: int) -> None:
        super().__init__(space, agents, settings, seed)
        rng = np.random.default_rng(seed)
        self._arms = mesh(space, settings.arms, rng)  # (K, D)
        network = Network.draw(settings.width, space.embedding_dimension + 1, rng)
        self.start, p = network.start, len(network.start)
        self._network, self._features = network, inputs_of(space, self._arms)
        self.rounds: int | None = math.ceil(settings.budget / settings.period)
        self.phase = 0  # periods synchronised so far
        self.gram, self.moment = np.zeros((p, p)), np.zeros(p)
        self.theta, self.inverse, self.alpha = self.start, np.eye(p) / settings.ridge, 0.0

    @property
    def finished(self) -> bool:
        """Say whether every period has been played, or no agent answers any more."""
        done = self.phase * self.settings.period >= self.settings.budget
        return done or self.idle >= self.settings.idle_rounds

    def setup(self) -> Setup:
        """Return the settings, the arms and the initial weights, which all agents share."""
        arrays = {"arms": self._arms, "theta": self.start}
        return Setup(KIND, self.space, self.settings.to_mapping(), arrays)

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the next period, with the sums and the network that were synchronised."""
        if self.finished:
            return {}
        request = self._request()
        return {n: request for n in sorted(set(present)) if 0 <= n < self.agents}

    def _request(self) -> Request:
        p, done = len(self.start), self.phase * self.settings.period
        return Request(
            kind="play",
            round=self.round,
            values={
                "phase": self.phase,
                "pulls": min(self.settings.period, self.settings.budget - done),
                "alpha": self.alpha,
            },
            arrays={
                "gram": self.gram,
                "moment": self.moment,
                "theta": self.theta,
                "inverse": self.inverse,
            },
            expects={"gram": (p, p), "moment": (p,), "theta": (p,), "inverse": (p, p), "alpha": ()},
        )

    def close(self, replies: Mapping[int, Reply]) -> None:
        """Synchronise with the agents that answered; with none, the period is asked again."""
        request = self._request()
        for agent, reply in replies.items():  # check all replies before any is used
            if self.finished or not 0 <= agent < self.agents:
                raise ReplyError(f"agent {agent} answers without being asked")
            checked_reply(request, reply)
        good = {n: r.arrays for n, r in sorted(replies.items()) if not r.declined}
        self.round += 1
        self.idle = 0 if good else self.idle + 1
        if not good:
            return
        # Sums grow by each agent's share of this period; the networks are averaged.
        for n, arrays in good.items():
            self.sent[n] += sum(a.size for a in arrays.values())
            self.gram = self.gram + arrays["gram"]
            self.moment = self.moment + arrays["moment"]
        self.theta = np.mean([a["theta"] for a in good.values()], axis=0)
        self.inverse = np.mean([a["inverse"] for a in good.values()], axis=0)
        self.alpha = min(float(a["alpha"]) for a in good.values())
        self.phase += 1

    def best_point(self) -> Array:
        """Return the arm with the best prediction, without confidence widths: (D,)."""
        p = len(self.start)
        weights = np.linalg.solve(self.gram + self.settings.ridge * np.eye(p), self.moment)
        linear = self._network.gradient(self._features) @ weights  # (K,)
        network = self._network.value(self._features, self.theta)
        best = int(((1 - self.alpha) * linear + self.alpha * network).argmax())
        return np.asarray(self._arms[best])

    _STORED = ("round", "phase", "idle", "sent", "gram", "moment", "theta", "inverse", "alpha")

    def state_dict(self) -> dict[str, Any]:
        """Return all that changes."""
        return {name: getattr(self, name) for name in self._STORED}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a stored state."""
        for name in self._STORED:
            setattr(self, name, state[name])


class FNUCBAgent:
    """The agent of FN-UCB: it plays one period for each request.

    The agent's memory is its recorded evaluations.
    """

    def __init__(
        self, setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...]
    ) -> None:
        self.settings = FNUCBSettings.from_mapping(setup.values)
        self.space, self.evaluator = setup.space, evaluator
        self._arms = setup.arrays["arms"]
        self._network = Network(self.settings.width, setup.arrays["theta"])
        self._inputs = inputs_of(self.space, self._arms)  # (K, E + 1)
        self._gradients = self._network.gradient(self._inputs)  # (K, p)

    def answer(self, request: Request) -> Reply:
        """Play one period, and return its sums, a trained network and alpha."""
        phase, pulls = int(request.values["phase"]), int(request.values["pulls"])
        p, s = self._gradients.shape[1], self.settings
        gram, moment = np.zeros((p, p)), np.zeros(p)  # of this period: W_new, B_new
        covariance = _inverse(request.arrays["gram"] + s.ridge * np.eye(p))
        moments = request.arrays["moment"].copy()
        alpha = float(request.values["alpha"])
        fixed = alpha * self._network_bound(
            request
        )  # alpha UCB^b does not change in a period: (K,)
        for play in range(pulls):
            linear = self._gradients @ (covariance @ moments)
            bound = linear + s.confidence * self._width(covariance)  # UCB^a
            arm = int(((1 - alpha) * bound + fixed).argmax())
            evaluation = self.evaluator(self._arms[arm], round=phase, play=play, source="arm")
            row, reward = self._gradients[arm], self._reward(evaluation.score)
            gram += np.outer(row, row)
            moment += reward * row
            moments += reward * row
            # Sherman-Morrison: the inverse of the Gram matrix with one more row.
            step = covariance @ row
            covariance = covariance - np.outer(step, step) / (1 + row @ step)
        return self._reply(gram, moment, phase)

    def _network_bound(self, request: Request) -> Array:
        """Return UCB^b at every arm: (K,)."""
        value = self._network.value(self._inputs, request.arrays["theta"])
        return np.asarray(value + self.settings.confidence * self._width(request.arrays["inverse"]))

    def _width(self, inverse: Array) -> Array:
        """Return ``sqrt(lambda) |g / sqrt(m)|`` in the norm of an inverse Gram matrix: (K,)."""
        squared = ((self._gradients @ inverse) * self._gradients).sum(axis=1)
        return np.asarray(np.sqrt(self.settings.ridge * np.maximum(squared, 0.0)))

    def _reward(self, score: float | None) -> float:
        """Return a score scaled to the stated range; a failed evaluation is 0."""
        low, high = self.settings.reward_low, self.settings.reward_high
        return 0.0 if score is None else (score - low) / (high - low)

    def _reply(self, gram: Array, moment: Array, phase: int) -> Reply:
        """Return the period's sums, a network trained on all evaluations so far, and alpha."""
        s, history = self.settings, [e for e in self.evaluator.history if e.round <= phase]
        x = inputs_of(self.space, np.array([e.unit for e in history]))
        y = np.array([self._reward(e.score) for e in history])
        own = self._network.gradient(x)  # (t, p)
        inverse = _inverse(own.T @ own + s.ridge * np.eye(own.shape[1]))
        width = self._width(inverse)
        return Reply(
            {
                "gram": gram,
                "moment": moment,
                "theta": self._network.train(x, y, s.ridge, s.steps, s.rate),
                "inverse": inverse,
                # Even widths mean that the agent knows all arms alike: then networks count more.
                "alpha": np.array(width.min() / width.max()),
            }
        )


def make_agent(
    setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...], owner: Owner
) -> FNUCBAgent:
    """Make an agent of FN-UCB, or raise PrivacyError where the owner limits its privacy."""
    limits = {
        "epsilon-limit": owner.epsilon_limit,
        "epsilon-limit-reward": owner.epsilon_limit_reward,
    }
    for name, limit in limits.items():
        if limit is not None:
            raise PrivacyError(
                f"node-config `{name}` must be unset for the method fn-ucb, whose agents send sums "
                f"without noise, but got {limit:g}"
            )
    return FNUCBAgent(setup, evaluator, records, seed)
