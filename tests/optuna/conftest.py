"""Finished runs, made once, from whose releases samplers start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from flwr_fbo import DPFTSDE, Categorical, Float, Int, simulate, task


def height(params: Any) -> float:
    """The top, 0.9, is at rate = 0.1, depth = 6, kind = b."""
    x = 0.25 * abs(-1.0 - _log10(params["rate"]))
    return 0.9 - x**2 - 0.01 * (params["depth"] - 6) ** 2 - 0.2 * (params["kind"] != "b")


def _log10(value: float) -> float:
    import math

    return math.log10(value)


SPACE = {
    "rate": Float(1e-4, 1.0, log=True),
    "depth": Int(1, 12),
    "kind": Categorical(["a", "b", "c"]),
}
hill = task(space=SPACE, score_range=(-1.0, 1.0))(height)


@task(space={"x": Float(0.0, 10.0), "y": Int(-1, 1), "a": Categorical([1]), "z": Float(-1.0, 1.0)})
def of_the_suite(params: Any) -> float:
    """A task whose parameters have names that Optuna's own tests use."""
    return float(params["x"] + params["y"] + params["z"])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(optuna.logging.INFO)


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight agents without privacy, whose releases say where the top is."""
    folder = tmp_path_factory.mktemp("runs") / "clinics"
    simulate(hill, agents=8, rounds=8, strategy=DPFTSDE(), run_dir=folder, seed=3)
    return folder


@pytest.fixture(scope="session")
def past_of_the_suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "suite"
    simulate(of_the_suite, agents=3, rounds=2, strategy=DPFTSDE(), run_dir=folder, seed=1)
    return folder
