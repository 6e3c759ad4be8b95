"""A study that starts from the releases of a finished run."""

from __future__ import annotations

import logging
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from flwr_fbo import LocalTS, simulate
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.optuna import FederatedSampler
from tests.optuna.conftest import height, hill

BEST = 0.9


def suggest(trial: optuna.Trial) -> dict[str, Any]:
    return {
        "rate": trial.suggest_float("rate", 1e-4, 1.0, log=True),
        "depth": trial.suggest_int("depth", 1, 12),
        "kind": trial.suggest_categorical("kind", ["a", "b", "c"]),
    }


def objective(trial: optuna.Trial) -> float:
    return height(suggest(trial))


def study_of(past: Path, direction: Any = "maximize", **options: Any) -> optuna.Study:
    sampler = FederatedSampler(past, **{"seed": 1, **options})
    return optuna.create_study(direction=direction, sampler=sampler)


def test_the_first_trial_is_where_the_run_found_the_top(past: Path) -> None:
    firsts = []
    for seed in range(5):
        study = study_of(past, seed=seed)
        study.optimize(objective, 1)
        firsts.append(study.best_value)
    # A random point's height is 0.44 on average, with a spread of 0.26.
    assert min(firsts) > 0.8
    assert study.best_params["kind"] == "b"


def test_five_trials_find_the_top(past: Path) -> None:
    study = study_of(past)
    study.optimize(objective, 6)
    assert study.best_value > BEST - 0.01


def test_the_model_corrects_the_run_where_the_party_differs(past: Path) -> None:
    study = study_of(past)

    def otherwise(trial: optuna.Trial) -> float:
        params = suggest(trial)
        return -abs(params["depth"] - 2) - 5.0 * (params["kind"] != "c")

    study.optimize(otherwise, 20)
    assert study.best_params["kind"] == "c"
    assert abs(study.best_params["depth"] - 2) <= 1


def test_a_study_that_minimises_has_minus_its_value_as_the_score(past: Path) -> None:
    up, down = study_of(past), study_of(past, "minimize")
    up.optimize(objective, 4)
    down.optimize(lambda trial: -objective(trial), 4)
    assert [t.params for t in up.trials] == [t.params for t in down.trials]


def test_a_score_function_makes_scores_of_values(past: Path) -> None:
    up = study_of(past)
    percent = study_of(past, "minimize", score=lambda value: 1.0 - value / 100.0)
    up.optimize(objective, 4)
    percent.optimize(lambda trial: 100.0 * (1.0 - objective(trial)), 4)
    for mine, theirs in zip(up.trials, percent.trials, strict=True):
        assert mine.params["depth"] == theirs.params["depth"]
        assert mine.params["rate"] == pytest.approx(theirs.params["rate"], rel=1e-3)


def test_the_runs_scale_is_used_for_scores_in_its_range_only(past: Path) -> None:
    def first_scale(factor: float) -> Any:
        study = study_of(past)
        study.optimize(lambda trial: factor * objective(trial), 1)
        study.ask().suggest_int("depth", 1, 12)
        model = study.sampler._model  # type: ignore[attr-defined]
        return model.own_model.shared_function.scale

    assert first_scale(1.0) is not None
    assert first_scale(100.0) is None


def test_the_same_seed_gives_the_same_trials_and_another_seed_others(past: Path) -> None:
    trials = []
    for seed in (5, 5, 6):
        study = study_of(past, seed=seed)
        study.optimize(lambda trial: objective(trial) + 0.1 * trial.number % 0.3, 5)
        trials.append([t.params for t in study.trials])
    assert trials[0] == trials[1]
    assert trials[0] != trials[2]


def test_a_study_that_is_continued_goes_on_as_if_it_had_not_stopped(past: Path) -> None:
    whole, halves = study_of(past), study_of(past)
    whole.optimize(objective, 8)
    halves.optimize(objective, 4)
    halves.sampler = FederatedSampler(past, seed=1)
    halves.optimize(objective, 4)
    assert [t.params for t in whole.trials] == [t.params for t in halves.trials]


