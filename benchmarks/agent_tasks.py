"""Federations on which agents are compared with Optuna: surrogates of real tuning runs, a pipeline
with five categories, Hartmann's function in eight dimensions, and tasks with failures.

Every task has a score with noise, and the expected score, by which a found setting is judged. The
surrogates are YAHPO Gym's (`yahpo/lcbench`, `yahpo/rbv2_rpart` in ``FLWR_FBO_DATA``) and need
onnxruntime. The scale of a party is its own: regret 0 is the best known setting of the party,
regret 1 is the median of random settings.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.suite.federations.yahpo import LCBENCH_SCENARIO, RPART_SCENARIO, Scenario
from flwr_fbo.core.arrays import Array
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.tasks.task import Params, Partition, Task

#: Spread of the error of a score: that of an accuracy of .8 on 1,600 validation examples.
NOISE = 0.01
#: Random settings by which the scale of a party is found, and settings near the best of them.
RANDOM, NEAR, NEAR_ROUNDS = 4000, 500, 8
#: The share of the space in which tasks with a failing corner run out of memory.
CORNER = 0.16


class JudgedTask(Task):
    """A task whose expected score is known, with a scale of regret for each party."""

    score_range = (0.0, 1.0)
    noise = NOISE
    metric = "accuracy"

    def expected_of(self, units: Array) -> Array:
        """Return the expected scores at points of the space (n, D); NaN where they fail: (n,)."""
        rows = [self._expected(self.space.from_unit(unit)) for unit in units]
        return np.array([math.nan if value is None else value for value in rows])

    def _expected(self, params: Params) -> float | None:
        raise NotImplementedError

    def prepare(self, partition: Partition) -> None:
        """Take the party's own function, and find the scale of its regret."""
        self.party = partition.index
        self._prepare(np.random.default_rng([partition.seed, partition.index, 77]))
        self.best, self.median = self._scale()

    def _prepare(self, rng: np.random.Generator) -> None:
        """Take the party's own function."""

    def _scale(self) -> tuple[float, float]:
        """Return the best known expected score, and the median of random settings."""
        rng = np.random.default_rng([self.party, 78])
        units = self.space.sample(RANDOM, rng)
        values = self.expected_of(units)
        median = float(np.nanmedian(values))
        for step in 0.2 * 0.6 ** np.arange(NEAR_ROUNDS):
            top = units[np.argsort(np.nan_to_num(values, nan=-np.inf))[-20:]]
            near = top[rng.integers(len(top), size=NEAR)]
            moved = near + step * rng.standard_normal(near.shape) * (rng.random(near.shape) < 0.5)
            units = np.vstack([top, self.space.snap(np.clip(moved, 0.0, 1.0))])
            values = self.expected_of(units)
        return float(np.nanmax(values)), median

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """Return the expected score with the error of a validation set."""
        value = self._expected(params)
        if value is None:
            raise MemoryError("out of memory")
        return value + self.noise * float(rng.standard_normal())

    def regret(self, unit: Array | None) -> float:
        """Return the regret of a found setting on the party's scale; 1 for none."""
        if unit is None:
            return 1.0
        value = self.expected_of(np.asarray(unit)[None])[0]
        if math.isnan(value):
            return 1.0
        return float((self.best - value) / (self.best - self.median))


# ------------------------------------------------------------------ surrogates of real runs


class _YahpoTask(JudgedTask):
    """A YAHPO surrogate: one data set is one party."""

    scenario: Scenario

    @property
    def instances(self) -> list[str]:
        """Return the data sets, in the order of their names."""
        return sorted(self.scenario.instances())

    def _prepare(self, rng: np.random.Generator) -> None:
        names = self.instances
        self.instance = names[self.party % len(names)]

    def expected_of(self, units: Array) -> Array:
        rows = [self.space.from_unit(unit) for unit in units]
        values = self.scenario.scores(self.instance, rows)
        return np.where([self.fails(row) for row in rows], math.nan, values)

    def fails(self, params: Params) -> bool:
        """Say whether a setting runs out of memory."""
        return False

    def _expected(self, params: Params) -> float | None:
        value = float(self.expected_of(self.space.to_unit(params)[None])[0])
        return None if math.isnan(value) else value


