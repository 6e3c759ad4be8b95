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

The models of several agents with equally many scores are computed together
(:func:`models_together`), a model alone is a group of one where it matters. What a model is does
not depend, to the last bit, on the others of its group.

The hyperparameters of the kernel are fitted after certain numbers of scores only. Which numbers
these are, and the random numbers of a fit, depend on the number of scores alone. A restored model
therefore equals the original.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.space import Space
from flwr_fbo.core.streams import generators_of
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.methods.thompson.shared_function import SharedFunction
from flwr_fbo.models import hyperparameters
from flwr_fbo.models.features import RandomFeatures, WeightPosterior
from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.models.hyperparameters import (
    Hyperparameters,
    count_at_last_fit,
    parameter_of_column,
    prior_medians,
)
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.models.learned_scale import weight_deviations
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
    fit_key : Callable
        Returns the key of the random generator of the fit to a number of scores.
    on_fit : Callable, optional
        Called with the number of scores and the result after each new fit.
    """

    def __init__(
        self,
        space: Space,
        settings: ThompsonSettings,
        features: RandomFeatures | None,
        fit_key: Callable[[int], Sequence[int]],
        on_fit: Callable[[int, Hyperparameters], None] | None = None,
    ) -> None:
        self.space, self.settings, self.features = space, settings, features
        self.shared_function: SharedFunction | None = None
        self._fit_key, self._on_fit = fit_key, on_fit
        self._points: list[Array] = []
        self._observed: list[float] = []
        # The two lists as arrays, made again after a list has grown.
        self._units = np.zeros((0, space.dimension))
        self._scores = np.zeros(0)
        # Scores and scale of the last standardisation, and its result.
        self._standardised: tuple[Array, tuple[float, float] | None, Array] | None = None
        self._fits: dict[int, Hyperparameters] = {}
        self._unreported: list[int] = []
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

    def __len__(self) -> int:
        return len(self._observed)

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
        return targets_of(scores, shared, self.settings)

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

    @property
    def learned_lengthscale(self) -> float | None:
        """Return the length scale that the federation learned; None where it learned none."""
        return None if self.prior_mean is None else self.prior_mean.lengthscale

    @property
    def weight_deviations(self) -> Array | None:
        """Return the prior deviations of omega (M,) by the learned length scale, if any."""
        learned = self.learned_lengthscale
        if learned is None or self.features is None:
            return None
        return weight_deviations(self.features, learned, self.space.dimension)

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
        due = self._due()
        if due == 0:
            return self._prior_parameters()
        if due not in self._fits:
            fit_together([self])
        self.report_fits()
        return self._fits[due]

    def _due(self) -> int:
        """Return how many scores the last due fit uses; 0 where none is due."""
        due = count_at_last_fit(len(self._observed), self.settings.refit_every)
        # Equal scores determine no length scale.
        return 0 if self.all_scores_equal(due) else due

    def report_fits(self) -> None:
        """Call ``on_fit`` for the fits that were made since the last call."""
        while self._unreported:
            count = self._unreported.pop(0)
            if self._on_fit is not None:
                self._on_fit(count, self._fits[count])

    def _prior_parameters(self) -> Hyperparameters:
        scale = self.settings.lengthscale or self.learned_lengthscale
        return prior_medians(self.space.dimension, scale, self.settings.noise)

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


def targets_of(
    scores: Array, shared: tuple[float, float] | None, settings: ThompsonSettings
) -> Array:
    """Return scores (..., t) cut and standardised, as the settings say: (..., t)."""
    y = cut_low_scores(scores) if settings.cut_low_scores else scores
    if not settings.standardise:
        return y
    fits = np.ones(y.shape[:-1], bool) if settings.scale is None else settings.scale.fits(y)
    if shared is None or not fits.any():
        # Where the range is not that of the scores, what others say about the scale means nothing.
        return standardise_scores(y)
    pooled = standardise_scores(y, shared)
    return pooled if fits.all() else np.where(fits[..., None], pooled, standardise_scores(y))


@dataclass(frozen=True)
class _Data:
    """Points and targets of A agents with equally many scores, of which ``count`` are taken."""

    models: Sequence[OwnModel]
    count: int

    @cached_property
    def units(self) -> Array:
        """Return the points: (A, t, D)."""
        return np.stack([model.units[: self.count] for model in self.models])

    @cached_property
    def embedded(self) -> Array:
        """Return the points in embedded coordinates: (A, t, E)."""
        rows = self.models[0].space.embed(self.units.reshape(-1, self.units.shape[2]))
        return rows.reshape(*self.units.shape[:2], -1)

    @cached_property
    def targets(self) -> Array:
        """Return the scores as models see them: (A, t)."""
        first, shared = self.models[0], self.models[0].shared_function
        scores = np.stack([model.scores[: self.count] for model in self.models])
        return targets_of(scores, None if shared is None else shared.scale, first.settings)

    @cached_property
    def regions(self) -> Indices | None:
        """Return the sub-regions of the points (A, t), where the shared function has several."""
        prior = self.models[0].prior_mean
        if prior is None or prior.regions.count == 1:
            return None
        places = prior.regions.locate(self.units.reshape(-1, self.units.shape[2]))
        return places.reshape(self.units.shape[:2])

    @cached_property
    def residuals(self) -> Array:
        """Return the targets less the prior mean, which the kernel has to explain: (A, t)."""
        model, prior = self.models[0], self.models[0].prior_mean
        if prior is None:
            return self.targets
        mean = prior.path(model.features).value(self.embedded, self.regions)
        # The shared function enters with its prior coefficient. Its own mean is left out, because
        # the prior mean holds a free constant (models/prior_mean.py).
        mean = mean - mean.mean(axis=-1, keepdims=True)
        return np.asarray(self.targets - PRIOR_MEAN[1] * mean)


def fit_together(models: Sequence[OwnModel]) -> None:
    """Make the fits that are due in models with equally many scores and one shared function."""
    due = count_at_last_fit(len(models[0]), models[0].settings.refit_every)
    due_in = [model for model in models if model._due() and due not in model._fits]
    if not due_in:
        return
    data, s = _Data(due_in, due), models[0].settings
    # With many scores, a fit starts at the result of the fit before.
    last = count_at_last_fit(due - 1, s.refit_every)
    before = [model._fits.get(last) for model in due_in]
    rngs = generators_of([model._fit_key(due) for model in due_in])
    given = models[0].space, data.embedded, data.residuals, rngs, s.lengthscale, s.noise, before
    fits = hyperparameters.fit_together(s.kernel, *given, learned=models[0].learned_lengthscale)
    for model, found in zip(due_in, fits, strict=True):
        model._fits[due] = found
        model._unreported.append(due)


def models_together(models: Sequence[OwnModel]) -> PriorMeanProcess:
    """Return :meth:`OwnModel.process_with_prior_mean` of A models as one object.

    All have equally many scores, at least one, and the same settings and shared function. Fits that
    are due are made, and are reported later (:meth:`OwnModel.report_fits`).
    """
    fit_together(models)
    first, data = models[0], _Data(models, len(models[0]))
    every = [m._fits[due] if (due := m._due()) else m._prior_parameters() for m in models]
    scales = np.array([parameters.lengthscales for parameters in every])[:, None, :]
    kernel = kernel_named(
        first.settings.kernel,
        scales[..., parameter_of_column(first.space)],
        np.array([[parameters.variance] for parameters in every]),
    )
    noise = np.array([[parameters.noise] for parameters in every])
    process = GaussianProcess(kernel, noise, data.embedded, data.targets)
    prior = first.prior_mean
    shared = None if prior is None else prior.path(first.features)
    return PriorMeanProcess(process, shared, data.regions)


def incumbents_together(models: Sequence[OwnModel]) -> Array:
    """Return :meth:`OwnModel.incumbents` of A models with equally many scores: (A, k, D)."""
    scores = np.stack([model.scores for model in models])
    best = np.argsort(scores, axis=1)[:, -INCUMBENTS:]
    return np.asarray(
        np.stack([model.units for model in models])[np.arange(len(models))[:, None], best]
    )


def means_together(models: Sequence[OwnModel]) -> Array:
    """Return the means of omega of A models, whose features are the same: (A, M).

    All have equally many scores, at least one, and the same settings and shared function.
    """
    first, data = models[0], _Data(models, len(models[0]))
    if first.features is None:
        raise ValueError("an agent without shared features has no message")
    noise = first.settings.feature_noise
    deviations = first.weight_deviations
    return WeightPosterior.at(first.features, data.embedded, data.targets, noise, deviations).mean()
