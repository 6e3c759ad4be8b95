"""Activity, glasses, MNIST and EMNIST: printed ranges and splits; no chain on both sides."""

from __future__ import annotations

import copy
import importlib.util
import os
import time

import numpy as np
import pytest

from flwr_fbo.core.space import Float, Int, Space
from flwr_fbo.tasks import Partition, load
from flwr_fbo.tasks.papers.activity import chain_halves
from flwr_fbo.tasks.papers.data.generated import activity_subject
from flwr_fbo.tasks.papers.data.har import load_har

needs_data = pytest.mark.skipif(
    not os.environ.get("FLWR_FBO_DATA"), reason="FLWR_FBO_DATA does not name the real data"
)
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def bounds(space: Space) -> dict[str, tuple[float, float]]:
    found = {}
    for name, p in space.parameters.items():
        assert isinstance(p, (Float, Int))
        found[name] = (p.low, p.high)
    return found


def test_ranges_are_those_printed() -> None:
    fts = {"batch-size": (20, 60), "l2": (1e-6, 1.0), "learning-rate": (0.01, 0.1)}
    assert bounds(load("glasses").space) == fts
    assert bounds(load("activity", {"ranges": "fts"}).space) == fts
    assert bounds(load("activity").space) == {
        "batch-size": (128, 512),
        "l2": (1e-6, 10.0),
        "learning-rate": (1e-6, 1.0),
    }
    assert bounds(load("emnist").space) == {
        "learning-rate": (1e-7, 0.02),
        "learning-rate-decay": (1e-7, 0.02),
        "l2": (1e-7, 0.02),
    }
    assert bounds(load("mnist").space) == {
        "batch-size": (1, 100),
        "learning-rate": (1e-6, 1.0),
        "weight-decay": (1e-6, 0.5),
    }
    assert bounds(load("vaccine").space) == {"dosage": (0.0, 1.0)}
    for name in ("activity", "glasses", "emnist", "mnist"):
        task = load(name, {"scale": "linear"})
        assert task.paper_task_settings["scale"] == "linear"  # type: ignore[attr-defined]
        assert not any(p.log for p in task.space.parameters.values())  # type: ignore[union-attr]
        assert all(p.log for p in load(name).space.parameters.values())  # type: ignore[union-attr]


def test_parties_are_those_printed() -> None:
    parties = {n: load(n).parties for n in ("landmine", "activity", "glasses", "emnist")}
    assert parties == {"landmine": 29, "activity": 30, "glasses": 38, "emnist": 50}


def test_chain_halves_keep_chains_whole_and_classes_even() -> None:
    subject = activity_subject(np.random.default_rng(0), np.random.default_rng(1))
    chain = subject.extra["chain"]
    train, valid = chain_halves(subject.y, chain, np.random.default_rng(2))
    assert np.array_equal(np.sort(np.concatenate([train, valid])), np.arange(len(chain)))
    assert not set(chain[train].tolist()) & set(chain[valid].tolist())
    counts = [np.bincount(subject.y[rows], minlength=6) for rows in (train, valid)]
    # Four chains a class: the halves differ by one chain (about 14 windows) at most.
    assert np.abs(counts[0] - counts[1]).max() <= np.bincount(chain).max()
    again, _ = chain_halves(subject.y, chain, np.random.default_rng(2))
    assert np.array_equal(train, again)


@needs_data
def test_real_subjects_are_halved_without_a_leak() -> None:
    table = load_har()
    for party in range(30):
        subject = table.of(party)
        train, valid = chain_halves(subject.y, subject.extra["chain"], np.random.default_rng(party))
        chains = [set(subject.extra["chain"][rows].tolist()) for rows in (train, valid)]
        assert not chains[0] & chains[1]
        assert 0.4 < len(train) / len(subject.y) < 0.6
        assert len(np.unique(subject.y[train])) == len(np.unique(subject.y[valid])) == 6


@needs_data
def test_the_papers_random_split_flatters() -> None:
    """Half of each validation window has been trained on: the random split scores higher."""
    params = {"batch-size": 128, "l2": 1e-3, "learning-rate": 0.1}
    mean = {}
    for split in ("chains", "random"):
        tasks = [copy.copy(load("activity", {"split": split})) for _ in range(30)]
        for i, task in enumerate(tasks):
            task.prepare(Partition(i, 30))
        rng = np.random.default_rng(0)
        mean[split] = np.mean([t.evaluate(params, rng=rng) for t in tasks])
    assert mean["random"] > 0.97
    assert 0.85 < mean["chains"] < mean["random"] - 0.01


@needs_data
def test_activity_inputs_are_standardised_on_the_training_half() -> None:
    task = load("activity", {"split": "random"})
    task.prepare(Partition(4, 30))
    half = task.data  # type: ignore[attr-defined]
    assert np.abs(half.x_train.mean(axis=0)).max() < 1e-4
    # A feature that is constant on the half stays at 0.
    assert set(np.round(half.x_train.std(axis=0), 2).tolist()) <= {0.0, 1.0}
    assert len(half.x_train) - len(half.x_valid) in (0, 1)


def test_glasses_validate_on_100_windows() -> None:
    task = load("glasses", {"generated": True})
    task.prepare(Partition(2, 38))
    half = task.data  # type: ignore[attr-defined]
    assert half.x_valid.shape == (100, 57)
    assert 142 <= len(half.x_train) <= 3316


@needs_data
def test_mnist_clients_draw_500_and_100_images() -> None:
    tasks = [copy.copy(load("mnist")) for _ in range(2)]
    for i, task in enumerate(tasks):
        task.prepare(Partition(i, 10))
    shapes = [(t.data.x_train.shape, t.data.x_valid.shape) for t in tasks]  # type: ignore[attr-defined]
    assert shapes == [((500, 784), (100, 784))] * 2
    good = {"batch-size": 10, "learning-rate": 0.1, "weight-decay": 1e-4}
    rng = np.random.default_rng(0)
    assert all(t.evaluate(good, rng=rng) > 0.75 for t in tasks)


@needs_torch
def test_the_network_learns_generated_characters_in_good_time() -> None:
    task = load("emnist", {"generated": True})
    task.prepare(Partition(0, 50))
    before = time.process_time()
    good = {"learning-rate": 0.003, "learning-rate-decay": 1e-5, "l2": 1e-5}
    assert task.evaluate(good, rng=np.random.default_rng(0)) > 0.7
    # The requirement is 2 s for 100 images on one core; 0.12 s were measured.
    assert time.process_time() - before < 20.0
    useless = {"learning-rate": 1e-7, "learning-rate-decay": 1e-5, "l2": 1e-5}
    assert task.evaluate(useless, rng=np.random.default_rng(0)) < 0.5


@needs_torch
def test_the_network_leaves_torchs_generator_and_threads_alone() -> None:
    import torch

    threads = torch.get_num_threads()
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    task = load("emnist", {"generated": True, "epochs": 1})
    task.prepare(Partition(0, 50))
    task.evaluate(task.space.from_unit(np.full(3, 0.5)), rng=np.random.default_rng(0))
    assert torch.rand(1) == expected
    assert torch.get_num_threads() == threads


@needs_torch
@needs_data
def test_the_surrogate_is_named_as_what_it_is() -> None:
    task = load("emnist", {"data": "writers"})
    assert task.name == "emnist (MNIST digits by writer)"
    task.prepare(Partition(0, 50))
    assert task.data.x_train.shape[1:] == (28, 28)  # type: ignore[attr-defined]
    assert task.data.x_train[:, 0, 0].max() == 0.0  # type: ignore[attr-defined] # background
