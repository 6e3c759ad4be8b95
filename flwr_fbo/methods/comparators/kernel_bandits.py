r"""KernelTS and GP-UCB (Chowdhury and Gopalan 2017; Srinivas et al. 2010), global objective.

Notation

====================  ================================================  ======
paper                 here                                              shape
====================  ================================================  ======
``mu_t, sigma_t``     ``gp.posterior(x)``                               (n,)
``v_t`` of GP-TS      ``settings.spread``                               scalar
``beta_t^(1/2)``      ``settings.width``, constant                      scalar
``lambda``            ``settings.ridge``                                scalar
====================  ================================================  ======

The defaults are those of the public KernelTS code that the Fed-PNE paper ran: the kernel
``exp(-|x - x'|)``, ``lambda = 1``, ``nu = 0.01``. Both methods search the whole space with this
package's argmax in every round.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.settings import above, setting
from flwr_fbo.methods.comparators.base import Ask, ComparatorSettings, PullServer
from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.models.kernels import kernel_named, squared_distance
from flwr_fbo.models.surface import Surface
from flwr_fbo.search.acquisition import argmax


@dataclass(frozen=True)
class KernelSettings(ComparatorSettings):
    """Settings of the Gaussian process that both methods use."""

    kernel: Literal["se", "matern12", "matern32", "matern52"] = setting(
        "matern12", "kernel of the Gaussian process"
    )
    lengthscale: float = setting(1.0, "length scale of `kernel` in the unit cube", above(0))
    ridge: float = setting(
        1.0, "noise variance that the Gaussian process assumes (lambda)", above(0)
    )


@dataclass(frozen=True)
class KernelTSSettings(KernelSettings):
    """Settings of Thompson sampling."""

    spread: float = setting(
        0.01, "factor on the posterior's standard deviation in a sample (v_t)", above(0)
    )


@dataclass(frozen=True)
class GPUCBSettings(KernelSettings):
    """Settings of upper confidence bounds."""

    width: float = setting(
        0.5, "factor on the posterior's standard deviation in the bound (sqrt beta_t)", above(0)
    )


class _KernelServer(PullServer[KernelSettings]):
    """A server around a Gaussian process: every agent pulls the same point once a round."""

    def start(self, rng: np.random.Generator) -> None:
        """Begin with a Gaussian process without data."""
        self._rng = rng
        self._units = np.zeros((0, self.space.dimension))
        self._rewards = np.zeros(0)
        s, empty = self.settings, np.zeros((0, self.space.embedding_dimension))
        kernel = kernel_named(s.kernel, s.lengthscale)
        self._gp = GaussianProcess(kernel, s.ridge, empty, self._rewards)

    def ask(self) -> Ask:
        """Return the argmax of the acquisition; the first point is random."""
        if not len(self._rewards):
            return Ask(self.space.sample(1, self._rng), np.array([1]))
        best = self._units[np.argsort(-self._gp.posterior(self._gp.x)[0])[:5]]
        point = argmax(self._acquisition(), self.space, self._rng, incumbents=best)
        return Ask(self.space.snap(point), np.array([1]))

    def tell(self, ask: Ask, rewards: Array, replies: int) -> None:
        """Add the point and its mean reward to the Gaussian process."""
        self._units = np.concatenate([self._units, ask.points])
        self._rewards = np.concatenate([self._rewards, rewards])
        centred = self._rewards - self._rewards.mean()  # agents' offsets are no signal
        self._gp = self._gp.with_data(self.space.embed(self._units), centred)

    def best_point(self) -> Array:
        """Return the pulled point with the highest posterior mean: (D,)."""
        return np.asarray(self._units[int(self._gp.posterior(self._gp.x)[0].argmax())])

    @abstractmethod
    def _acquisition(self) -> Surface:
        """Return the surface whose argmax is pulled next."""


class KernelTSServer(_KernelServer):
    """The server of KernelTS: it pulls the argmax of a function drawn from the posterior."""

    def _acquisition(self) -> Surface:
        return self._gp.sample_path(self._rng, cast(KernelTSSettings, self.settings).spread)


class GPUCBServer(_KernelServer):
    """The server of GP-UCB: it pulls the argmax of mean plus width times deviation."""

    def _acquisition(self) -> Surface:
        return UpperBound(self._gp, cast(GPUCBSettings, self.settings).width)


@dataclass(frozen=True, eq=False)
class UpperBound(Surface):
    """The surface ``mu(x) + width sigma(x)`` of a Gaussian process, with its gradient."""

    gp: GaussianProcess
    width: float

    def value(self, x: Array, regions: Indices | None = None) -> Array:
        """Return the bound at the rows of x (n, E): (n,)."""
        mean, variance = self.gp.posterior(x)
        return np.asarray(mean + self.width * np.sqrt(variance))

    def value_and_gradient(self, x: Array, regions: Indices | None = None) -> tuple[Array, Array]:
        """Return the bound (n,) and its gradient (n, E): one solve gives both."""
        gp, kernel = self.gp, self.gp.kernel
        scales = np.broadcast_to(np.asarray(kernel.lengthscales) ** 2, x.shape[1])
        correlation, slope = kernel.profile(squared_distance(x, gp.x, kernel.lengthscales))
        cross = kernel.variance * correlation  # k(x, x_t): (n, t)
        solved = gp.solve(np.column_stack([gp.y, cross.T]))  # (t, 1 + n)
        alpha, half = solved[:, 0], solved[:, 1:].T  # (t,), (n, t)
        variance = np.maximum(kernel.variance - (cross * half).sum(axis=1), 1e-12)
        deviation = np.sqrt(variance)
        weight = alpha - (self.width / deviation)[:, None] * half  # d bound / d cross: (n, t)
        # Chain rule: d cross / d x is the kernel's slope times 2 (x - x_t) / scales.
        pull = 2.0 * kernel.variance * slope * weight
        gradient = (pull.sum(axis=1)[:, None] * x - pull @ gp.x) / scales
        return cross @ alpha + self.width * deviation, gradient