def test_a_pickled_sampler_goes_on(past: Path) -> None:
    whole, halves = study_of(past), study_of(past)
    whole.optimize(objective, 6)
    halves.optimize(objective, 3)
    halves.sampler = pickle.loads(pickle.dumps(halves.sampler))
    halves.optimize(objective, 3)
    assert [t.params for t in whole.trials] == [t.params for t in halves.trials]


# -- which parameters are shared ---------------------------------------------------------------


def test_a_narrower_range_is_shared_and_kept(past: Path) -> None:
    study = study_of(past)

    def narrow(trial: optuna.Trial) -> float:
        return height(
            {
                "rate": trial.suggest_float("rate", 1e-3, 3e-2, log=True),
                "depth": trial.suggest_int("depth", 2, 4, step=2),
                "kind": trial.suggest_categorical("kind", ["c", "b"]),
            }
        )

    study.optimize(narrow, 6)
    assert all(1e-3 <= t.params["rate"] <= 3e-2 for t in study.trials)
    assert {t.params["depth"] for t in study.trials} <= {2, 4}
    assert study.best_params["kind"] == "b"
    assert study.best_params["depth"] == 4
    assert study.best_params["rate"] > 1e-2  # the top, 0.1, lies beyond the upper end


class Counting(optuna.samplers.RandomSampler):
    """An independent sampler that remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.asked: list[str] = []

    def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
        self.asked.append(name)
        return super().sample_independent(study, trial, name, distribution)


@pytest.mark.parametrize(
    ("name", "suggest_it"),
    [
        ("rate", lambda t: t.suggest_float("rate", 1e-6, 1.0, log=True)),  # wider
        ("rate", lambda t: t.suggest_float("rate", 1e-4, 1.0)),  # another scale
        ("rate", lambda t: t.suggest_float("rate", 0.1, 0.9, step=0.1)),
        ("depth", lambda t: t.suggest_float("depth", 1.0, 12.0)),
        ("kind", lambda t: t.suggest_categorical("kind", ["a", "b", "z"])),
        ("more", lambda t: t.suggest_float("more", 0.0, 1.0)),
    ],
)
def test_everything_else_is_sampled_independently(past: Path, name: str, suggest_it: Any) -> None:
    other = Counting()
    study = study_of(past, independent_sampler=other)

    def mixed(trial: optuna.Trial) -> float:
        suggest_it(trial)
        if name != "depth":
            trial.suggest_int("depth", 1, 12)
        return float(trial.number)

    logger, said = logging.getLogger("optuna.flwr_fbo"), list[logging.LogRecord]()
    logger.addFilter(lambda record: said.append(record) or True)
    study.optimize(mixed, 4)
    logger.filters.clear()
    assert other.asked == [name] * 4
    # Once for a parameter that the run has, and never for one that it does not know.
    assert len(said) == (name != "more")
    assert all(f"`{name}` is sampled by Counting" in r.getMessage() for r in said)


def test_parameters_of_the_run_that_a_study_lacks_stay_at_the_released_top(past: Path) -> None:
    study = study_of(past)
    study.optimize(
        lambda t: height({"rate": 0.1, "kind": "b", "depth": t.suggest_int("depth", 1, 12)}), 4
    )
    assert abs(study.trials[0].params["depth"] - 6) <= 2
    assert study.best_params["depth"] == 6


def conditional(trial: optuna.Trial) -> float:
    kind = trial.suggest_categorical("kind", ["a", "b", "c"])
    depth = trial.suggest_int("depth", 1, 12)
    rate = trial.suggest_float("rate", 1e-4, 1.0, log=True) if kind == "b" else 1.0
    alpha = trial.suggest_float("alpha", 0.0, 1.0) if kind != "b" else 0.0
    score = height({"rate": rate, "depth": depth, "kind": kind}) - alpha
    for step in range(1, 4):
        trial.report(score * step / 3, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return score


def test_conditional_parameters_pruning_and_three_workers_on_one_storage(
    past: Path, tmp_path: Path
) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    optuna.create_study(
        study_name="s", storage=storage, direction="maximize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
    )  # fmt: skip
    errors = []

    def work(seed: int) -> None:
        try:
            study = optuna.load_study(
                study_name="s", storage=storage, sampler=FederatedSampler(past, seed=seed),
                pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
            )  # fmt: skip
            study.optimize(conditional, 8, catch=())
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    study = optuna.load_study(study_name="s", storage=storage)
    states = [t.state for t in study.trials]
    assert len(states) == 24
    assert set(states) <= {TrialState.COMPLETE, TrialState.PRUNED}
    assert TrialState.PRUNED in states
    assert study.best_value > 0.8


# -- what trials teach -------------------------------------------------------------------------


DISTRIBUTIONS = {
    "rate": FloatDistribution(1e-4, 1.0, log=True),
    "depth": IntDistribution(1, 12),
    "kind": CategoricalDistribution(["a", "b", "c"]),
}


def told_by(past: Path, **trial: Any) -> list[Any]:
    """What the model is told of one trial of a study."""
    study = study_of(past)
    params = trial.pop("params", {"rate": 0.01, "depth": 3, "kind": "a"})
    some = {name: DISTRIBUTIONS.get(name, FloatDistribution(0.0, 9.0)) for name in params}
    study.add_trial(create_trial(params=params, distributions=some, **trial))
    return [score for _, score in study.sampler._updated(study) and study.sampler._told]  # type: ignore[attr-defined]


def test_finished_pruned_and_failed_trials_teach_what_they_showed(past: Path) -> None:
    assert told_by(past, value=0.5) == [0.5]
    pruned = told_by(past, state=TrialState.PRUNED, intermediate_values={1: 0.1, 2: 0.2}, value=0.2)
    assert pruned == [0.2]
    assert told_by(past, state=TrialState.PRUNED) == []  # it showed nothing
    assert told_by(past, state=TrialState.FAIL) == [None]
    assert told_by(past, value=float("inf")) == [None]
    assert told_by(past, state=TrialState.RUNNING) == []
    assert told_by(past, value=0.5, params={"other": 1.0}) == []
    assert told_by(past, value=0.5, params={"depth": 3}) == [0.5]


def test_a_point_that_failed_is_not_proposed_again(past: Path) -> None:
    study = study_of(past)
    first = study.ask(DISTRIBUTIONS)
    study.tell(first, state=TrialState.FAIL)
    study.sampler = FederatedSampler(past, seed=1)
    again = optuna.create_study(direction="maximize", sampler=study.sampler).ask(DISTRIBUTIONS)
    assert again.params == first.params  # the same draw in a study that saw no failure
    second = study.ask(DISTRIBUTIONS)
    assert second.params != first.params


def test_running_trials_keep_others_away(past: Path) -> None:
    study = study_of(past)
    trials = [study.ask(DISTRIBUTIONS) for _ in range(4)]
    units = np.array([study.sampler._unit(t.params) for t in trials])  # type: ignore[attr-defined]
    gaps = [np.abs(units[i] - units[j]).max() for i in range(4) for j in range(i)]
    assert min(gaps) > 0.02
    # Without the running ones, all would be at the released top.
    alone = []
    for _ in range(2):
        study = study_of(past)
        alone.append(study.ask(DISTRIBUTIONS).params)
    assert alone[0] == alone[1]


# -- sources -----------------------------------------------------------------------------------


def test_a_single_release_is_a_source_too(past: Path) -> None:
    early = FederatedSampler(past / "releases" / "round-0000.npz", seed=1)
    late = FederatedSampler(past, seed=1)
    assert not np.array_equal(early._known.shared.weights, late._known.shared.weights)
    study = optuna.create_study(direction="maximize", sampler=early)
    study.optimize(objective, 3)
    assert len(study.trials) == 3


def test_a_wrong_source_is_refused(past: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a release must be a file such as"):
        FederatedSampler(past / "releases" / "features.npz")
    simulate(hill, agents=2, rounds=2, strategy=LocalTS(), run_dir=tmp_path / "r")
    with pytest.raises(SettingsError, match="must be of a run of dp-fts-de"):
        FederatedSampler(tmp_path / "r")
