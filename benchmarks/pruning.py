"""What pruning saves and loses: steps and scores under the median rule, halving, and no rule.

    python -m benchmarks.pruning run digits [--seeds 10]     what is not saved yet
    FLWR_FBO_DATA=DIR python -m benchmarks.pruning run lcbench
    python -m benchmarks.pruning page                        docs/how-to/own-task.md

``digits``: four parties train a linear classifier on scikit-learn's digits, 15 epochs of stochastic
gradient descent, and report their validation accuracy after each. A setting is judged by the
accuracy of its training on a test set that no party sees; regret is in accuracy.

``lcbench``: eight parties, drawn anew for each seed, are data sets of YAHPO's surrogate of networks
trained for 50 epochs. An evaluation reports the surrogate's accuracy at each epoch, with noise of
spread .01. Regret is on the party's own scale: 0 is the best known setting, 1 the median of random
ones.

Each party makes 20 evaluations with the agent of dp-fts-de by itself (`alone`). A run is one
observation, and the rules of one seed have the same parties and the same initial points. Seeds
below ``FIRST_SEED`` were used for development.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.agent_tasks import LCBenchTask
from benchmarks.federations import Problem
from benchmarks.pages import filled, table
from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Categorical, Float, Space
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.tasks.task import Params, Partition, Task

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "pruning.jsonl"
PAGE = HERE.parent / "docs" / "how-to" / "own-task.md"
FIRST_SEED = 8000
EVALUATIONS, RULES = 20, ("none", "median", "halving")


class DigitsByEpoch(Task):
    """A linear classifier on a share of scikit-learn's digits, trained epoch by epoch."""

    score_range = (0.0, 1.0)
    epochs = 15

    @property
    def space(self) -> Space:
        return Space({
            "rate": Float(1e-4, 10.0, log=True), "alpha": Float(1e-7, 1.0, log=True),
            "loss": Categorical(["hinge", "log_loss", "modified_huber"]),
        })  # fmt: skip

    def prepare(self, partition: Partition) -> None:
        """Take a share of the training images; the last 600 images are the test set."""
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        order = partition.shared_rng().permutation(len(x))
        mine = order[:-600][partition.index :: partition.count]
        half = len(mine) // 2
        self.train, self.validation, self.test = (
            (x[rows] / 16.0, y[rows]) for rows in (mine[:half], mine[half:], order[-600:])
        )

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        score = 0.0
        for epoch, model in enumerate(self._epochs(params), start=1):
            score = float(model.score(*self.validation))
            self.report(epoch, score)
        return score

    def _epochs(self, params: Params) -> Iterator[Any]:
        """Return the classifier after each epoch."""
        from sklearn.linear_model import SGDClassifier

        model = SGDClassifier(
            loss=params["loss"], alpha=params["alpha"], eta0=params["rate"],
            learning_rate="constant", random_state=0,
        )  # fmt: skip
        for _ in range(self.epochs):
            yield model.partial_fit(*self.train, classes=np.arange(10))

    def regret(self, unit: Array | None) -> float:
        """Return one minus the accuracy on the test set; 1 for no setting."""
        if unit is None:
            return 1.0
        *_, model = self._epochs(self.space.from_unit(unit))
        return 1.0 - float(model.score(*self.test))


class LCBenchByEpoch(LCBenchTask):
    """LCBench's surrogate, asked at every epoch; agent n is the n-th of the drawn parties."""

    epochs = 50

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.drawn = np.random.default_rng([seed, 9]).permutation(34)

    def prepare(self, partition: Partition) -> None:
        super().prepare(Partition(int(self.drawn[partition.index]), 34, partition.seed))

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        given = [{**params, "epoch": epoch} for epoch in range(1, self.epochs + 1)]
        scores = self.scenario.scores(self.instance, given)
        seen = scores + self.noise * rng.standard_normal(self.epochs)
        for epoch, score in enumerate(seen, start=1):
            self.report(epoch, float(score))
        return float(seen[-1])


TASKS: dict[str, tuple[Any, int]] = {
    "digits": (lambda seed: DigitsByEpoch(), 4),
    "lcbench": (LCBenchByEpoch, 8),
}


