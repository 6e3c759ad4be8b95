"""Votes by a secure sum through Flower's messages: the same votes, dropouts, crashes, own loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy

from flwr_fbo import wire
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.methods.secure_sum import KINDS
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.strategies.voting import Voting

from .conftest import SPACE, Federation, hill
from .test_secure_runs import Watched, events, without_noise

GIVEN: dict[str, Any] = {"budget": 10, "votes": 2, "batch": 5, "epsilon": 8.0}
#: A round for each half of the list.
ROUNDS = 2


def federation(folder: Path, agents: int = 4, **given: Any) -> Federation:
    strategy = Voting(**{**GIVEN, "aggregation": "secure", **given})
    made = Federation(strategy, folder / "run", agents, hill)
    made.grid = Watched(simulated_client_app(hill, made.directory.agents), agents)
    return made


def legs(made: Federation) -> list[str]:
    return [kind for kind in made.grid.kinds if kind in KINDS]  # type: ignore[attr-defined]


@pytest.mark.parametrize("lost", [None, 3])
def test_the_votes_are_those_that_a_trusted_server_counts(lost: int | None, tmp_path: Path) -> None:
    found = {}
    for aggregation in ("secure", "central"):
        made = federation(tmp_path / aggregation, aggregation=aggregation)
        made.grid.silent = lambda kind, n: n == lost and kind not in ("setup", "probe")  # type: ignore[attr-defined]
        with without_noise():
            made.start()
        (release,) = made.directory.releases.read()
        found[aggregation] = release.vector
    np.testing.assert_array_equal(found["secure"], found["central"])
    assert found["secure"].sum() == pytest.approx(2 * (4 if lost is None else 3))


def test_the_votes_leave_masked_once_and_no_reply_holds_any_before(tmp_path: Path) -> None:
    made = federation(tmp_path)
    charged = {}
    made.grid.before = lambda kind: charged.setdefault(kind, events(tmp_path))  # type: ignore[attr-defined]
    strategy = made.start()
    assert legs(made) == list(KINDS)
    assert [len(h) for h in read_evaluations(made.directory.agents, 4)] == [10] * 4
    for kind, _, reply in made.grid.answers:  # type: ignore[attr-defined]
        arrays = list(reply.content[wire.REPLY_PARAMETERS].values())
        assert kind in KINDS or not any(a.data for a in arrays)
    # The charge is on the disk before the masked votes are asked for, and not earlier.
    assert [charged[kind] for kind in KINDS] == [0, 0, 1, 1, 1]
    statement = strategy.server.statement()
    assert statement.trust == "secure-sum"
    assert 0 < statement.spent <= 8.0
    assert strategy.server.completed


@pytest.mark.parametrize("leg", KINDS)
def test_a_party_may_fall_silent_before_any_leg(leg: str, tmp_path: Path) -> None:
    made = federation(tmp_path)
    made.grid.silent = lambda kind, n: n == 2 and kind == leg  # type: ignore[attr-defined]
    made.start()
    server: Any = made.strategy.server
    (release,) = made.directory.releases.read()
    # Who is silent before the masked vector has no noise in the sum.
    survivors = 4 if KINDS.index(leg) > KINDS.index("secure-masked") else 3
    plan = server.secure_plan
    charged = server.tally.deviation(0)
    honest = plan.threshold - plan.colluding
    assert release.deviation == pytest.approx(charged * np.sqrt(survivors / honest))


def test_votes_that_are_abandoned_before_a_charge_are_asked_for_again(tmp_path: Path) -> None:
    made = federation(tmp_path)
    first: list[int] = []

    def silent(kind: str, n: int) -> bool:
        if kind == "secure-shares" and n in (1, 2) and len(first) < 2:
            first.append(n)
            return True
        return False

    made.grid.silent = silent  # type: ignore[attr-defined]
    strategy = made.start()
    assert strategy.server.completed
    assert legs(made) == [*KINDS[:2], *KINDS]
    assert events(tmp_path) == 1
    assert made.directory.releases.count() == 1
    assert [len(h) for h in read_evaluations(made.directory.agents, 4)] == [10] * 4


def test_a_crash_after_the_charge_ends_without_a_second_sum(tmp_path: Path) -> None:
    class CrashError(Exception):
        pass

    def crash(kind: str) -> None:
        if kind == "secure-confirm":
            raise CrashError

    made = federation(tmp_path)
    made.grid.before = crash  # type: ignore[attr-defined]
    with pytest.raises(CrashError):
        made.start()
    made.strategy.server.close_files()
    again = federation(tmp_path)
    strategy = again.start()
    assert strategy.server.finished
    assert not strategy.server.completed  # paid for, and lost
    assert events(tmp_path) == 1
    assert legs(again) == []
    assert again.directory.releases.count() == 0


def test_flowers_own_loop_counts_the_same_votes(tmp_path: Path) -> None:
    strategy = Voting(
        space=SPACE, num_agents=4, num_rounds=ROUNDS, run_dir=tmp_path / "run", timeout=5.0,
        aggregation="secure", **GIVEN,
    )  # fmt: skip
    grid = Watched(simulated_client_app(hill, tmp_path / "run" / "agents"), 4)
    with without_noise():
        Strategy.start(strategy, grid, initial_arrays=ArrayRecord(), num_rounds=ROUNDS)
    assert strategy.result is not None
    assert strategy.result.privacy.trust == "secure-sum"
    (release,) = RunDirectory(tmp_path / "run").releases.read()
    assert release.vector.sum() == pytest.approx(8.0)
