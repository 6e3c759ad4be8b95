"""Support vector machines with an RBF kernel: trained on one part, scored on the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array
from flwr_fbo.tasks.data_task import Split
from flwr_fbo.tasks.task import Params


def svm_auc(data: Split, params: Params) -> float:
    """Return the area under the ROC curve of the decision function.

    The alternative, ``predict_proba``, uses Platt scaling, which draws random folds: the same
    parameters score differently each time, and the best score so far is a maximum over noise.
    """
    return auc(data.y_valid == 1, _fit(data, params).decision_function(data.x_valid))


def svm_accuracy(data: Split, params: Params) -> float:
    """Return the share of the validation examples that the SVM classifies correctly."""
    return float(np.mean(_fit(data, params).predict(data.x_valid) == data.y_valid))


def _fit(data: Split, params: Params) -> Any:
    from sklearn.svm import SVC  # slow to import

    return SVC(C=params["C"], gamma=params["gamma"]).fit(data.x_train, data.y_train)


def auc(positive: NDArray[np.bool_], scores: Array) -> float:
    """Return the probability that a positive example outranks a negative one.

    Ties count half. The estimate is the Mann-Whitney statistic U / (n1 n0).
    """
    n1 = int(positive.sum())
    n0 = len(positive) - n1
    if n1 == 0 or n0 == 0:
        raise ValueError(
            f"an AUC needs both classes in the validation half, but there are {n1} positive "
            f"and {n0} negative examples"
        )
    from scipy.stats import rankdata  # slow to import

    ranks = rankdata(scores)
    # U = (sum of the positives' ranks) - n1 (n1 + 1) / 2
    return float((ranks[positive].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))
