"""FTS on real data: one target, and helpers that each have a history of their own (Sec. 5.2).

Helpers run Thompson sampling alone; their histories depend on the party only and are made once
for all methods. The target's initial points are the same for every method.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.methods.comparators.rgpe import RGPEAgent, RGPESettings
from flwr_fbo.methods.comparators.surrogates import (
    History,
    WeightSurrogates,
    numbers_sent,
    zero_mean_unit_spread,
)
from flwr_fbo.methods.comparators.taf import TAFAgent, TAFSettings
from flwr_fbo.methods.registry import find_method
from flwr_fbo.methods.thompson.sampler import ThompsonSampler
from flwr_fbo.methods.thompson.schedules import own_probability
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.methods.thompson.shared_function import SharedFunction
from flwr_fbo.models.features import RandomFeatures, WeightPosterior
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.search.regions import Regions
from flwr_fbo.tasks import load
from flwr_fbo.tasks.task import Task

from .drivers import driver, prepared
from .store import shape_of

#: FTS D.2.2: narrow features, almost no noise; the agents' own model is learned.
PAPER = {
    k: v for k, v in find_method("fts").paper_settings.items() if k in set(ThompsonSettings.keys())
}
Ask = Callable[[int], Array]


class Target:
    """A target that has its initial points, and what its helpers know."""

    def __init__(self, settings: Mapping[str, Any], seed: int) -> None:
        self.settings, self.seed = settings, seed
        self.rounds, self.party = int(settings["rounds"]), int(settings["target"])
        self.count = int(settings["helpers"]) + 1
        self.tasks = tasks_of(settings)
        self.space = self.tasks[0].space
        features = int(settings["features"])
        self.own = ThompsonSettings.from_mapping({**PAPER, "features": features})
        kernel = kernel_named(self.own.feature_kernel, self.own.feature_lengthscale)
        rng = np.random.default_rng([seed, features])
        self.shared = RandomFeatures.draw(kernel, features, self.space.embedding_dimension, rng)
        self.key = (seed, self.party)
        self.helpers = [n for n in range(self.count) if n != self.party]

    def histories(self, more: int = 0) -> list[History]:
        """The helpers' observations, ``more`` beyond those before the start."""
        length = int(self.settings["observations"]) + more
        made = [helper_history(self._key(), n, self._longest()) for n in self.helpers]
        return [History(h.units[:length], h.scores[:length]) for h in made]

    def _longest(self) -> int:
        more = self.rounds if self.settings["method"] == "fts-growing" else 0
        return int(self.settings["observations"]) + more

    def _key(self) -> tuple[tuple[str, Any], ...]:
        names = ("task", "task-settings", "helpers")
        return tuple((name, self.settings[name]) for name in names)

    def score(self, unit: Array) -> float:
        """The target's own score."""
        rng = np.random.default_rng(self.seed)
        return self.tasks[self.party].evaluate(self.space.from_unit(unit), rng=rng)


def tasks_of(settings: Mapping[str, Any]) -> list[Task]:
    """All parties' tasks."""
    given = dict(pair.split("=") for pair in settings["task-settings"].split())
    made = load(settings["task"], given)
    count = int(settings["helpers"]) + 1
    whole = made.parties or count
    return [prepared(made, settings["task"], n, max(whole, count), 0) for n in range(count)]


@lru_cache(maxsize=512)
def helper_history(key: tuple[tuple[str, Any], ...], party: int, length: int) -> History:
    """A helper's own Thompson sampling, from 3 random points on."""
    settings = dict(key)
    task = tasks_of(settings)[party]
    own = ThompsonSettings.from_mapping(PAPER)
    sampler = ThompsonSampler(task.space, own, None, (7, party))
    rng = np.random.default_rng(party)
    units, scores = list(sampler.explore(own.initial_points)), []
    for t in range(length):
        if t >= len(units):
            units.append(sampler.ask(t).unit)
        scores.append(task.evaluate(task.space.from_unit(units[t]), rng=rng))
        sampler.tell(units[t], scores[-1])
    return History(np.array(units[:length]), np.array(scores))


