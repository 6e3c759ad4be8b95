"""The objectives of landmine and activity on a lattice: every value is computed once and kept.

    python -m benchmarks.reproduce --tables

computes the values of all parties from the data in FLWR_FBO_DATA, and keeps them in the directory
``tables`` of the package's cache (``FLWR_FBO_CACHE``, or below the user's cache directory). A run
that needs a party's values before that computes and keeps them itself. The file of a party bears
the checksum of its data, so that other data never meet old values.

Between its points the AUC of landmine is interpolated linearly. The accuracy of activity is not:
with large steps its training is chaotic, so that it changes by several percent from point to point,
and agents choose among the lattice's points. ``lattice_checks.py`` measures both errors.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.space import Float, Int, Space
from flwr_fbo.tasks.papers.activity import ActivityTask
from flwr_fbo.tasks.papers.data.store import cache_directory
from flwr_fbo.tasks.papers.landmine import LandmineTask
from flwr_fbo.tasks.papers.svm import auc
from flwr_fbo.tasks.task import Task

from .objectives import regression_scores, squared_distances

#: Points along each parameter, and the power of the spacing: with 2, points lie closer together
#: at the low end, where C, gamma and L2 matter most on the papers' linear scale.
AXES: Mapping[str, Sequence[tuple[int, int]]] = {
    "landmine": ((49, 2), (49, 2)),
    "activity": ((17, 1), (33, 2), (33, 1)),
}


@dataclass(frozen=True, eq=False)
class Lattice:
    """All combinations of some values of each parameter, the last one running fastest."""

    #: Ascending coordinates in the unit cube, (K_d,) each.
    axes: tuple[Array, ...]
    #: Whether scores between the points are interpolated; otherwise only the points are used.
    interpolates: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of values of each parameter."""
        return tuple(len(axis) for axis in self.axes)

    @cached_property
    def points(self) -> Array:
        """Return every point: (G, D)."""
        made = np.meshgrid(*self.axes, indexing="ij")
        return np.stack([coordinate.ravel() for coordinate in made], axis=1)

    def nearest(self, units: Array) -> Indices:
        """Return the number of the point that is nearest to each row (n, D): (n,)."""
        places = [
            np.searchsorted((axis[1:] + axis[:-1]) / 2.0, units[:, d])
            for d, axis in enumerate(self.axes)
        ]
        return np.asarray(np.ravel_multi_index(tuple(places), self.shape), dtype=np.int64)

    def used(self, units: Array) -> Array:
        """Return the points that stand for rows (n, D): the nearest ones, or the rows: (n, D)."""
        return units if self.interpolates else self.points[self.nearest(units)]

    def scores(self, tables: Array, units: Array) -> Array:
        """Return the scores of each agent, from tables (N, G), at its points (N, k, D): (N, k)."""
        agents = np.arange(len(tables))[:, None]
        if not self.interpolates:
            flat = units.reshape(-1, units.shape[-1])
            return np.asarray(tables[agents, self.nearest(flat).reshape(units.shape[:2])])
        cells = [
            np.clip(np.searchsorted(axis, units[..., d], side="right") - 1, 0, len(axis) - 2)
            for d, axis in enumerate(self.axes)
        ]
        found = np.zeros(units.shape[:2])
        for corner in itertools.product((0, 1), repeat=len(self.axes)):
            weight, places = np.ones(units.shape[:2]), []
            for d, (axis, cell, end) in enumerate(zip(self.axes, cells, corner, strict=True)):
                ahead = (units[..., d] - axis[cell]) / (axis[cell + 1] - axis[cell])
                share = np.clip(ahead, 0.0, 1.0)  # the outer values hold up to the ends
                weight *= share if end else 1.0 - share
                places.append(cell + end)
            found += weight * tables[agents, np.ravel_multi_index(tuple(places), self.shape)]
        return found


def lattice_of(task: Task) -> Lattice | None:
    """Return the lattice of a task in the form of DP-FTS-DE; None for other tasks and forms."""
    if isinstance(task, LandmineTask):
        name, paper = "landmine", True
    elif isinstance(task, ActivityTask):
        name, paper = "activity", task.settings.ranges == "dp-fts-de"
    else:
        return None
    if not paper or task.settings.log:
        return None
    return Lattice(tuple(_axis(task.space, i, *given) for i, given in enumerate(AXES[name])))


