r"""The probability that an evaluation succeeds, learned from an agent's successes and failures.

Notation

==============================================  ============================  ==========
symbol                                          here                          shape
==============================================  ============================  ==========
``c_i``: 0 for a success, -2 for a failure      ``labels``                    (t,)
``c(x)``, a constant and a Gaussian process     ``model``                     a function
``m(x), v(x)``, its posterior moments           ``model.posterior(x)``        (n,), (n,)
``z = (1 + m) / sqrt(v + noise)``               ``_z(m, v)``                  (n,)
``Pr[success at x] = Phi(z)``                   ``exp(success.logarithm(x))`` (n,)
==============================================  ============================  ==========

An evaluation at x succeeds where ``1 + c(x)`` and an error are above 0. The labels are regressed
like scores (least-squares classification, Rasmussen and Williams, Section 6.5). The posterior and
its gradient are therefore those of :class:`PriorMeanProcess`. Far from all evaluations m is near
0, and a success is likely. The length scales are the prior's. The labels of a few failures
determine no length scales, and the parameters that make an evaluation fail need not be those that
change the score. docs/evidence/agent.md has the measurements of other choices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx, log_ndtr

from flwr_fbo.core.arrays import Array
from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.models.hyperparameters import prior_medians
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.models.prior_mean import PriorMeanProcess

#: The label of a failure; that of a success is 0, the mean of the prior.
FAILURE_LABEL = -2.0
#: The variance of the error: a border between success and failure is not sharp.
LABEL_NOISE = 0.1
MILLS = math.sqrt(2.0 / math.pi)


@dataclass(frozen=True, eq=False)
class SuccessModel:
    """The logarithm of the probability that an evaluation succeeds, with its gradient."""

    model: PriorMeanProcess

    @classmethod
    def of(cls, kernel: str, dimension: int, successes: Array, failures: Array) -> SuccessModel:
        """Return the model of evaluations at points that succeeded (s, E) and failed (f, E).

        ``kernel`` is the name of the kernel, and ``dimension`` the number of parameters.
        """
        scale = prior_medians(dimension).lengthscales[0]
        labels = np.repeat([0.0, FAILURE_LABEL], [len(successes), len(failures)])
        points = np.vstack([successes, failures])
        process = GaussianProcess(kernel_named(kernel, scale), LABEL_NOISE, points, labels)
        return cls(PriorMeanProcess(process))

    def scan(self, x: Array) -> Array:
        """Return log Pr[success] at many rows of x (n, E), to about 1e-3: (n,)."""
        return np.asarray(log_ndtr(_z(*self.model.scan_posterior(x))))

    def logarithm(self, x: Array) -> Array:
        """Return log Pr[success] at the rows of x (n, E): (n,)."""
        return np.asarray(log_ndtr(_z(*self.model.posterior(x))))

    def logarithm_and_gradient(self, x: Array) -> tuple[Array, Array]:
        """Return log Pr[success] (n,) and its gradient (n, E) at the rows of x (n, E)."""
        mean, variance, chain_rule = self.model.posterior_and_chain_rule(x)
        total = variance + LABEL_NOISE
        z = _z(mean, variance)
        ratio = MILLS / erfcx(-math.sqrt(0.5) * z)  # phi(z) / Phi(z)
        # d z = d m / sqrt(v + noise) - z d v / (2 (v + noise)).
        gradient = chain_rule(ratio / np.sqrt(total), -0.5 * ratio * z / total)
        return np.asarray(log_ndtr(z)), gradient


def _z(mean: Array, variance: Array) -> Array:
    return np.asarray((1.0 + mean) / np.sqrt(variance + LABEL_NOISE))