def one_run(problem: Problem, rule: str, seed: int) -> dict[str, Any]:
    """Return the steps (parties, evaluations) so far, and the regret of the best so far."""
    given = {"task": problem.tasks[0], "strategy": "alone", "agents": problem.agents, "seed": seed}
    spec = RunSpec.from_mapping({**given, "pruning": rule})
    rounds = EVALUATIONS - spec.settings.initial_points  # type: ignore[attr-defined]
    server = spec.method.make_server(
        RunParameters(problem.space, problem.agents, rounds, seed), spec.settings
    )
    pairs = [problem.agent(server.setup(), n, seed) for n in range(problem.agents)]
    while not server.finished:
        requests = server.requests(range(problem.agents))
        server.close({n: pairs[n][0].answer(request) for n, request in requests.items()})
    steps = [np.cumsum([e.steps for e in ev.history]).tolist() for _, ev in pairs]
    return {
        "steps": steps,
        "pruned": sum(e.pruned for _, ev in pairs for e in ev.history),
        "regret": [_regrets(problem.tasks[n], ev.history) for n, (_, ev) in enumerate(pairs)],
    }


def _regrets(task: Any, history: Any) -> list[float]:
    """Return the regret of the best finished evaluation, after each evaluation."""
    regrets, best = [], None
    for e in history:
        if e.finished and (best is None or e.score > best.score):
            best = e
            found = round(task.regret(np.array(best.unit)), 5)
        regrets.append(1.0 if best is None else found)
    return regrets


def store(name: str, seeds: range, results: Path) -> None:
    """Run what is not saved yet, and save it."""
    make, parties = TASKS[name]
    saved = {(r["task"], r["rule"], r["seed"]) for r in known(results)}
    for seed in seeds:
        problem = Problem(make(seed), parties, seed)
        for rule in RULES:
            if (name, rule, seed) in saved:
                continue
            row = {"task": name, "rule": rule, "seed": seed, **one_run(problem, rule, seed)}
            with results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(name, rule, seed, np.mean(row["steps"], axis=0)[-1], flush=True)


def known(results: Path) -> list[dict[str, Any]]:
    """Return what was run."""
    return [json.loads(x) for x in results.read_text().splitlines()] if results.exists() else []


def rows(saved: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return the table: means over runs, and intervals of differences to no rule."""
    for name in TASKS:
        mine = [r for r in saved if r["task"] == name]
        runs = {(r["rule"], r["seed"]): r for r in mine}
        seeds = sorted({seed for _, seed in runs})
        for rule in RULES if seeds else ():
            ours, whole = ([runs[r, s] for s in seeds] for r in (rule, "none"))
            steps = np.array([[r["steps"][n][-1] for n in range(len(r["steps"]))] for r in ours])
            full = np.array([[r["steps"][n][-1] for n in range(len(r["steps"]))] for r in whole])
            end = np.array([np.mean(r["regret"], axis=0)[-1] for r in ours])
            lost = end - np.array([np.mean(r["regret"], axis=0)[-1] for r in whole])
            equal = end - np.array(
                [_at_steps(w, r["steps"]) for w, r in zip(whole, ours, strict=True)]
            )
            yield {
                "task": name, "rule": rule, "runs": len(seeds),
                "pruned": f"{np.mean([r['pruned'] for r in ours]) / steps.shape[1]:.1f} of 20",
                "steps saved": f"{100 * (1 - steps.sum() / full.sum()):.0f} %",
                "regret": f"{end.mean():.4f}",
                "more than without": "-" if rule == "none" else _interval(lost),
                "at equal steps": "-" if rule == "none" else _interval(equal),
            }  # fmt: skip


def _at_steps(whole: dict[str, Any], steps: list[list[int]]) -> float:
    """Return the mean regret of a run without a rule when it had made these steps."""
    regrets = []
    for mine, regret, others in zip(whole["steps"], whole["regret"], steps, strict=True):
        made = int(np.searchsorted(mine, others[-1], side="right"))  # whole evaluations
        regrets.append(regret[made - 1] if made else 1.0)
    return float(np.mean(regrets))


def _interval(values: np.ndarray) -> str:
    """Return a mean with Student's 95 % interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.4f} ({values.mean() - half:+.4f} to {values.mean() + half:+.4f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("tasks", nargs="+", choices=TASKS)
    run.add_argument("--seeds", type=int, default=10)
    run.add_argument("--first", type=int, default=FIRST_SEED)
    parsers = [run, commands.add_parser("table"), commands.add_parser("page")]
    for parser_ in parsers:
        parser_.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.command == "run":
        for name in asked.tasks:
            store(name, range(asked.first, asked.first + asked.seeds), asked.out)
        return
    lines = table(list(rows(known(asked.out))))
    if asked.command == "table":
        print("\n".join(lines))
    else:
        PAGE.write_text(filled(PAGE.read_text(), "pruning", lines))


if __name__ == "__main__":
    main()
