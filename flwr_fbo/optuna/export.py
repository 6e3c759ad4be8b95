"""Write the evaluations of a run to Optuna's storage: one study for each agent.

Dashboards, plots and analyses that people have for Optuna then work on a run of this package. A
run that went on is exported again into the same studies: only new evaluations are added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.optuna.distributions import distribution_of
from flwr_fbo.optuna.storages import opened, without_password
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.history import histories_in

#: The attribute of a trial that holds the round and the play of its evaluation.
ORIGIN = "flwr-fbo: round and play"


@dataclass(frozen=True)
class ExportedStudy:
    """A study that was written: its name, and how many trials it has and how many are new."""

    name: str
    trials: int
    added: int


def export_run(
    run_dir: str | Path,
    storage: str | BaseStorage,
    *,
    name: str | None = None,
    space: Space | None = None,
    progress: Callable[[ExportedStudy], None] | None = None,
) -> list[ExportedStudy]:
    """Write each agent's evaluations as a study, and return the studies.

    Parameters
    ----------
    run_dir : Path or str
        The directory of a run, whose folder ``agents`` holds the journals. On the machine of a
        party this is the folder of the run below ``FLWR_FBO_HOME/runs``.
    storage : str or BaseStorage
        Optuna's storage, such as ``sqlite:///study.db``.
    name : str, optional
        The beginning of the studies' names; the name of the directory where unset.
    space : Space, optional
        The search space, where the directory has no ``space.json``: a party's has none.
    progress : callable, optional
        Called with each study after it was written.

    Examples
    --------
    >>> import tempfile
    >>> import optuna
    >>> from flwr_fbo import Float, simulate, task
    >>> @task(space={"x": Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> folder = tempfile.mkdtemp()
    >>> result = simulate(
    ...     hill, agents=2, strategy="random", rounds=3, initial_points=2, run_dir=folder + "/run"
    ... )
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> [study.name for study in export_run(folder + "/run", f"sqlite:///{folder}/study.db")]
    ['run-agent-0000', 'run-agent-0001']
    >>> study = optuna.load_study(study_name="run-agent-0001", storage=f"sqlite:///{folder}/study.db")
    >>> len(study.trials)
    5
    """
    directory = RunDirectory(run_dir)
    journals = histories_in(directory.agents)
    if not journals:
        raise SettingsError(
            "`RUN` must have a folder `agents` with journals, as a simulation has, and as each "
            f"party has on its own machine, but {directory.root} has none"
        )
    distributions = _distributions(directory, space)
    store = _opened(storage)
    written = []
    for agent, history in journals.items():
        study_name = f"{name or directory.root.absolute().name}-{agent}"
        written.append(_export_agent(store, study_name, history, distributions))
        if progress is not None:
            progress(written[-1])
    return written


def _opened(storage: str | BaseStorage) -> BaseStorage:
    """Return the storage, or raise SettingsError with the reason why it cannot be opened."""
    try:
        return opened(storage)
    except (StorageInternalError, SQLAlchemyError, ImportError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise SettingsError(
            "`storage` must be one that Optuna can open, such as sqlite:///study.db, but got "
            f"{without_password(str(storage))!r}: {without_password(reason)}"
        ) from error


def _distributions(directory: RunDirectory, space: Space | None) -> dict[str, BaseDistribution]:
    """Return the distribution of each parameter of a run."""
    if space is None:
        if not (directory.root / "space.json").exists():
            raise SettingsError(
                f"{directory.root} has no space.json, which the server of a run writes: give the "
                "task of the run, such as --task mine:tuned"
            )
        space = Space.from_dict(directory.read_json("space.json"))
    return {name: distribution_of(p) for name, p in space.parameters.items()}


def _export_agent(
    storage: BaseStorage,
    name: str,
    history: list[Evaluation],
    distributions: dict[str, BaseDistribution],
) -> ExportedStudy:
    """Write the evaluations that the study of an agent does not have yet."""
    study = optuna.create_study(
        study_name=name, storage=storage, direction="maximize", load_if_exists=True
    )
    known = {tuple(t.user_attrs.get(ORIGIN, ())) for t in study.get_trials(deepcopy=False)}
    new = [e for e in history if (e.round, e.play) not in known]
    study.add_trials([_trial(evaluation, distributions) for evaluation in new])
    return ExportedStudy(name, len(known) + len(new), len(new))


def _trial(evaluation: Evaluation, distributions: dict[str, BaseDistribution]) -> FrozenTrial:
    """Return the trial of an evaluation."""
    attributes: dict[str, Any] = {
        ORIGIN: [evaluation.round, evaluation.play],
        "source": evaluation.source,
        "seconds": evaluation.seconds,
    }
    if evaluation.failed:
        attributes["failure"] = evaluation.failure
    state = TrialState.PRUNED if evaluation.pruned else TrialState.COMPLETE
    return create_trial(
        params=evaluation.params,
        distributions=distributions,
        value=evaluation.score,
        state=TrialState.FAIL if evaluation.failed else state,
        intermediate_values={int(step): score for step, score in evaluation.reports},
        user_attrs=attributes,
    )
