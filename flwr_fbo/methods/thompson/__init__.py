"""What FTS, DP-FTS-DE and their baselines share: the agent, its settings, and the rounds."""

from typing import Any

#: The agent of the papers' experiments on real data (FTS App. D.2.2, DP-FTS-DE App. B.2.1). Its
#: scores are raw, and its features so narrow that neighbouring points share little.
PAPER_AGENT: dict[str, Any] = {
    "initial-points": 10,
    "first-point": "random",
    "spread-points": 0,
    "acquisition": "thompson",
    "advice-use": "query",
    "message": "sample",
    "vector-bound": None,
    "share-scale": False,
    "kernel": "se",
    "refit-every": 5,
    "standardise": False,
    "cut-low-scores": False,
    "features": 100,
    "feature-kernel": "se",
    "feature-lengthscale": 0.01,
    "feature-noise": 1e-6,
}
