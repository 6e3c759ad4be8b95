"""What the releases of a run are worth to a party that comes later and uses Optuna.

python -m benchmarks.late_joiner run lcbench --epsilon 8 2 --seeds 0 10
python -m benchmarks.late_joiner page          docs/how-to/optuna.md from the saved runs

Parties are data sets of YAHPO's surrogates of real tuning runs (`yahpo` in FLWR_FBO_DATA; needs
onnxruntime). In each run, all but four of 34 parties (lcbench) or of 60 (rbv2_rpart) tune together
with the defaults of dp-fts-de. Each of the four that were left out then makes ten trials in an
Optuna study with `FederatedSampler`, and ten with `TPESampler`: the same objective, and the same
errors of its scores. The best trial by the noisy score is judged by the score without noise, on
the party's scale: 0 is the best known setting, 1 the median of random settings.

All parties of a run share one draw of the noise, so a run is one observation: the interval is that
of the mean over runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from scipy import stats

from benchmarks.agent_tasks import JudgedTask, LCBenchTask, RpartTask
from benchmarks.pages import filled, table
from flwr_fbo import Partition, Space, Task, simulate
from flwr_fbo.optuna import FederatedSampler
from flwr_fbo.optuna.distributions import distribution_of

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "late_joiner.jsonl"
PAGE = HERE.parent / "docs" / "how-to" / "optuna.md"
#: Parties that come late, their trials, and the numbers of trials that are shown.
LATE, TRIALS, SHOWN = 4, 10, (1, 3, 5, 10)
#: Rounds of the run after the initial points.
ROUNDS = 12
#: The tasks by scenario, and how many parties each has.
SCENARIOS: dict[str, tuple[type[JudgedTask], int]] = {
    "lcbench": (LCBenchTask, 34),
    "rbv2_rpart": (RpartTask, 60),
}


class Selected(Task):
    """The task of the run: agent n is the n-th of some parties."""

    score_range = JudgedTask.score_range

    def __init__(self, scenario: str, numbers: list[int]) -> None:
        super().__init__()
        self.scenario, self.numbers = scenario, numbers

    @property
    def space(self) -> Space:
        return SCENARIOS[self.scenario][0]().space

    @property
    def name(self) -> str:
        return self.scenario + "-" + "-".join(map(str, self.numbers))

    def prepare(self, partition: Partition) -> None:
        self.own = party(self.scenario, self.numbers[partition.index])

    def evaluate(self, params: Mapping[str, Any], *, rng: np.random.Generator) -> float:
        return self.own.evaluate(params, rng=rng)


@cache
def party(scenario: str, number: int) -> JudgedTask:
    """Return the task of one party, with the party's own scale of regret."""
    made, count = SCENARIOS[scenario]
    task = made()
    task.prepare(Partition(number, count))
    return task


def one_run(scenario: str, epsilon: float, seed: int) -> list[dict[str, Any]]:
    """A run without four parties, and what its releases are worth to each of the four."""
    parties = np.random.default_rng([seed, 5]).permutation(SCENARIOS[scenario][1]).tolist()
    late, early = parties[:LATE], parties[LATE:]
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        task = Selected(scenario, early)
        simulate(task, agents=len(early), rounds=ROUNDS, epsilon=epsilon, seed=seed, run_dir=run)
        samplers = {
            "federated": lambda: FederatedSampler(run, seed=seed),
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
        }
        rows = []
        for number in late:
            curves = {
                n: curve(make(), party(scenario, number), seed) for n, make in samplers.items()
            }
            rows.append(
                {"scenario": scenario, "epsilon": epsilon, "seed": seed, "party": number, **curves}
            )
    return rows


def curve(sampler: Any, own: JudgedTask, seed: int) -> list[float]:
    """The regret of the best trial so far, by trials."""
    distributions = {n: distribution_of(p) for n, p in own.space.parameters.items()}
    study = optuna.create_study(direction="maximize", sampler=sampler)
    regrets = []
    for number in range(TRIALS):
        trial = study.ask(distributions)
        errors = np.random.default_rng([seed, own.party, number])
        study.tell(trial, own.evaluate(trial.params, rng=errors))
        regrets.append(own.regret(own.space.to_unit(study.best_params)))
    return regrets


def rows_of_page() -> list[dict[str, Any]]:
    """The means over runs, and the 95 % interval of the paired difference."""
    saved = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    rows = []
    for scenario, epsilon in sorted({(r["scenario"], r["epsilon"]) for r in saved}, reverse=False):
        mine = [r for r in saved if (r["scenario"], r["epsilon"]) == (scenario, epsilon)]
        seeds = sorted({r["seed"] for r in mine})
        # (runs, trials): the mean over the late parties of a run
        means = {
            name: np.array(
                [np.mean([r[name] for r in mine if r["seed"] == s], axis=0) for s in seeds]
            )
            for name in ("tpe", "federated")
        }
        gain = means["tpe"] - means["federated"]
        half = stats.t.ppf(0.975, len(seeds) - 1) * gain.std(0, ddof=1) / np.sqrt(len(seeds))
        row: dict[str, Any] = {"scenario": scenario, "epsilon": epsilon, "runs": len(seeds)}
        for k in SHOWN:
            tpe, ours = (means[name][:, k - 1].mean() for name in ("tpe", "federated"))
            low, high = gain[:, k - 1].mean() - half[k - 1], gain[:, k - 1].mean() + half[k - 1]
            row[f"after {k}"] = f"{tpe:.2f}, {ours:.2f} ({low:+.2f} to {high:+.2f})"
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("scenario", choices=SCENARIOS)
    run.add_argument("--epsilon", type=float, nargs="+", default=[8.0, 2.0])
    run.add_argument("--seeds", type=int, nargs=2, default=(0, 10), metavar=("FIRST", "END"))
    run.add_argument("--out", type=Path, default=RESULTS)
    commands.add_parser("page")
    asked = parser.parse_args()
    if asked.command == "page":
        PAGE.write_text(filled(PAGE.read_text(), "late joiner", table(rows_of_page())))
        return
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for seed, epsilon in itertools.product(range(*asked.seeds), asked.epsilon):
        rows = one_run(asked.scenario, epsilon, seed)
        with asked.out.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        shown = {
            n: np.mean([r[n] for r in rows], axis=0).round(2).tolist() for n in ("tpe", "federated")
        }
        print(epsilon, seed, shown, flush=True)


if __name__ == "__main__":
    main()
