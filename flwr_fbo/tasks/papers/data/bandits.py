"""Light sensors and stocks: finite problems with heavy-tailed rewards (LDP-BO, experiments).

Notation

=========  ===========================================================  ===============
paper      here                                                         shape
=========  ===========================================================  ===============
``D``      the arms: 41 sensors, or 29 stocks                           n
``f``      ``mean``, the average reward of every arm                    (n,)
``k``      ``covariance``, of the rewards scaled to unit variance       (n, n)
``y - f``  ``noise``, one row for each observation of all arms          (m, n)
``B``      ``bound``, the largest mean                                  scalar
``R``      ``noise_bound``, the largest deviation from the mean         scalar
``v``      ``second_moment``, mean of the squared rewards               scalar
``c``      ``noise_moment``, mean of the squared noise (alpha = 1)      scalar
=========  ===========================================================  ===============

The paper prints B and R in raw units (945 and 835 for light). A noise of 2 (B + R) / epsilon then
hides all rewards. :meth:`FiniteProblem.normalised` divides rewards by B, so that B = 1 and regrets
are shares of the best arm's mean.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array
from flwr_fbo.tasks.papers.data.cache import Arrays, load_npz, parse_once
from flwr_fbo.tasks.papers.data.sources import LIGHT, STOCKS, DataError
from flwr_fbo.tasks.papers.data.store import require

SENSORS, TICKERS = 41, 29


@dataclass(frozen=True, eq=False)
class LightSensors:
    """Readings of 41 sensors, and the places of the sensors."""

    train: Array  # (601, 41)
    test: Array  # (192, 41)
    coordinates: Array  # (41, 2)


@dataclass(frozen=True, eq=False)
class Stocks:
    """Adjusted closing prices of 29 stocks."""

    price: Array  # (823, 29)
    tickers: tuple[str, ...]
    dates: NDArray[np.datetime64]  # (823,)


@dataclass(frozen=True, eq=False)
class FiniteProblem:
    """Arms with known means and a sample of their noise."""

    mean: Array  # (n,)
    noise: Array  # (m, n)
    covariance: Array  # (n, n)
    scale: float = 1.0  # one unit of reward, in the data's own units

    @property
    def bound(self) -> float:
        """Return B, the largest mean reward."""
        return float(self.mean.max())

    @property
    def noise_bound(self) -> float:
        """Return R, the largest deviation of a reward from its mean."""
        return float(np.abs(self.noise).max())

    @property
    def second_moment(self) -> float:
        """Return v, the mean of the squared rewards."""
        return float(np.mean((self.mean + self.noise) ** 2))

    @property
    def noise_moment(self) -> float:
        """Return c, the mean of the squared noise."""
        return float(np.mean(self.noise**2))

    def normalised(self) -> FiniteProblem:
        """Return the same problem with rewards in units of the largest mean."""
        unit = self.bound
        return FiniteProblem(
            self.mean / unit, self.noise / unit, self.covariance, self.scale * unit
        )


def light_problem(sensors: LightSensors) -> FiniteProblem:
    """Return the problem of the sensors: rewards from the test half, covariance from the other."""
    return finite_problem(rewards=sensors.test, history=sensors.train)


def stock_problem(stocks: Stocks) -> FiniteProblem:
    """Return the problem of the stocks, all from the same table, as the paper does."""
    return finite_problem(rewards=stocks.price, history=stocks.price)


def finite_problem(rewards: Array, history: Array) -> FiniteProblem:
    """Return means and noise of ``rewards`` (m, n), and correlations of ``history`` (h, n)."""
    mean = rewards.mean(axis=0)
    return FiniteProblem(mean, rewards - mean, np.asarray(np.corrcoef(history, rowvar=False)))


def load_light_sensors(data_dir: str | Path | None = None) -> LightSensors:
    """Load the light sensors' raw readings, in the unit of the paper's B = 945."""
    path = require(LIGHT, data_dir)
    arrays = parse_once(path, "light", 1, read_light)
    return LightSensors(arrays["train"], arrays["test"], arrays["coordinates"])


def read_light(path: Path) -> Arrays:
    """Return train, test and coordinates of the MATLAB structure ``data``, or of an npz file."""
    if path.suffix == ".npz":
        stored = load_npz(path, ("train_raw", "test_raw", "coords"))
        train, test, places = stored["train_raw"], stored["test_raw"], stored["coords"]
    else:
        data = _matlab_structure(path)
        try:
            train, test = (_unwrap(_unwrap(data[p])["sensordata"]) for p in ("train", "test"))
            places = _unwrap(data["coords"])
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}: `data` must have train.sensordata, test.sensordata and coords: {error}"
            ) from error
    arrays = {"train": train, "test": test, "coordinates": places}
    for name, wanted in (("train", (601, SENSORS)), ("test", (192, SENSORS))):
        _check_table(arrays[name], wanted, f"{path}: {name}")
    _check_table(places, (SENSORS, 2), f"{path}: coords")
    return {name: array.astype(np.float64) for name, array in arrays.items()}


def _check_table(table: Any, wanted: tuple[int, int], label: str) -> None:
    """Raise DataError unless the table holds numbers in the wanted shape."""
    if not isinstance(table, np.ndarray) or table.shape != wanted or table.dtype.kind not in "uif":
        found = getattr(table, "shape", type(table).__name__)
        raise DataError(f"{label} must be numbers of shape {wanted}, but has {found}")


def _unwrap(value: Any) -> Any:
    """Return the content of a cell or structure array of one element, at any depth."""
    while isinstance(value, np.ndarray) and value.dtype.kind in "OV" and value.size == 1:
        value = value.reshape(-1)[0]
    return value


def _matlab_structure(path: Path) -> Any:
    """Return the variable ``data`` of a MATLAB file, which must be one structure."""
    import scipy.io  # slow to import

    try:
        data = scipy.io.loadmat(path, variable_names=["data"])["data"]
    except KeyError:
        raise DataError(f"{path}: has no variable 'data'") from None
    except Exception as error:  # scipy raises many kinds for a damaged file
        raise DataError(f"{path}: not a whole MATLAB file: {error}") from error
    if data.dtype.names is None or data.shape != (1, 1):
        raise DataError(f"{path}: `data` must be one structure, but is {data.dtype} {data.shape}")
    return data[0, 0]


def load_stocks(data_dir: str | Path | None = None) -> Stocks:
    """Load the table of prices."""
    path = require(STOCKS, data_dir)
    arrays = parse_once(path, "stocks", 1, read_stocks)
    tickers = tuple(str(t) for t in arrays["ticker"])
    return Stocks(arrays["price"], tickers, arrays["date"])


def read_stocks(path: Path) -> Arrays:
    """Return the table of a csv file with a column Date and one column for each stock."""
    if path.suffix == ".npz":
        return load_npz(path, ("price", "ticker", "date"))
    try:
        rows = list(csv.reader(io.StringIO(path.read_text("utf-8"))))
        tickers = rows[0][1:]
        dates = np.array([row[0] for row in rows[1:]], dtype="datetime64[D]")
        price = np.array([[float(p or "nan") for p in row[1:]] for row in rows[1:]])
    except (UnicodeDecodeError, IndexError, ValueError) as error:
        raise DataError(f"{path}: not a table of dates and prices: {error}") from error
    if price.ndim != 2 or price.shape[1] != len(tickers) or len(tickers) == 0 or len(price) < 2:
        raise DataError(
            f"{path}: every row must have {len(tickers)} prices and there must be two rows, "
            f"but the shape is {price.shape}"
        )
    whole = ~np.isnan(price).any(axis=0)
    if price.shape[1] != TICKERS or not whole.all() or not (price > 0).all():
        raise DataError(
            f"{path}: {TICKERS} stocks with positive prices on every day are needed, but "
            f"{int(whole.sum())} of {price.shape[1]} are without gaps"
        )
    return {"price": price, "ticker": np.array(tickers), "date": dates}
