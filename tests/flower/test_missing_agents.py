"""Runs with fewer nodes than agents, or more agents than the data have: told before any work."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from flwr_fbo import Float, RandomSearch, task
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.summary import summary
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies import rounds
from flwr_fbo.strategies.registration import (
    SIMULATION_SECONDS,
    is_simulation,
    registration_seconds,
)
from flwr_fbo.strategies.rounds import check_size
from flwr_fbo.strategies.server_app import serve_run


@task(space={"x": Float(0.0, 1.0)})
def hill(params: Any) -> float:
    return 1.0 - float(params["x"] - 0.3) ** 2


class InMemoryGrid:
    """Stands for the grid of Flower's simulation engine, which is known by this name."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes

    def get_node_ids(self) -> range:
        return range(self.nodes)


def test_a_simulation_with_too_few_nodes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SETTLE_SECONDS", 0.05)
    grid: Any = InMemoryGrid(2)
    assert is_simulation(grid)
    with pytest.raises(SettingsError) as refused:
        check_size(grid, 10, timeout=5.0)
    for words in ("2 of 10 agents are here", 'flwr run . --federation-config "num-supernodes=10'):
        assert words in str(refused.value)
    check_size(grid, 2, timeout=5.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"task": "digits", "agents": 10}, "2 of 10 agents are here"),
        ({"task": "digts"}, "unknown task `digts`; did you mean `digits`?"),
        ({"task": "digits", "epsilon": -5.0}, "`epsilon` must be > 0, but got -5.0"),
    ],
)
def test_a_mistake_is_logged_before_flowers_engine_has_started(
    given: dict[str, Any],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Flower's engine shows the error itself only once it has started, below a traceback."""
    monkeypatch.setenv("FLWR_FBO_HOME", str(tmp_path))
    monkeypatch.setattr(rounds, "SETTLE_SECONDS", 0.05)
    grid: Any = InMemoryGrid(2)
    context = Context(run_id=7, node_id=0, node_config={}, state=RecordDict(), run_config={})
    with caplog.at_level(logging.ERROR, logger="flwr.fbo"), pytest.raises(SettingsError):
        serve_run(given, grid, context)
    (logged,) = [record.getMessage() for record in caplog.records]
    assert words in logged
    assert "\n" not in logged


def test_too_few_nodes_are_logged_in_an_app_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rounds, "SETTLE_SECONDS", 0.05)
    grid: Any = InMemoryGrid(2)
    strategy = RandomSearch(space=hill.space, num_agents=10, num_rounds=1, run_dir=tmp_path)
    with caplog.at_level(logging.ERROR, logger="flwr.fbo"), pytest.raises(SettingsError):
        strategy.start(grid)
    (logged,) = [record.getMessage() for record in caplog.records]
    assert "2 of 10 agents are here" in logged
    # Nothing is stored, so that the corrected run is a new run and not the continued one.
    assert not RunDirectory(tmp_path).holds_a_run


def test_a_deployment_says_at_once_who_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid: Grid = InProcessGrid(simulated_client_app(hill, tmp_path / "agents"), nodes=2)
    assert not is_simulation(grid)
    strategy = RandomSearch(
        space=hill.space, num_agents=10, num_rounds=1, timeout=0.4, run_dir=tmp_path
    )
    with caplog.at_level(logging.WARNING, logger="flwr.fbo"):
        strategy.start(grid)
    first, *others = [record.getMessage() for record in caplog.records]
    assert first.startswith("2 of 10 agents are connected; waiting up to")
    assert "Start more SuperNodes, or set agents=2" in first
    # Said once in half a minute, however often the server looks.
    assert not any("are connected" in other for other in others)


def test_a_number_of_agents_that_the_data_do_not_have_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_FBO_HOME", str(tmp_path))
    grid: Any = InMemoryGrid(5000)
    context = Context(run_id=7, node_id=0, node_config={}, state=RecordDict(), run_config={})
    with pytest.raises(SettingsError, match="cannot be divided among 5000 agents"):
        serve_run({"task": "digits", "agents": 5000}, grid, context)
    assert not (tmp_path / "runs").exists()


def test_a_deployments_summary_has_no_scores(tmp_path: Path) -> None:
    grid: Grid = InProcessGrid(simulated_client_app(hill, tmp_path / "agents"), nodes=2)
    strategy = RandomSearch(space=hill.space, num_agents=2, num_rounds=1, run_dir=tmp_path)
    details = strategy.start(grid).details
    assert details is not None
    text = summary(details)
    assert "mean best" not in text
    assert "privacy" in text
    assert f"flwr-fbo report {tmp_path}" in text


def test_a_setup_that_did_not_arrive_says_nothing_of_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a busy machine Flower's engine starts too late, and its messages expire."""
    grid = InProcessGrid(simulated_client_app(hill, tmp_path / "agents"), nodes=2)
    real, expired = grid._call, []

    def call(message: Message, context: Context) -> Message:
        if len(expired) < 2:
            expired.append(message)
            return Message(Error(3, "the message may have expired"), reply_to=message)
        return real(message, context)

    monkeypatch.setattr(grid, "_call", call)
    strategy = RandomSearch(space=hill.space, num_agents=2, num_rounds=1, run_dir=tmp_path)
    with caplog.at_level(logging.WARNING, logger="flwr.fbo"):
        strategy.start(grid)
    assert len(expired) == 2
    assert "takes no part in tuning" not in caplog.text
    assert [r.asked for r in strategy.reports] == [2, 2]


def test_nodes_of_a_simulation_register_however_short_a_round_is() -> None:
    grid: Any = InMemoryGrid(2)
    assert registration_seconds(grid, 3.0) == SIMULATION_SECONDS
    assert registration_seconds(grid, SIMULATION_SECONDS + 1) == SIMULATION_SECONDS + 1
    deployment: Any = object()
    assert registration_seconds(deployment, 3.0) == 3.0


@pytest.mark.parametrize(("kind", "seconds"), [("InMemoryGrid", 1800.0), ("Other", 0.5)])
def test_how_long_a_setup_may_take(tmp_path: Path, kind: str, seconds: float) -> None:
    """A message that waits for a worker of the engine does not expire with the first round."""
    sent: list[float] = []

    class Grid(InProcessGrid):
        def push_messages(self, messages: Any) -> Any:
            messages = list(messages)
            sent.extend(message.metadata.ttl for message in messages)
            return super().push_messages(messages)

    Grid.__name__ = kind
    grid = Grid(simulated_client_app(hill, tmp_path / "agents"), nodes=2)
    strategy = RandomSearch(space=hill.space, num_agents=2, num_rounds=1, timeout=0.5)
    counts: list[tuple[int, int]] = []

    class Watch(Callback):
        def on_registration(self, run: Any, registered: int, asked: int) -> None:
            counts.append((registered, asked))

    strategy.callbacks = [Watch()]
    strategy.start(grid)
    assert sent[:2] == [seconds] * 2
    assert set(sent[2:]) == {0.5}  # rounds keep their timeout
    assert counts == [(1, 2), (2, 2)]
