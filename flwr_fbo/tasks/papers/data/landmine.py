"""Landmine detection: 29 fields, 9 radar features per location, label 1 where a mine lies.

The original is a MATLAB file with two cell arrays, one cell per field: ``feature`` (n, 9) and
``label`` (n, 1). ``LandmineData.zip`` holds this file. ``landmine.npz`` holds ``X``, ``y`` and
``field``.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.tasks.papers.data.archives import open_tree
from flwr_fbo.tasks.papers.data.cache import Arrays, load_npz, parse_once
from flwr_fbo.tasks.papers.data.sources import LANDMINE, DataError
from flwr_fbo.tasks.papers.data.store import require
from flwr_fbo.tasks.papers.data.tables import Parties, check_parties

FIELDS, FEATURES = 29, 9


def load_landmine(data_dir: str | Path | None = None) -> Parties:
    """Load all fields: features (14820, 9), labels 0 or 1, and the field (0-28) per location."""
    path = require(LANDMINE, data_dir)
    arrays = parse_once(path, "landmine", 1, _parse)
    return check_parties(
        Parties(arrays["X"], arrays["y"], arrays["field"]), str(path), FIELDS, FEATURES, classes=2
    )


def _parse(path: Path) -> Arrays:
    if path.suffix == ".npz":
        return load_npz(path, ("X", "y", "field"))
    if path.suffix == ".mat":
        return _from_mat(path, str(path))
    with open_tree(path) as tree:
        name = tree.find("LandmineData.mat")
        return _from_mat(io.BytesIO(tree.read(name)), f"{path}/{name}")


def _from_mat(file: Path | IO[bytes], label: str) -> Arrays:
    features, labels = (_cells(file, label, key) for key in ("feature", "label"))
    if len(features) != len(labels):
        raise DataError(f"{label}: {len(features)} cells in `feature`, {len(labels)} in `label`")
    for i, (x, y) in enumerate(zip(features, labels, strict=True)):
        if x.ndim != 2 or x.shape[1] != FEATURES or y.shape != (len(x), 1):
            raise DataError(
                f"{label}: field {i} must have features (n, {FEATURES}) and labels (n, 1), "
                f"but has {x.shape} and {y.shape}"
            )
    # The field of a location is the number of its cell.
    return {
        "X": np.concatenate(features).astype(np.float64),
        "y": np.concatenate(labels)[:, 0].astype(np.int64),
        "field": np.repeat(np.arange(len(features)), [len(x) for x in features]),
    }


def _cells(file: Path | IO[bytes], label: str, key: str) -> list[NDArray[Any]]:
    """Return the numeric cells of a MATLAB cell array."""
    if not isinstance(file, Path):  # the same stream is read once for each array
        file.seek(0)
    import scipy.io  # slow to import

    try:
        content = scipy.io.loadmat(file, variable_names=[key])
    except Exception as error:  # scipy raises many kinds for a damaged file
        raise DataError(f"{label}: not a whole MATLAB file: {error}") from error
    if key not in content:
        raise DataError(f"{label}: has no variable {key!r}")
    cells = content[key]
    if cells.dtype != object or not all(
        isinstance(c, np.ndarray) and c.dtype.kind in "uif" for c in cells.flat
    ):
        raise DataError(f"{label}: `{key}` must be a cell array of numeric matrices")
    return list(cells.flat)
