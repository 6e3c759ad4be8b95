r"""An agent's own model: the agent's scores, and a Gaussian process fitted to them.

Notation

==============================  ===================================  ==========
symbol                          here                                 shape
==============================  ===================================  ==========
``X_t``                         ``model.units``                      (t, D)
``y_t``                         ``model.scores``                     (t,)
``y_t`` with mean 0, spread 1   ``model.targets()``                  (t,)
``GP(mu_t, sigma_t^2)``         ``model.process()``
the same with a prior mean      ``model.process_with_prior_mean()``
``beta_t``                      ``model.beta()``                     scalar
``gamma_t``                     ``process.information_gain()``       scalar
``phi(x)' omega``               ``model.prior_mean``                 a function
==============================  ===================================  ==========

The hyperparameters of the kernel are fitted after certain numbers of scores only. Which numbers
these are, and the random numbers of a fit, depend on the number of scores alone. A restored model
therefore equals the original.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Space
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.methods.thompson.shared_function import SharedFunction
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.models.hyperparameters import Hyperparameters, count_at_last_fit, fit, prior_medians
from flwr_fbo.models.prior_mean import PRIOR_MEAN, PriorMeanProcess
from flwr_fbo.models.score_scale import cut_low_scores, standardise_scores

#: How many of the best points the search for the next point starts from.
INCUMBENTS = 5
#: The delta of Theorem 1, whose bound holds with probability 1 - delta.
THEOREM_DELTA = 0.1


class OwnModel:
    """The scores of one agent, and the model of the agent's objective that follows from them.

    Parameters
    ----------
    space : Space
        The search space.
    settings : ThompsonSettings
        Kernel, noise, fits, standardisation and the use of the shared function.
    features : RandomFeatures, optional
        The shared random features, which a shared function needs.
    fit_rng : Callable
        Returns the random generator of the fit to a number of scores.
    on_fit : Callable, optional
        Called with the number of scores and the result after each new fit.
    """

    def __init__(
        self,
        space: Space,
        settings: ThompsonSettings,
        features: RandomFeatures | None,
        fit_rng: Callable[[int], np.random.Generator],
        on_fit: Callable[[int, Hyperparameters], None] | None = None,
    ) -> None:
        self.space, self.settings, self.features = space, settings, features
        self.shared_function: SharedFunction | None = None
        self._fit_rng, self._on_fit = fit_rng, on_fit
        self._points: list[Array] = []
        self._observed: list[float] = []
        # The two lists as arrays, made again after a list has grown.
        self._units = np.zeros((0, space.dimension))
        self._scores = np.zeros(0)
        # Scores and scale of the last standardisation, and its result.
        self._standardised: tuple[Array, tuple[float, float] | None, Array] | None = None
        self._fits: dict[int, Hyperparameters] = {}
        self._process: GaussianProcess | None = None
        self._process_parameters: Hyperparameters | None = None

    def add(self, unit: Array, score: float) -> None:
        """Add the finite score of a point (D,)."""
        self._points.append(unit)
        self._observed.append(score)

    @property
    def units(self) -> Array:
        """Return the points that have scores: (t, D)."""
        if len(self._units) != len(self._points):
            self._units = np.array(self._points)
        return self._units

    @property
    def scores(self) -> Array:
        """Return the scores: (t,)."""
        if len(self._scores) != len(self._observed):
            self._scores = np.array(self._observed)
        return self._scores

    def best(self) -> tuple[Array, float] | None:
        """Return the point to use and its score; None before the first score.

        The point has the best score, or the best posterior mean, as the setting ``pick`` says. The
        best of many noisy scores owes much to its noise. With little noise the two are the same.
        """
        if not self._observed:
            return None
        by_score = self.settings.pick == "score" or self.all_scores_equal()
        index = int(np.argmax(self.scores if by_score else self._fitted()))
        return self._points[index], self._observed[index]

    def best_score(self) -> float | None:
        """Return the best score; None before the first one."""
        return max(self._observed, default=None)

    def _fitted(self) -> Array:
        """Return the posterior mean at the evaluated points, by the last fit that was made: (t,).

        A fit that is due is left to the next proposal, which may know a newer shared function:
        asking for the best point changes nothing.
        """
        known = [n for n in self._fits if n <= len(self._observed)]
        parameters = self._fits[max(known)] if known else self._prior_parameters()
        return self._with_prior_mean(self._process_with(parameters)).fitted

    def incumbents(self) -> Array | None:
        """Return the best points (k, D), the best last; None before the first score."""
        if not self._observed:
            return None
        return np.asarray(self.units[np.argsort(self.scores)[-INCUMBENTS:]])

    def all_scores_equal(self, count: int | None = None) -> bool:
        """Return whether the first ``count`` scores (default: all) are equal."""
        known = self._observed[:count]
        return all(score == known[0] for score in known)

    def embedded(self, count: int | None = None) -> Array:
        """Return the first ``count`` points (default: all) in embedded coordinates: (t, E)."""
        if not self._points:
            return np.zeros((0, self.space.embedding_dimension))
        return self.space.embed(self.units[:count])

    def targets(self, count: int | None = None) -> Array:
        """Return the first ``count`` scores as the model sees them, standardised if set: (t,)."""
        y = self.scores if count is None else self.scores[:count]
        shared = None if self.shared_function is None else self.shared_function.scale
        # Only the targets of all scores are cached: those of the first few serve one fit.
        if count is not None:
            return self._targets_of(y, shared)
        known = self._standardised
        if known is None or known[0] is not y or known[1] != shared:
            known = self._standardised = y, shared, self._targets_of(y, shared)
        return known[2]

    def _targets_of(self, scores: Array, shared: tuple[float, float] | None) -> Array:
        """Return scores (t,) cut and standardised, as the settings say: (t,)."""
        y, scale = self._cut(scores), self.settings.scale
        if scale is not None and not scale.fits(y):
            shared = None  # the range is not that of the scores, and what others said means nothing
        return standardise_scores(y, shared) if self.settings.standardise else y

    def _cut(self, scores: Array) -> Array:
        return cut_low_scores(scores) if self.settings.cut_low_scores else scores

    @property
    def scores_to_scale(self) -> Array:
        """Return the scores whose mean and spread the agent shares, where it shares them: (t,)."""
        return self._cut(self.scores)

    @property
    def uses_prior_mean(self) -> bool:
        """Return whether shared functions are used as a prior mean, and not as in the papers."""
        return self.settings.advice_use == "prior"

    @property
    def prior_mean(self) -> SharedFunction | None:
        """Return the shared function that is the prior mean; None where there is none."""
        return self.shared_function if self.uses_prior_mean else None

    def process(self) -> GaussianProcess:
        """Return the posterior of the objective with prior mean 0, in targets."""
        return self._process_with(self._parameters())

    def _process_with(self, parameters: Hyperparameters) -> GaussianProcess:
        x, y, known = self.embedded(), self.targets(), self._process
        if known is None or self._process_parameters != parameters:
            kernel = parameters.kernel(self.settings.kernel, self.space)
            known = GaussianProcess(kernel, parameters.noise, x, y)
        elif not np.array_equal(known.y, y):
            known = known.with_data(x, y)  # the factor grows in O(t^2)
        self._process, self._process_parameters = known, parameters
        return known

    def process_with_prior_mean(self, pending: Sequence[Array] = ()) -> PriorMeanProcess:
        """Return the posterior of the objective with the shared function as its prior mean.

        ``pending`` are points (D,) that are being evaluated, whose scores are imagined.
        """
        posterior, prior = self._with_prior_mean(self.process()), self.prior_mean
        if not len(pending):
            return posterior
        places = None if prior is None else prior.regions.locate(np.array(pending))
        return posterior.with_fantasies(self.space.embed(np.array(pending)), places)

    def _with_prior_mean(self, process: GaussianProcess) -> PriorMeanProcess:
        prior = self.prior_mean
        if prior is None:
            return PriorMeanProcess(process)
        path, regions = prior.path(self.features), prior.regions.locate(self.units)
        return PriorMeanProcess(process, path, regions)

    def beta(self) -> float:
        r"""Return beta_t, by which the spread of a sampled function is multiplied.

        Theorem 1 of the papers has :math:`\beta_t = B + \sigma \sqrt{2 (\gamma_{t-1} + 1 +
        \log(4 / \delta))}`. For :math:`\gamma_{t-1}`, the largest information gain of any t - 1
        points, the gain of the agent's own observations is taken: the bound behind the theorem
        holds with it, and the maximum over all sets of points cannot be computed.
        """
        if self.settings.beta_rule == "constant":
            return self.settings.beta
        process = self.process()
        width = 2.0 * (process.information_gain() + 1.0 + math.log(4.0 / THEOREM_DELTA))
        return self.settings.beta + math.sqrt(process.noise * width)

    def _parameters(self) -> Hyperparameters:
        """Return the hyperparameters of the last fit that was due, making the fit if needed."""
        s = self.settings
        due = count_at_last_fit(len(self._observed), s.refit_every)
        # Equal scores determine no length scale.
        if due == 0 or self.all_scores_equal(due):
            return self._prior_parameters()
        if due not in self._fits:
            x, y, rng = self.embedded(due), self._residuals(due), self._fit_rng(due)
            # With many scores, a fit starts at the result of the fit before.
            before = self._fits.get(count_at_last_fit(due - 1, s.refit_every))
            found = fit(s.kernel, self.space, x, y, rng, s.lengthscale, s.noise, before)
            self._fits[due] = found
            if self._on_fit is not None:
                self._on_fit(due, found)
        return self._fits[due]

    def _prior_parameters(self) -> Hyperparameters:
        return prior_medians(self.space.dimension, self.settings.lengthscale, self.settings.noise)

    def _residuals(self, count: int) -> Array:
        """Return the first targets less the prior mean, which the kernel has to explain: (t,)."""
        y, prior = self.targets(count), self.prior_mean
        if prior is None:
            return y
        regions = prior.regions.locate(self.units[:count])
        mean: Array = prior.path(self.features).value(self.embedded(count), regions)
        # The shared function enters with its prior coefficient. Its own mean is left out, because
        # the prior mean holds a free constant (models/prior_mean.py).
        return np.asarray(y - PRIOR_MEAN[1] * (mean - mean.mean()))

    def remember_fit(self, observations: int, parameters: Mapping[str, Any]) -> None:
        """Put back a recorded fit, so that the fit is not made again."""
        self._fits[observations] = Hyperparameters(
            tuple(parameters["lengthscales"]), parameters["variance"], parameters["noise"]
        )

    def state_dict(self) -> dict[str, Any]:
        """Return points, scores and fits as JSON values."""
        return {
            "units": [u.tolist() for u in self._points],
            "scores": list(self._observed),
            "fits": {str(n): asdict(f) for n, f in self._fits.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state that :meth:`state_dict` returned."""
        self._points = [np.array(u) for u in state["units"]]
        self._units = np.array(self._points).reshape(-1, self.space.dimension)
        self._observed = [float(s) for s in state["scores"]]
        self._scores = np.array(self._observed)
        self._fits, self._process = {}, None
        for count, parameters in state["fits"].items():
            self.remember_fit(int(count), parameters)
