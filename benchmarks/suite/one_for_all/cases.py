"""The cases of the comparison: data, how parties share them, and what is tuned."""

from __future__ import annotations

import os
import zlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.suite.federation import Federation, MissingDataError
from benchmarks.suite.one_for_all.fedavg import DEFAULTS, accuracy, fedavg, first_weights, trained
from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.tasks.task import Params, Partition, Task

#: Epochs of a party's own training; rounds of FedAvg, and parties in each of them.
EPOCHS, ROUNDS, SAMPLE = 5, 20, 30

FIVE: Mapping[str, Any] = {
    "learning_rate": Float(1e-3, 10.0, log=True),
    "momentum": Float(0.0, 0.99),
    "weight_decay": Float(1e-6, 1.0, log=True),
    "rate_decay": Float(0.5, 1.0),
    "batch_size": Int(1, 64, log=True),
}
ELEVEN: Mapping[str, Any] = {
    **FIVE,
    "width": Int(4, 128, log=True),
    "activation": Categorical(["relu", "tanh"]),
    "start": Float(0.01, 10.0, log=True),
    "inputs": Categorical(["plain", "centred", "unit"]),
    "smoothing": Float(0.0, 0.5),
    "clip": Float(0.01, 10.0, log=True),
}
SPACES = {5: FIVE, 11: ELEVEN}
#: What parties have seen in this process: the score by case, seed, party and setting.
SCORES: dict[Hashable, float] = {}
Split = Literal["iid", "dirichlet-0.5", "dirichlet-5", "writers"]


@dataclass(frozen=True)
class Case:
    """One federation: its data, its number of parties, how they share, and the space.

    Parameters
    ----------
    data : str
        ``digits`` comes with scikit-learn; ``mnist`` is mnist_with_writers.npz in FLWR_FBO_DATA.
    split : str
        How the data are divided among the parties.
    parties : int
        N.
    dimensions : int
        5 or 11.
    """

    data: Literal["digits", "mnist"]
    split: Split
    parties: int
    dimensions: int = 5

    @property
    def name(self) -> str:
        """Return the name in files and tables."""
        return f"{self.data}-{self.split}-{self.parties}-{self.dimensions}d"

    def federation(self, evaluations: int) -> Federation:
        """Return the case as a federation of the suite with so many evaluations a party."""
        return Federation(
            name=self.name, title=self.name, version=1, task=lambda: SharedTask(self),
            parties=self.parties, evaluations=evaluations, normalised=False,
        )  # fmt: skip


SIZES = (30, 50, 100, 250)
CASES: tuple[Case, ...] = (
    *(Case("digits", split, n) for split in ("iid", "dirichlet-5", "dirichlet-0.5") for n in SIZES),  # type: ignore[arg-type]
    *(Case("digits", split, n, 11) for split in ("iid", "dirichlet-0.5") for n in (50, 250)),  # type: ignore[arg-type]
    *(Case("mnist", "writers", n) for n in SIZES),
)


@dataclass(frozen=True)
class Data:
    """Examples to divide among the parties, and those that FedAvg's model is judged by."""

    X: Array
    y: Indices
    writer: Indices
    X_test: Array
    y_test: Indices


@cache
def load(name: str) -> Data:
    """Return the data of a name; raise MissingDataError where they are not there."""
    if name == "digits":
        from sklearn.datasets import load_digits

        found = load_digits()
        order = np.random.default_rng(20_261_119).permutation(len(found.target))
        X, y = found.data[order] / 16.0, found.target[order]
        cut = 1300
        return Data(X[:cut], y[:cut], np.zeros(cut, dtype=np.int64), X[cut:], y[cut:])
    root = os.environ.get("FLWR_FBO_DATA", "")
    path = Path(root) / "mnist_with_writers.npz"
    if not root or not path.exists():
        raise MissingDataError(
            "mnist_with_writers.npz must be in the directory in FLWR_FBO_DATA, but is not"
        )
    with np.load(path) as file:
        here = file["hsf_train"] == 0
        train = _small(file["x_train"][here]), file["y_train"][here].astype(np.int64)
        test = _small(file["x_test"][:4000]), file["y_test"][:4000].astype(np.int64)
        return Data(*train, file["writer_train"][here].astype(np.int64), *test)


