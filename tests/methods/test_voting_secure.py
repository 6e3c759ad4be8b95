"""Voting by a secure sum: the same numbers of votes, once, and never a single party's."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import numpy as np
import pytest

from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.protocol import Reply, Request
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.secure_sum import KINDS, SecureAnswers
from flwr_fbo.methods.voting.agent import VotingAgent
from flwr_fbo.methods.voting.secure import summand
from flwr_fbo.methods.voting.server import MOST_ATTEMPTS, VotingServer
from flwr_fbo.methods.voting.settings import VotingSettings

LINE = Space({"x": Float(0.0, 1.0)})


class Memory:
    def __init__(self) -> None:
        self.state: Any = None

    def load(self) -> Any:
        return self.state

    def save(self, state: Any) -> None:
        self.state = {"masked": state["masked"], "party": dict(state["party"])}


class Party:
    """An agent and its part of the secure sum."""

    def __init__(self, server: VotingServer, number: int) -> None:
        self.setup, self.number = server.setup(), number
        self.records, self.store = MemoryRecords(), Memory()

    def evaluator(self) -> Evaluator:
        def score(params: Any, rng: np.random.Generator) -> float:
            return -abs(float(params["x"]) - 0.2 - 0.05 * self.number)

        return Evaluator(LINE, score, self.records, (self.number,))

    def answer(self, request: Request) -> Reply:
        seed = (self.number,)
        if request.kind not in KINDS:
            return VotingAgent(self.setup, self.evaluator(), self.records, seed).answer(request)

        def votes(r: Request) -> np.ndarray:
            return summand(self.setup, self.evaluator(), self.records, seed, r)

        owner = Owner(f"agent {self.number}")
        return SecureAnswers(self.setup, votes, self.store, owner).answer(request)


def federation(agents: int = 6, **given: Any) -> tuple[VotingServer, list[Party]]:
    values = {"budget": 12, "votes": 3, "batch": 4, "epsilon": 4.0, "aggregation": "secure"}
    server = VotingServer(LINE, agents, VotingSettings(**{**values, **given}), 0)
    return server, [Party(server, n) for n in range(agents)]


def play(
    server: VotingServer, parties: list[Party], lost: Any = lambda kind, n: False
) -> list[tuple[str, int, Reply]]:
    replies = []
    for _ in range(200):
        if server.finished and not server.legs_left:
            return replies
        asked = server.requests(range(server.agents))
        given = {n: parties[n].answer(r) for n, r in asked.items() if not lost(r.kind, n)}
        replies += [(asked[n].kind, n, reply) for n, reply in given.items()]
        server.close(given)
    raise AssertionError("the run does not end")


def without_noise() -> Any:
    def zeros(d: Any, s: float, count: int, e: Any) -> np.ndarray:
        return np.zeros(count, dtype=np.int64)

    return mock.patch("flwr_fbo.privacy.noise.draw_rounded", zeros)


@pytest.mark.parametrize("lost", [None, 2])
@pytest.mark.parametrize("neighbours", ["absent", "replaced"])
def test_without_noise_the_votes_are_those_that_a_trusted_server_counts(
    lost: int | None, neighbours: str
):
    found = {}
    for aggregation in ("secure", "central"):
        server, parties = federation(aggregation=aggregation, neighbours=neighbours)
        silent = lambda kind, n: n == lost  # noqa: E731
        with without_noise():
            replies = play(server, parties, silent)
        found[aggregation] = server.release().vector
        if aggregation == "secure":  # no votes ever leave by themselves
            assert not any(reply.arrays for _, _, reply in replies)
    np.testing.assert_array_equal(found["secure"], found["central"])
    assert found["secure"].sum() == pytest.approx(3 * (6 if lost is None else 5))


def test_one_sum_is_charged_and_has_the_noise_of_those_that_survived():
    server, parties = federation()
    play(server, parties, lambda kind, n: n == 1 and kind == "secure-masked")
    assert server.charges == 1
    assert server.completed
    plan = server.secure_plan
    ratio = server.release().deviation / server.tally.deviation(0)
    assert ratio == pytest.approx(math.sqrt(5 / (plan.threshold - plan.colluding)))
    statement = server.statement()
    assert statement.trust == "secure-sum"
    assert statement.secure_sum["threshold"] == 4
    assert 0 < statement.spent <= statement.epsilon <= 4.0
    assert server.recommend([server.release()]) is not None


def test_an_agent_votes_once_in_secure_sums_too():
    server, parties = federation()
    play(server, parties)
    again, _ = federation()
    assert again.setup().digest == server.setup().digest
    replies = play(again, parties)
    masked = {reply.declined for kind, _, reply in replies if kind == "secure-masked"}
    assert masked == {"budget"}
    assert again.release() is None
    assert not again.completed


def test_a_sum_that_is_abandoned_before_the_votes_are_asked_for_is_tried_again():
    server, parties = federation()
    seen: list[str] = []

    def lost(kind: str, n: int) -> bool:
        seen.append(kind)
        return kind == "secure-shares" and n < 3 and seen.count(kind) <= 6

    play(server, parties, lost)
    assert server.charges == 1
    assert server.completed
    assert server.release() is not None


@pytest.mark.parametrize(("kind", "charges"), [("secure-keys", 0), ("secure-masked", 1)])
def test_a_run_without_enough_agents_ends_without_a_release(kind: str, charges: int):
    server, parties = federation()
    replies = play(server, parties, lambda k, n: k == kind and n < 3)
    assert server.charges == charges
    assert server.release() is None
    assert not server.completed
    tries = sum(1 for k, n, _ in replies if k == "secure-keys" and n == 5)
    assert tries == (1 if charges else MOST_ATTEMPTS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": None}, "`aggregation=secure` needs `epsilon`"),
        ({"noise_seed": 1}, "`noise-seed` must be unset"),
        ({"secure_threshold": 0.4}, "`secure-threshold` must be"),
    ],
)
def test_settings_that_a_secure_sum_cannot_have_are_refused(given: Any, message: str):
    with pytest.raises(SettingsError, match=message):
        federation(**given)


def test_a_federation_that_is_too_small_is_refused():
    with pytest.raises(SettingsError, match="not possible with 1 agents"):
        federation(1)