def _axis(space: Space, index: int, count: int, power: int) -> Array:
    """Return values of one parameter, its ends included: (count,)."""
    parameter = list(space.parameters.values())[index]
    evenly = np.linspace(0.0, 1.0, count) ** power
    if isinstance(parameter, Int):
        return np.asarray(parameter.unit(np.rint(evenly * (parameter.size - 1)).astype(np.int64)))
    assert isinstance(parameter, Float)
    return evenly


def values_of(task: Task, lattice: Lattice) -> Array:
    """Return the scores of one party at every point, from the cache or computed now: (G,)."""
    return _kept(task, lattice, _file_of(task, lattice))


#: Tables by file: a federation's parties ask again in every run.
@lru_cache(maxsize=128)
def _read(file: Path) -> Array:
    return np.load(file)


def _kept(task: Task, lattice: Lattice, file: Path) -> Array:
    if not file.exists():
        values = computed(task, lattice)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as open_file:
            np.save(open_file, values)
        part.replace(file)
    return _read(file)


def _file_of(task: Any, lattice: Lattice) -> Path:
    """Return where a party's values are kept: the name holds the checksum of all they rest on."""
    settings = {k: v for k, v in task.settings.to_mapping().items() if k != "data-dir"}
    data = task.data
    digest = hashlib.sha256(json.dumps([task.space.to_json(), settings]).encode())
    # The order of training examples in an epoch is part of the objective.
    digest.update(str(task.training_rng().bit_generator.state).encode())
    for part in (*lattice.axes, data.x_train, data.y_train, data.x_valid, data.y_valid):
        digest.update(np.ascontiguousarray(part).tobytes())
    kind = "landmine" if isinstance(task, LandmineTask) else "activity"
    return cache_directory() / "tables" / f"{kind}-{digest.hexdigest()[:24]}.npy"


def computed(task: Task, lattice: Lattice) -> Array:
    """Return the scores of one party at every point: (G,)."""
    if isinstance(task, LandmineTask):
        return _areas(task, lattice).ravel()
    assert isinstance(task, ActivityTask)
    return _accuracies(task, lattice).ravel()


def _areas(task: LandmineTask, lattice: Lattice) -> Array:
    """Return the AUC at each C and gamma; kernel matrices are made once a gamma: (K_1, K_2)."""
    from sklearn import config_context  # slow to import
    from sklearn.svm import SVC

    data, found = task.data, np.empty(lattice.shape)
    within = squared_distances(data.x_train, data.x_train)
    across = squared_distances(data.x_valid, data.x_train)
    positive = data.y_valid == 1
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for column, gamma in enumerate(_values(task.space, 1, lattice)):
            square, cross = np.exp(-gamma * within), np.exp(-gamma * across)
            for row, penalty in enumerate(_values(task.space, 0, lattice)):
                machine = SVC(C=penalty, kernel="precomputed").fit(square, data.y_train)
                weights = machine.dual_coef_[0]
                decision = cross[:, machine.support_] @ weights + machine.intercept_[0]
                found[row, column] = auc(positive, decision)
    return found


def _accuracies(task: ActivityTask, lattice: Lattice) -> Array:
    """Return the accuracy at each batch size, L2 and learning rate: (K_1, K_2, K_3).

    Batches as large as the training half or larger are all the same.
    """
    score, count = regression_scores(task), len(task.data.y_train)
    found, known = np.empty(lattice.shape), dict[int, Array]()
    for row, batch in enumerate(_values(task.space, 0, lattice)):
        size = min(int(batch), count)
        if size not in known:
            known[size] = np.array([
                [score({"batch-size": batch, "l2": l2, "learning-rate": rate})
                 for rate in _values(task.space, 2, lattice)]
                for l2 in _values(task.space, 1, lattice)
            ])  # fmt: skip
        found[row] = known[size]
    return found


def _values(space: Space, index: int, lattice: Lattice) -> list[Any]:
    """Return the values of one parameter on the lattice."""
    parameter = list(space.parameters.values())[index]
    return [parameter.from_unit(unit) for unit in lattice.axes[index].tolist()]