class LCBenchTask(_YahpoTask):
    """A torch network on 34 data sets, seven hyperparameters."""

    scenario = LCBENCH_SCENARIO
    parties = 34

    @property
    def space(self) -> Space:
        return Space({
            "batch_size": Int(16, 512, log=True), "learning_rate": Float(1e-4, 0.1, log=True),
            "max_dropout": Float(0.0, 1.0), "max_units": Int(64, 1024, log=True),
            "momentum": Float(0.1, 0.99), "num_layers": Int(1, 5),
            "weight_decay": Float(1e-5, 0.1),
        })  # fmt: skip


class LCBenchCornerTask(LCBenchTask):
    """The same network on a machine that runs out of memory: large batch times wide model."""

    def fails(self, params: Params) -> bool:
        unit = self.space.to_unit(params)
        return bool(unit[0] + unit[3] > 2.0 - math.sqrt(2.0 * CORNER))


class RpartTask(_YahpoTask):
    """A decision tree on 117 data sets, five hyperparameters."""

    scenario = RPART_SCENARIO
    parties = 117

    @property
    def space(self) -> Space:
        return Space({
            "cp": Float(0.001, 1.0, log=True), "maxdepth": Int(1, 30),
            "minbucket": Int(1, 100), "minsplit": Int(1, 100),
            "num.impute.selected.cpo": Categorical(["impute.mean", "impute.median", "impute.hist"]),
        })  # fmt: skip


# ------------------------------------------------------------------ made functions

_H6_A = np.array([
    [10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14],
    [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14],
])  # fmt: skip
_H6_P = 1e-4 * np.array([
    [1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
    [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381],
])  # fmt: skip
_H6_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])


class HartmannTask(JudgedTask):
    """Hartmann's function of six numbers, shifted by party, with two numbers of little effect."""

    metric = "height"
    noise = 0.01

    @property
    def space(self) -> Space:
        return Space({f"x{i}": Float(0.0, 1.0) for i in range(8)})

    def _prepare(self, rng: np.random.Generator) -> None:
        self.shift = rng.uniform(-0.1, 0.1, 8)

    def expected_of(self, units: Array) -> Array:
        x = np.atleast_2d(units) + self.shift
        apart = (x[:, None, :6] - _H6_P) ** 2  # (n, 4, 6)
        height = np.exp(-(apart * _H6_A).sum(-1)) @ _H6_ALPHA / 3.32237
        return np.asarray(height - 0.1 * ((x[:, 6:] - 0.5) ** 2).sum(-1))

    def _expected(self, params: Params) -> float | None:
        return float(self.expected_of(self.space.to_unit(params)[None])[0])


class CornerTask(JudgedTask):
    """A network whose large batch times wide model runs out of memory, the optimum beside it."""

    @property
    def space(self) -> Space:
        return Space({
            "batch": Int(16, 1024, log=True), "width": Int(16, 1024, log=True),
            "rate": Float(1e-4, 1e-1, log=True), "dropout": Float(0.0, 0.9),
        })  # fmt: skip

    def _prepare(self, rng: np.random.Generator) -> None:
        # The unbounded optimum lies on either side of the border, a little way off.
        beside = rng.uniform(-0.08, 0.05)
        along = rng.uniform(-0.1, 0.1)
        edge = 1.0 - math.sqrt(0.5 * CORNER) + 0.5 * beside
        other = rng.uniform([0.4, 0.2], [0.7, 0.5])
        self.top = np.array([edge + along, edge - along, *other])

    def expected_of(self, units: Array) -> Array:
        x = np.atleast_2d(units)
        away = ((x - self.top) / np.array([0.5, 0.5, 0.35, 0.6])) ** 2
        values = 0.5 + 0.4 * np.exp(-0.5 * away.sum(-1))
        return np.where(x[:, 0] + x[:, 1] > 2.0 - math.sqrt(2.0 * CORNER), math.nan, values)

    def _expected(self, params: Params) -> float | None:
        value = float(self.expected_of(self.space.to_unit(params)[None])[0])
        return None if math.isnan(value) else value


