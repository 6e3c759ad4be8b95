"""The figure at the top of the README: score against evaluations, ours, TPE and alone.

    FLWR_FBO_DATA=DIR python -m benchmarks.hero run [--seeds 7000 7001 ...]
    python -m benchmarks.hero draw     (docs/images/hero.svg and its caption, from the saved runs)

``run`` makes what is missing: each of four methods on the federation ``lcbench`` of the suite,
which is 34 parties that tune a neural network, each for a data set of its own, by 30 evaluations.
An interrupted command goes on where it stopped. The runs are kept in benchmarks/results/hero.json:
for every method and seed, the mean loss over the parties after every evaluation, judged without
noise (docs/evidence/suite.md says what a loss is). A remark there goes into the caption; to measure
the agent of today, remove the file first. Seeds below 7000 are for development; they are
shown on the screen, and neither saved nor drawn.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import filled
from benchmarks.suite import REPORTED
from benchmarks.suite.contestants import contestant_named
from benchmarks.suite.federations.yahpo import LCBENCH
from benchmarks.suite.results import is_development
from flwr_fbo.core.arrays import Array
from flwr_fbo.report.svg import Axis, Chart, linear_axis

ROOT = Path(__file__).parents[1]
README, FIGURE = ROOT / "README.md", ROOT / "docs" / "images" / "hero.svg"
SAVED = Path(__file__).parent / "results" / "hero.json"
#: The methods in the order of the legend.
METHODS = ("ours-8", "ours-2", "alone", "tpe")
LABELS = {
    "ours-8": "flwr-fbo, epsilon 8",
    "ours-2": "flwr-fbo, epsilon 2",
    "alone": "the same agent, alone",
    "tpe": "Optuna TPE, alone",
}
STYLE = (
    "svg{background:#fff}text{font:17px sans-serif;fill:#24292f}.small{font-size:17px}"
    ".grid{stroke:#d8dee4}.line{fill:none;stroke-width:3}.band{stroke:none;opacity:.16}"
    ".c0{stroke:#0b6bcb}.b0{fill:#0b6bcb}.c1{stroke:#15803d}.b1{fill:#15803d}"
    ".c2{stroke:#9a6700}.b2{fill:#9a6700}.c3{stroke:#c2410c;stroke-dasharray:7 4}.b3{fill:#c2410c}"
    "@media (prefers-color-scheme:dark){svg{background:#161b22}text{fill:#d6dde4}"
    ".grid{stroke:#30363d}.c0{stroke:#79c0ff}.b0{fill:#79c0ff}.c1{stroke:#7ee787}.b1{fill:#7ee787}"
    ".c2{stroke:#e3b341}.b2{fill:#e3b341}.c3{stroke:#ff7b72}.b3{fill:#ff7b72}}"
)


def saved() -> dict[str, Any]:
    """Return the saved runs: the federation, and curves by method and seed."""
    if SAVED.exists():
        return dict(json.loads(SAVED.read_text()))
    about = {"federation": LCBENCH.name, "version": LCBENCH.version, "parties": LCBENCH.parties}
    return {**about, "evaluations": LCBENCH.evaluations, "runs": {}}


def run(seeds: Sequence[int]) -> None:
    """Make the missing runs of these seeds."""
    for seed in seeds:
        for method in METHODS:
            known = saved()
            runs = known["runs"].setdefault(method, {})
            if str(seed) in runs:
                continue
            began = time.monotonic()
            trace = contestant_named(method).run(LCBENCH.parties_with(seed), seed)
            runs[str(seed)] = {
                "epsilon": None if trace.epsilon is None else round(trace.epsilon, 4),
                "delta": trace.delta,
                "loss": np.round(trace.picks.mean(axis=0), 5).tolist(),
            }
            ended = f"{time.monotonic() - began:.0f} s"
            loss = np.round(trace.picks.mean(axis=0)[[0, 2, 4, 9, 14, 19, 29]], 3)
            print(f"seed {seed}  {method}: {loss}, {ended}", flush=True)
            if not is_development(seed):
                SAVED.write_text(json.dumps(known, indent=None) + "\n")


# ------------------------------------------------------------------ the figure


def curves(known: Mapping[str, Any], method: str) -> Array:
    """Return the scores of a method by seed and evaluation: (seeds, evaluations)."""
    runs = known["runs"][method]
    return 1.0 - np.array([runs[seed]["loss"] for seed in seeds_of(known)])


def seeds_of(known: Mapping[str, Any]) -> list[str]:
    """Return the seeds that every method has, in order."""
    shared = set.intersection(*(set(known["runs"].get(m, {})) for m in METHODS))
    return sorted(shared, key=int)


def reached(curve: Array, score: float) -> int | None:
    """Return after how many evaluations a curve is at least at a score; None for never."""
    found = np.flatnonzero(curve >= score)
    return int(found[0]) + 1 if len(found) else None


def figure(known: Mapping[str, Any]) -> str:
    """Return the figure as the text of an SVG file."""
    seeds = seeds_of(known)
    if len(seeds) < 2:
        raise SystemExit(f"a figure needs two seeds of every method, but has {len(seeds)}")
    found = {method: curves(known, method) for method in METHODS}
    times = np.arange(1.0, known["evaluations"] + 1)
    chart = Chart(
        "hero", _described(known, found),
        linear_axis(times, "evaluations at each party", whole=True),
        Axis(0.0, 1.2, f"score, mean of {known['parties']} parties",
             [(0.0, "0"), (0.25, "0.25"), (0.5, "0.5"), (0.75, "0.75"), (1.0, "1")]),
        height=380, width=560,
    )  # fmt: skip
    for i, method in enumerate(METHODS):
        mean, spread = found[method].mean(axis=0), found[method].std(axis=0, ddof=1)
        low, high = (np.clip(mean + s * spread, 0.0, 1.2) for s in (-1, 1))
        chart.band(times, low, high, f"b{i}")
    for i, method in enumerate(METHODS):
        chart.line(times, np.clip(found[method].mean(axis=0), 0.0, 1.2), f"c{i}")
    for i, method in enumerate(METHODS):
        chart.line(np.array([16.6, 18.2]), np.full(2, 0.45 - 0.11 * i), f"c{i}")
        chart.text(18.7, 0.45 - 0.11 * i, LABELS[method])
    return chart.file(STYLE)


def _described(known: Mapping[str, Any], found: Mapping[str, Array]) -> str:
    """Return one sentence on the figure, for readers who cannot see it."""
    ends = ", ".join(f"{LABELS[m]} {c.mean(axis=0)[-1]:.2f}" for m, c in found.items())
    return f"Score against evaluations, mean of {len(seeds_of(known))} seeds; at the end: {ends}"


def caption(known: Mapping[str, Any]) -> str:
    """Return what the README says below the figure."""
    seeds = seeds_of(known)
    tpe = curves(known, "tpe").mean(axis=0)
    after = [reached(curves(known, m).mean(axis=0), float(tpe[-1])) for m in ("ours-8", "ours-2")]
    when = " and ".join(f"{t} (epsilon {e})" for t, e in zip(after, (8, 2), strict=True))
    return (
        f"{known['parties']} parties tune a neural network, each on its own data (LCBench). "
        f"TPE's score after {known['evaluations']} evaluations came after {when}. Means and "
        f"standard deviations (bands) of seeds {seeds[0]} to {seeds[-1]}; delta 1e-5. Score 0 is "
        "the median random setting, 1 the best of 4,000. "
        f"{known.get('remark', '')}`python -m benchmarks.hero` runs and draws it."
    )


def draw() -> None:
    """Write the figure, and the caption in the README."""
    known = saved()
    FIGURE.write_text(figure(known), encoding="utf-8")
    README.write_text(filled(README.read_text(), "hero", [caption(known)]))
    print(caption(known))


def main(given: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hero")
    parser.add_argument("command", choices=["run", "draw"])
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=list(REPORTED[: LCBENCH.repetitions])
    )
    asked = parser.parse_args(given)
    run(asked.seeds) if asked.command == "run" else draw()


if __name__ == "__main__":
    main()
