"""The task: the data of one party, the search space, and the score."""

import numpy as np
from flwr_datasets.partitioner import DirichletPartitioner
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

from flwr_fbo import Float, Partition, task
from flwr_fbo.tasks.partitioning import partition_by


def uneven(parties: int) -> DirichletPartitioner:
    """Return a partitioner that gives each party mostly some of the ten classes."""
    return DirichletPartitioner(parties, partition_by="label", alpha=0.5, min_partition_size=20)


share_of_digits = partition_by(uneven, lambda: load_digits(return_X_y=True))


def load(partition: Partition):
    """Return this party's data: its own file, or its share of scikit-learn's digits."""
    if "data" in partition.config:
        with np.load(str(partition.config["data"])) as file:
            return file["x"], file["y"]
    return share_of_digits(partition)


@task(
    space={"C": Float(1e-3, 1e3, log=True), "gamma": Float(1e-6, 1e-1, log=True)},
    metric="accuracy",
    prepare=load,
    score_range=(0.0, 1.0),
)
def tuned(params, data):
    """Return the mean accuracy of three folds, on this party's data."""
    x, y = data
    kept = np.isin(y, np.flatnonzero(np.bincount(y) >= 3))  # a class needs a row in each fold
    return cross_val_score(SVC(**params), x[kept], y[kept], cv=3).mean()
