"""Releases in the run directory, and the recommendation that is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import DPFTSDE, FTS, Callback, Float, LocalTS, Result, resume, simulate, task
from flwr_fbo.runs.directory import RunDirectory

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
            self.seen.setdefault(strategy.release().round, latest.copy())


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
    assert found.recommended["releases"] == 3
    assert set(found.recommended["params"]) == {"x", "y"}
    # Averaged by inverse variance: less noise than in any of them.
    assert 0 < found.recommended["noise"] < min(r.deviation for r in releases)


@pytest.mark.parametrize("strategy", [DPFTSDE(regions=1), FTS()])
def test_without_noise_it_is_near_the_common_optimum(strategy: Any, tmp_path: Path) -> None:
    found = simulate(hill, agents=6, rounds=10, strategy=strategy, run_dir=tmp_path / "r")
    assert found.recommended["noise"] == 0.0
    # A random point is 0.43 away on average.
    assert found.recommended["params"]["x"] == pytest.approx(0.3, abs=0.2)
    assert found.recommended["params"]["y"] == pytest.approx(0.6, abs=0.2)
    assert Result.read(tmp_path / "r").recommended == found.recommended


def test_solitary_agents_have_nothing_to_recommend(tmp_path: Path) -> None:
    found = simulate(hill, strategy=LocalTS(), run_dir=tmp_path / "r", **SMALL)
    assert "recommended" not in found.to_dict()
    assert not (tmp_path / "r" / "releases").exists()


def test_a_crash_between_checkpoint_and_release_loses_neither(tmp_path: Path) -> None:
    class Crash(Callback):
        def on_round(self, strategy: Any, report: Any) -> None:
            if report.round == 1:
                raise ArithmeticError("the power went")

    with pytest.raises(ArithmeticError):
        simulate(hill, strategy=DPFTSDE(epsilon=4.0, releases="early"), run_dir=tmp_path / "r",
                 callbacks=[Crash()], **SMALL)  # fmt: skip
    lost = tmp_path / "r" / "releases" / "round-0001.npz"
    before = RunDirectory(tmp_path / "r").releases.read()
    lost.unlink()  # as if the crash had come a moment earlier
    found = resume(tmp_path / "r", hill)
    after = RunDirectory(tmp_path / "r").releases.read()
    assert [r.round for r in after] == [0, 1, 2]
    np.testing.assert_array_equal(after[1].vector, before[1].vector)
    assert found.recommended["releases"] == 3