@driver
def target(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """One target's error by iteration, the CPU seconds its method took, and numbers sent.

    ``clock`` is the CPU time, evaluations included, at those iterations that are kept of the curve.
    """
    problem = Target(settings, seed)
    start = time.process_time()
    histories = [] if settings["method"] == "ts" else problem.histories()
    made = time.process_time() - start  # the helpers' work, not the target's
    start = time.process_time()
    agent, ask = METHODS[settings["method"]](problem, histories)
    best, scoring, clock = [], 0.0, []
    for t, unit in enumerate([*agent.explore(3), *range(1, problem.rounds + 1)]):
        point = ask(int(unit)) if t >= 3 else unit
        before = time.process_time()
        score = problem.score(point)
        scoring += time.process_time() - before
        agent.tell(point, score)
        best.append(1.0 - max(score, 1.0 - best[-1] if best else 0.0))
        clock.append(time.process_time() - start)
    seconds = time.process_time() - start - scoring
    sent = {"ts": 0, "fts-growing": problem.rounds * int(settings["features"])}
    method = settings["method"]
    counted = "taf" if method == "taf-incumbent" else method
    numbers = sent[method] if method in sent else numbers_sent(
        counted, features=int(settings["features"])
    )  # fmt: skip
    return {"curve": best[2:], "agent_seconds": seconds, "helper_seconds": made,
            "evaluation_seconds": scoring, "numbers_sent": numbers,
            "clock": shape_of(clock[2:])}  # fmt: skip


@driver
def targets(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """The mean over the first few agents, each as the target (they are the paper's repetitions)."""
    count = int(settings["targets"])
    runs = [target({**settings, "target": n}, seed) for n in range(count)]
    single = [k for k in runs[0] if k not in ("curve", "clock")]
    means = {k: float(np.mean([r[k] for r in runs])) for k in single}
    return {**means, "curve": np.mean([r["curve"] for r in runs], axis=0).tolist()}


class _Sampler:
    """A Thompson sampler that explores as transfer agents do."""

    def __init__(self, problem: Target) -> None:
        self.sampler = ThompsonSampler(problem.space, problem.own, problem.shared, problem.key)
        self.explore, self.tell = self.sampler.explore, self.sampler.tell


def _ts(problem: Target, histories: list[History]) -> tuple[Any, Ask]:
    agent = _Sampler(problem)
    return agent, lambda t: agent.sampler.ask(t).unit


def _fts(problem: Target, histories: list[History]) -> tuple[Any, Ask]:
    """Algorithm 1: each helper's vector once, in random order, with probability 1 - p_t."""
    agent, rng = _Sampler(problem), np.random.default_rng([problem.seed, 1])
    vectors = _vectors(problem, histories, rng)
    order = list(rng.permutation(len(vectors)))

    def ask(t: int) -> Array:
        if order and rng.random() > own_probability("1-1/t^2", t, first_as_second=True):
            return agent.sampler.ask(t, 0.0, _advice(problem, vectors[order.pop()])).unit
        return agent.sampler.ask(t).unit

    return agent, ask


def _growing(problem: Target, histories: list[History]) -> tuple[Any, Ask]:
    """App. D.2.1: helpers go on, and send a new vector before every iteration."""
    agent, rng = _Sampler(problem), np.random.default_rng([problem.seed, 1])

    def ask(t: int) -> Array:
        if rng.random() > own_probability("1-1/t^2", t, first_as_second=True):
            helper = int(rng.integers(len(problem.helpers)))
            vector = _vectors(problem, [problem.histories(t - 1)[helper]], rng)[0]
            return agent.sampler.ask(t, 0.0, _advice(problem, vector)).unit
        return agent.sampler.ask(t).unit

    return agent, ask


def _vectors(problem: Target, histories: list[History], rng: np.random.Generator) -> list[Array]:
    """omega_n ~ N(nu_n, sigma^2 Sigma_n^-1), of raw scores as in the paper."""
    return [
        WeightPosterior(
            problem.shared(problem.space.embed(h.units)), h.scores, problem.own.feature_noise
        ).sample(rng)
        for h in histories
    ]


def _advice(problem: Target, vector: Array) -> SharedFunction:
    return SharedFunction(vector[None, :], Regions((1,) * problem.space.dimension))


def _surrogates(problem: Target, histories: list[History]) -> WeightSurrogates:
    return WeightSurrogates.of(problem.space, histories, problem.shared, problem.own.feature_noise)


def _rgpe(problem: Target, histories: list[History]) -> tuple[Any, Ask]:
    others = _surrogates(problem, histories)
    agent = RGPEAgent(problem.space, others, RGPESettings(), problem.own, problem.key)
    return _Explorer(agent), agent.ask


def _taf(problem: Target, histories: list[History]) -> tuple[Any, Ask]:
    others = _surrogates(problem, histories)
    agent = TAFAgent(problem.space, others, TAFSettings(), problem.own, problem.key)
    return _Explorer(agent), agent.ask


class IncumbentTAF(TAFAgent):
    """TAF as FTS describes it: a helper sends its incumbent, and only more than that is a gain.

    FTS Sec. 3.2: "TAF additionally requires the incumbent (currently found maximum observation
    value) of every agent". Incumbents are in the units of the surrogates: standardised scores.
    """

    def __init__(self, incumbents: Array, *given: Any) -> None:
        super().__init__(*given)
        self.incumbents = incumbents  # (N,)

    def _values_to_beat(self, predicted: Array) -> Array:
        return self.incumbents


def _taf_incumbent(problem: Target, histories: list[History]) -> tuple[Any, Ask]:
    others = _surrogates(problem, histories)
    incumbents = np.array([zero_mean_unit_spread(h.scores).max() for h in histories])
    given = (problem.space, others, TAFSettings(), problem.own, problem.key)
    agent = IncumbentTAF(incumbents, *given)
    return _Explorer(agent), agent.ask


class _Explorer:
    def __init__(self, agent: Any) -> None:
        self.explore, self.tell = lambda count: agent.explore(), agent.tell


METHODS: dict[str, Callable[[Target, list[History]], tuple[Any, Ask]]] = {
    "ts": _ts, "fts": _fts, "fts-growing": _growing, "rgpe": _rgpe, "taf": _taf,
    "taf-incumbent": _taf_incumbent,
}  # fmt: skip
