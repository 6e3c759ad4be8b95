"""What k evaluations at once cost and save: regret by rounds and by evaluations, at k = 1, 2, 4.

    python -m benchmarks.parallel run [--seeds 8]     what is not saved yet
    python -m benchmarks.parallel page                docs/how-to/own-task.md from the saved runs

Ten parties tune Hartmann's function, shifted by party, with noise of spread .01 and two numbers of
little effect (`HartmannTask` of `benchmarks/agent_tasks.py`). Each party makes 28 evaluations: four
initial points, then k in each round. The best setting of a party by its noisy scores is judged by
the score without noise: 0 is the best known setting, 1 the median of random settings. A run is one
observation. Seeds below ``FIRST_SEED`` were used for development.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.agent import judge
from benchmarks.agent_tasks import HartmannTask
from benchmarks.federations import Problem
from benchmarks.pages import filled, table
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.runs.spec import RunSpec

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "parallel.jsonl"
PAGE = HERE.parent / "docs" / "how-to" / "own-task.md"
FIRST_SEED = 7000
PARTIES, INITIAL, EVALUATIONS, AT_ONCE = 10, 4, 28, (1, 2, 4)
STRATEGIES = ("dp-fts-de", "alone")
#: Rounds and evaluations at which the regret is shown.
ROUNDS, SHOWN = (3, 6), (16, 28)


def one_run(problem: Problem, strategy: str, k: int, seed: int) -> list[float]:
    """Return the parties' mean regret after round 0, 1, ..."""
    given = {"task": problem.tasks[0], "strategy": strategy, "agents": PARTIES, "seed": seed}
    spec = RunSpec.from_mapping({**given, "initial-points": INITIAL, "parallel": k})
    rounds = (EVALUATIONS - INITIAL) // k
    plan = RunParameters(problem.space, PARTIES, rounds, seed)
    server = spec.method.make_server(plan, spec.settings)
    agents = [problem.agent(server.setup(), n, seed)[0] for n in range(PARTIES)]
    regrets = []
    while not server.finished:
        requests = server.requests(range(PARTIES))
        server.close({n: agents[n].answer(request) for n, request in requests.items()})
        best = [agent.sampler.best() for agent in agents]
        found = [judge(problem, n).regret(b and b[0]) for n, b in enumerate(best)]
        regrets.append(round(float(np.mean(found)), 5))
    return regrets


def store(seeds: range, results: Path) -> None:
    """Run what is not saved yet, and save it."""
    saved = {(r["strategy"], r["k"], r["seed"]) for r in known(results)}
    for seed in seeds:
        problem = Problem(HartmannTask(), PARTIES, seed)  # type: ignore[arg-type]
        for strategy in STRATEGIES:
            for k in AT_ONCE:
                if (strategy, k, seed) in saved:
                    continue
                regret = one_run(problem, strategy, k, seed)
                row = {"strategy": strategy, "k": k, "seed": seed, "regret": regret}
                with results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(strategy, k, seed, regret[-1], flush=True)


def known(results: Path) -> list[dict[str, Any]]:
    """Return what was run."""
    return [json.loads(x) for x in results.read_text().splitlines()] if results.exists() else []


def rows(saved: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return the table: means over runs, and intervals of differences to k = 1."""
    for strategy in STRATEGIES:
        runs = {k: _regrets(saved, strategy, k) for k in AT_ONCE}
        for k, regret in runs.items():
            at_end = regret[:, -1] - runs[1][:, -1]
            row: dict[str, Any] = {"strategy": strategy, "k": k, "runs": len(regret)}
            for r in ROUNDS:
                row[f"after {r} rounds"] = f"{regret[:, r].mean():.3f}"
            for e in SHOWN:
                row[f"after {e} evaluations"] = f"{regret[:, (e - INITIAL) // k].mean():.3f}"
            row["more than k = 1, at the end"] = "-" if k == 1 else _interval(at_end)
            yield row


def _regrets(saved: list[dict[str, Any]], strategy: str, k: int) -> np.ndarray:
    """Return the regrets of all runs, by seed and round."""
    mine = [r for r in saved if (r["strategy"], r["k"]) == (strategy, k)]
    return np.array([r["regret"] for r in sorted(mine, key=lambda r: int(r["seed"]))])


def _interval(values: np.ndarray) -> str:
    """Return a mean with Student's 95 % interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.3f} ({values.mean() - half:+.3f} to {values.mean() + half:+.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=("run", "page", "table"))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=FIRST_SEED)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.command == "run":
        store(range(asked.first, asked.first + asked.seeds), asked.out)
        return
    lines = table(list(rows(known(asked.out))))
    if asked.command == "table":
        print("\n".join(lines))
    else:
        PAGE.write_text(filled(PAGE.read_text(), "at once", lines))


if __name__ == "__main__":
    main()
