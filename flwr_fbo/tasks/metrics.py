"""The range of well-known scores, by the name of their metric.

Agents of ``dp-fts-de`` tell one another the mean and the spread of their scores where the range of
scores is public (:mod:`flwr_fbo.models.score_scale`). The range of an accuracy is public: it
follows from what an accuracy is, and not from any party's data.
"""

from __future__ import annotations

import re

#: Metrics that lie in [0, 1] whatever the data, as :func:`known_range` spells them.
SHARES = frozenset(
    {"accuracy", "balanced_accuracy", "top_k_accuracy", "auc", "auroc", "roc_auc", "auprc"}
    | {"roc_auc_ovr", "roc_auc_ovo", "roc_auc_ovr_weighted", "roc_auc_ovo_weighted"}
    | {"average_precision", "precision", "recall", "sensitivity", "specificity", "dice", "iou"}
    | {"f1", "f1_score", "f1_macro", "f1_micro", "f1_weighted", "jaccard"}
)
#: What people put before the name of a metric to say where it was measured.
_PREFIXES = ("test_", "validation_", "valid_", "val_", "eval_", "mean_", "cv_")


def known_range(metric: str) -> tuple[float, float] | None:
    """Return the range of a metric that everybody knows by its name; None for any other name.

    Examples
    --------
    >>> known_range("validation accuracy")
    (0.0, 1.0)
    >>> known_range("negative log loss") is None
    True
    """
    name = re.sub(r"[^a-z0-9]+", "_", metric.lower()).strip("_")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return (0.0, 1.0) if name in SHARES else None
