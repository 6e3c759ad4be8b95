"""Shares by Flower's partitioners, of data that ship with scikit-learn, without a network."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from flwr_fbo import Float, Partition, simulate, task
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.tasks.partitioning import partition_by

partitioners = pytest.importorskip(
    "flwr_datasets.partitioner", reason="flwr-datasets is not installed"
)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

X, Y = load_digits(return_X_y=True)


def dirichlet(agents: int) -> Any:
    return partitioners.DirichletPartitioner(agents, partition_by="label", alpha=0.3, seed=2)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")


def test_shares_by_dirichlet_are_the_whole_data_once_and_uneven() -> None:
    shares = [partition_by(dirichlet, (X, Y))(Partition(n, 5)) for n in range(5)]
    assert sum(len(y) for _, y in shares) == len(Y)
    whole = np.vstack([np.column_stack(share) for share in shares])
    order, expected = np.lexsort(whole.T), np.column_stack([X, Y])
    np.testing.assert_array_equal(whole[order], expected[np.lexsort(expected.T)])
    # With alpha = 0.3, parties hold very different parts of a class.
    counts = np.array([np.bincount(y, minlength=10) for _, y in shares])
    assert (counts.max(axis=0) > 3 * counts.min(axis=0)).mean() > 0.8


def test_every_party_computes_the_same_partition() -> None:
    load = partition_by(dirichlet, lambda: (X, Y))
    for _ in range(2):
        np.testing.assert_array_equal(load(Partition(1, 4))[1], load(Partition(1, 4))[1])


def test_shares_by_id_follow_the_owners_of_the_rows() -> None:
    rows = {"x": X[:90], "y": Y[:90], "site": np.repeat(["a", "b", "c"], 30)}
    by_site = partitioners.NaturalIdPartitioner(partition_by="site")
    shares = [partition_by(by_site, rows)(Partition(n, 3)) for n in range(3)]
    assert [set(share["site"]) for share in shares] == [{"a"}, {"b"}, {"c"}]
    np.testing.assert_array_equal(shares[1]["x"], X[30:60])
    assert shares[1]["x"].dtype == X.dtype


def test_a_data_set_of_hugging_face_stays_one() -> None:
    import datasets

    whole = datasets.Dataset.from_dict({"text": ["a", "b", "c", "d"], "label": [0, 1, 0, 1]})
    share = partition_by(partitioners.IidPartitioner(2), whole)(Partition(1, 2))
    assert isinstance(share, datasets.Dataset)
    assert len(share) == 2


def test_a_task_of_a_simulation_is_prepared_by_a_partitioner() -> None:
    @task(space={"x": Float(0.0, 1.0)}, prepare=partition_by(dirichlet, (X, Y)))
    def count(params: Any, data: Any) -> float:
        return float(len(data[1]))

    result = simulate(count, agents=4, rounds=0, initial_points=1, strategy="random")
    assert sum(agent["best"] for agent in result.agents_best) == len(Y)


def test_mistakes_are_refused() -> None:
    with pytest.raises(SettingsError, match="must be a partitioner of flwr_datasets"):
        partition_by(3, (X, Y))
    fixed = partitioners.IidPartitioner(2)
    with pytest.raises(SettingsError, match="each of the 3 agents, but it makes 2"):
        partition_by(fixed, (X, Y))(Partition(0, 3))
    with pytest.raises(SettingsError, match="must be equally long"):
        partition_by(fixed, (X, Y[:3]))(Partition(0, 2))
    with pytest.raises(SettingsError, match="but got list"):
        partition_by(fixed, lambda: [1, 2])(Partition(0, 2))


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'flwr-fbo\[datasets\]'"):
        partition_by(partitioners.IidPartitioner(2), (X, Y))(Partition(0, 2))
