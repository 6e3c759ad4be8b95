"""Fed-PNE with secure sums: the means of all agents, and what a whole agent's promise costs."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import numpy as np
import pytest

from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.protocol import Reply, Request
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.methods.fed_pne.agent import FedPNEAgent
from flwr_fbo.methods.fed_pne.privacy import guarantees
from flwr_fbo.methods.fed_pne.secure import summand
from flwr_fbo.methods.fed_pne.server import BUDGET, STALLED, FedPNEServer
from flwr_fbo.methods.fed_pne.settings import FedPNESettings
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.secure_sum import KINDS, SecureAnswers
from flwr_fbo.privacy.calibration import gaussian_epsilon
from flwr_fbo.privacy.ledger import Ledger
from flwr_fbo.privacy.secure.noise_share import NoiseShare

from .fed_pne_harness import LINE, fed_pne

PRIVATE = {"epsilon": 8.0, "budget": 60, "most_means": 12, "aggregation": "secure"}


class Memory:
    def __init__(self) -> None:
        self.state: Any = None

    def load(self) -> Any:
        return self.state

    def save(self, state: Any) -> None:
        self.state = {"masked": state["masked"], "party": dict(state["party"])}


class Party:
    """An agent and its part of secure sums, with all that a node keeps between messages."""

    def __init__(self, server: FedPNEServer, number: int, slope: float = 0.3, **node: Any) -> None:
        self.setup, self.number = server.setup(), number
        self.records, self.store = MemoryRecords(), Memory()
        self.owner = Owner(f"agent {number}", node)
        self.slope = slope

    def evaluator(self) -> Evaluator:
        def score(params: Any, rng: np.random.Generator) -> float:
            return 1.0 - abs(float(params["x"]) - self.slope)

        return Evaluator(LINE, score, self.records, (0, self.number, 0))

    def answer(self, request: Request) -> Reply:
        seed = (0, self.number, 1)
        if request.kind in KINDS:
            made = SecureAnswers(
                self.setup,
                lambda r: summand(self.setup, self.evaluator(), self.records, seed, r),
                self.store,
                self.owner,
            )
            return made.answer(request)
        return FedPNEAgent(self.setup, self.evaluator(), self.records, seed).answer(request)


def play(server: FedPNEServer, parties: list[Party], lost: Any = lambda kind, n: False) -> list:
    """Run to the end; all replies of the agents."""
    replies = []
    for _ in range(400):
        if server.finished:
            return replies
        asked = server.requests(range(server.agents))
        given = {n: parties[n].answer(r) for n, r in asked.items() if not lost(r.kind, n)}
        replies += [(asked[n].kind, n, reply) for n, reply in given.items()]
        server.close(given)
    raise AssertionError("the run does not end")


def federation(agents: int, **given: Any) -> tuple[FedPNEServer, list[Party]]:
    server = fed_pne(agents, **{**PRIVATE, **given})
    return server, [Party(server, n, 0.3 + 0.02 * n) for n in range(agents)]


def without_noise() -> Any:
    def zeros(d: Any, s: float, count: int, e: Any) -> np.ndarray:
        return np.zeros(count, dtype=np.int64)

    return mock.patch("flwr_fbo.privacy.noise.draw_rounded", zeros)


@pytest.mark.parametrize("lost", [None, 4])
def test_without_noise_the_means_are_those_of_the_agents_that_survived(lost: int | None):
    server, parties = federation(6)
    silent = lambda kind, n: n == lost and kind == "secure-masked"  # noqa: E731
    with without_noise():
        replies = play(server, parties, silent)
    assert all(not reply.arrays for _, _, reply in replies)  # no mean ever leaves by itself
    members = [n for n in range(6) if n != lost]
    results = [result for _, result in server.results()]
    assert len(results) > 1
    for result in results:
        assert result.replies == len(members)
        for i, point in enumerate(result.points[:, 0]):
            mean = np.mean([1.0 - abs(point - parties[n].slope) for n in members])
            # Each agent's mean is rounded towards 1/2, by less than a step of 2^-28 of the noise.
            assert result.means[i] == pytest.approx(mean, abs=1e-6)
    sent = sum(len(result.means) for result in results)
    assert [int(n) for n in server.sent] == [0 if n == lost else sent for n in range(6)]


def test_an_agents_means_move_a_sum_by_less_than_its_sensitivity():
    server, parties = federation(4)
    for party, value in zip(parties, (0.0, 1.0, -9.0, 40.0), strict=True):
        party.evaluator = lambda value=value, party=party: Evaluator(  # type: ignore[method-assign]
            LINE, lambda params, rng: value, party.records, (0, party.number, 0)
        )
    asked = server.requests(range(4))
    for n, request in asked.items():
        parties[n].answer(request)
    pulls = asked[0].arrays["pulls"]
    request = Request("secure-masked", 0, {"phase": 0}, {"pulls": pulls})
    vectors = [summand(p.setup, p.evaluator(), p.records, (0,), request) for p in parties]
    assert set(vectors[0]) == set(vectors[2]) == {-0.5}
    assert set(vectors[1]) == set(vectors[3]) == {0.5}
    longest = server.secure_plan.noise_multiplier and math.sqrt(12) / 2
    assert all(np.linalg.norm(v) <= longest for v in vectors)
    late = Request("secure-masked", 0, {"phase": 1}, {"pulls": pulls})
    with pytest.raises(ValueError, match="all pulls of a phase must be made before"):
        summand(parties[0].setup, parties[0].evaluator(), parties[0].records, (0,), late)


def test_the_noise_is_that_of_one_agents_means_shared_by_all():
    agents = 30
    server = fed_pne(agents, **PRIVATE)
    plan = server.secure_plan
    local = fed_pne(agents, **{**PRIVATE, "aggregation": "local"})
    sigma = local.noise.sigma
    share = NoiseShare(math.sqrt(12) / 2, plan.noise_multiplier, plan.threshold - plan.colluding)
    honest = plan.threshold - plan.colluding
    assert share.deviation(honest) == pytest.approx(sigma, rel=2e-3)
    assert share.deviation(honest) >= sigma
    # The mean over M agents has sigma / M of noise, and not sigma / sqrt(M), but for the excess.
    widths = [s.searches[0].confidence.width(np.array([1e9]), agents)[0] for s in (server, local)]
    assert widths[0] / widths[1] == pytest.approx(1.0 / math.sqrt(honest), rel=2e-3)


def test_a_whole_run_costs_its_epsilon_and_no_more():
    server, parties = federation(5)
    play(server, parties)
    events = server.budget.ledger.events
    results = [result for _, result in server.results()]
    assert [len(r.means) for r in results] == [
        round(12 * (server.secure_plan.noise_multiplier / 2 / e.noise_multiplier) ** 2)
        for e in events
    ]
    statement = server.statement()
    assert statement.trust == "secure-sum"
    assert statement.secure_sum["threshold"] == 4
    assert statement.spent <= statement.epsilon == 8.0
    # By hand: mu^2 is the sum of K / sigma^2 over the phases.
    sigma = server.secure_plan.noise_multiplier * math.sqrt(12) / 2
    sent = sum(len(r.means) for r in results)
    by_hand = gaussian_epsilon(sigma / math.sqrt(sent), server.settings.promised_delta)
    assert statement.spent == pytest.approx(by_hand, rel=2e-3)
    local = guarantees(server.settings, np.concatenate([r.pulls for r in results]))
    assert statement.spent == pytest.approx(local.one_user_epsilon, rel=2e-3)
    assert all(p.store.state["masked"] == sent <= 12 for p in parties)


def test_an_agent_sends_no_more_numbers_than_were_planned():
    server, parties = federation(5)
    play(server, parties)
    for party in parties:
        party.store.state["masked"] = 11
    again = fed_pne(5, **PRIVATE)
    replies = play(again, parties)
    masked = [reply for kind, _, reply in replies if kind == "secure-masked"]
    assert masked
    assert {reply.declined for reply in masked} == {"budget"}
    # One of the sums is charged after the other, until the budget refuses: nothing is released.
    assert again.stopped in (BUDGET, STALLED)
    assert again.results() == []


def test_a_phase_whose_sum_is_abandoned_is_asked_again():
    server, parties = federation(6)
    seen: list[str] = []

    def lost(kind: str, n: int) -> bool:
        seen.append(kind)
        return kind == "secure-shares" and n < 3 and seen.count(kind) <= 6

    play(server, parties, lost)
    assert server.completed
    assert server.stopped == ""
    events = server.budget.ledger.events
    assert len(events) == len(server.results())  # what was abandoned before the vectors is free


def test_the_run_ends_where_sums_are_abandoned_again_and_again():
    server, parties = federation(6, idle_rounds=3)
    play(server, parties, lambda kind, n: kind == "secure-shares" and n < 3)
    assert server.stopped == STALLED
    assert server.charges == 0


def test_a_restored_server_asks_the_open_phase_again_and_pays_again(tmp_path: Any):
    run = RunParameters(LINE, 5, 10, ledger=tmp_path / "ledger.jsonl")
    settings = FedPNESettings(**PRIVATE)
    server = FedPNEServer.for_run(run, settings)
    parties = [Party(server, n) for n in range(5)]
    state = server.state_dict()
    while server.charges == 0:
        server.close({n: parties[n].answer(r) for n, r in server.requests(range(5)).items()})
    server.close_files()  # the crash: the sum is charged and never opened

    again = FedPNEServer.for_run(run, settings)
    again.load_state_dict(state)
    assert again.charges == 1
    play(again, parties)
    again.close_files()
    released = sum(len(result.means) for _, result in again.results())
    first = len(again.results()[0][1].means)
    assert released + first <= 12
    assert again.statement().spent <= 8.0
    assert all(p.store.state["masked"] <= 12 for p in parties)


def test_an_owners_limit_pays_for_the_numbers_that_leave(tmp_path: Any):
    server = fed_pne(5, **PRIVATE)
    node = {"epsilon-limit": 8.1, "budget-file": str(tmp_path / "mine.jsonl")}
    parties = [Party(server, 0, **node), *(Party(server, n) for n in range(1, 5))]
    play(server, parties)
    header = {"owner": "owner", "delta": 1e-5}
    with Ledger.resume(tmp_path / "mine.jsonl", header) as ledger:
        mine = [e.noise_multiplier for e in ledger.events]
    assert mine == [e.noise_multiplier for e in server.budget.ledger.events]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": None}, "`aggregation=secure` needs `epsilon`"),
        ({"epsilon": None, "epsilon_per_reward": 1.0}, "`aggregation=secure` needs `epsilon`"),
    ],
)
def test_settings_without_a_promise_to_a_whole_agent_are_refused(given: Any, message: str):
    with pytest.raises(SettingsError, match=message):
        FedPNESettings(**{**PRIVATE, **given})


def test_a_federation_that_is_too_small_is_refused():
    with pytest.raises(SettingsError, match="not possible with 1 agents"):
        fed_pne(1, **{**PRIVATE, "budget": 2000})
