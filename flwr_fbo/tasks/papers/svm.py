"""Support vector machines with an RBF kernel: train on one half, score on the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from flwr_fbo.core.arrays import Array
from flwr_fbo.tasks.task import Params


@dataclass(frozen=True, eq=False)
class Halves:
    """One party's examples, divided into training and validation."""

    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_valid: NDArray[Any]
    y_valid: NDArray[Any]


def svm_auc(data: Halves, params: Params) -> float:
    """Area under the ROC curve, from the decision function.

    Not from ``predict_proba``: Platt scaling draws random folds, so that the same parameters
    score differently each time, and the best score so far would be a maximum over that noise.
    """
    return auc(data.y_valid == 1, _fitted(data, params).decision_function(data.x_valid))


def svm_accuracy(data: Halves, params: Params) -> float:
    """The share of the validation half that is classified rightly."""
    return float(np.mean(_fitted(data, params).predict(data.x_valid) == data.y_valid))


def _fitted(data: Halves, params: Params) -> Any:
    from sklearn.svm import SVC

    return SVC(C=params["C"], gamma=params["gamma"]).fit(data.x_train, data.y_train)


def auc(positive: NDArray[np.bool_], scores: Array) -> float:
    """P(a positive outranks a negative), ties counting half: the Mann-Whitney statistic."""
    n1 = int(positive.sum())
    n0 = len(positive) - n1
    if n1 == 0 or n0 == 0:
        raise ValueError(
            f"an AUC needs both classes in the validation half, but there are {n1} positive "
            f"and {n0} negative examples"
        )
    ranks = rankdata(scores)
    return float((ranks[positive].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))