def _small(images: Any) -> Array:
    """Return 28 x 28 images as 14 x 14 numbers in [0, 1]: (n, 196)."""
    whole = np.asarray(images, dtype=np.float64).reshape(-1, 14, 2, 14, 2) / 255.0
    return np.asarray(whole.mean(axis=(2, 4)).reshape(len(whole), -1))


@cache
def shares(case: Case, seed: int) -> list[Indices]:
    """Return the rows of each party; every party has at least four."""
    data, rng = load(case.data), np.random.default_rng([seed, 17])
    if case.split == "writers":
        writers = rng.permutation(np.unique(data.writer))[: case.parties]
        return [np.flatnonzero(data.writer == w) for w in writers]
    order = rng.permutation(len(data.y))
    rows: list[list[int]] = [[] for _ in range(case.parties)]
    if case.split == "iid":
        return [np.array(part) for part in np.array_split(order, case.parties)]
    alpha = float(case.split.removeprefix("dirichlet-"))
    mixes = rng.dirichlet(np.full(10, alpha), case.parties)  # of digits, for each party
    for digit in range(10):
        mine = order[data.y[order] == digit]
        weights = mixes[:, digit] / mixes[:, digit].sum()
        for n, part in enumerate(np.split(mine, (np.cumsum(weights)[:-1] * len(mine)).astype(int))):
            rows[n] += part.tolist()
    for poor in rows:  # those who got nearly nothing are given some of the richest party's
        while len(poor) < 4:
            poor.append(max(rows, key=len).pop())
    return [rng.permutation(np.array(r)) for r in rows]


class SharedTask(Task):
    """One party's own training is what it sees; FedAvg with all parties is what is judged."""

    score_range = (0.0, 1.0)

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case, self.data = case, load(case.data)
        self._space = Space(SPACES[case.dimensions])

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def space(self) -> Space:
        return self._space

    def prepare(self, partition: Partition) -> None:
        self.seed, self.index = partition.seed, partition.index
        self.all_rows = shares(self.case, partition.seed)
        rows = self.all_rows[partition.index]
        cut = max(1, round(0.7 * len(rows)))
        self.train, self.valid = rows[:cut], rows[cut:]

    def _setting(self, params: Params) -> dict[str, Any]:
        return {**DEFAULTS, **params}

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """Return the validation accuracy of the party's own training, computed once a setting.

        Methods and epsilons that try the same setting see the same score: the training draws from
        what the setting and the party say, and not from ``rng``.
        """
        del rng
        key = (self.case, self.seed, self.index, tuple(sorted(params.items())))
        if key not in SCORES:
            SCORES[key] = self._trained_alone(params)
        return SCORES[key]

    def _trained_alone(self, params: Params) -> float:
        setting, X, y = self._setting(params), self.data.X, self.data.y
        word = zlib.crc32(repr(sorted(params.items())).encode())
        rng = np.random.default_rng([self.seed, self.index, word])
        weights = first_weights(X.shape[1], 10, setting, self.seed)
        weights = trained(weights, X[self.train], y[self.train], setting, EPOCHS, rng)
        return accuracy(weights, X[self.valid], y[self.valid], setting)

    def expected(self, params: Params) -> float:
        """Return the test accuracy of FedAvg with this setting: the same for every party."""
        setting = self._setting(params)
        parts = [(self.data.X[r], self.data.y[r]) for r in self.all_rows]
        weights = fedavg(parts, 10, setting, ROUNDS, self.seed, SAMPLE)
        return accuracy(weights, self.data.X_test, self.data.y_test, setting)
