"""A late party tunes with what eight other parties learned before."""

import tempfile
from pathlib import Path

import optuna
import optunahub

from flwr_fbo import DPFTSDE, Float, Int, simulate, task


def score(rate: float, depth: int, top: float) -> float:
    return 0.9 - (rate - top) ** 2 - 0.01 * (depth - 6) ** 2


@task(
    space={"rate": Float(1e-4, 1.0, log=True), "depth": Int(1, 12)},
    score_range=(0.0, 1.0),
    prepare=lambda partition: 0.2 + 0.01 * partition.index,
)
def tuned(params, data):
    return score(params["rate"], params["depth"], data)


def objective(trial: optuna.Trial) -> float:
    rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
    depth = trial.suggest_int("depth", 1, 12)
    kind = trial.suggest_categorical("kind", ["plain", "fancy"])  # not shared: sampled by TPE
    return score(rate, depth, top=0.25) - 0.05 * (kind == "plain")


if __name__ == "__main__":
    run = Path(tempfile.mkdtemp()) / "run"
    simulate(tuned, agents=8, rounds=6, strategy=DPFTSDE(epsilon=8.0), run_dir=run)
    module = optunahub.load_module("samplers/federated")
    study = optuna.create_study(direction="maximize", sampler=module.FederatedSampler(run, seed=1))
    study.optimize(objective, n_trials=10)
    print(study.best_value, study.best_params)
