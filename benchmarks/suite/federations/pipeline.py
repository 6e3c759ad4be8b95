"""A scikit-learn pipeline with five categories, tuned by 12 parties on few images of digits.

The data come with scikit-learn. The parties differ: each has its own mix of digits, its own
contrast and its own pixel noise. A party sees the accuracy on 30 validation images, and is judged
by the accuracy on 60 others.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from benchmarks.suite.federation import Federation
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.tasks.task import Params, Partition, Task

PARTIES, TRAIN, VALID = 12, 55, 30


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return np.asarray(found.data) / 16.0, np.asarray(found.target)


def _shares() -> list[np.ndarray]:
    """Return the images of each party: about 145, mostly of a few digits of its own."""
    rng, (_, labels) = np.random.default_rng(20_261_119), _digits()
    left = [list(rng.permutation(np.flatnonzero(labels == c))) for c in range(10)]
    shares: list[list[int]] = [[] for _ in range(PARTIES)]
    mixes = rng.dirichlet(np.full(10, 2.0), PARTIES)
    for turn in range(145):
        for n in range(PARTIES):
            open_ = np.array([len(pool) > 0 for pool in left])
            mix = np.where(open_, mixes[n] + 0.02, 0.0)
            digit = int(rng.choice(10, p=mix / mix.sum()))
            # The first ten images of a party are of all digits.
            digit = turn if turn < 10 and left[turn] else digit
            shares[n].append(left[digit].pop())
    return [np.array(share) for share in shares]


class PipelineTask(Task):
    """Scaler, reduction, classifier and their hyperparameters."""

    label = "pipeline"
    score_range = (0.0, 1.0)

    @property
    def space(self) -> Space:
        return Space({
            "scaler": Categorical(["none", "standard", "range"]),
            "reduction": Categorical(["none", "pca", "best"]),
            "model": Categorical(["svc", "logistic", "neighbours", "tree", "bayes"]),
            "balance": Categorical(["none", "balanced"]),
            "votes": Categorical(["uniform", "distance"]),
            "components": Int(2, 40, log=True),
            "C": Float(1e-3, 1e3, log=True),
            "gamma": Float(1e-4, 1e1, log=True),
            "size": Int(1, 30, log=True),
        })  # fmt: skip

    def prepare(self, partition: Partition) -> None:
        X, y = _digits()
        mine = _shares()[partition.index]
        rng = np.random.default_rng([20_261_119, 1, partition.index])
        noise = rng.uniform(0.0, 0.4) * rng.standard_normal((len(mine), X.shape[1]))
        self.X = rng.uniform(0.3, 1.0) * X[mine] + noise
        self.y = y[mine]
        self._known: dict[tuple[Any, ...], tuple[float, float]] = {}

    def _accuracies(self, params: Params) -> tuple[float, float]:
        """Return the accuracy on the validation images and on the others."""
        key = tuple(params.values())
        if key not in self._known:
            model = pipeline(params).fit(self.X[:TRAIN], self.y[:TRAIN])
            right = model.predict(self.X[TRAIN:]) == self.y[TRAIN:]
            self._known[key] = float(right[:VALID].mean()), float(right[VALID:].mean())
        return self._known[key]

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        return self._accuracies(params)[0]

    def expected(self, params: Params) -> float:
        return self._accuracies(params)[1]


def pipeline(params: Params) -> Any:
    """Return the pipeline of a setting, not fitted."""
    from sklearn.decomposition import PCA
    from sklearn.feature_selection import SelectKBest
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    count = int(params["components"])  # type: ignore[arg-type]
    size = int(params["size"])  # type: ignore[arg-type]
    weight = None if params["balance"] == "none" else "balanced"
    scaler = {"none": FunctionTransformer, "standard": StandardScaler, "range": MinMaxScaler}
    models: dict[Any, Any] = {
        "svc": lambda: SVC(C=params["C"], gamma=params["gamma"], class_weight=weight),
        "logistic": lambda: LogisticRegression(
            C=params["C"], class_weight=weight, solver="newton-cholesky", max_iter=30
        ),
        "neighbours": lambda: KNeighborsClassifier(size, weights=params["votes"]),
        "tree": lambda: DecisionTreeClassifier(max_depth=size, class_weight=weight, random_state=0),
        "bayes": lambda: GaussianNB(var_smoothing=params["gamma"]),
    }
    steps: list[Any] = [scaler[params["scaler"]]()]
    if params["reduction"] == "pca":
        steps.append(PCA(count, svd_solver="full"))
    if params["reduction"] == "best":
        steps.append(SelectKBest(_spread, k=count))
    return make_pipeline(*steps, models[params["model"]]())


def _spread(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return how far the means of the classes lie apart in each pixel: (D,)."""
    means = np.stack([X[y == c].mean(axis=0) for c in np.unique(y)])
    return np.asarray(means.var(axis=0))


PIPELINE = Federation(
    name="pipeline",
    title="A scikit-learn pipeline with five categories, 12 parties",
    version=1,
    task=PipelineTask,
    parties=PARTIES,
    evaluations=20,
    random_settings=300,
    about="Nine hyperparameters, five of them categories; 30 validation images, 60 to judge.",
)
