"""Labelled data sets as loaders return them: examples, labels, and the party of each example."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.tasks.papers.data.sources import DataError


@dataclass(frozen=True, eq=False)
class Parties:
    """A labelled data set whose examples belong to parties 0, 1, ..., count - 1."""

    X: NDArray[Any]  # (n, ...)
    y: NDArray[Any]  # (n,)
    party: NDArray[Any]  # (n,)
    #: More about each example, such as its chain of windows or the authors' split.
    extra: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Return the number of parties."""
        return int(self.party.max()) + 1

    def of(self, party: int) -> Parties:
        """Return the examples of one party."""
        rows = self.party == party
        extra = {name: column[rows] for name, column in self.extra.items()}
        return Parties(self.X[rows], self.y[rows], self.party[rows], extra)


def check_parties(
    table: Parties, label: str, parties: int | None, features: int | None, classes: int
) -> Parties:
    """Return the table unchanged, or raise DataError if its shape or values are wrong.

    Parameters
    ----------
    table : Parties
        The data set.
    label : str
        Name of the file, for error messages.
    parties, features : int or None
        Numbers of parties and of features that the data set must have; None accepts any.
    classes : int
        Number of classes; labels must be 0 to ``classes - 1``.
    """
    n = len(table.X)
    columns = {"labels": table.y, "parties": table.party, **table.extra}
    for name, column in columns.items():
        if column.shape != (n,):
            raise DataError(f"{label}: {name} must have shape ({n},), but has {column.shape}")
    if n == 0:
        raise DataError(f"{label}: holds no examples")
    if features is not None and table.X.shape != (n, features):
        raise DataError(
            f"{label}: examples must have {features} features, but the shape is {table.X.shape}"
        )
    if not np.isfinite(table.X).all():
        raise DataError(f"{label}: a feature is not a finite number")
    unknown = table.y[(table.y < 0) | (table.y >= classes)]
    if len(unknown):
        raise DataError(f"{label}: unknown label {unknown[0]}: labels must be 0 to {classes - 1}")
    # A party without any example would be an agent without data.
    seen = np.unique(table.party)
    wanted = len(seen) if parties is None else parties
    if not np.array_equal(seen, np.arange(wanted)):
        raise DataError(f"{label}: parties must be 0 to {wanted - 1}, but are {seen.tolist()}")
    return table
