"""Landmine detection with the papers' settings: 1 - AUC of the best so far, by round.

    FLWR_FBO_DATA=DIR python benchmarks/landmine.py [--rounds 60] [--seeds 2] [--out FILE]

29 fields tune C and gamma of an SVM on the linear scale of the papers (``preset = "paper"``),
10 initial points, P = 4, S = 22, M = 100. AUC is that of the decision function.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.simulation.simulate import simulate_run

STRATEGIES: dict[str, dict[str, Any]] = {
    "random search": {"strategy": "random"},
    "TS, alone": {"strategy": "local-ts"},
    "FTS-DE, no privacy": {"strategy": "dp-fts-de", "clip": 1e6},
    "DP-FTS-DE (q=.35, z=1)": {
        "strategy": "dp-fts-de", "sampling-rate": 0.35, "noise-multiplier": 1.0,
    },
}  # fmt: skip


def run(settings: dict[str, Any], rounds: int, seed: int) -> dict[str, Any]:
    given = {"task": "landmine", "preset": "paper", "rounds": rounds, "seed": seed, **settings}
    with tempfile.TemporaryDirectory() as folder:
        result, _ = simulate_run(given, "inline", Path(folder) / "run")
    assert result["complete"], result
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    shown = [t for t in (0, 10, 20, 40, 60) if t <= arguments.rounds]
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    print(f"landmine, preset paper, seeds {list(seeds)}; 1 - AUC after {shown} rounds")
    saved: dict[str, Any] = {}
    for name, settings in STRATEGIES.items():
        results = [run(settings, arguments.rounds, seed) for seed in seeds]
        errors = 1.0 - np.array([r["best"] for r in results])  # (seeds, rounds + 1)
        spread = errors[:, -1].std(ddof=1) if len(errors) > 1 else float("nan")
        epsilon = results[0]["epsilon"]
        print(
            f"{name:<28} {'-' if epsilon is None else f'{epsilon:.2f}':>7}  "
            f"{' '.join(f'{errors.mean(axis=0)[t]:.3f}' for t in shown)}  "
            f"(sd over seeds at the end {spread:.4f})",
            flush=True,
        )
        saved[name] = {"settings": settings, "epsilon": epsilon, "errors": errors.tolist()}
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(saved, indent=2))


if __name__ == "__main__":
    main()
