"""Eating recognition with Google Glass: 38 participants, 57 features a window.

The archive has a directory for each participant, with ``<id>_sensorData.csv`` (time in ms, sensor
name, up to three values) and ``<id>_annotate.csv`` (time in ms, activity, start or stop). Six
sensors have three axes and the light sensor has one, which makes 19 channels. Mean, variance and
kurtosis of each channel make the 57 features of FTS App. D.2.2. Decisions where the paper is
silent:

* windows last 4 s and do not overlap, which makes 1,800 in two hours (the paper prints a mean
  of 1,930 points for each participant, but no length);
* a window is labelled as eating if its middle lies within an annotated meal;
* the light sensor reports only changes, so a window without a report keeps the last value;
* a window in which another sensor reported fewer than four times is left out;
* the kurtosis is the excess kurtosis, and 0 for a channel that does not vary.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array
from flwr_fbo.tasks.papers.data.archives import Tree, open_tree
from flwr_fbo.tasks.papers.data.cache import Arrays, parse_once
from flwr_fbo.tasks.papers.data.sources import GLEAM, DataError
from flwr_fbo.tasks.papers.data.store import require
from flwr_fbo.tasks.papers.data.tables import Parties, check_parties

PARTICIPANTS, FEATURES = 38, 57
WINDOW = 4.0  # seconds
FEWEST_REPORTS = 4  # of a sensor in a window
#: A part of a sensor's name -> its number of axes.
SENSORS = {
    "gyroscope": 3,
    "accelerometer": 3,
    "magnetic": 3,
    "rotation": 3,
    "linear": 3,
    "gravity": 3,
    "light": 1,
}


def load_gleam(data_dir: str | Path | None = None) -> Parties:
    """Load all windows: features (n, 57), label 1 for eating, participants 0-37 by sorted id."""
    path = require(GLEAM, data_dir)
    arrays = parse_once(path, "gleam", 1, read_gleam)
    table = Parties(arrays["X"], arrays["y"], arrays["participant"])
    return check_parties(table, str(path), PARTICIPANTS, FEATURES, classes=2)


def read_gleam(path: Path) -> Arrays:
    """Return the windows of every participant in the archive or directory."""
    with open_tree(path) as tree:
        return _read_tree(tree)


def _read_tree(tree: Tree) -> Arrays:
    sensors = {_participant(name): name for name in _members(tree, "_sensorData.csv")}
    notes = {_participant(name): name for name in _members(tree, "_annotate.csv")}
    if not sensors:
        raise DataError(f"{tree.label}: has no member ending in '_sensorData.csv'")
    for participant in sorted(sensors):
        if participant not in notes:
            raise DataError(f"{tree.label}: participant {participant} has no '_annotate.csv'")
    tables = [
        window_features(*_readings(tree, sensors[who]), *_meals(tree, notes[who]))
        for who in sorted(sensors)
    ]
    return {
        "X": np.concatenate([X for X, _ in tables]),
        "y": np.concatenate([y for _, y in tables]),
        "participant": np.repeat(np.arange(len(tables)), [len(X) for X, _ in tables]),
    }


def _members(tree: Tree, ending: str) -> list[str]:
    paths = [name for name in tree.names if name.endswith(ending)]
    # Archives made on macOS also hold files that begin with "._", which are no tables.
    return [name for name in paths if not PurePosixPath(name).name.startswith("._")]


def _participant(name: str) -> str:
    return PurePosixPath(name).name.split("_")[0]


def _rows(tree: Tree, name: str) -> list[list[str]]:
    try:
        rows = list(csv.reader(io.StringIO(tree.read(name).decode("utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{tree.label}: member {name!r} is no csv table: {error}") from error
    return [row for row in rows[1:] if row]


def _readings(tree: Tree, name: str) -> tuple[Array, NDArray[np.int64], Array]:
    """Return times in s (n,), sensor numbers (n,), and values (n, 3) with NaN where absent."""
    rows = _rows(tree, name)
    kinds: dict[str, int] = {}
    try:
        for sensor in {row[1] for row in rows}:
            kinds[sensor] = _sensor(sensor)
        time = np.array([float(row[0]) for row in rows]) / 1000.0
        kind = np.array([kinds[row[1]] for row in rows], dtype=np.int64)
        values = np.array([[float(v or "nan") for v in (*row[2:5], "", "")[:3]] for row in rows])
    except (ValueError, IndexError) as error:
        raise DataError(f"{tree.label}: member {name!r}: {error}") from error
    if not rows:
        raise DataError(f"{tree.label}: member {name!r} holds no readings")
    # Windows need times that rise, and nothing promises that the rows of a file are in order.
    order = np.argsort(time, kind="stable")
    return time[order], kind[order], values[order]


def _sensor(name: str) -> int:
    """Return the number of the sensor of this name."""
    for number, part in enumerate(SENSORS):
        if part in name.lower():
            return number
    raise ValueError(f"unknown sensor {name!r}")


def _meals(tree: Tree, name: str) -> tuple[Array, Array]:
    """Return starts and ends of eating, in seconds; other activities are not needed."""
    try:
        times = [float(r[0]) / 1000.0 for r in _rows(tree, name) if r[1].strip().lower() == "eat"]
    except (ValueError, IndexError) as error:
        raise DataError(f"{tree.label}: member {name!r}: {error}") from error
    if len(times) % 2 or sorted(times) != times:
        raise DataError(
            f"{tree.label}: member {name!r}: starts and stops of 'eat' must alternate in time, "
            f"but there are {len(times)}"
        )
    return np.array(times[0::2]), np.array(times[1::2])


def window_features(
    time: Array, kind: NDArray[np.int64], values: Array, starts: Array, ends: Array
) -> tuple[Array, NDArray[np.int64]]:
    """Return features (n, 57) and labels (n,) of one participant's readings, sorted by time."""
    index = np.floor((time - time[0]) / WINDOW).astype(np.int64)
    count = int(index[-1]) + 1
    columns, whole = [], np.ones(count, dtype=bool)
    for number, (part, axes) in enumerate(SENSORS.items()):
        rows = kind == number
        reports = np.bincount(index[rows], minlength=count)
        if part != "light":
            whole &= reports >= FEWEST_REPORTS
        for axis in range(axes):
            # The light sensor is silent while the light does not change.
            moments = _moments(index[rows], values[rows, axis], reports)
            columns.append(_carried(moments, reports > 0) if part == "light" else moments)
    # A window is labelled by its middle.
    middle = time[0] + (np.arange(count) + 0.5) * WINDOW
    eating = ((middle[:, None] >= starts) & (middle[:, None] < ends)).any(axis=1)
    X = np.concatenate(columns, axis=1)
    whole &= np.isfinite(X).all(axis=1)
    return X[whole], eating[whole].astype(np.int64)


