"""Measurements that say why a figure comes out as it does; see reasons.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.methods.comparators.fed1_ucb import mesh
from flwr_fbo.methods.thompson.schedules import own_probability
from flwr_fbo.tasks import load
from flwr_fbo.tasks.papers.garland import RoughTask
from flwr_fbo.tasks.task import Partition

from .drivers import Federation, driver, federation, prepared

#: Rounds in which the papers' agents follow others often enough to compare.
EARLY = 10


@driver
def advice(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """What points are worth that agents choose by others' function, and by their own model.

    The mean error of both in the first rounds, and by how much a point lowered its agent's least
    error so far. ``noise`` is the length of a release's noise over that of the release.
    """
    made = Federation(settings, seed)
    noise = []
    while made.server.round <= EARLY and not made.server.finished:
        made.round()
        share = _noise_share(made.server)
        if share is not None:
            noise.append(share)
    found = compared(by_source(made.histories))
    return {**found, "noise": float(np.mean(noise)) if noise else None}


@driver
def random_points(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """The mean error of points at random, of every agent."""
    given = {k: v for k, v in settings.items() if k not in ("draws", "strategy")}
    made = Federation({**given, "rounds": 0, "strategy": "local-ts",
                       "initial-points": int(settings["draws"])}, seed)  # fmt: skip
    while not made.server.finished:
        made.round()
    errors = np.array([[1.0 - (e.score or 0.0) for e in history] for history in made.histories])
    return {"advised": float(errors.mean())}


#: Error and gain of each point, by round and by whose function it was chosen by.
Points: TypeAlias = Mapping[tuple[int, str], list[tuple[float, float]]]


def by_source(histories: Sequence[Sequence[Evaluation]]) -> Points:
    """The points of all agents; their histories are in the order of time."""
    points: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for history in histories:
        least = 1.0
        for e in history:
            error = 1.0 - e.score if e.regret is None and e.score is not None else e.regret
            if error is not None:
                points[e.round, e.source].append((error, max(0.0, least - error)))
                least = min(least, error)
    return dict(points)


def compared(points: Points) -> dict[str, float]:
    """Mean errors and gains by source, in rounds that have both, each round with one weight."""
    rounds = [r for r in range(1, EARLY + 1) if (r, "own") in points and (r, "advice") in points]
    weights = [min(len(points[r, "own"]), len(points[r, "advice"])) for r in rounds]
    own, advised = (
        np.average([np.mean(points[r, source], axis=0) for r in rounds], axis=0, weights=weights)
        for source in ("own", "advice")
    )
    return {
        "own": float(own[0]),
        "advised": float(advised[0]),
        "own-gain": float(own[1]),
        "advised-gain": float(advised[1]),
    }


def _noise_share(server: Any) -> float | None:
    """Expected length of the noise in a sub-region's release over the release's length."""
    released = getattr(server, "released", None)
    if released is None or released.latest is None or not server.settings.private:
        return None
    vectors = np.asarray(released.latest)  # (P, M)
    lengths = np.linalg.norm(vectors, axis=1)
    return float(released.deviation(1) * np.sqrt(vectors.shape[1]) / lengths.mean())


@driver
def difference(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """The mean of one federation's curve less that of another, which begins with the same seed."""
    first, second = (np.mean(federation(settings[side], seed)["curve"]) for side in ("of", "less"))
    return {"value": float(first - second)}


@driver
def follows(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """In how many of so many iterations an agent follows others, on average."""
    schedule, rounds = settings["schedule"], int(settings["rounds"])
    share = [1 - own_probability(schedule, t, first_as_second=True) for t in range(1, rounds + 1)]
    return {"value": float(sum(share)), "iterations": rounds}


@driver
def arms(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """What the best arm of a mesh costs in T evaluations, and an arm on average."""
    made = load(settings["task"])
    assert isinstance(made, RoughTask)
    points = mesh(made.space, int(settings["arms"]), np.random.default_rng(seed))
    gaps = int(settings["budget"]) * (made.optimum() - made.function(points[:, 0]))
    return {"best": float(gaps.min()), "mean": float(gaps.mean())}


@driver
def chance(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """Regret at T, as the figures count it, of points at random and of the best common one.

    Regret is counted from 1, as the papers do where the optimum is not known. The best is that of
    the points drawn, for the mean of all clients.
    """
    clients, name = int(settings["clients"]), settings["task"]
    given = dict(pair.split("=") for pair in settings["task-settings"].split())
    made, rng = load(name, given), np.random.default_rng(seed)
    rows = np.random.default_rng(seed).permutation(made.parties or clients)[:clients]
    units = rng.random((int(settings["draws"]), made.space.dimension))
    errors = []
    for n in range(clients):
        if made.parties:
            task = prepared(made, name, int(rows[n]), made.parties, 0)
        else:
            task = load(name, given)
            task.prepare(Partition(n, clients, seed))
        errors.append([1 - task.evaluate(task.space.from_unit(u), rng=rng) for u in units])
    common = int(settings["budget"]) * np.mean(errors, axis=0)
    return {"random": float(common.mean()), "best": float(common.min())}
