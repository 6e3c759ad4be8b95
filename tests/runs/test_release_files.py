"""Releases in the run directory, and the recommendation that is made of them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import DPFTSDE, FTS, Callback, Float, LocalTS, Result, resume, simulate, task
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.checkpoint import Checkpoint
from flwr_fbo.runs.files.directory import RunDirectory

SMALL: dict[str, Any] = {"agents": 4, "rounds": 4, "initial_points": 3, "seed": 4}


@task(space={"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
def hill(params: Any) -> float:
    return -((float(params["x"]) - 0.3) ** 2) - (float(params["y"]) - 0.6) ** 2


class Watch(Callback):
    def __init__(self) -> None:
        self.seen: dict[int, np.ndarray] = {}

    def on_round(self, strategy: Any, report: Any) -> None:
        latest = strategy.server.released.latest
        if latest is not None:
            self.seen.setdefault(strategy.server.release().round, latest.copy())


def test_every_release_is_kept(tmp_path: Path) -> None:
    watch = Watch()
    private = DPFTSDE(epsilon=4.0, regions=2, releases="early", features=100)
    found = simulate(hill, strategy=private, run_dir=tmp_path / "r", callbacks=[watch], **SMALL)
    releases = RunDirectory(tmp_path / "r").releases.read()
    assert [r.round for r in releases] == [0, 1, 2]  # the early ones of four rounds
    for release in releases:
        np.testing.assert_array_equal(release.vector, watch.seen[release.round])
        assert release.vector.shape == (2, 100)
        assert release.deviation > 0
    with np.load(tmp_path / "r" / "releases" / "features.npz") as features:
        assert features["frequencies"].shape == (100, 2)
    assert found.recommendation["releases"] == 3
    assert set(found.recommended) == {"x", "y"}
    # Averaged by inverse variance: less noise than in any of them.
    assert 0 < found.recommendation["noise"] < min(r.deviation for r in releases)


@pytest.mark.parametrize("strategy", [DPFTSDE(regions=1), FTS()])
def test_without_noise_it_is_near_the_common_optimum(strategy: Any, tmp_path: Path) -> None:
    found = simulate(hill, agents=6, rounds=10, strategy=strategy, run_dir=tmp_path / "r")
    assert found.recommendation["noise"] == 0.0
    # A random point is 0.43 away on average.
    assert found.recommended["x"] == pytest.approx(0.3, abs=0.2)
    assert found.recommended["y"] == pytest.approx(0.6, abs=0.2)
    assert Result.read(tmp_path / "r").recommended == found.recommended


def test_solitary_agents_have_nothing_to_recommend(tmp_path: Path) -> None:
    found = simulate(hill, strategy=LocalTS(), run_dir=tmp_path / "r", **SMALL)
    assert found.recommended is None
    assert found.recommendation is None
    assert not (tmp_path / "r" / "releases").exists()


def test_a_crash_between_release_and_checkpoint_leaves_no_stale_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round is made again with new noise, and its file holds what agents are then sent."""
    save = Checkpoint.save

    def crashing(self: Checkpoint, state: Any) -> None:
        if state["server"]["round"] == 2:
            raise ArithmeticError("the power went")
        save(self, state)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "save", crashing)
        with pytest.raises(ArithmeticError):
            simulate(hill, strategy=DPFTSDE(epsilon=4.0, releases="early"),
                     run_dir=tmp_path / "r", **SMALL)  # fmt: skip
    directory = RunDirectory(tmp_path / "r")
    before = directory.releases.read()
    assert [r.round for r in before] == [0, 1]
    found = resume(tmp_path / "r", hill)
    after = directory.releases.read()
    # The lost release is charged as well, so that the budget does not pay for a third.
    assert directory.ledger.read_text().count('"event"') == 3
    assert [r.round for r in after] == [0, 1]
    np.testing.assert_array_equal(after[0].vector, before[0].vector)
    assert not np.array_equal(after[1].vector, before[1].vector)
    state = directory.store.load()
    assert state is not None
    np.testing.assert_array_equal(state["server"]["released"]["vectors"][1], after[1].vector)
    assert found.recommendation is not None
    assert found.recommendation["releases"] == 2


def test_a_release_is_stored_once(tmp_path: Path) -> None:
    simulate(hill, strategy=DPFTSDE(epsilon=4.0, features=500), run_dir=tmp_path, **SMALL)
    with zipfile.ZipFile(tmp_path / "checkpoint.npz") as checkpoint:
        assert max(m.file_size for m in checkpoint.infolist()) < 8 * 500
    state = RunDirectory(tmp_path).store.load()
    assert state is not None
    released = RunDirectory(tmp_path).releases.read()
    np.testing.assert_array_equal(
        state["server"]["released"]["vectors"], [r.vector for r in released]
    )


def test_a_lost_release_is_named_and_blocks_nothing(tmp_path: Path) -> None:
    strategy = DPFTSDE(epsilon=4.0, releases="early")
    simulate(hill, strategy=strategy, run_dir=tmp_path, **SMALL)
    (tmp_path / "releases" / "round-0001.npz").unlink()
    store = RunDirectory(tmp_path).store
    state = store.load()
    assert state is not None
    assert list(state["server"]["released"]["rounds"]) == [0, 2]
    (damage,) = store.damages.values()
    assert "round-0001.npz does not hold a release of this run" in damage
    assert "goes on without this release, which stays charged" in damage
    found = resume(tmp_path, hill, rounds=6)
    assert found.damages == (damage,)
    assert found.recommendation is not None
    assert found.recommendation["releases"] == 2
    assert found.privacy.spent == Result.read(tmp_path).privacy.spent
    assert Result.read(tmp_path).damages == (damage,)


def test_a_checkpoint_of_version_one_is_refused_by_version(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "checkpoint.npz").save({"roster": {"names": []}, "server": {"round": 1}})
    with pytest.raises(RunDirectoryError, match="is of another version of flwr-fbo"):
        RunDirectory(tmp_path).store.load()
