"""The synthetic experiment of DP-FTS-DE (App. B.1.1), at a smaller size."""

from __future__ import annotations

from functools import cache

import numpy as np

from flwr_fbo.methods.baselines.random_search import RandomSearchServer
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.server import ThompsonServer
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.tasks.papers.synthetic import SyntheticTask

from .thompson_harness import run, synthetic_parties

AGENTS, ROUNDS, SEEDS, INITIAL = 30, 12, 6, 10
AGENT = {
    "initial_points": INITIAL, "kernel": "se", "lengthscale": 0.03, "noise": 0.01,
    "refit_every": 0, "standardise": False, "features": 50, "feature_lengthscale": 0.03,
    "feature_noise": 0.01,
}  # fmt: skip
FEDERATION = {
    "p_schedule": "1-1/sqrt(t)", "weights_hold": 5, "weights_decay": 5,
    "acquisition": "thompson", "advice_use": "query", "message": "sample", "vector_bound": None,
    "first_point": "random", "advice": "last",
}  # fmt: skip


def server_of(name, seed):
    space = SyntheticTask().space
    if name == "fts-de":
        settings = DPFTSDESettings(**AGENT, **FEDERATION, regions=2)
        return DPFTSDEServer(space, AGENTS, settings, ROUNDS, seed)
    kind = ThompsonServer if name == "ts" else RandomSearchServer
    return kind(space, AGENTS, ThompsonSettings(**AGENT), ROUNDS, seed)


@cache
def regrets(name):
    """Simple regret, averaged over agents and rounds 1 to T, for each of the functions."""
    found = []
    for seed in range(SEEDS):
        server = server_of(name, seed)
        parties, tasks = synthetic_parties(server.setup(), AGENTS, seed)
        run(server, parties)
        curves = [
            np.minimum.accumulate(
                [task.optimum() - task.expected(e["params"]) for e in party.evaluations()]
            )
            for party, task in zip(parties, tasks, strict=True)
        ]
        assert {len(curve) for curve in curves} == {INITIAL + ROUNDS}
        found.append(np.mean(curves, axis=0)[INITIAL:].mean())
    return np.array(found)


def test_fts_de_beats_thompson_sampling_alone():
    # Measured over these six functions: TS .096, FTS-DE .038; the difference has a standard
    # deviation of .038 between functions, so its mean of .057 is 3.7 standard errors from zero.
    # It is asked to be 2 of them; seeds are fixed.
    gain = regrets("ts") - regrets("fts-de")
    assert gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(SEEDS)
    assert regrets("fts-de").mean() < 0.7 * regrets("ts").mean()


def test_thompson_sampling_beats_random_search():
    assert regrets("ts").mean() < regrets("random").mean()
