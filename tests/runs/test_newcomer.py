"""A party that comes after a run, and starts from its releases."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flwr_fbo
from flwr_fbo import DPFTSDE, Float, Int, LocalTS, simulate, task
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space
from flwr_fbo.models.features import RandomFeatures
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.directory import RunDirectory

SPACE = {"x": Float(0.0, 1.0), "y": Float(0.0, 1.0), "depth": Int(1, 3)}


def height(params: Any) -> float:
    x, y, depth = (float(params[name]) for name in ("x", "y", "depth"))
    return 0.9 - (x - 0.3) ** 2 - (y - 0.6) ** 2 - 0.1 * (depth - 2) ** 2


hill = task(space=SPACE, score_range=(-1.0, 1.0))(height)


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six agents without privacy, so that its releases say what the agents know."""
    folder = tmp_path_factory.mktemp("runs") / "clinics"
    simulate(hill, agents=6, rounds=4, strategy=DPFTSDE(), run_dir=folder, seed=3)
    return folder


def evaluate(newcomer: Any, count: int) -> list[dict[str, Any]]:
    asked = []
    for _ in range(count):
        params = newcomer.ask()
        assert newcomer.ask() == params  # no score in between
        newcomer.tell(params, height(params))
        asked.append(params)
    return asked


def test_a_newcomer_asks_takes_scores_and_keeps_the_best(past: Path) -> None:
    newcomer = flwr_fbo.join(past)
    assert newcomer.best is None
    asked = evaluate(newcomer, 4)
    scores = [height(params) for params in asked]
    assert newcomer.best == (asked[int(np.argmax(scores))], max(scores))
    assert all(set(params) == set(SPACE) and params["depth"] in (1, 2, 3) for params in asked)
    # A random point's height is 0.56 on average: what was learned before is of use at once.
    assert scores[0] > 0.7
    elsewhere = {"x": 0.3, "y": 0.6, "depth": 2}  # a point of one's own, the top
    newcomer.tell(elsewhere, height(elsewhere))
    assert newcomer.best is not None
    params, score = newcomer.best
    assert score == height(elsewhere)
    assert params == pytest.approx(elsewhere)


def test_the_first_point_is_where_the_released_function_is_largest(past: Path) -> None:
    releases = RunDirectory(past).releases.read()
    assert len(releases) > 1
    with np.load(past / "releases" / "features.npz") as arrays:
        features = RandomFeatures(arrays["frequencies"], arrays["phases"])
    # Without noise a release counts by its age: half after three rounds.
    weights = np.array([0.5 ** ((releases[-1].round - r.round) / 3.0) for r in releases])
    vectors = np.stack([r.vector[0, : features.count] for r in releases])
    shared = weights @ vectors / weights.sum()
    space = Space(SPACE)
    side = np.linspace(0.0, 1.0, 41)
    grid = np.array(
        [(x, y, d) for x in side for y in side for d in ((k + 0.5) / 3 for k in range(3))]
    )
    first = space.to_unit(flwr_fbo.join(past).ask())
    value = float((features(space.embed(first[None, :])) @ shared)[0])
    assert value >= (features(space.embed(space.snap(grid))) @ shared).max() - 1e-6


def test_a_seed_determines_what_it_asks(past: Path) -> None:
    first, again = (evaluate(flwr_fbo.join(past, seed=5), 3) for _ in range(2))
    assert first == again


def test_a_failure_is_not_asked_for_again(past: Path) -> None:
    newcomer = flwr_fbo.join(past)
    failed = newcomer.ask()
    newcomer.tell(failed, None)
    assert newcomer.best is None
    assert newcomer.ask() != failed


def test_what_is_public_of_a_run_is_enough(past: Path, tmp_path: Path) -> None:
    for name in ("config.json", "space.json"):
        shutil.copy(past / name, tmp_path / name)
    shutil.copytree(past / "releases", tmp_path / "releases")
    assert flwr_fbo.join(tmp_path).ask() == flwr_fbo.join(past).ask()


@pytest.mark.parametrize("given", [{"regions": 4, "advice": "last"}, {"epsilon": 5.0}])
def test_runs_with_sub_regions_or_privacy_can_be_joined(
    given: dict[str, Any], tmp_path: Path
) -> None:
    simulate(hill, agents=4, rounds=2, strategy=DPFTSDE(**given), run_dir=tmp_path / "r")
    newcomer = flwr_fbo.join(tmp_path / "r")
    evaluate(newcomer, 2)
    assert newcomer.best is not None


def test_what_cannot_be_joined_is_refused(tmp_path: Path) -> None:
    simulate(hill, agents=2, rounds=1, strategy=LocalTS(), run_dir=tmp_path / "alone")
    with pytest.raises(SettingsError, match=r"must be of a run of dp-fts-de.*but is of 'local-ts'"):
        flwr_fbo.join(tmp_path / "alone")
    silent = DPFTSDE(epsilon=5.0, releases="7")  # of a run of two rounds
    simulate(hill, agents=2, rounds=2, strategy=silent, run_dir=tmp_path / "silent")
    with pytest.raises(SettingsError, match=r"must hold releases, but .*silent has none yet"):
        flwr_fbo.join(tmp_path / "silent")
    with pytest.raises(RunDirectoryError, match="is not the directory of a run"):
        flwr_fbo.join(tmp_path / "nothing")
