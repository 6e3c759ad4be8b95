"""Two federations of 24 parties in eleven mixed dimensions, for the choice of one setting for all.

``boosting`` is a formula that looks like gradient boosting: a category of three learners, of which
one ignores most parameters, rate times rounds that fits too little or too much, penalties that
hurt beyond a value of each party's own, and shares of columns below which all is lost. It needs no
data. ``learner`` is a choice between a network with seven parameters and a decision tree with
three, each a YAHPO surrogate of another data set for every party.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.suite.federation import Federation
from benchmarks.suite.federations.yahpo import LCBENCH_SCENARIO, RPART_SCENARIO, Scenario
from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.tasks.task import Params, Partition, Task

PARTIES = 24
NOISE = 0.01


def _seen(score: float, rng: np.random.Generator) -> float:
    return float(np.clip(score + NOISE * rng.standard_normal(), 0.0, 1.0))


class Boosting(Task):
    """A formula like gradient boosting; every party has its own best settings."""

    score_range = (0.0, 1.0)

    @property
    def name(self) -> str:
        return "boosting"

    @property
    def space(self) -> Space:
        return BOOSTING_SPACE

    def prepare(self, partition: Partition) -> None:
        rng = np.random.default_rng([77, partition.index])
        self.linear, self.dart = rng.uniform(-0.02, 0.18), rng.normal(0.0, 0.02)
        self.fit = rng.normal(1.6, 0.8)  # the best log(eta * nrounds)
        self.most_lambda, self.most_alpha = rng.normal(4.0, 1.5), rng.normal(2.0, 1.5)
        self.depth, self.weight = rng.normal(7, 2.5), abs(rng.normal(2.5, 1.2))
        self.columns, self.top = rng.uniform(0.02, 0.2), rng.uniform(0.8, 0.98)
        self.impute, self.steepness = rng.normal(0, 0.004, 3), rng.uniform(0.5, 1.5)
        self.overfits = rng.uniform(0.01, 0.08)

    def expected(self, params: Params) -> float:
        lost = max(self._lost(params), 0.0)
        return float(0.5 + (self.top - 0.5) * np.exp(-3.0 * self.steepness * lost))

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        return _seen(self.expected(params), rng)

    def _lost(self, params: Params) -> float:
        """Return how bad a setting is: 0 for nearly perfect."""
        p = dict(params)
        steps = np.log(p["eta"] * p["nrounds"])
        common = 0.035 * max(self.fit - steps, 0.0)
        common += 0.03 * max(np.log(p["lambda"]) - self.most_lambda, 0.0)
        common += 0.045 * max(np.log(p["alpha"]) - self.most_alpha, 0.0)
        common += self.impute[["median", "hist", "mean"].index(p["impute"])]
        if p["booster"] == "gblinear":
            return float(0.6 * common + 0.02 + self.linear)
        tree = 0.5 * self.overfits * max(steps - self.fit - 0.7, 0.0)
        tree += 0.02 * max(np.log(p["gamma"]) - 0.5, 0.0)
        tree += 0.04 * max(np.log(p["min_child_weight"]) - self.weight, 0.0)
        tree += 0.0012 * abs(p["max_depth"] - self.depth)
        tree += 0.10 * np.exp(-p["colsample"] / self.columns)
        tree += 0.06 * max(0.0, 0.55 - p["subsample"]) ** 1.2
        return float(common + tree + (self.dart + 0.01 if p["booster"] == "dart" else 0.0))


BOOSTING_SPACE = Space({
    "booster": Categorical(["gbtree", "gblinear", "dart"]),
    "nrounds": Int(7, 3000, log=True), "eta": Float(1e-3, 1.0, log=True),
    "gamma": Float(5e-5, 7.0, log=True), "lambda": Float(1e-3, 1000.0, log=True),
    "alpha": Float(1e-3, 1000.0, log=True), "subsample": Float(0.1, 1.0),
    "max_depth": Int(3, 15), "min_child_weight": Float(1, 150, log=True),
    "colsample": Float(0.01, 1.0), "impute": Categorical(["median", "hist", "mean"]),
})  # fmt: skip

#: The parameters of the tree that are tuned; the others are in the middle, or the first choice.
TREE = ("cp", "maxdepth", "minbucket")
#: Parties with other data sets than those of ``rpart-60``.
FIRST_TREE = 40


class Learner(Task):
    """A network or a decision tree, by surrogates of two data sets of each party."""

    score_range = (0.0, 1.0)

    def __init__(self) -> None:
        super().__init__()
        network, tree = LCBENCH_SCENARIO.space().parameters, RPART_SCENARIO.space().parameters
        self._space = Space({
            "learner": Categorical(["network", "tree"]), **network, **{k: tree[k] for k in TREE},
        })  # fmt: skip
        self._network = tuple(network)
        self._rest = {
            k: p.choices[0] if isinstance(p, Categorical) else p.from_unit(0.5)
            for k, p in tree.items() if k not in TREE
        }  # fmt: skip

    @property
    def name(self) -> str:
        return "learner"

    @property
    def space(self) -> Space:
        return self._space

    def prepare(self, partition: Partition) -> None:
        n, rng = partition.index, np.random.default_rng([78, partition.index])
        self.network = LCBENCH_SCENARIO.instances()[n]
        self.tree = RPART_SCENARIO.instances()[FIRST_TREE + n]
        self.of_network = _median_and_best(LCBENCH_SCENARIO, self.network, rng)
        self.of_tree = _median_and_best(RPART_SCENARIO, self.tree, rng)
        self.offset = rng.normal(0.0, 0.06)

    def expected_of_all(self, settings: Sequence[Params]) -> Array:
        """Return the scores of many settings, by two calls of the models: (n,)."""
        found = np.zeros(len(settings))
        kind = np.array([s["learner"] for s in settings])
        nets = [{k: s[k] for k in self._network} for s in settings if s["learner"] == "network"]
        trees = [{**self._rest, **{k: s[k] for k in TREE}} for s in settings
                 if s["learner"] == "tree"]  # fmt: skip
        if nets:
            seen = LCBENCH_SCENARIO.scores(self.network, nets)
            found[kind == "network"] = 0.9 - _lost(seen, *self.of_network)
        if trees:
            seen = RPART_SCENARIO.scores(self.tree, trees)
            found[kind == "tree"] = 0.88 + self.offset - _lost(seen, *self.of_tree)
        return np.clip(found, 0.0, 1.0)

    def expected(self, params: Params) -> float:
        return float(self.expected_of_all([params])[0])

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        return _seen(self.expected(params), rng)


def _median_and_best(
    scenario: Scenario, instance: str, rng: np.random.Generator
) -> tuple[float, float]:
    space = scenario.space()
    scores = scenario.scores(instance, [space.from_unit(u) for u in space.sample(600, rng)])
    return float(np.median(scores)), float(scores.max())


def _lost(scores: Array, median: float, best: float) -> Array:
    return np.asarray(0.2 * (best - scores) / max(best - median, 1e-3))


BOOSTING = Federation(
    name="boosting", title="Boosting: a formula in 11 mixed dimensions", version=1, task=Boosting,
    parties=PARTIES, evaluations=20, random_settings=4000,
    about="Eleven parameters, two of them categories; a formula like gradient boosting.",
)  # fmt: skip
LEARNER = Federation(
    name="learner", title="Network or tree: 11 mixed dimensions", version=1, task=Learner,
    parties=PARTIES, evaluations=20, random_settings=2000,
    about="A category of two learners and their ten parameters; surrogates (YAHPO Gym).",
)  # fmt: skip
