"""Agents that do not trust the server, and runs that tell more than they should."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flwr_fbo.core.evaluation import MemoryRecords
from flwr_fbo.core.protocol import Reply, Request
from flwr_fbo.methods.thompson.local_privacy import LocallyPrivateAgent
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.privacy.entropy import seeded_entropy
from flwr_fbo.strategies.dp_fts_de import DPFTSDE
from flwr_fbo.strategies.fts import FTS

from .conftest import Federation

SMALL: dict[str, Any] = {"initial_points": 2, "features": 8, "refit_every": 0}
Make = Callable[..., Federation]


class Fixed:
    """An agent that always says the same, far outside the clip."""

    def answer(self, request: Request) -> Reply:
        return Reply({"omega": np.full(4, 100.0)})


def agent(
    tmp_path: Any, records: MemoryRecords, seed: int = 1, **settings: Any
) -> LocallyPrivateAgent:
    chosen = ThompsonSettings(
        **{"features": 4, "local_epsilon": 2.0, "local_answers": 3, **settings}
    )
    path = tmp_path / "mine.privacy.jsonl"
    entropy = seeded_entropy(seed)
    return LocallyPrivateAgent(Fixed(), chosen, records, path, "agent 0", entropy=entropy)


def ask(round: int) -> Request:
    return Request("step", round, expects={"omega": (4,)})


def test_the_budget_lasts_for_the_planned_answers_and_no_longer(tmp_path: Any) -> None:
    mine = agent(tmp_path, MemoryRecords())
    declined = [mine.answer(ask(t)).declined for t in range(5)]
    assert declined == ["", "", "", "budget", "budget"]


def test_an_answer_that_was_given_is_repeated_and_not_paid_for_again(tmp_path: Any) -> None:
    records = MemoryRecords()
    first = agent(tmp_path, records, seed=1).answer(ask(0)).arrays["omega"]
    ledger = (tmp_path / "mine.privacy.jsonl").read_text()
    # Another seed: a second draw would be another noise.
    again = agent(tmp_path, records, seed=2).answer(ask(0)).arrays["omega"]
    np.testing.assert_array_equal(first, again)
    assert (tmp_path / "mine.privacy.jsonl").read_text() == ledger
    drawn = agent(tmp_path, records, seed=2).answer(ask(1)).arrays["omega"]
    assert not np.any(first == drawn)


def test_the_noise_has_the_deviation_that_was_paid_for(tmp_path: Any) -> None:
    mine = agent(tmp_path, MemoryRecords(), local_answers=400, local_clip=1.0)
    sent = np.array([mine.answer(ask(t)).arrays["omega"] for t in range(400)])
    noise = sent - 0.5  # (100, ..) clipped to norm 1 is (1/2, ..)
    expected = 2.0 * 1.0 * mine.mechanism.noise_multiplier
    # 1,600 draws: a sample deviation is off by expected / sqrt(3200); five times that here.
    assert noise.std() == pytest.approx(expected, rel=5 / math.sqrt(3200))
    assert abs(noise.mean()) < 5 * expected / math.sqrt(1600)


@pytest.mark.parametrize("strategy", [FTS, DPFTSDE])
def test_a_run_with_local_budgets_says_what_they_bound(federation: Make, strategy: Any) -> None:
    f = federation(strategy(**SMALL, local_epsilon=3.0, local_answers=2))
    done = f.start()
    statement = done.server.statement()
    assert (statement.epsilon, statement.delta, statement.budget) == (3.0, 1e-5, 3.0)
    assert (statement.unit, statement.trust, statement.private) == ("party", "local", True)
    assert "against the server too" in str(statement)
    assert [dict(r.declined) for r in done.reports[:4]] == [{}, {}, {"budget": 3}, {"budget": 3}]
    ledgers = sorted(f.directory.agents.glob("*.privacy.jsonl"))
    assert len(ledgers) == 3
    assert all(p.read_text().count('"event"') == 2 for p in ledgers)


def test_diagnostics_tell_scores_and_void_the_guarantee(
    federation: Make, caplog: pytest.LogCaptureFixture
) -> None:
    f = federation(DPFTSDE(**SMALL, epsilon=8.0, diagnostics=True))
    done = f.start()
    assert all(r.best is not None for r in done.reports)
    last = done.reports[-1].privacy
    assert last is not None
    assert last.private is False
    assert "NOT PRIVATE: agents send their scores" in caplog.text


def test_seeded_noise_repeats_a_run_and_voids_the_guarantee(
    federation: Make, caplog: pytest.LogCaptureFixture
) -> None:
    def released() -> Any:
        f = federation(DPFTSDE(**SMALL, epsilon=8.0, noise_seed=3))
        f.strategy.stop = lambda report: report.round == 0
        f.start()
        for path in f.directory.root.rglob("*.*"):
            path.unlink()
        assert f.strategy.reports[0].privacy is not None
        assert f.strategy.reports[0].privacy.private is False
        return f.strategy.server.released.latest  # type: ignore[attr-defined]

    np.testing.assert_array_equal(released(), released())
    assert "NOT PRIVATE: the noise is seeded" in caplog.text


def test_real_noise_does_not_repeat(federation: Make) -> None:
    def released() -> Any:
        f = federation(DPFTSDE(**SMALL, epsilon=8.0))
        f.strategy.stop = lambda report: report.round == 0
        f.start()
        for path in f.directory.root.rglob("*.*"):
            path.unlink()
        return f.strategy.server.released.latest  # type: ignore[attr-defined]

    assert not np.any(released() == released())


def test_fixed_size_sampling_is_counted_for_its_own_neighbours(federation: Make) -> None:
    f = federation(DPFTSDE(**SMALL, noise_multiplier=8.0, sampling="fixed-size", sampling_rate=0.5))
    done = f.start()
    last = done.reports[-1].privacy
    assert last is not None
    assert last.epsilon is not None
    assert last.epsilon > 0
    assert "replaced by any others" in last.relation
    assert '"fixed-size"' in f.directory.ledger.read_text()
