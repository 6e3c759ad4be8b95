"""What loaders hand to tasks: examples, their labels, and the party each belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.tasks.papers.data.errors import DataError


@dataclass(frozen=True, eq=False)
class Parties:
    """A labelled data set whose examples belong to parties 0, 1, ..., count - 1."""

    X: NDArray[Any]  # (n, ...)
    y: NDArray[Any]  # (n,)
    party: NDArray[Any]  # (n,)
    #: More about each example: which chain of windows it is of, which split the authors put it in.
    extra: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many parties there are."""
        return int(self.party.max()) + 1

    def of(self, party: int) -> Parties:
        """One party's examples."""
        rows = self.party == party
        extra = {name: column[rows] for name, column in self.extra.items()}
        return Parties(self.X[rows], self.y[rows], self.party[rows], extra)


def check_parties(
    table: Parties, label: str, parties: int | None, features: int | None, classes: int
) -> Parties:
    """The table, if it has as many parties, features and classes as the data set must have."""
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
    seen = np.unique(table.party)
    wanted = len(seen) if parties is None else parties
    if not np.array_equal(seen, np.arange(wanted)):
        raise DataError(f"{label}: parties must be 0 to {wanted - 1}, but are {seen.tolist()}")
    return table
