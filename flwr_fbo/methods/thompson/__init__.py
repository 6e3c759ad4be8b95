"""The local agent of FTS and DP-FTS-DE: a Gaussian process, and the vector that it shares."""

from typing import Any

#: The papers' own model and messages on real data (FTS D.2.2, DP-FTS-DE B.2.1): raw scores,
#: and features so narrow that little is shared between neighbouring points.
PAPER_AGENT: dict[str, Any] = {
    "initial-points": 10,
    "first-point": "random",
    "acquisition": "thompson",
    "advice-use": "query",
    "message": "sample",
    "vector-bound": None,
    "share-scale": False,
    "kernel": "se",
    "refit-every": 5,
    "standardise": False,
    "features": 100,
    "feature-kernel": "se",
    "feature-lengthscale": 0.01,
    "feature-noise": 1e-6,
}
