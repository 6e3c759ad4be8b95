"""The figure at the top of the README: score against evaluations, ours, TPE and alone.

    FLWR_FBO_DATA=DIR python -m benchmarks.suite run --federation rpart-117
    python -m benchmarks.hero     (docs/images/hero.svg and its caption, from the saved runs)

The figure shows four methods on the federation ``rpart-117`` of the suite: 117 parties that tune a
decision tree, each for a data set of its own, by 20 evaluations. The runs are the reported ones of
the suite (benchmarks/suite/results/rpart-117.jsonl) whose seeds the four methods have in common.
A score is 1 less the loss of the suite, which is judged without noise (docs/evidence/suite.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.pages import filled
from benchmarks.suite.federations.yahpo import RPART
from benchmarks.suite.results import RESULTS, Store
from flwr_fbo.core.arrays import Array
from flwr_fbo.report.svg import Axis, Chart, linear_axis

ROOT = Path(__file__).parents[1]
README, FIGURE = ROOT / "README.md", ROOT / "docs" / "images" / "hero.svg"
#: The methods in the order of the legend.
METHODS = ("ours-8", "ours-2", "alone", "tpe")
LABELS = {
    "ours-8": "flwr-fbo, epsilon 8",
    "ours-2": "flwr-fbo, epsilon 2",
    "alone": "the same agent, alone",
    "tpe": "Optuna TPE, alone",
}
#: The scores of each method by seed, after each evaluation: (evaluations,).
Scores = Mapping[str, Mapping[int, Array]]
STYLE = (
    "svg{background:#fff}text{font:17px sans-serif;fill:#24292f}.small{font-size:17px}"
    ".grid{stroke:#d8dee4}.line{fill:none;stroke-width:3}.band{stroke:none;opacity:.16}"
    ".c0{stroke:#0b6bcb}.b0{fill:#0b6bcb}.c1{stroke:#15803d}.b1{fill:#15803d}"
    ".c2{stroke:#9a6700}.b2{fill:#9a6700}.c3{stroke:#c2410c;stroke-dasharray:7 4}.b3{fill:#c2410c}"
    "@media (prefers-color-scheme:dark){svg{background:#161b22}text{fill:#d6dde4}"
    ".grid{stroke:#30363d}.c0{stroke:#79c0ff}.b0{fill:#79c0ff}.c1{stroke:#7ee787}.b1{fill:#7ee787}"
    ".c2{stroke:#e3b341}.b2{fill:#e3b341}.c3{stroke:#ff7b72}.b3{fill:#ff7b72}}"
)


def saved(folder: Path = RESULTS) -> dict[str, dict[int, Array]]:
    """Return the saved scores of every method by seed, after each evaluation: (evaluations,)."""
    found: dict[str, dict[int, Array]] = {method: {} for method in METHODS}
    for row in Store(folder).read(RPART.name):
        if row["method"] in found and row["version"] == RPART.version:
            found[row["method"]][row["seed"]] = 1.0 - np.array(row["curve"])
    return found


# ------------------------------------------------------------------ the figure


def curves(known: Scores, method: str) -> Array:
    """Return the scores of a method by seed and evaluation: (seeds, evaluations)."""
    return np.array([known[method][seed] for seed in seeds_of(known)])


def seeds_of(known: Scores) -> list[int]:
    """Return the seeds that every method has, in order."""
    return sorted(set.intersection(*(set(known[method]) for method in METHODS)))


def reached(curve: Array, score: float) -> int | None:
    """Return after how many evaluations a curve is at least at a score; None for never."""
    found = np.flatnonzero(curve >= score)
    return int(found[0]) + 1 if len(found) else None


def figure(known: Scores) -> str:
    """Return the figure as the text of an SVG file."""
    seeds = seeds_of(known)
    if len(seeds) < 2:
        raise SystemExit(f"a figure needs two seeds of every method, but has {len(seeds)}")
    found = {method: curves(known, method) for method in METHODS}
    times = np.arange(1.0, RPART.evaluations + 1)
    chart = Chart(
        "hero", _described(known, found),
        linear_axis(times, "evaluations at each party", whole=True),
        Axis(0.0, 1.2, f"score, mean of {RPART.parties} parties",
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
        chart.line(
            1 + (times[-1] - 1) * np.array([0.54, 0.59]), np.full(2, 0.45 - 0.11 * i), f"c{i}"
        )
        chart.text(1 + 0.61 * (times[-1] - 1), 0.45 - 0.11 * i, LABELS[method])
    return chart.file(STYLE)


def _described(known: Scores, found: Mapping[str, Array]) -> str:
    """Return one sentence on the figure, for readers who cannot see it."""
    ends = ", ".join(f"{LABELS[m]} {c.mean(axis=0)[-1]:.2f}" for m, c in found.items())
    return f"Score against evaluations, mean of {len(seeds_of(known))} seeds; at the end: {ends}"


def caption(known: Scores) -> str:
    """Return what the README says below the figure."""
    seeds = seeds_of(known)
    tpe = curves(known, "tpe").mean(axis=0)
    ours = ("ours-8", "ours-2", "alone")
    after = [reached(curves(known, m).mean(axis=0), float(tpe[-1])) for m in ours]
    when = "{} (epsilon 8), {} (epsilon 2) and {} (the same agent alone)".format(*after)
    return (
        f"{RPART.parties} parties tune a decision tree, each on its own data (YAHPO Gym). "
        f"TPE's score after {RPART.evaluations} evaluations came after {when}. Means and "
        f"standard deviations (bands) of seeds {seeds[0]} to {seeds[-1]}; delta 1e-5. Score 0 is "
        "the median random setting, 1 the best of 4,000. Other federations are in "
        "[the suite](docs/evidence/suite.md); where parties are fewer, sharing gains less."
    )


def draw() -> None:
    """Write the figure, and the caption in the README."""
    known = saved()
    FIGURE.write_text(figure(known), encoding="utf-8")
    README.write_text(filled(README.read_text(), "hero", [caption(known)]))
    print(caption(known))


if __name__ == "__main__":
    draw()
