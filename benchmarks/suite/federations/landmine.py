"""Landmine detection by the protocol of GUIDE-FBO: 29 fields, 30 + 50 evaluations, a held-out test.

A party tunes C and gamma of a support vector machine on its own field. Half of a field is held
out, stratified, by the seed of the repetition. What a party sees is the mean AUC of 3 fixed,
stratified folds of the other half. It is judged by the AUC on the held-out half of a machine that
is trained on all of the other half. The paper does not say how large the held-out part is, which
ranges are searched, or how folds are drawn; half of the field, the ranges of FTS on a logarithmic
scale, and scikit-learn's stratified folds are ours.

The data are landmine.npz or LandmineData.mat in the directory in FLWR_FBO_DATA.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.suite.federation import Federation, MissingDataError
from flwr_fbo.core.space import Float, Space
from flwr_fbo.tasks.papers.data.landmine import load_landmine
from flwr_fbo.tasks.papers.svm import auc
from flwr_fbo.tasks.task import Params, Partition, Task

FOLDS = 3


@cache
def _fields() -> Any:
    root = os.environ.get("FLWR_FBO_DATA", "")
    try:
        if not root:
            raise FileNotFoundError("FLWR_FBO_DATA is not set")
        return load_landmine(Path(root))
    except Exception as error:
        raise MissingDataError(
            f"landmine.npz or LandmineData.mat must be in the directory in FLWR_FBO_DATA: {error}"
        ) from error


class LandmineProtocolTask(Task):
    """C and gamma of one field."""

    label = "landmine-protocol"
    score_range = (0.0, 1.0)

    def __init__(self) -> None:
        super().__init__()
        _fields()

    @property
    def space(self) -> Space:
        return Space({"C": Float(1e-4, 10.0, True), "gamma": Float(0.01, 10.0, True)})

    def prepare(self, partition: Partition) -> None:
        from sklearn.model_selection import StratifiedKFold, train_test_split

        field = _fields().of(partition.index)
        X, y = np.asarray(field.X), np.asarray(field.y)
        seed = int(np.random.default_rng([partition.seed, partition.index]).integers(2**31))
        self.known, self.held_out, self.labels, self.truth = train_test_split(
            X, y, test_size=0.5, stratify=y, random_state=seed
        )
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        self.folds = list(folds.split(self.known, self.labels))

    def _auc(self, params: Params, train: Any, labels: Any, test: Any, truth: Any) -> float:
        from sklearn.svm import SVC

        machine = SVC(C=params["C"], gamma=params["gamma"]).fit(train, labels)
        return auc(truth == 1, machine.decision_function(test))

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        X, y = self.known, self.labels
        return float(np.mean([self._auc(params, X[a], y[a], X[b], y[b]) for a, b in self.folds]))

    def expected(self, params: Params) -> float:
        return self._auc(params, self.known, self.labels, self.held_out, self.truth)


LANDMINE = Federation(
    name="landmine",
    title="Landmine by GUIDE-FBO's protocol, 29 fields",
    version=1,
    task=LandmineProtocolTask,
    parties=29,
    evaluations=80,
    initial=30,
    shown=(1, 10, 30, 35, 40, 50, 60, 80),
    repetitions=10,
    normalised=False,
    about="3-fold AUC is seen, the AUC of a held-out half is judged; the loss is 1 - AUC.",
)
