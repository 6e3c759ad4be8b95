"""The population of a private run is fixed: who joins, leaves and returns changes who answers only.

Amplification by sampling and the weights are computed for the places that the run was planned
with. A place without an answer counts as zero, and nobody else counts more for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo.methods.dp_fts_de import aggregation
from flwr_fbo.methods.dp_fts_de import server as dp_fts_de
from flwr_fbo.privacy.ledger import Ledger
from flwr_fbo.runs.callbacks import Callback, RoundReport
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.dp_fts_de import DPFTSDE

from .conftest import Federation, hill
from .test_strategies import SMALL, Make

AGENTS = 4
RATE = 0.5


def private(**settings: Any) -> DPFTSDE:
    return DPFTSDE(
        **SMALL, epsilon=50.0, noise_multiplier=1.0, sampling_rate=RATE, releases="all",
        accountant="rdp", regions=1, **settings,
    )  # fmt: skip


class Traffic(Callback):
    """Who is online in which round."""

    def __init__(self, f: Federation, online: Callable[[int], set[int]]) -> None:
        self._grid, self._online = f.grid, online
        self._grid.online = online(0)

    def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
        self._grid.online = self._online(report.round + 1)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float]]:
    """Over how many agents, and how often, every sample is drawn."""
    seen: list[tuple[int, float]] = []
    plain = aggregation.poisson_sample

    def spy(count: int, rate: float, entropy: Any) -> Any:
        seen.append((count, rate))
        return plain(count, rate, entropy)

    monkeypatch.setattr(aggregation, "poisson_sample", spy)
    return seen


def events(f: Federation) -> list[Any]:
    ledger = f.directory.ledger.read_text().splitlines()[1:]
    return [line.split('"event"')[1].split("}")[0] for line in ledger]


FIRST = 2  # the node of agent 0


def coming_and_going(round: int) -> set[int]:
    """Agent 3 joins in round 2; agent 1 leaves in round 1 and returns in round 3."""
    online = {FIRST, FIRST + 1, FIRST + 2, FIRST + 3}
    if round < 2:
        online.discard(FIRST + 3)
    if round in (1, 2):
        online.discard(FIRST + 1)
    return online


def test_every_sample_is_drawn_over_all_places_and_costs_the_same(
    federation: Make, drawn: list[tuple[int, float]], tmp_path: Path
) -> None:
    f = federation(private(), agents=AGENTS, rounds=5, timeout=0.5)
    f.strategy.callbacks.append(Traffic(f, coming_and_going))
    asked = [r.asked for r in f.start().reports]
    assert asked == [3, 2, 3, 4, 4, 4]
    assert drawn == [(AGENTS, RATE)] * 5
    quiet = Federation(private(), tmp_path / "quiet", AGENTS, hill, rounds=5)
    quiet.start()
    assert events(f) == events(quiet)
    mine, its = f.strategy.server.statement(), quiet.strategy.server.statement()
    assert mine == its
    assert len(drawn) == 10


def test_who_returns_has_its_old_place_and_history(federation: Make) -> None:
    f = federation(private(), agents=AGENTS, rounds=5, timeout=0.5)
    f.strategy.callbacks.append(Traffic(f, coming_and_going))
    f.start()
    assert f.strategy.roster.names == ["0", "1", "2", "3"]
    assert f.strategy.roster.present == [0, 1, 2, 3]


def test_there_is_no_place_beyond_the_plan(
    federation: Make, drawn: list[tuple[int, float]], caplog: pytest.LogCaptureFixture
) -> None:
    """Four nodes, a run for three: the fourth is told that it is one too many, in every round."""
    f = federation(private(), agents=AGENTS, rounds=3, timeout=0.5)
    settings = f.strategy.parameters
    f.strategy.server.close_files()
    f.directory.ledger.unlink()
    f.strategy.open_run(type(settings)(**{**vars(settings), "agents": 3}))
    reports = f.start().reports
    assert [r.asked for r in reports] == [3] * 4
    assert "the run is for 3 agents, and all of them have their places" in caplog.text
    assert drawn == [(3, RATE)] * 3


def test_an_absent_agent_is_a_zero_and_others_weigh_the_same() -> None:
    """By hand, without noise: the sum with one agent away is the sum without its share."""
    settings = dp_fts_de.DPFTSDESettings(**SMALL, clip=1.0, regions=1, weights="uniform")
    vectors = {n: np.full(8, 0.05 * (n + 1)) for n in range(AGENTS)}

    def server() -> dp_fts_de.DPFTSDEServer:
        return dp_fts_de.DPFTSDEServer(hill.space, AGENTS, settings, 3)

    def total(present: set[int]) -> np.ndarray:
        there = {n: v for n, v in vectors.items() if n in present}
        return np.asarray(server().aggregation.weighted_sum(there, 0).plain)

    whole = total({0, 1, 2, 3})
    for away in range(AGENTS):
        without = total(set(range(AGENTS)) - {away})
        assert np.allclose(whole - without, vectors[away] / AGENTS, atol=1e-12)


def test_a_resumed_run_has_the_same_population_or_none(federation: Make) -> None:
    """The number of places is in the ledger's header: another number is another ledger."""
    f = federation(private(), agents=AGENTS, rounds=3)
    f.strategy.stop = lambda report: report.round == 1
    f.start()
    with pytest.raises(Exception, match="agents") as error:
        Federation(private(), f.directory.root, AGENTS + 1, hill, rounds=3)
    assert error.type.__module__ == Ledger.__module__
