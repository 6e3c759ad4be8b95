"""Small federations in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.tasks import FunctionTask, task

SPACE = Space({"x": Float(0.0, 1.0), "y": Float(1e-3, 1e3, log=True)})


@task(space=SPACE, metric="height")
def hill(params: Any, partition: Any) -> float:
    """A hill whose top differs a little between agents."""
    top = 0.4 + 0.02 * partition.index
    return 1.0 - (float(params["x"]) - top) ** 2 - 0.01 * abs(float(params["y"]) - 1.0) / 1e3


class Federation:
    """A strategy, its agents and a grid between them."""

    def __init__(
        self, strategy: FBOStrategy, folder: Path, agents: int, work: FunctionTask, **plan: Any
    ) -> None:
        self.directory = RunDirectory(folder)
        self.directory.agents.mkdir(parents=True, exist_ok=True)
        self.grid = InProcessGrid(simulated_client_app(work, self.directory.agents), agents)
        plan = {"rounds": 4, "timeout": 1.0, "ledger": self.directory.ledger, **plan}
        self.strategy = strategy
        strategy.open_run(RunParameters(SPACE, agents, **plan), self.directory.store)

    def start(self) -> FBOStrategy:
        self.strategy.run(self.grid)
        return self.strategy


@pytest.fixture
def federation(tmp_path: Path) -> Callable[..., Federation]:
    def make(
        strategy: FBOStrategy, agents: int = 3, work: FunctionTask = hill, **plan: Any
    ) -> Federation:
        return Federation(strategy, tmp_path / "run", agents, work, **plan)

    return make
