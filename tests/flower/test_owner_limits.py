"""What an agent's owner allows in the node's configuration holds, whatever a server asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.fed_pne import FedPNE
from flwr_fbo.strategies.fts import FTS
from flwr_fbo.strategies.ldp import LDPBO
from flwr_fbo.tasks import task

SPACE = Space({"x": Float(0.0, 1.0)})


@task(space=SPACE, score_range=(0.0, 1.0))
def hill(params: Any) -> float:
    return 1.0 - abs(float(params["x"]) - 0.3)


def start(strategy: FBOStrategy, folder: Path, agents: int = 3, **node: Any) -> FBOStrategy:
    grid = InProcessGrid(simulated_client_app(hill, folder), agents)
    for context in grid.contexts.values():
        context.node_config.update(node)
    strategy.open_run(RunParameters(SPACE, agents, 3, timeout=0.5))
    strategy.run(grid)
    return strategy


def ldp(**settings: Any) -> LDPBO:
    return LDPBO(learner="tgp", budget=30, epsilon_per_answer=1.0, features=10, **settings)


def test_an_answer_beyond_the_owners_limit_is_refused(tmp_path: Path) -> None:
    server: Any = start(ldp(), tmp_path, **{"epsilon-limit": 4.0}).server
    assert server.stopped == "budgets"
    assert len(server.played) == 3 * 4


def test_the_owners_books_go_on_over_runs(tmp_path: Path) -> None:
    node = {"epsilon-limit": 7.0, "budget-file": str(tmp_path / "mine.books")}
    first: Any = start(
        LDPBO(learner="tgp", budget=5, epsilon_per_answer=1.0, features=10),
        tmp_path / "1",
        agents=1,
        **node,
    ).server
    assert first.stopped == "done"
    second: Any = start(ldp(), tmp_path / "2", agents=1, **node).server
    assert second.stopped == "budgets"
    assert len(second.played) == 2
    assert (tmp_path / "mine.books").read_text().count('"event"') == 7


@pytest.mark.parametrize("asked", [None, 8.0])
def test_a_limit_makes_vectors_locally_private(tmp_path: Path, asked: float | None) -> None:
    strategy = FTS(initial_points=2, features=8, refit_every=0, local_epsilon=asked)
    strategy.stop = lambda report: report.round == 0
    start(strategy, tmp_path, **{"epsilon-limit": 0.5})
    # The clip is sqrt(8); noise for ten answers at epsilon .5 is some hundred times as long.
    server: Any = strategy.server
    lengths = [float(np.linalg.norm(v)) for v in server.messages.values()]
    assert len(lengths) == 3
    assert min(lengths) > 100
    assert len(list(tmp_path.glob("*.privacy.jsonl"))) == 3


def test_books_need_a_limit(tmp_path: Path) -> None:
    node = {"budget-file": str(tmp_path / "mine.books")}
    strategy = start(ldp(), tmp_path, **node)
    assert strategy.reports[0].declined == {"SettingsError": 1}
    assert not (tmp_path / "mine.books").exists()


@pytest.mark.parametrize("limit", [{"epsilon-limit": 0.5}, {"epsilon-limit-reward": 0.01}])
def test_fed_pne_agents_decline_what_is_beyond_their_limits(
    tmp_path: Path, limit: dict[str, float]
) -> None:
    strategy = FedPNE(budget=40, epsilon_per_reward=1.0)
    server: Any = start(strategy, tmp_path, **limit).server
    assert server.stopped == "budget"
    assert strategy.reports[0].declined == {"budget": 3}


def test_without_limits_the_same_runs_are_made(tmp_path: Path) -> None:
    server: Any = start(FedPNE(budget=40, epsilon_per_reward=1.0), tmp_path / "a").server
    assert server.stopped == ""
    learner: Any = start(ldp(), tmp_path / "b").server
    assert learner.stopped == "done"
