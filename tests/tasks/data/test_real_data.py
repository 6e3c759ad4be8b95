"""The real files: the counts that the papers print, and all layouts of the same data."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

from flwr_fbo.tasks.papers.data import load_landmine
from flwr_fbo.tasks.papers.data.bandits import (
    light_problem,
    load_light_sensors,
    load_stocks,
    read_stocks,
    stock_problem,
)
from flwr_fbo.tasks.papers.data.emnist import load_digits_by_writer, read_emnist
from flwr_fbo.tasks.papers.data.har import load_har, read_har
from flwr_fbo.tasks.papers.data.mnist import load_mnist
from flwr_fbo.tasks.papers.data.seir import load_seir

DATA = Path(os.environ.get("FLWR_FBO_DATA", "unset"))
pytestmark = pytest.mark.skipif(
    not os.environ.get("FLWR_FBO_DATA"), reason="FLWR_FBO_DATA does not name the real data"
)


def test_landmine_counts_are_those_printed() -> None:
    """FTS App. D.2.2: 29 fields, 445 to 690 points, mean 511; 2.9 to 9.4 % positive, mean 6.2 %."""
    table = load_landmine(DATA)
    sizes = np.bincount(table.party)
    share = np.bincount(table.party, table.y) / sizes * 100
    assert table.X.shape == (14820, 9)
    assert (len(sizes), sizes.min(), sizes.max(), round(sizes.mean())) == (29, 445, 690, 511)
    # 2.947, 9.348 and 6.18 %; the paper prints 2.9, 9.4 (rounded up) and 6.2.
    assert (round(share.min(), 2), round(share.max(), 2), round(share.mean(), 1)) == (
        2.95,
        9.35,
        6.2,
    )


def test_landmine_layouts_agree() -> None:
    mat, npz = (
        load_landmine(DATA / "raw" / "LandmineData.mat"),
        load_landmine(DATA / "landmine.npz"),
    )
    assert np.array_equal(mat.X, npz.X)
    assert np.array_equal(mat.y, npz.y)
    assert np.array_equal(mat.party, npz.party)


def test_har_counts_are_those_printed() -> None:
    """FTS App. D.2.2: 30 subjects, 281 to 409 points, mean 343; 561 features, 6 activities."""
    table = load_har(DATA)
    sizes = np.bincount(table.party)
    assert table.X.shape == (10299, 561)
    assert (len(sizes), sizes.min(), sizes.max(), round(sizes.mean())) == (30, 281, 409, 343)
    assert np.unique(table.y).tolist() == list(range(6))
    assert table.extra["uci_test"].sum() == 2947


def test_har_in_the_original_layout() -> None:
    arrays = read_har(DATA / "fixtures" / "uci_har_mini.zip")
    assert arrays["X"].shape == (36, 561)
    assert np.unique(arrays["subject"]).tolist() == [1, 2, 3]
    assert np.bincount(arrays["y"]).tolist() == [6] * 6
    assert np.bincount(arrays["chain"]).tolist() == [2] * 18  # found in the raw windows


def test_emnist_in_the_original_layouts() -> None:
    arrays = read_emnist(DATA / "fixtures" / "emnist_all_mini.sqlite.lzma", 4)
    assert arrays["client_ids"].tolist() == ["f0000_14", "f0001_41", "f0005_26", "f0006_12"]
    assert np.bincount(arrays["client"]).tolist() == [20] * 4
    assert arrays["test"].sum() == 8
    assert arrays["pixels"][:, 0, 0].min() == 1.0  # background
    # Without TensorFlow Federated: its own reader finds the same bits (see examples/tff_export).
    if importlib.util.find_spec("h5py"):
        older = read_emnist(DATA / "fixtures" / "fed_emnist_digitsonly_mini.tar.bz2", 4)
        assert all(np.array_equal(older[key], arrays[key]) for key in arrays)


def test_digits_by_writer() -> None:
    table = load_digits_by_writer(DATA)
    sizes = np.bincount(table.party)
    assert (len(table.X), len(sizes), sizes.min(), sizes.max()) == (5281, 50, 60, 129)
    tests = np.bincount(table.party, table.extra["test"])
    assert np.array_equal(tests, sizes // 10)


def test_mnist_counts() -> None:
    arrays = load_mnist(DATA / "mnist_with_writers.npz")
    assert arrays["x_train"].shape == (60000, 28, 28)
    assert arrays["x_test"].shape == (10000, 28, 28)
    assert np.bincount(arrays["y_test"]).tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009
    ]  # fmt: skip


def test_light_sensors_and_their_constants() -> None:
    sensors = load_light_sensors(DATA)
    assert (sensors.train.shape, sensors.test.shape) == ((601, 41), (192, 41))
    problem = light_problem(sensors)
    assert problem.bound == pytest.approx(945.54, abs=0.01)
    assert problem.noise_bound == pytest.approx(835.28, abs=0.01)
    assert np.allclose(np.diag(problem.covariance), 1.0)
    again = load_light_sensors(DATA / "light_sensors.npz")
    assert np.array_equal(again.train, sensors.train)
    assert np.array_equal(again.coordinates, sensors.coordinates)


def test_stocks_and_their_constants() -> None:
    table = load_stocks(DATA)
    assert table.price.shape == (823, 29)
    assert (str(table.dates[0]), str(table.dates[-1])) == ("2016-01-04", "2019-04-10")
    problem = stock_problem(table)
    assert problem.bound == pytest.approx(237.33, abs=0.01)
    assert problem.noise_bound == pytest.approx(203.29, abs=0.01)
    npz = read_stocks(DATA / "stocks.npz")
    assert np.allclose(npz["price"], table.price)
    assert npz["ticker"].tolist() == list(table.tickers)


def test_seir_table() -> None:
    data = load_seir(DATA)
    assert len(data.countries) == 230
    assert (data.disease.beta, data.disease.sigma, data.disease.days) == (0.4, 0.5, 200)
    assert data.disease.gamma == pytest.approx(1 / 13)
