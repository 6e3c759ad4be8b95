"""Voting: the list, the votes, the one noisy sum, and what it costs."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize, stats

from flwr_fbo import join, resume, simulate, task
from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.protocol import Reply, ReplyError, Request, checked_reply
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.registry import find_method
from flwr_fbo.methods.voting.agent import VotingAgent, make_agent
from flwr_fbo.methods.voting.server import VotingServer
from flwr_fbo.methods.voting.settings import VotingSettings
from flwr_fbo.methods.voting.tally import Tally
from flwr_fbo.privacy.entropy import seeded_entropy
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.ledger import Ledger
from flwr_fbo.report import write_report
from flwr_fbo.search.listed import listed_settings

LINE = Space({"x": Float(0.0, 1.0)})
MIXED = Space(
    {"rate": Float(1e-4, 1.0, log=True), "depth": Int(1, 8), "kind": Categorical(["a", "b", "c"])}
)


def server(agents: int = 10, seed: int = 0, **given: Any) -> VotingServer:
    settings = VotingSettings(**{"budget": 12, "votes": 3, "batch": 4, **given})
    return VotingServer(LINE, agents, settings, seed)


def agent_of(
    made: VotingServer,
    score: Any = lambda params, rng: -abs(params["x"] - 0.3),
    number: int = 0,
    records: MemoryRecords | None = None,
    **options: Any,
) -> VotingAgent:
    records = records or MemoryRecords()
    evaluator = Evaluator(made.space, score, records, (number,))
    return VotingAgent(made.setup(), evaluator, records, (number,), **options)


def run(made: VotingServer, agents: list[VotingAgent]) -> None:
    while not made.finished:
        requests = made.requests(range(len(agents)))
        made.close({n: checked_reply(r, agents[n].answer(r)) for n, r in requests.items()})


# -- the list ------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", ["spread", "grid"])
@pytest.mark.parametrize("space", [LINE, MIXED])
@pytest.mark.parametrize("budget", [2, 7, 30, 100])
def test_the_list_holds_different_points_of_the_space(
    design: Any, space: Space, budget: int
) -> None:
    listed = listed_settings(space, budget, design, np.random.default_rng(0))
    assert listed.shape[1] == space.dimension
    assert budget / 3 <= len(listed) <= budget
    assert len(np.unique(listed, axis=0)) == len(listed)
    np.testing.assert_allclose(space.snap(listed), listed)
    if design == "spread":
        assert len(listed) == budget
        longer = listed_settings(space, budget + 5, design, np.random.default_rng(0))
        np.testing.assert_array_equal(longer[:budget], listed)


def test_a_grid_has_all_combinations() -> None:
    listed = listed_settings(MIXED, 30, "grid", np.random.default_rng(0))
    rows = [MIXED.from_unit(point) for point in listed]
    by_name = [sorted({row[name] for row in rows}, key=str) for name in ("rate", "depth", "kind")]
    assert [len(values) for values in by_name] == [3, 3, 3]  # 3 x 3 x 3 = 27 <= 30 < 4 x 3 x 3
    assert by_name[2] == ["a", "b", "c"]
    assert len(listed) == 27
    # The middles of three equal parts of the logarithmic range.
    np.testing.assert_allclose(by_name[0], [10 ** (-4 * u) for u in (5 / 6, 1 / 2, 1 / 6)][::1])


def test_small_and_finite_spaces_are_listed() -> None:
    depth = Space({"depth": Int(1, 4)})
    assert len(listed_settings(depth, 10, "spread", np.random.default_rng(0))) == 4
    few = Space.finite(LINE.parameters, [{"x": v / 20} for v in range(20)])
    listed = listed_settings(few, 8, "grid", np.random.default_rng(0))
    assert len(listed) == 8
    assert {tuple(p) for p in listed} < {tuple(p) for p in few.points}


# -- what one party can change -------------------------------------------------------------------


def test_the_sensitivity_is_the_largest_distance_of_two_honest_neighbours() -> None:
    k, count = 2, 6
    votes = [
        np.isin(np.arange(count), c).astype(float) for c in itertools.combinations(range(6), k)
    ]
    replaced = max(float(np.linalg.norm(v - w)) for v in votes for w in votes)
    absent = max(float(np.linalg.norm(v)) for v in votes)
    assert VotingSettings(votes=k, neighbours="replaced").sensitivity == pytest.approx(replaced)
    assert VotingSettings(votes=k, neighbours="absent").sensitivity == pytest.approx(absent)
    assert replaced == pytest.approx(math.sqrt(2 * k))
    assert absent == pytest.approx(math.sqrt(k))


@pytest.mark.parametrize("neighbours", ["absent", "replaced"])
@given(
    first=arrays(np.float64, 7, elements=st.floats(-1e6, 1e6)),
    second=arrays(np.float64, 7, elements=st.floats(-1e6, 1e6)),
)
def test_no_reply_moves_the_exact_sum_by_more_than_the_sensitivity(
    neighbours: Any, first: np.ndarray, second: np.ndarray
) -> None:
    settings = VotingSettings(votes=3, neighbours=neighbours)
    tally = Tally(settings, 7, 2.0)
    mechanism = tally.mechanism(0)
    honest = np.array([1.0, 1, 1, 0, 0, 0, 0])

    def total(reply: np.ndarray | None) -> np.ndarray:
        replies = {0: honest} if reply is None else {0: honest, 1: reply}
        return mechanism.quantise(tally._bounded(replies)).sum(axis=0)

    other = total(None) if neighbours == "absent" else total(second)
    step = mechanism.deviation / mechanism._lattice.units
    moved = math.sqrt(sum(int(d) ** 2 for d in total(first) - other)) * step
    assert moved <= settings.sensitivity * (1 + 1e-12)


def test_a_replys_votes_are_bounded_and_honest_votes_are_not_changed() -> None:
    tally = Tally(VotingSettings(votes=2), 4)
    honest, greedy = np.array([1.0, 0, 0, 1]), np.array([50.0, -50, 50, 50])
    counted = tally.without_noise({0: honest, 1: greedy}, 0)[0]
    np.testing.assert_allclose(counted - honest, np.array([1, 0, 1, 1]) * math.sqrt(2 / 3))
    np.testing.assert_array_equal(tally.without_noise({0: honest}, 0)[0], honest)
    np.testing.assert_array_equal(tally.without_noise({}, 0)[0], np.zeros(4))


# -- the noise and its price ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "published"), [(0.1, 103), (0.25, 46), (0.5, 24), (1.0, 12.5), (3.0, 4.7)]
)
def test_the_noise_is_exact_and_less_than_the_published(epsilon: float, published: float) -> None:
    """The exact condition of one Gaussian release, solved here by itself.

    DP-Hype's deviations follow from Renyi divergences, which ask for 6 to 9 % more noise.
    """
    made = server(50, epsilon=epsilon, votes=5, neighbours="replaced", delta=1e-5)

    def excess(sigma: float) -> float:
        a, b = math.sqrt(10) / (2 * sigma), epsilon * sigma / math.sqrt(10)
        return stats.norm.cdf(a - b) - math.exp(epsilon) * stats.norm.cdf(-a - b) - 1e-5

    sigma = optimize.brentq(excess, 0.1, 1000)
    deviation = made.tally.deviation(0)
    assert sigma <= deviation <= sigma * (1 + 2e-4)  # never less noise than the condition asks
    assert 1.05 < published / deviation < 1.10
    half = server(50, epsilon=epsilon, votes=5, delta=1e-5)
    assert half.tally.deviation(0) == pytest.approx(deviation / math.sqrt(2), rel=1e-3)


def test_the_release_is_the_sum_with_noise_of_the_stated_deviation() -> None:
    made = server(epsilon=1.0)
    votes = {n: np.eye(12)[n % 3] for n in range(10)}
    entropy = seeded_entropy(5)
    drawn = np.concatenate([made.tally.draw_release(votes, 2, entropy) for _ in range(400)])
    sigma = made.tally.deviation(2)
    expected = np.array([4, 3, 3] + [0] * 9)
    # 4,800 normal numbers: the means of 400 have sd sigma / 20; five of those are 6e-7 each.
    assert np.abs(drawn.mean(axis=0) - expected).max() < 5 * sigma / 20
    residual = (drawn - expected) / sigma
    assert residual.var() == pytest.approx(1.0, abs=5 * math.sqrt(2 / 4800))
    assert stats.kstest(residual.ravel(), "norm").pvalue > 1e-4


def test_only_the_last_round_asks_for_votes_and_it_is_charged_once() -> None:
    made = server(epsilon=1.0)
    agents = [agent_of(made, number=n) for n in range(10)]
    assert made.rounds == 3
    for expected in ({}, {}, {"votes": (12,)}):
        requests = made.requests(range(10))
        assert requests[0].expects == expected
        assert made.charges == 0
        assert made.release() is None
        made.close({n: agents[n].answer(r) for n, r in requests.items()})
    assert made.finished
    assert made.completed
    assert made.requests(range(10)) == {}
    assert made.budget is not None
    (event,) = made.budget.ledger.events
    assert event == GaussianRelease(made.noise_multiplier or 0, 1.0, 2)
    statement = made.statement()
    assert statement.private is True
    assert statement.epsilon == pytest.approx(1.0, rel=1e-3)
    assert statement.epsilon <= 1.0
    assert statement.spent == pytest.approx(statement.epsilon)
    assert statement.delta == 1e-5
    assert "as if it had not replied" in statement.relation
    assert "by any others" in server(neighbours="replaced", epsilon=1.0).statement().relation


def test_the_charge_is_on_disk_before_the_noise_is_drawn(tmp_path: Path) -> None:
    plan = RunParameters(LINE, 3, 0, ledger=tmp_path / "ledger.jsonl")
    made = VotingServer.for_run(plan, VotingSettings(budget=4, votes=1, epsilon=1.0))
    lines: list[int] = []

    class Spy:
        private = True

        def words(self, count: int) -> Any:
            lines.append(len((tmp_path / "ledger.jsonl").read_text().splitlines()))
            return seeded_entropy(1).words(count)

    made._entropy = Spy()
    run(made, [agent_of(made, number=n) for n in range(3)])
    assert lines
    assert min(lines) == 2  # the header and the charge
    made.close_files()
    with Ledger.open(tmp_path / "ledger.jsonl", made._ledger.header) as again:  # type: ignore[union-attr]
        assert len(again.events) == 1


def test_a_release_that_a_crash_lost_is_not_drawn_again(tmp_path: Path) -> None:
    plan = RunParameters(LINE, 3, 0, ledger=tmp_path / "ledger.jsonl")
    settings = VotingSettings(budget=4, votes=1, batch=2, epsilon=1.0)
    first = VotingServer.for_run(plan, settings)
    agents = [agent_of(first, number=n) for n in range(3)]
    first.close({n: agents[n].answer(r) for n, r in first.requests(range(3)).items()})
    before = first.state_dict()
    run(first, agents)  # charged and drawn, and the process ends before it stores the state
    first.close_files()
    again = VotingServer.for_run(plan, settings)
    again.load_state_dict(before)
    run(again, agents)
    assert again.exhausted
    assert again.release() is None
    assert again.finished
    assert not again.completed
    assert again.charges == 1
    assert again.statement().exhausted
    again.close_files()


def test_a_restored_server_asks_the_same_and_keeps_its_release() -> None:
    made = server(epsilon=2.0)
    agents = [agent_of(made, number=n) for n in range(10)]
    made.close({n: agents[n].answer(r) for n, r in made.requests(range(10)).items()})
    again = server(epsilon=2.0)
    again.load_state_dict(made.state_dict())
    ours, theirs = made.requests([3])[3], again.requests([3])[3]
    assert (ours.round, ours.values, ours.expects) == (theirs.round, theirs.values, theirs.expects)
    run(made, agents)
    again.load_state_dict(made.state_dict())
    assert again.finished
    np.testing.assert_array_equal(again.released.latest, made.released.latest)
    assert again.recommend(again.released.releases) == made.recommend(made.released.releases)


def test_noise_comes_from_the_operating_system_or_the_run_is_not_private() -> None:
    assert server(epsilon=1.0).private
    seeded = server(epsilon=1.0, noise_seed=1)
    assert not seeded.private
    assert "NOT PRIVATE: the noise is seeded" in str(seeded.statement())
    assert "NOT PRIVATE: no epsilon was given" in str(server().statement())


def test_a_quorum_is_refused_in_a_private_run() -> None:
    plan = RunParameters(LINE, 3, 0, quorum=0.5)
    with pytest.raises(
        SettingsError, match=r"`round-quorum` must be 1 in a private run, but got 0\.5"
    ):
        VotingServer.for_run(plan, VotingSettings(epsilon=1.0))
    assert VotingServer.for_run(plan, VotingSettings()).agents == 3


def test_settings_that_say_nothing_are_refused() -> None:
    with pytest.raises(SettingsError, match="`votes` must be < `budget`, but got votes=5"):
        VotingSettings(budget=5)
    with pytest.raises(SettingsError, match="`agents` must be >= 1, but got 0"):
        server(0)


# -- the result ----------------------------------------------------------------------------------


def test_without_noise_the_most_votes_win() -> None:
    made = server(9)
    run(made, [agent_of(made, number=n) for n in range(9)])
    found = made.recommend(made.released.releases)
    assert found is not None
    nearest = sorted(made.listed[:, 0], key=lambda x: abs(x - 0.3))
    votes = dict(zip(made.listed[:, 0], made.released.latest[0], strict=True))  # type: ignore[index]
    assert all(votes[x] == 9 for x in nearest[:3])
    assert sum(votes.values()) == 27
    assert found["params"]["x"] in nearest[:3]
    assert (found["value"], found["noise"], found["clear"]) == (9.0, 0.0, True)
    ranking = made.findings([])["ranking"]
    assert [row["votes"] for row in ranking[:4]] == [9, 9, 9, 0]


def test_a_recommendation_of_noise_is_not_clear() -> None:
    """Parties that vote at random: in about one run of twenty noise is taken for a result."""
    made, clear = server(30, budget=50, votes=1, epsilon=1.0), 0
    rng = np.random.default_rng(3)
    for _ in range(200):
        votes = {n: np.eye(50)[rng.integers(50)] for n in range(30)}
        made.released = type(made.released)()
        entropy = seeded_entropy(int(rng.integers(2**32)))
        drawn = made.tally.draw_release(votes, 0, entropy)
        made.released.add(drawn, made.tally.deviation(0), 0)
        clear += made.recommend(made.released.releases)["clear"]  # type: ignore[index]
    # Random votes add variance 30 * .02 * .98 = .6 to sigma^2 = 13.7: at most 7 % instead of 5.
    # Binomial(200, .07) has sd 3.6: 14 + 4 sd.
    assert clear <= 28


def test_a_run_whose_noise_hides_every_vote_says_so() -> None:
    (warning,) = server(10, epsilon=0.5).warnings()
    assert "more than 10 agents can give" in warning
    assert server(500, epsilon=0.5).warnings() == []
    assert server(10).warnings() == []
    # Its advice holds: that epsilon suffices.
    epsilon = float(warning.split("about epsilon ")[1].split(",")[0])
    assert server(10, epsilon=1.06 * epsilon).warnings() == []


def test_a_reply_out_of_turn_is_refused() -> None:
    made = server()
    with pytest.raises(ReplyError, match="agent 10 answers round 0 without being asked"):
        made.close({10: Reply()})
    run(made, [agent_of(made)])
    with pytest.raises(ReplyError, match="agent 0 answers round 3 without being asked"):
        made.close({0: Reply()})


# -- the agent -----------------------------------------------------------------------------------


def test_an_agent_evaluates_its_part_once_and_catches_up() -> None:
    made, calls = server(1), []

    def score(params: Any, rng: Any) -> float:
        calls.append(params["x"])
        return 0.0

    agent = agent_of(made, score)
    first = made.requests([0])[0]
    agent.answer(first)
    agent.answer(first)
    assert len(calls) == 4
    made.close({})
    made.close({})  # the agent was away in the second round
    agent.answer(made.requests([0])[0])
    assert calls == [float(x) for x in made.listed[:, 0]]
    assert [(e.round, e.play) for e in agent.evaluator.history] == [
        (r, p) for r in range(3) for p in range(4)
    ]


def test_an_agent_votes_once_whatever_it_is_asked_later() -> None:
    made, records = server(1), MemoryRecords()
    early = Request("evaluate", 0, {"until": 4}, {}, {"votes": (12,)})
    votes = agent_of(made, records=records).answer(early).arrays["votes"]
    assert votes.sum() == 3
    assert votes[4:].sum() == 0
    late = Request("evaluate", 1, {"until": 12}, {}, {"votes": (12,)})
    again = agent_of(made, records=records)  # also after a restart
    np.testing.assert_array_equal(again.answer(late).arrays["votes"], votes)
    assert len(again.evaluator.history) == 4
    with pytest.raises(ValueError, match="`kind` must be evaluate, but got 'tell'"):
        again.answer(Request("tell", 0))


def test_failed_evaluations_get_no_vote() -> None:
    made = server(1, budget=5, votes=4)

    def score(params: Any, rng: Any) -> float:
        if params["x"] > np.sort(made.listed[:, 0])[2]:
            raise MemoryError
        return float(params["x"])

    agent = agent_of(made, score)
    run(made, [agent])
    voted = made.listed[agent.votes() == 1, 0]
    np.testing.assert_array_equal(np.sort(voted), np.sort(made.listed[:, 0])[:3])


def test_ties_are_broken_by_each_agent_for_itself() -> None:
    made = server(200, votes=1)
    run(made, [agent_of(made, lambda params, rng: 1.0, number=n) for n in range(200)])
    counts = made.released.latest[0]  # type: ignore[index]
    assert counts.sum() == 200
    # Binomial(200, 1/12): mean 16.7, sd 3.9. Five sd either way.
    assert counts.max() < 36
    assert counts.min() >= 1


def test_an_owners_limit_adds_noise_and_pays_for_one_vote(tmp_path: Path) -> None:
    made, records = server(1, batch=12), MemoryRecords()
    owner = Owner("agent 0", {"epsilon-limit": 0.5}, books=tmp_path / "mine.jsonl")

    def agent(kept: MemoryRecords) -> VotingAgent:
        evaluator = Evaluator(LINE, lambda params, rng: params["x"], kept)
        return make_agent(made.setup(), evaluator, kept, (0,), owner)

    request = made.requests([0])[0]
    with owner.stack:
        votes = agent(records).answer(request).arrays["votes"]
    assert np.abs(votes).max() > 5  # noise of 2 sqrt(3) / .12 votes, 29: not zeros and ones
    with owner.stack:
        np.testing.assert_array_equal(agent(records).answer(request).arrays["votes"], votes)
    assert (tmp_path / "mine.jsonl").read_text().count('"event"') == 1
    with owner.stack:  # another run, another journal: the limit is spent
        fresh = agent(MemoryRecords())
        assert fresh.answer(request).declined == "budget"
        assert not fresh.evaluator.history


# -- whole runs ----------------------------------------------------------------------------------


@task(space={"x": Float(0.0, 1.0), "kind": Categorical(["a", "b"])}, score_range=(0.0, 1.0))
def hill(params: Any) -> float:
    return float(1.0 - abs(params["x"] - 0.3) - 0.2 * (params["kind"] == "b"))


def test_a_run_from_python_recommends_and_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    # With several votes, all agents name the same few settings, and the noise decides among them.
    result = simulate(
        hill, agents=40, strategy="voting", budget=20, votes=1, epsilon=4.0, run_dir=folder
    )
    assert result.complete
    assert result.evaluations == 20
    assert result.recommended is not None
    assert result.recommended["kind"] == "a"
    assert abs(float(result.recommended["x"]) - 0.3) < 0.2  # type: ignore[arg-type]
    assert result.epsilon == pytest.approx(4.0, rel=1e-3)
    assert len(result.findings["ranking"]) == 10
    assert (folder / "releases" / "round-0003.npz").exists()
    assert resume(folder, task=hill).recommended == result.recommended
    with pytest.raises(SettingsError, match="its length is its `budget`"):
        resume(folder, task=hill, rounds=50)


def test_a_run_has_a_report_and_no_newcomer(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = simulate(hill, agents=5, strategy="voting", budget=10, epsilon=1.0, run_dir=folder)
    assert result.recommendation is not None
    text = write_report([folder], tmp_path / "report.html").read_text()
    assert "recommended to all" in text
    assert ("Noise alone could have given it" in text) == (not result.recommendation["clear"])
    with pytest.raises(SettingsError, match=r"`run_dir` must be of a run of dp-fts-de"):
        join(folder)


def test_an_interrupted_run_goes_on_to_the_same_votes(tmp_path: Path) -> None:
    given = {"agents": 4, "strategy": "voting", "budget": 20, "votes": 2}
    whole = simulate(hill, **given, run_dir=tmp_path / "whole")
    part = simulate(hill, **given, run_dir=tmp_path / "part", max_evaluations=25)
    assert part.recommended is None
    done = resume(tmp_path / "part", task=hill, max_evaluations=None)
    assert done.findings["ranking"] == whole.findings["ranking"]
    assert done.evaluations == whole.evaluations == 20


def test_the_papers_settings() -> None:
    method = find_method("voting")
    settings = method.settings_class.from_mapping({"epsilon": 1.0}, method.paper_settings)
    assert settings == VotingSettings(
        budget=100, votes=5, design="grid", neighbours="replaced", delta=1e-5, epsilon=1.0
    )
    assert "Liebenow" in method.bibtex
