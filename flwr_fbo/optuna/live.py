"""An Optuna objective as a task: a party's own study takes part in a federation.

Each evaluation is a trial in the party's own storage. The parameters of the federation's space are
the agent's choice. All other parameters that the objective suggests are chosen by an independent
sampler of the party, and stay with the party, as everything in the storage does. ``trial.report``
and ``trial.should_prune`` work as in any study.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from flwr_fbo.core.reports import report, stop_here
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.optuna.distributions import distribution_of, space_of
from flwr_fbo.optuna.storages import opened
from flwr_fbo.tasks.task import FunctionTask, Params, Partition

Objective = Callable[[Trial], float]
#: What a study does with its values.
Direction = Literal["maximize", "minimize"]
#: A storage, its address, or a function that returns either for a partition.
StorageOf = str | BaseStorage | Callable[[Partition], "str | BaseStorage"]


def task(
    objective: Objective,
    space: Space | Mapping[str, Any],
    *,
    storage: StorageOf | None = None,
    study_name: str = "",
    direction: Direction = "maximize",
    pruner: BasePruner | None = None,
    metric: str = "score",
    score_range: tuple[float, float] | None = None,
    warm_start: Any = (),
) -> OptunaTask:
    """Return a task whose evaluations are trials of a study in the party's own storage.

    Parameters
    ----------
    objective : callable
        Takes an ``optuna.Trial`` and returns a value, as for ``study.optimize``.
    space : Space or mapping
        The search space of the federation: parameters of this package, or Optuna's distributions,
        by name. The objective may suggest more parameters, which stay the party's own affair.
    storage : str, BaseStorage or callable, optional
        The party's storage. ``{agent}`` in an address stands for the number of the agent, such as
        ``sqlite:///party-{agent}.db``. A function is called with the
        :class:`~flwr_fbo.Partition`. Where unset, trials are kept in memory only, and a pruner
        knows only the trials of this process: with ``parallel`` none, as each evaluation is a
        process of its own.
    study_name : str
        The name of the study; the name of the objective and the number of the agent where unset.
    direction : {'maximize', 'minimize'}
        ``maximize`` or ``minimize``. The score of a task is always maximised, so a study that
        minimises has minus its value as the score.
    pruner : BasePruner, optional
        The pruner of the study; where unset, Optuna's default, the median pruner.
    metric : str
        What the value measures, for people.
    score_range : tuple of float, optional
        Lowest and highest possible *value*; Fed-PNE and local privacy need this range.
    warm_start : list, optuna.Study or callable, optional
        What a party knows already, with *scores*: minus the value in a study that minimises. A
        study's own direction counts. A function is called with the partition.

    Examples
    --------
    >>> import optuna
    >>> from flwr_fbo import Float, simulate
    >>> def objective(trial):
    ...     rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
    ...     kind = trial.suggest_categorical("kind", ["plain", "fancy"])  # the party's own affair
    ...     return (rate - 0.1) ** 2 + (kind == "plain")
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> space = {"rate": Float(1e-4, 1.0, log=True)}
    >>> tuned = task(objective, space, direction="minimize")
    >>> result = simulate(tuned, agents=3, rounds=4, run_dir=getfixture("tmp_path") / "run")
    >>> result.complete
    True
    """
    return OptunaTask(
        objective,
        space,
        storage,
        study_name,
        direction,
        pruner,
        metric,
        score_range,
        warm_start,
    )


class OptunaTask(FunctionTask):
    """A task whose evaluations are trials of a study; :func:`task` makes such tasks."""

    def __init__(
        self,
        objective: Objective,
        space: Space | Mapping[str, Any],
        storage: StorageOf | None = None,
        study_name: str = "",
        direction: Direction = "maximize",
        pruner: BasePruner | None = None,
        metric: str = "score",
        score_range: tuple[float, float] | None = None,
        warm_start: Any = (),
    ) -> None:
        if direction not in ("maximize", "minimize"):
            raise SettingsError(f"`direction` must be maximize or minimize, but got {direction!r}")
        self._minimises = direction == "minimize"
        if self._minimises and score_range is not None:
            score_range = (-score_range[1], -score_range[0])
        super().__init__(_never_called, space_of(space), metric, None, score_range, warm_start)
        self._objective, self._storage, self._study_name = objective, storage, study_name
        self._direction, self._pruner = direction, pruner
        self._store: BaseStorage | None = None
        self._fixed = {n: distribution_of(p) for n, p in self.space.parameters.items()}

    @property
    def name(self) -> str:
        """Return the name of the objective."""
        return str(getattr(self._objective, "__name__", type(self._objective).__name__))

    @property
    def import_path(self) -> str:
        """Return ``module:attribute`` of this task, or of its objective where it has no name."""
        module = str(getattr(self._objective, "__module__", type(self._objective).__module__))
        for name, value in vars(sys.modules.get(module, sys)).items():
            if value is self:
                return f"{module}:{name}"
        return f"{module}:{self.name}"

    def prepare(self, partition: Partition) -> None:
        """Open the storage of one agent, and make its study if there is none."""
        self._partition = partition
        self._name = self._study_name or f"{self.name}-agent-{partition.index:04d}"
        self._store = self._opened(partition)
        study = optuna.create_study(
            study_name=self._name,
            storage=self._store,
            direction=self._direction,
            load_if_exists=True,
        )
        if study.direction.name.lower() != self._direction:
            raise SettingsError(
                f"`direction` must be that of the study {self._name!r}, which is to "
                f"{study.direction.name.lower()}, but got {self._direction!r}"
            )

    def _opened(self, partition: Partition) -> BaseStorage:
        """Return the storage of one agent, opened in this process."""
        self._process = os.getpid()
        storage = self._storage(partition) if callable(self._storage) else self._storage
        if isinstance(storage, str):
            storage = storage.replace("{agent}", f"{partition.index:04d}")
        return InMemoryStorage() if storage is None else opened(storage)

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """Make one trial with these parameter values, and return its score.

        In a run, the score of a pruned trial is the last value that the trial reported.
        """
        if self._store is None:
            self.prepare(Partition(0, 1))
        elif os.getpid() != self._process and self._storage is not None:
            # A child process (`parallel`) must not use the connections of its parent.
            self._store = self._opened(self._partition)
        seed = int(rng.integers(2**31))
        study = optuna.load_study(
            study_name=self._name,
            storage=self._store,  # type: ignore[arg-type]
            sampler=_GivenPoint(params, self._fixed, TPESampler(seed=seed)),
            pruner=self._pruner,
        )
        trial = study.ask()
        try:
            value: Any = self._objective(trial)
        except optuna.TrialPruned:
            ended = study.tell(trial, state=TrialState.PRUNED)
            if ended.value is None:
                raise ValueError("the trial was pruned before it reported a value") from None
            self._pass_on(ended)
            stop_here()
            value = ended.value  # outside a run
        except BaseException:
            study.tell(trial, state=TrialState.FAIL)
            raise
        else:
            # As in `study.optimize`: a value that is no number makes the trial a failure.
            self._pass_on(study.tell(trial, value, skip_if_finished=True))
        score = float(value)
        return -score if self._minimises else score

    def _pass_on(self, ended: FrozenTrial) -> None:
        """Report what a trial reported, as scores; the study's own pruner has decided already."""
        sign = -1.0 if self._minimises else 1.0
        for step, value in sorted(ended.intermediate_values.items()):
            if math.isfinite(value):
                report(step, sign * value, may_stop=False)


class _GivenPoint(BaseSampler):
    """A sampler that returns given values, and asks another sampler for all other parameters."""

    def __init__(
        self, params: Params, fixed: Mapping[str, BaseDistribution], other: BaseSampler
    ) -> None:
        self._params, self._fixed, self._other = dict(params), dict(fixed), other

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._fixed

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._params

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        if param_name in self._params:
            raise ValueError(
                f"the values of `{param_name}` in the objective must include those of the task's "
                f"space, but {self._params[param_name]!r} is not in {param_distribution}"
            )
        return self._other.sample_independent(study, trial, param_name, param_distribution)


def _never_called(params: Params) -> float:
    """Raise RuntimeError: the task makes a trial of the objective in its own `evaluate`."""
    raise RuntimeError("an Optuna task must evaluate its objective by a trial of its study")
