"""Human activity recognition: 30 subjects, windows of 2.56 s, 561 features, 6 activities.

The original is a zip in a zip: ``UCI HAR Dataset/{train,test}/X_*.txt, y_*.txt, subject_*.txt``,
and the raw windows in ``Inertial Signals``. Consecutive windows overlap by half, so a random
division puts halves of the same samples on both sides. ``chain`` numbers the chains of windows:
the second half of a window in a chain is the first half of the next window.

The UCI's own division into train and test is by subject; ``uci_test`` marks its test windows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.tasks.papers.data.archives import Tree, open_tree
from flwr_fbo.tasks.papers.data.cache import Arrays, load_npz, parse_once
from flwr_fbo.tasks.papers.data.sources import HAR, DataError
from flwr_fbo.tasks.papers.data.store import require
from flwr_fbo.tasks.papers.data.tables import Parties, check_parties

SUBJECTS, FEATURES, ACTIVITIES, WINDOW = 30, 561, 6, 128
KEYS = ("X", "y", "subject", "chain", "uci_test")


def load_har(data_dir: str | Path | None = None) -> Parties:
    """Load all windows: features (10299, 561), activities 0-5, subjects 0-29, and chains."""
    path = require(HAR, data_dir)
    return _table(parse_once(path, "har", 1, read_har), str(path), SUBJECTS)


def _table(arrays: Arrays, label: str, subjects: int | None) -> Parties:
    extra = {"chain": arrays["chain"], "uci_test": arrays["uci_test"]}
    # The files count subjects from 1.
    table = Parties(arrays["X"], arrays["y"], arrays["subject"].astype(np.int64) - 1, extra)
    return check_parties(table, label, subjects, FEATURES, ACTIVITIES)


def read_har(path: Path) -> Arrays:
    """Return the arrays of an original, of a part of one, or of ``har_561.npz``."""
    if path.suffix == ".npz":
        return load_npz(path, KEYS)
    with open_tree(path) as outer:
        inner = [name for name in outer.names if name.endswith("UCI HAR Dataset.zip")]
        if not inner:
            return _read_tree(outer)
        with outer.nested(inner[0]) as tree:
            return _read_tree(tree)


def _read_tree(tree: Tree) -> Arrays:
    first, second = (_read_half(tree, half) for half in ("train", "test"))
    # The chains of the second part are numbered after those of the first part.
    second["chain"] = second["chain"] + first["chain"].max(initial=-1) + 1
    return {key: np.concatenate([first[key], second[key]]) for key in KEYS}


def _read_half(tree: Tree, half: str) -> dict[str, NDArray[Any]]:
    label = f"{tree.label}: {half}"
    subject = _numbers(tree, f"{half}/subject_{half}.txt", 1)[:, 0].astype(np.int64)
    activity = _numbers(tree, f"{half}/y_{half}.txt", 1)[:, 0].astype(np.int64) - 1
    X = _numbers(tree, f"{half}/X_{half}.txt", FEATURES)
    if not len(X) == len(activity) == len(subject):
        raise DataError(
            f"{label}: as many rows of X, y and subject are needed, "
            f"but there are {len(X)}, {len(activity)} and {len(subject)}"
        )
    unknown = subject[(subject < 1) | (subject > SUBJECTS)]
    if len(unknown):
        raise DataError(f"{label}: subjects must be 1 to {SUBJECTS}, but one is {unknown[0]}")
    return {
        "X": X,
        "y": activity,
        "subject": subject,
        "chain": _chains(tree, half, subject, activity),
        "uci_test": np.full(len(X), half == "test"),
    }


def _numbers(tree: Tree, ending: str, columns: int) -> NDArray[np.float32]:
    name = tree.find(ending)
    try:
        values = np.array(tree.read(name).split(), dtype=np.float32)
    except ValueError as error:
        raise DataError(f"{tree.label}: member {name!r} is not all numbers: {error}") from error
    if values.size % columns:
        raise DataError(
            f"{tree.label}: member {name!r} must have rows of {columns} numbers, "
            f"but has {values.size} numbers"
        )
    return values.reshape(-1, columns)


def _chains(
    tree: Tree, half: str, subject: NDArray[np.int64], activity: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the chain of every window, from the raw windows if the archive has them."""
    signals = [f"Inertial Signals/total_acc_{axis}_{half}.txt" for axis in "xyz"]
    if not all(any(n.endswith(s) for n in tree.names) for s in signals):
        return _runs(np.stack([subject, activity], axis=1))
    axes = [_numbers(tree, signal, WINDOW) for signal in signals]
    for signal, windows in zip(signals, axes, strict=True):
        if len(windows) != len(subject):
            raise DataError(
                f"{tree.label}: {signal} must have {len(subject)} windows, but has {len(windows)}"
            )
    return link_windows(np.stack(axes, axis=1), subject)


def _runs(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return chains without raw windows: successive rows of one subject and activity."""
    changed = np.any(rows[1:] != rows[:-1], axis=1)
    return np.concatenate([[0], np.cumsum(changed)]).astype(np.int64)[: len(rows)]


def link_windows(windows: NDArray[Any], subject: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the chain of every window (n, 3, 128), a number from 0.

    In a chain, the second half of a window is the first half of the next window.
    """
    # Halves are compared by their bytes: the next window is the one of the same subject that
    # begins with them.
    half = windows.shape[2] // 2
    heads = {
        (s, w[:, :half].tobytes()): i for i, (s, w) in enumerate(zip(subject, windows, strict=True))
    }
    follower = [
        heads.get((s, w[:, half:].tobytes())) for s, w in zip(subject, windows, strict=True)
    ]
    followed = {i for i in follower if i is not None}
    chain = np.full(len(windows), -1, dtype=np.int64)
    starts = [i for i in range(len(windows)) if i not in followed]
    for number, start in enumerate([*starts, *range(len(windows))]):
        row: int | None = start
        while row is not None and chain[row] < 0:  # the second condition also ends a cycle
            chain[row] = number
            row = follower[row]
    return np.unique(chain, return_inverse=True)[1].astype(np.int64)