def _moments(index: NDArray[np.int64], values: Array, reports: NDArray[Any]) -> Array:
    """Return mean, variance and excess kurtosis of the values of every window: (count, 3)."""
    n = np.maximum(reports, 1)
    mean = np.bincount(index, values, len(reports)) / n
    centred = values - mean[index]
    variance = np.bincount(index, centred**2, len(reports)) / n
    fourth = np.bincount(index, centred**4, len(reports)) / n
    # Rounding leaves a constant channel a tiny variance, whose kurtosis would be noise.
    varies = variance > 1e-12 * np.maximum(mean**2, 1e-12)
    ratio = np.divide(fourth, variance**2, out=np.full_like(mean, 3.0), where=varies)
    return np.stack([mean, variance, ratio - 3.0], axis=1)


def _carried(moments: Array, reported: NDArray[np.bool_]) -> Array:
    """Return the moments, with the last mean and no variation in windows without a report.

    Windows before the first report take the first mean.
    """
    if not reported.any():
        return np.zeros_like(moments)
    last = np.maximum.accumulate(np.where(reported, np.arange(len(reported)), -1))
    last = np.where(last < 0, int(np.argmax(reported)), last)
    carried = np.where(reported[:, None], moments, 0.0)
    carried[:, 0] = moments[last, 0]
    return carried
