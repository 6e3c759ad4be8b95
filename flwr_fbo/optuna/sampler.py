r"""A sampler for a study of one's own that knows what a finished federation learned.

The parameters that the study shares with the run are sampled together: where our model expects the
largest improvement, with the function that the run released as its prior mean. All other parameters
are sampled by an independent sampler. Nothing is sent, and the releases are public, so the sampler
costs no privacy.

A parameter is shared if it has the name of one of the run's parameters, and its values are among
those of the run's parameter on the same scale. A narrower range is therefore shared, and a wider
one is not. Parameters of the run that the study does not have are set to where the released
function is largest.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.logging import get_logger
from optuna.samplers import BaseSampler, TPESampler
from optuna.search_space import intersection_search_space
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.parameters import Parameter
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.thompson.sampler import ThompsonSampler
from flwr_fbo.optuna.distributions import distribution_of, parameter_of
from flwr_fbo.runs.newcomer import SharedKnowledge, read_shared_knowledge
from flwr_fbo.search.acquisition import argmax
from flwr_fbo.search.subspace import SubSpace, has_value, is_part

#: Part of the key of the sampler's draws; no agent of a run has this number.
STREAM = 2**31 + 2
#: A logger below Optuna's, so that Optuna's verbosity applies.
LOGGER = "optuna.flwr_fbo"
#: The states of trials that show something of the objective.
SHOWN = (TrialState.COMPLETE, TrialState.PRUNED)
#: A point (D,) as a tuple, and its score; None for a failure.
Told = tuple[tuple[float, ...], float | None]


class FederatedSampler(BaseSampler):
    """An Optuna sampler that starts from the shared function of a finished run.

    Parameters
    ----------
    source : Path or str
        The directory of a run of ``dp-fts-de`` or a copy of its public files (``config.json``,
        ``space.json`` and ``releases``), or one of its releases.
    seed : int, optional
        The seed of all draws. The same seed and the same trials give the same proposals.
    score : callable, optional
        Returns the score, as the run's task has it, of a value of the study. The default is the
        value of a study that maximises, and minus the value of a study that minimises.
    independent_sampler : BaseSampler, optional
        The sampler of the parameters that are not shared; the default is ``TPESampler``.
    warn_independent_sampling : bool
        Whether to log, once for each parameter, that a parameter of the run is not shared.

    Examples
    --------
    >>> import tempfile
    >>> import optuna
    >>> from flwr_fbo import Float, simulate, task
    >>> @task(space={"x": Float(0.0, 1.0)}, score_range=(0.0, 1.0))
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> result = simulate(hill, agents=4, rounds=3, strategy="dp-fts-de", run_dir=folder)
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(direction="maximize", sampler=FederatedSampler(folder, seed=1))
    >>> study.optimize(lambda trial: 1.0 - (trial.suggest_float("x", 0.0, 1.0) - 0.3) ** 2, 3)
    >>> study.best_value > 0.98
    True
    """

    def __init__(
        self,
        source: str | Path,
        *,
        seed: int | None = None,
        score: Callable[[float], float] | None = None,
        independent_sampler: BaseSampler | None = None,
        warn_independent_sampling: bool = True,
    ) -> None:
        self._known = read_shared_knowledge(source)
        if self._known.space.points is not None:
            raise SettingsError(
                "`source` must be a run whose space has ranges, but its space is a list of "
                f"{len(self._known.space.points)} points"
            )
        self._seed = secrets.randbits(31) if seed is None else int(seed)
        self._score = score
        self._independent_sampler = independent_sampler or TPESampler(seed=seed)
        self._warn, self._warned = warn_independent_sampling, set[str]()
        self._told: list[Told] = []
        self._model: ThompsonSampler | None = None
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        # A lock cannot be pickled, and the model is made again from the trials.
        return {**self.__dict__, "_lock": None, "_model": None, "_told": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = Lock()

    # -- Optuna's interface ------------------------------------------------------------------

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the shared parameters that all finished trials have."""
        common = intersection_search_space(_trials(study, SHOWN), include_pruned=True)
        return {name: d for name, d in common.items() if self._shared(name, d) is not None}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return values of all parameters of a search space, the shared ones chosen together."""
        self._raise_error_if_multi_objective(study)
        free = {n: p for n, d in search_space.items() if (p := self._shared(n, d)) is not None}
        values: dict[str, Any] = self._propose(study, trial, free, {}) if free else {}
        for name, distribution in search_space.items():
            if name not in values:
                values[name] = self._independent(study, trial, name, distribution)
        return values

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a value of one parameter.

        Before the first finished trial nobody knows the study's parameters. A shared parameter is
        then chosen by the model, given the parameters that the trial has already.
        """
        self._raise_error_if_multi_objective(study)
        parameter = self._shared(param_name, param_distribution)
        if parameter is None or _trials(study, SHOWN):
            return self._independent(study, trial, param_name, param_distribution)
        known = {n: v for n, v in trial.params.items() if self._is_value(n, v)}
        whole = self._known.space.parameters
        free = {n: p for n, p in whole.items() if n not in known} | {param_name: parameter}
        return self._propose(study, trial, free, known)[param_name]

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Let the independent sampler prepare for a trial."""
        self._independent_sampler.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Let the independent sampler take in the end of a trial."""
        self._independent_sampler.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Reseed the independent sampler; the own draws depend on the number of the trial."""
        self._independent_sampler.reseed_rng()

    # -- what is shared ----------------------------------------------------------------------

    def _shared(self, name: str, distribution: BaseDistribution) -> Parameter | None:
        """Return the study's parameter if it is shared with the run."""
        whole = self._known.space.parameters.get(name)
        if whole is None or distribution.single():
            return None
        if distribution == distribution_of(whole):
            return whole
        parameter = parameter_of(distribution)
        return parameter if parameter is not None and is_part(parameter, whole) else None

    def _is_value(self, name: str, value: Any) -> bool:
        """Return whether a value is one of the run's parameter of this name."""
        whole = self._known.space.parameters.get(name)
        return whole is not None and has_value(whole, value)

    def _independent(
        self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        whole = self._known.space.parameters.get(name)
        unshared = whole is not None and self._shared(name, distribution) is None
        if self._warn and unshared and name not in self._warned:
            self._warned.add(name)
            get_logger(LOGGER).warning(
                f"`{name}` is sampled by {self._independent_sampler}, and not by FederatedSampler: "
                f"its values must be among those of the run, {distribution_of(whole)}, "  # type: ignore[arg-type]
                f"but got {distribution}"
            )
        return self._independent_sampler.sample_independent(study, trial, name, distribution)

    # -- the model ---------------------------------------------------------------------------

    def _propose(
        self,
        study: Study,
        trial: FrozenTrial,
        free: Mapping[str, Parameter],
        known: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return values of the free parameters, given those that the trial has."""
        running = [t for t in _trials(study, (TrialState.RUNNING,)) if t.number != trial.number]
        pending = [u for t in running if (u := self._unit(t.params)) is not None]
        part = SubSpace(self._known.space, free, self._filled(known))
        with self._lock:  # a study with n_jobs > 1 asks from several threads
            model = self._updated(study)
            unit = model.ask(trial.number, pending=pending, part=part).unit
        return part.own.from_unit(part.restrict(unit[None, :])[0])

    def _updated(self, study: Study) -> ThompsonSampler:
        """Return the model with all trials that have ended."""
        ended = (*SHOWN, TrialState.FAIL)
        told = [t for trial in _trials(study, ended) if (t := self._seen(study, trial)) is not None]
        scores = [score for _, score in told if score is not None]
        shared = self._known.shared
        if not _within(scores, self._known):
            shared = replace(shared, scale=None)  # the run's scale is of other scores
        count = len(self._told)
        if self._model is None or told[:count] != self._told:
            self._model, count = self._known.sampler((self._seed, STREAM)), 0
        for unit, score in told[count:]:
            self._model.tell(np.array(unit), score)
        self._model.set_shared_function(shared)
        self._told = told
        return self._model

    def _seen(self, study: Study, trial: FrozenTrial) -> Told | None:
        """Return the point and the score of a trial; None where it shows nothing."""
        unit = self._unit(trial.params)
        if unit is None:
            return None
        if trial.state == TrialState.FAIL:
            return tuple(unit.tolist()), None
        value = trial.value
        if value is None:  # pruned before it reported anything
            return None
        if self._score is not None:
            score = self._score(value)
        else:
            score = -value if study.direction == StudyDirection.MINIMIZE else value
        return tuple(unit.tolist()), score if math.isfinite(score) else None

    def _unit(self, params: Mapping[str, Any]) -> Array | None:
        """Return the point (D,) of a trial's parameters.

        None where no parameter is the run's, or where a value is not among those of the run.
        """
        mine = {n: v for n, v in params.items() if n in self._known.space.parameters}
        if not mine or not all(self._is_value(name, value) for name, value in mine.items()):
            return None
        return self._filled(mine)

    def _filled(self, known: Mapping[str, Any]) -> Array:
        """Return the point (D,) of known values, and of the released maximum for all others."""
        unit = self._top.copy()
        for i, (name, parameter) in enumerate(self._known.space.parameters.items()):
            if name in known:
                unit[i] = parameter.to_unit(known[name])
        return unit

    @cached_property
    def _top(self) -> Array:
        """Return where the released function is largest: (D,)."""
        shared = self._known.shared
        rng = np.random.default_rng([self._seed, STREAM])
        return argmax(shared.path(self._known.features), self._known.space, rng, shared.regions)


def _trials(study: Study, states: Sequence[TrialState]) -> list[FrozenTrial]:
    """Return the study's trials in these states, by number."""
    return study.get_trials(deepcopy=False, states=tuple(states))


def _within(scores: Sequence[float], known: SharedKnowledge) -> bool:
    """Return whether all scores lie in the run's range of scores."""
    low, high = known.settings.reward_low, known.settings.reward_high
    return low is None or high is None or all(low <= score <= high for score in scores)
