"""An Optuna objective as a task, in a federation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import TrialState

import flwr_fbo.optuna
from flwr_fbo import Float, Int, Partition, Result, simulate
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import SpaceError
from flwr_fbo.optuna.storages import WAIT, opened
from flwr_fbo.tasks import load, name_of

SPACE: dict[str, Any] = {
    "rate": FloatDistribution(1e-4, 1.0, log=True),
    "depth": IntDistribution(1, 12),
}


def objective(trial: optuna.Trial) -> float:
    """Depth above 10 fails; depth below 3 is pruned; alpha is the party's own affair."""
    rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
    depth = trial.suggest_int("depth", 1, 12)
    alpha = trial.suggest_float("alpha", 0.0, 1.0) if depth > 5 else 0.0
    if depth > 10:
        raise MemoryError("too deep")
    trial.report(0.25, 1)
    if depth < 3:
        raise optuna.TrialPruned
    return 0.9 - (rate - 0.1) ** 2 - 0.01 * abs(depth - 6) - 0.01 * alpha


tuned = flwr_fbo.optuna.task(objective, SPACE, storage="sqlite:///{agent}.db")


def test_every_evaluation_is_a_trial_in_the_partys_own_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = simulate(
        tuned, agents=3, rounds=8, initial_points=4, strategy="random", run_dir="run", seed=2
    )
    rows = result.to_records()
    assert len(rows) == 3 * 12
    states = set()
    for agent in range(3):
        mine = [row for row in rows if row["agent"] == agent]
        study = optuna.load_study(
            study_name=f"objective-agent-{agent:04d}", storage=f"sqlite:///{agent:04d}.db"
        )
        assert len(study.trials) == len(mine)
        for row, trial in zip(mine, study.trials, strict=True):
            states.add(trial.state)
            assert trial.params["rate"] == pytest.approx(row["params_rate"], rel=1e-12)
            assert trial.params["depth"] == row["params_depth"]
            assert ("alpha" in trial.params) == (row["params_depth"] > 5)
            assert row["score"] == trial.value  # of a pruned trial: what it reported last
            assert bool(row["failure"]) == (trial.state == TrialState.FAIL)
    assert states == {TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL}
    assert "alpha" not in str(Result.read("run").to_dict())  # nothing of it leaves the party


def test_a_federation_tunes_a_study_that_minimises() -> None:
    task = flwr_fbo.optuna.task(
        lambda trial: trial.suggest_float("x", 0.0, 1.0) ** 2,
        {"x": Float(0.0, 1.0)},
        direction="minimize",
        score_range=(0.0, 4.0),
    )
    assert task.score_range == (-4.0, 0.0)
    task.prepare(Partition(0, 2))
    assert task.evaluate({"x": 0.5}, rng=np.random.default_rng(0)) == -0.25


def test_the_pruner_of_the_study_sees_earlier_trials() -> None:
    values = iter([0.9, 0.8, 0.1])

    def reports(trial: optuna.Trial) -> float:
        value = next(values) + 0.0 * trial.suggest_float("x", 0.0, 1.0)
        trial.report(value, 1)
        if trial.should_prune():
            raise optuna.TrialPruned
        return value + 1.0

    pruner = optuna.pruners.MedianPruner(n_startup_trials=2)
    task = flwr_fbo.optuna.task(reports, {"x": Float(0.0, 1.0)}, pruner=pruner)
    task.prepare(Partition(0, 1))
    rng = np.random.default_rng(0)
    assert [task.evaluate({"x": 0.1}, rng=rng) for _ in range(3)] == [1.9, 1.8, 0.1]


def test_an_objective_with_other_ranges_than_the_space_is_a_failure_that_says_so() -> None:
    task = flwr_fbo.optuna.task(
        lambda trial: trial.suggest_float("x", 0.0, 0.5), {"x": Float(0.0, 1.0)}
    )
    task.prepare(Partition(0, 1))
    with pytest.raises(ValueError, match=r"must include those of the task's space, but 0.9 is not"):
        task.evaluate({"x": 0.9}, rng=np.random.default_rng(0))


def test_mistakes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="`direction` must be maximize or minimize"):
        flwr_fbo.optuna.task(objective, SPACE, direction="up")  # type: ignore[arg-type]
    with pytest.raises(SpaceError, match="without a step for floats"):
        flwr_fbo.optuna.task(objective, {"x": FloatDistribution(0.0, 1.0, step=0.5)})
    storage = f"sqlite:///{tmp_path}/s.db"
    optuna.create_study(study_name="objective-agent-0000", storage=storage, direction="minimize")
    task = flwr_fbo.optuna.task(objective, SPACE, storage=storage)
    with pytest.raises(SettingsError, match="must be that of the study 'objective-agent-0000'"):
        task.prepare(Partition(0, 1))


def test_the_task_is_found_by_the_name_of_its_variable() -> None:
    assert name_of(tuned) == "tests.optuna.test_live:tuned"
    assert load(name_of(tuned)) is tuned


def test_nothing_else_in_the_package_loads_optuna() -> None:
    code = (
        "import sys, flwr_fbo\n"
        "for name in dir(flwr_fbo): getattr(flwr_fbo, name)\n"
        "import flwr_fbo.cli.main\n"
        "assert 'optuna' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_without_optuna_the_extra_is_named() -> None:
    code = "import sys\nsys.modules['optuna'] = None\nimport flwr_fbo.optuna"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "pip install 'flwr-fbo[optuna]'" in done.stderr


def test_integers_keep_their_kind() -> None:
    task = flwr_fbo.optuna.task(
        objective, {"rate": Float(1e-4, 1.0, log=True), "depth": Int(1, 12)}
    )
    task.prepare(Partition(0, 1))
    assert task.evaluate({"rate": 0.1, "depth": 4}, rng=np.random.default_rng(0)) == pytest.approx(
        0.88
    )


def test_writers_of_one_file_wait_for_one_another(tmp_path: Path) -> None:
    """With Python's five seconds a trial failed where many processes shared two processors."""
    store = opened(f"sqlite:///{tmp_path}/party.db")
    with store._backend.engine.connect() as connection:  # type: ignore[attr-defined]
        waits = connection.exec_driver_sql("PRAGMA busy_timeout").scalar()
    assert waits == 1000 * WAIT >= 60_000
    store.remove_session()


@pytest.mark.skipif(sys.platform == "win32", reason="processes must fork")
def test_evaluations_at_once_are_trials_of_one_storage(tmp_path: Path) -> None:
    """Each is a process of its own, with a connection of its own."""

    def plain(trial: optuna.Trial) -> float:
        return trial.suggest_float("rate", 1e-4, 1.0, log=True) ** 2

    tuned = flwr_fbo.optuna.task(
        plain, {"rate": Float(1e-4, 1.0, log=True)}, direction="minimize",
        storage=f"sqlite:///{tmp_path}/party-{{agent}}.db", study_name="mine",
    )  # fmt: skip
    result = simulate(
        tuned, agents=2, rounds=3, initial_points=3, parallel=3, strategy="local-ts",
        run_dir=tmp_path / "run",
    )  # fmt: skip
    assert result.failures == 0
    for agent in (0, 1):
        study = optuna.load_study(
            study_name="mine", storage=f"sqlite:///{tmp_path}/party-{agent:04d}.db"
        )
        assert len(study.get_trials(states=[TrialState.COMPLETE])) == 12
        assert study.best_value == -result.agents_best[agent]["best"]


def test_the_function_behind_an_optuna_task_is_never_called() -> None:
    with pytest.raises(RuntimeError, match="must evaluate its objective by a trial of its study"):
        tuned._function({})
