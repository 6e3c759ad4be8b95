"""Voting on a grid: rounds, resumption, absent agents, Flower's own loop, and what is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord

from flwr_fbo.runs.callbacks import Callback, RoundReport
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.voting import Voting
from flwr_fbo.wire import SCHEMA

from .conftest import Federation
from .test_strategies import Tap

Make = Callable[..., Federation]
SMALL: dict[str, Any] = {"budget": 10, "votes": 2, "batch": 2}


@pytest.mark.parametrize("epsilon", [None, 2.0])
def test_it_runs_to_its_end(federation: Make, epsilon: float | None) -> None:
    f = federation(Voting(**SMALL, epsilon=epsilon))
    strategy = f.start()
    assert strategy.server.finished
    assert [r.round for r in strategy.reports] == [0, 1, 2, 3, 4]
    assert all(r.replied == r.asked == 3 for r in strategy.reports)
    assert [len(h) for h in read_evaluations(f.directory.agents, 3)] == [10, 10, 10]
    assert f.directory.releases.count() == 1


def test_it_stops_and_resumes_as_if_nothing_had_happened(federation: Make) -> None:
    f = federation(Voting(**SMALL, epsilon=2.0))
    f.strategy.stop = lambda report: report.round == 2
    f.start()
    again = federation(Voting(**SMALL, epsilon=2.0))
    again.start()
    assert [r.round for r in again.strategy.reports] == [3, 4]
    assert again.strategy.server.charges == 1
    assert [len(h) for h in read_evaluations(again.directory.agents, 3)] == [10, 10, 10]


def test_an_agent_that_was_away_catches_up(federation: Make) -> None:
    f = federation(Voting(**SMALL))
    gone = max(f.grid.online)

    class Outage(Callback):
        def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
            if report.round == 0:
                f.grid.online.discard(gone)
            if report.round == 2:
                f.grid.online.add(gone)

    f.strategy.callbacks.append(Outage())
    strategy = f.start()
    assert [r.asked for r in strategy.reports] == [3, 2, 2, 3, 3]
    assert [len(h) for h in read_evaluations(f.directory.agents, 3)] == [10, 10, 10]


def test_an_agent_that_is_away_for_the_vote_counts_as_zero(federation: Make) -> None:
    f = federation(Voting(**SMALL))
    gone = max(f.grid.online)

    class Outage(Callback):
        def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
            if report.round == 3:
                f.grid.online.discard(gone)

    f.strategy.callbacks.append(Outage())
    server: Any = f.start().server
    assert server.released.latest.sum() == 2 * 2


def test_it_serves_flowers_own_loop(federation: Make) -> None:
    f = federation(Voting(**SMALL, epsilon=2.0))
    strategy = f.strategy
    for number in range(1, 6):
        messages = list(strategy.configure_train(number, ArrayRecord(), ConfigRecord(), f.grid))
        arrays, metrics = strategy.aggregate_train(number, f.grid.send_and_receive(messages))
        assert arrays is None
        assert metrics is not None
        assert metrics["replied"] == metrics["asked"] == 3
    assert strategy.server.finished
    assert strategy.configure_train(6, ArrayRecord(), ConfigRecord(), f.grid) == []


def test_nothing_but_votes_leaves_an_agent_and_only_in_the_last_round(federation: Make) -> None:
    f = federation(Voting(**SMALL, epsilon=2.0))
    f.grid.__class__ = Tap
    assert isinstance(f.grid, Tap)
    f.grid.heard = []
    f.start()
    for reply in f.grid.heard[3:]:  # after the registrations
        metrics = dict(reply.content.config_records["fitres.metrics"])
        metrics.pop("agent", None)
        assert metrics == {"flwr-fbo": SCHEMA, "round": metrics["round"], "declined": " " * 64}
        sent = reply.content.array_records["fitres.parameters"]
        vectors = [a.numpy() for key, a in sent.items() if key != "_empty"]
        assert len(vectors) == (metrics["round"] == 4)
        for vector in vectors:
            assert sorted(np.unique(vector)) == [0.0, 1.0]
            assert vector.sum() == 2
