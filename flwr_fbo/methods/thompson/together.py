"""The points and the vectors of many agents, computed at once.

The agents of a simulation have the same space, settings and features, and mostly equally many
scores. Most of what one proposal costs is hundreds of calls on small arrays. Here these calls are
made on the arrays of many agents. There is no second mathematics: models, surfaces and searches
take arrays with one more axis in front (:func:`.own_model.models_together`,
:func:`~flwr_fbo.search.acquisition.argmax_together`). A point and a vector are the same to the last
bit whatever the other agents are, and if there are none. So an agent that is asked alone, as in a
deployment or after a crash, evaluates the same points.

What is computed waits in each agent's sampler for :meth:`.ThompsonSampler.ask` or ``message``.
In mixed and larger spaces, fits and vectors are computed at once, and points one at a time. Agents
in an unusual state are left out, and compute when they are asked: those with failures, with equal
scores, with points under way, or that draw samples of functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flwr_fbo.core.streams import generators_of
from flwr_fbo.methods.thompson.own_model import (
    fit_together,
    incumbents_together,
    means_together,
    models_together,
)
from flwr_fbo.methods.thompson.sampler import OWN, ThompsonSampler
from flwr_fbo.search.acquisition import argmax_together, is_small
from flwr_fbo.search.expected_improvement import Improvement

#: Agents with more scores than this compute alone: their arrays are large enough.
MOST_SCORES = 100
#: The most agents that are computed at once, so that their arrays stay small.
MOST_AGENTS = 256


def prepare_points(samplers: Sequence[ThompsonSampler], round: int) -> None:
    """Compute the next points of agents whose search is the usual one, and keep them.

    In mixed and larger spaces only the fits that are due are made, and each agent seeks its point.
    """

    def prepare(group: Sequence[ThompsonSampler]) -> None:
        models = [sampler.own_model for sampler in group]
        surfaces, prior = Improvement.over(models_together(models)), models[0].prior_mean
        rngs = generators_of([sampler.key(OWN, round) for sampler in group])
        regions = None if prior is None else prior.regions
        points = argmax_together(surfaces, rngs, incumbents_together(models), regions)
        for sampler, unit in zip(group, points, strict=True):
            sampler.keep_point(round, unit)

    def fit(group: Sequence[ThompsonSampler]) -> None:
        fit_together([sampler.own_model for sampler in group])

    seeking = [s for s in samplers if s.searches_near_incumbents]
    _by_groups([s for s in seeking if is_small(s.space)], prepare)
    _by_groups([s for s in seeking if not is_small(s.space)], fit)


def prepare_vectors(samplers: Sequence[ThompsonSampler]) -> None:
    """Compute the shared vectors of agents that share means of omega, and keep them."""

    def prepare(group: Sequence[ThompsonSampler]) -> None:
        means = means_together([sampler.own_model for sampler in group])
        for sampler, omega in zip(group, means, strict=True):
            sampler.keep_mean(omega)

    _by_groups([s for s in samplers if s.features is not None and s.shares_mean_of_scores], prepare)


def _by_groups(
    samplers: Sequence[ThompsonSampler], prepare: Callable[[Sequence[ThompsonSampler]], None]
) -> None:
    """Prepare agents with equally many scores and the same shared function together.

    After an error each of a group computes alone, and the one with the error reports it.
    """
    groups: dict[Any, list[ThompsonSampler]] = {}
    for sampler in samplers:
        model = sampler.own_model
        groups.setdefault((len(model), id(model.shared_function)), []).append(sampler)
    parts = [
        group[first : first + MOST_AGENTS]
        for (scores, _), group in groups.items()
        if scores <= MOST_SCORES
        for first in range(0, len(group), MOST_AGENTS)
    ]
    for part in parts:
        if len(part) == 1:
            continue
        try:
            prepare(part)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):
            for sampler in part:
                sampler.forget_prepared()
