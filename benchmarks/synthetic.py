"""The synthetic experiment of DP-FTS-DE (Section 5.1): simple regret, averaged over the rounds.

    python benchmarks/synthetic.py [--agents 200] [--rounds 40] [--functions 6] [--out FILE]

Every strategy runs on the same functions with the same initial points. Prints the mean over
functions of each function's regret (itself a mean over agents and rounds), its standard error,
and the regret after some rounds; saves everything as JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.simulation.simulate import simulate_run

#: Our agent and releases, with the length scale that the paper's agents know too. The noise is
#: learned: scores are standardised, so that its variance is not the one that is known. Functions
#: as narrow as these have longer vectors.
DEFAULTS: dict[str, Any] = {
    "strategy": "dp-fts-de", "preset": "default", "initial-points": 10, "kernel": "se",
    "lengthscale": 0.03, "features": 50, "feature-lengthscale": 0.03, "feature-noise": 0.01,
    "vector-bound": 4.0,
}  # fmt: skip
#: The same without being told how narrow the functions are.
UNTOLD: dict[str, Any] = {"strategy": "dp-fts-de", "preset": "default", "initial-points": 10}
#: FTS without distributed exploration is one region (the paper's "modified FTS").
STRATEGIES: dict[str, dict[str, Any]] = {
    "TS, alone": {"strategy": "local-ts"},
    "FTS, relayed vectors": {
        "strategy": "fts", "p-schedule": "1-1/sqrt(t)", "initial-points": 10
    },
    "FTS (P=1), no privacy": {"strategy": "dp-fts-de", "regions": 1, "clip": 1e6},
    "FTS-DE (P=2), no privacy": {"strategy": "dp-fts-de", "clip": 1e6},
    "DP-FTS-DE as published (q=.25, z=1)": {
        "strategy": "dp-fts-de",
        "sampling-rate": 0.25,
        "noise-multiplier": 1.0,
    },
    "our defaults, epsilon 4": {**DEFAULTS, "epsilon": 4.0},
    "our defaults, epsilon 1": {**DEFAULTS, "epsilon": 1.0},
    "our defaults, no privacy": DEFAULTS,
    "our defaults, epsilon 2": {**DEFAULTS, "epsilon": 2.0},
    "our defaults, length scale unknown, no privacy": UNTOLD,
    "our defaults, length scale unknown, epsilon 4": {**UNTOLD, "epsilon": 4.0},
}  # fmt: skip


def run(settings: dict[str, Any], agents: int, rounds: int, seed: int) -> dict[str, Any]:
    """Return the result of one run, as its result.json holds it."""
    given = {
        "task": "synthetic", "preset": "paper", "agents": agents, "rounds": rounds, "seed": seed,
        **settings,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        result, _ = simulate_run(given, "inline", Path(folder) / "run")
    assert result["complete"], result
    return result


def curves_of(results: Sequence[dict[str, Any]]) -> NDArray[np.float64]:
    """Return the mean simple regret of each run's agents, by round: (functions, rounds + 1)."""
    return np.array([result["history"]["regret"] for result in results], dtype=np.float64)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--functions", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", nargs="*", default=[""], help="beginnings of names")
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.functions)
    print(f"{arguments.agents} agents, {arguments.rounds} rounds, seeds {list(seeds)}")
    print(f"{'':<40} {'epsilon':>8} {'regret':>16}   after 0 / 5 / 10 / 20 / {arguments.rounds}")
    saved: dict[str, Any] = {}
    chosen = {k: v for k, v in STRATEGIES.items() if k.startswith(tuple(arguments.only))}
    for name, settings in chosen.items():
        start = time.process_time()
        results = [run(settings, arguments.agents, arguments.rounds, s) for s in seeds]
        curves = curves_of(results)
        means = curves.mean(axis=1)
        error = means.std(ddof=1) / np.sqrt(len(means)) if len(means) > 1 else float("nan")
        epsilon = results[0]["epsilon"]
        shown = [curves.mean(axis=0)[min(t, arguments.rounds)] for t in (0, 5, 10, 20, 40)]
        print(
            f"{name:<40} {'-' if epsilon is None else f'{epsilon:.2f}':>8} "
            f"{means.mean():.4f} +- {error:.4f}   {' '.join(f'{v:.4f}' for v in shown)}",
            flush=True,
        )
        saved[name] = {
            "settings": settings,
            "epsilon": epsilon,
            "seeds": list(seeds),
            "regret": means.tolist(),
            "curve": curves.mean(axis=0).tolist(),
            "cpu_seconds": time.process_time() - start,
        }
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(saved, indent=2))


if __name__ == "__main__":
    main()