class HillsTask(JudgedTask):
    """The example of docs/how-to/own-task.md: the deepest of twelve depths runs out of memory."""

    @property
    def space(self) -> Space:
        return Space({
            "rate": Float(1e-4, 1.0, log=True), "depth": Int(1, 12),
            "kind": Categorical(["plain", "fancy"]),
        })  # fmt: skip

    def _expected(self, params: Params) -> float | None:
        if int(params["depth"]) > 11:  # type: ignore[arg-type]
            return None
        return 0.9 - (float(params["rate"]) - 0.3 - 0.01 * self.party) ** 2  # type: ignore[arg-type]


# ------------------------------------------------------------------ a pipeline


class PipelineTask(JudgedTask):
    """A scikit-learn pipeline with five categories, on scikit-learn's own data sets."""

    noise = 0.0
    #: Random settings and local settings that find the scale: a fit takes a hundredth of a second.
    random, local = 150, 50
    NAMES = ("iris", "wine", "breast_cancer", "digits")

    @property
    def space(self) -> Space:
        return Space({
            "scaler": Categorical(["none", "standard", "minmax", "quantile"]),
            "model": Categorical(["logistic", "svm", "tree", "neighbours", "forest"]),
            "kernel": Categorical(["rbf", "poly", "sigmoid"]),
            "criterion": Categorical(["gini", "entropy", "log_loss"]),
            "weights": Categorical(["uniform", "distance"]),
            "c": Float(1e-4, 1e3, log=True), "gamma": Float(1e-5, 10.0, log=True),
            "depth": Int(1, 16), "neighbours": Int(1, 40),
        })  # fmt: skip

    def _prepare(self, rng: np.random.Generator) -> None:
        from sklearn import datasets

        loaded = getattr(datasets, f"load_{self.NAMES[self.party % len(self.NAMES)]}")()
        rows = rng.permutation(len(loaded.data))[:600]
        x, y = loaded.data[rows], loaded.target[rows]
        train = len(x) // 4
        # The score is of thirty examples; settings are judged by all others.
        self.parts = [slice(0, train), slice(train, train + 30), slice(train + 30, None)]
        self.data, self.known = (x, y), {}

    def _scale(self) -> tuple[float, float]:
        rng = np.random.default_rng([self.party, 78])
        units = self.space.sample(self.random, rng)
        values = self.expected_of(units)
        top = units[np.argsort(values)[-5:]]
        near = top[rng.integers(5, size=self.local)]
        near = np.where(rng.random(near.shape) < 0.2, rng.random(near.shape), near)
        best = max(values.max(), self.expected_of(self.space.snap(near)).max())
        return float(best), float(np.median(values))

    def _scores(self, params: Params) -> tuple[float, float]:
        """Return the accuracies on the validation examples, and on those that judge."""
        key = tuple(params.values())
        if key not in self.known:
            x, y = self.data
            train, valid, rest = self.parts
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = _pipeline(params).fit(x[train], y[train])
                found = [float(model.score(x[part], y[part])) for part in (valid, rest)]
            self.known[key] = found[0], found[1]
        return self.known[key]

    def _expected(self, params: Params) -> float | None:
        return self._scores(params)[1]

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        return self._scores(params)[0]


def _pipeline(p: Mapping[str, Any]) -> Any:
    from sklearn import ensemble, linear_model, neighbors, pipeline, preprocessing, svm, tree

    scalers = {
        "none": "passthrough", "standard": preprocessing.StandardScaler(),
        "minmax": preprocessing.MinMaxScaler(),
        "quantile": preprocessing.QuantileTransformer(n_quantiles=30),
    }  # fmt: skip
    models = {
        "logistic": lambda: linear_model.LogisticRegression(C=p["c"], max_iter=60),
        "svm": lambda: svm.SVC(C=p["c"], gamma=p["gamma"], kernel=p["kernel"], max_iter=2000),
        "tree": lambda: tree.DecisionTreeClassifier(
            max_depth=p["depth"], criterion=p["criterion"], random_state=0
        ),
        "neighbours": lambda: neighbors.KNeighborsClassifier(p["neighbours"], weights=p["weights"]),
        "forest": lambda: ensemble.RandomForestClassifier(
            10, max_depth=p["depth"], criterion=p["criterion"], random_state=0
        ),
    }
    return pipeline.make_pipeline(scalers[p["scaler"]], models[p["model"]]())
