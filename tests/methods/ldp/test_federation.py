"""Server and agents together: budgets, refusals, crashes, epochs; no Flower."""

import math

import numpy as np
import pytest

from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.protocol import Reply, Request, Setup, checked_reply
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.ldp.agent import ANSWER, RewardAgent
from flwr_fbo.methods.ldp.learners import make_learner
from flwr_fbo.methods.ldp.problem import problem_presets, range_presets
from flwr_fbo.methods.ldp.regret import regret_of_plays
from flwr_fbo.methods.ldp.server import MOST_IDLE_ROUNDS, RewardServer
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.methods.ldp.tgp import TGP
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.registry import find_method
from flwr_fbo.privacy.checks import PrivacyError
from flwr_fbo.privacy.entropy import seeded_entropy
from flwr_fbo.privacy.local import LocalBudget
from flwr_fbo.tasks.papers.ldp_synthetic import LDPSyntheticSettings, LDPSyntheticTask
from flwr_fbo.tasks.task import Partition

from .support import grid_space
from .test_conformance import assert_same_state, through_json

SPACE = grid_space()


class Party:
    """An agent, its records, and how often its objective was really evaluated."""

    def __init__(self, setup, function=lambda params, rng: params["x"], **extra):
        self.records, self.evaluations = MemoryRecords(), 0
        self._setup, self._function, self._extra = setup, function, extra
        self.restart()

    def restart(self):
        def count(params, rng):
            self.evaluations += 1
            return self._function(params, rng)

        evaluator = Evaluator(self._setup.space, count, self.records, (1,))
        self.agent = RewardAgent(self._setup, evaluator, self.records, **self._extra)


def server_of(name="ldp-tgp", agents=4, **values):
    given = {"budget": 12, "epsilon_per_answer": 1.0} | values
    return find_method(name).make_server(
        RunParameters(SPACE, agents, rounds=0, seed=3), LDPSettings(**given)
    )


def request(round=0, point=0.5):
    return Request("play", round, {}, {"point": np.array([point])}, {"reward": ()})


def run(server, parties, rounds=10_000):
    for _ in range(rounds):
        if server.finished:
            break
        requests = server.requests(range(server.agents))
        server.close({n: checked_reply(r, parties[n].agent.answer(r)) for n, r in requests.items()})
    return server


def federation(server, function=lambda params, rng: params["x"], **extra):
    return [Party(server.setup(), function, **extra) for _ in range(server.agents)]


# -- the agent ------------------------------------------------------------------------------


def test_an_answer_is_one_private_number_and_nothing_else():
    party = Party(server_of().setup())
    reply = checked_reply(request(), party.agent.answer(request()))
    assert list(reply.arrays) == ["reward"]
    assert reply.arrays["reward"].shape == ()
    assert reply.arrays["reward"].dtype == np.float64
    assert reply.arrays["reward"] != 0.5
    assert not reply.declined


def test_answering_k_times_costs_k_epsilon_and_then_the_agent_refuses():
    server = server_of(epsilon_per_answer=0.1, epsilon=0.3)  # 0.1 + 0.1 + 0.1 > 0.3 in doubles
    party = Party(server.setup())
    assert [party.agent.answer(request(t)).declined for t in range(5)] == [""] * 3 + ["budget"] * 2
    assert party.agent.spent == pytest.approx(0.3)
    assert party.evaluations == 3  # nothing is evaluated for an answer that will not be given


def test_asked_again_for_a_round_the_agent_repeats_itself_even_after_a_restart():
    party = Party(server_of(epsilon=2.0).setup())
    first = party.agent.answer(request(4)).arrays["reward"]
    assert party.agent.answer(request(4)).arrays["reward"] == first
    party.restart()
    assert party.agent.answer(request(4)).arrays["reward"] == first
    assert party.agent.answer(request(4, point=0.75)).arrays["reward"] == first
    assert party.agent.spent == 1.0
    assert party.evaluations == 1


def test_a_budget_outlives_the_process():
    party = Party(server_of(epsilon=2.0).setup())
    party.agent.answer(request(0))
    party.restart()
    party.agent.answer(request(1))
    party.restart()
    assert party.agent.spent == 2.0
    assert party.agent.answer(request(2)).declined == "budget"


def test_the_charge_is_recorded_before_the_answer_leaves():
    class Full(MemoryRecords):
        def append(self, kind, record):
            if kind == ANSWER:
                raise OSError("disk full")
            super().append(kind, record)

    party = Party(server_of().setup())
    party.records = Full()
    party.restart()
    with pytest.raises(OSError, match="disk full"):
        party.agent.answer(request())
    assert party.agent.spent == 0.0


def test_the_owner_may_allow_less_than_the_server_asks_for():
    party = Party(server_of(epsilon=100.0).setup(), limit=1.0)
    assert [party.agent.answer(request(t)).declined for t in (0, 1)] == ["", "budget"]


def test_the_owners_books_outlive_the_run(tmp_path):
    setup = server_of(epsilon=100.0).setup()
    for expected in (["", "", "budget"], ["budget"] * 3):
        with LocalBudget.open(tmp_path / "books", "me", 2.0) as books:
            party = Party(setup, budget=books)
            assert [party.agent.answer(request(t)).declined for t in range(3)] == expected
            assert books.spent == 2.0


def test_noise_is_the_operating_systems_unless_a_test_says_otherwise():
    setup = server_of(epsilon=9.0).setup()
    party, other = Party(setup), Party(setup)
    assert party.agent.private
    assert not Party(setup, entropy=seeded_entropy(0)).agent.private
    assert not Party(server_of("tgp", epsilon_per_answer=None).setup()).agent.private
    pair = [p.agent.answer(request()).arrays["reward"] for p in (party, other)]
    assert pair[0] != pair[1]  # the same seed, the same evaluation, another noise


def test_a_failed_evaluation_looks_like_the_worst_reward():
    # To decline, or to answer without noise, would tell that it failed.
    def fails(params, rng):
        raise RuntimeError("secret")

    def worst(params, rng):
        return -1e9

    setup = server_of(bound=2.0, epsilon=9.0).setup()
    pair = [Party(setup, f, entropy=seeded_entropy(5)) for f in (fails, worst)]
    replies = [p.agent.answer(request()).arrays["reward"] for p in pair]
    assert replies[0] == replies[1]


def test_without_privacy_the_reward_is_sent_as_it_is():
    setup = server_of("tgp", epsilon_per_answer=None, reward_offset=0.25).setup()
    party = Party(setup)
    assert party.agent.answer(request(0, 0.5)).arrays["reward"] == 0.25
    failing = Party(setup, lambda params, rng: math.nan)
    assert failing.agent.answer(request()).arrays["reward"] == -2.0


def test_no_server_can_talk_an_agent_out_of_its_privacy(tmp_path):
    plain = server_of("tgp", epsilon_per_answer=None).setup()
    with pytest.raises(PrivacyError, match="the setup has none"):
        Party(plain, limit=3.0)
    with (
        LocalBudget.open(tmp_path / "books", "me", 2.0) as books,
        pytest.raises(PrivacyError, match="the setup has none"),
    ):
        Party(plain, budget=books)
    party = Party(server_of().setup())
    party.agent.answer(request())
    party._setup = plain
    with pytest.raises(PrivacyError, match="with private answers in its journal"):
        party.restart()
    greedy = Party(server_of(epsilon_per_answer=50.0).setup(), limit=3.0)
    assert greedy.agent.answer(request()).declined == "budget"


def test_an_agent_refuses_what_it_does_not_know():
    setup = server_of().setup()
    with pytest.raises(ValueError, match="does not know the request 'explore'"):
        Party(setup).agent.answer(Request("explore", 0))
    with pytest.raises(ValueError, match="needs a setup of kind 'ldp', but got 'other'"):
        Party(Setup("other", SPACE))
    for key in ("bound", "noise-bound", "epsilon-per-answer", "epsilon"):
        for bad in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(ValueError, match="must be a finite number > 0"):
                Party(Setup("ldp", SPACE, {**setup.values, key: bad}))


# -- the server -----------------------------------------------------------------------------


def test_by_default_agents_share_the_plays_equally_and_all_are_made():
    server = server_of(agents=5, budget=12)  # 3 answers each would do for 15
    run(server, federation(server))
    report = server.report()
    assert report["plays"] == 12
    assert report["stopped"] == "done"
    assert report["epsilon_per_agent_max"] <= 3.0
    assert server.played.shape == (12, 1)


def test_a_play_that_is_refused_goes_to_another_agent_who_is_not_asked_again():
    server = server_of(agents=3, budget=9, epsilon=3.0)
    parties = federation(server)
    for t in range(2):
        parties[1].agent.answer(request(100 + t))  # spent on something else before
    run(server, parties)
    assert server.report()["stopped"] == "budgets"
    # The server knows that the others have spent all; of this one it does not.
    assert server.report()["refused"] == 1
    assert server.report()["plays"] == 7
    assert [p.agent.spent for p in parties] == [3.0] * 3


def test_moma_asks_k_agents_in_one_round():
    server = server_of("ldp-moma", agents=8, epoch=5, budget=17)
    requests = server.requests(range(8))
    assert len(requests) == 5
    assert len({float(r.arrays["point"][0]) for r in requests.values()}) == 1
    run(server, federation(server))
    assert server.learner.updates == 3
    assert len(server.played) == 17  # the last epoch is cut short
    assert server.round == 4


def test_an_epoch_of_more_plays_than_agents_takes_several_rounds_and_all_take_part():
    server = server_of("ldp-moma", agents=3, epoch=5, budget=10, epsilon=99.0)
    parties = federation(server)
    first = server.requests(range(3))
    assert sorted(first) == [0, 1, 2]
    server.close({n: parties[n].agent.answer(r) for n, r in first.items()})
    assert server.learner.updates == 0
    assert len(server.requests(range(3))) == 2
    run(server, parties)
    assert server.round == 4
    assert server.learner.updates == 2


def test_agents_new_to_an_epoch_are_drawn_first():
    server = server_of("ldp-moma", agents=6, epoch=6, budget=12)
    first = server.requests([0, 1, 2, 3])
    server.close({n: Reply({"reward": np.array(0.0)}) for n in first})
    assert sorted(server.requests(range(6))) == [4, 5]


def test_a_lost_answer_costs_no_play_but_may_have_cost_privacy():
    server = server_of(agents=2, budget=3)
    asked = list(server.requests([0, 1]))
    server.close({})
    assert len(server.played) == 0
    assert server.report()["epsilon_per_agent_max"] == 1.0
    assert server.answers[asked[0]] == 1


def test_asking_twice_changes_nothing():
    server = server_of(agents=9)
    first, second = server.requests(range(9)), server.requests(range(9))
    assert list(first) == list(second)
    for n in first:
        assert np.array_equal(first[n].arrays["point"], second[n].arrays["point"])


def test_more_answers_than_were_asked_for_are_not_attributed_to_the_next_point():
    server = server_of(agents=4)
    server.requests([0])
    server.requests([1])
    server.close({n: Reply({"reward": np.array(1.0)}) for n in (0, 1)})
    assert len(server.played) == 1
    assert server.learner.updates == 1


def test_agents_that_only_ever_fail_end_the_run():
    server = server_of(agents=2)
    for _ in range(MOST_IDLE_ROUNDS):
        assert not server.finished
        server.close({n: Reply(declined="OSError") for n in server.requests([0, 1])})
    assert server.report()["stopped"] == "no-answers"
    assert server.report()["failures"] == MOST_IDLE_ROUNDS
    assert server.requests([0, 1]) == {}


def test_rounds_with_nobody_there_do_not_end_the_run():
    server = server_of(agents=2)
    for _ in range(MOST_IDLE_ROUNDS + 1):
        assert server.requests([]) == {}
        server.close({})
    assert not server.finished


@pytest.mark.parametrize("name", ["ldp-ata", "ldp-moma", "uniform"])
def test_a_restored_server_goes_on_identically(name):
    def make():
        return server_of(name, agents=3, budget=40, epoch=4, epsilon=99.0)

    def advance(server, rounds, seed):
        for t in range(rounds):
            rng = np.random.default_rng([seed, t])
            rewards = {n: np.array(rng.normal()) for n in server.requests([0, 1, 2])}
            server.close({n: Reply({"reward": r}) for n, r in rewards.items()})

    server, restored = make(), make()
    advance(server, 7, 0)
    restored.load_state_dict(through_json(server.state_dict()))
    for each in (server, restored):
        advance(each, 6, 1)
    assert_same_state(server.state_dict(), restored.state_dict())
    assert_same_state(server.report(), restored.report())


@pytest.mark.parametrize(
    ("name", "values", "rule"),
    [
        ("ldp-tgp", {"bound": 0.0}, "`bound` must be > 0, but got 0.0"),
        ("ldp-tgp", {"noise_bound": -1.0}, "`noise-bound` must be > 0, but got -1.0"),
        ("ldp-tgp", {"bound": math.nan}, "`bound` must be finite, but got nan"),
        ("ldp-tgp", {"budget": 0}, "`budget` must be >= 1, but got 0"),
        ("ldp-tgp", {"epsilon_per_answer": 0.0}, "`epsilon-per-answer` must be > 0, but got 0.0"),
        ("ldp-tgp", {"epsilon": 0.5}, "pay for at least one answer .*epsilon=0.5"),
        (
            "ldp-tgp",
            {"epsilon_per_answer": None},
            "`ldp-tgp` needs `epsilon`; without privacy use `tgp`",
        ),
        ("tgp", {}, "`tgp` is not private; with `epsilon` or `epsilon-per-answer` use"),
        ("ldp-tpg", {}, "did you mean `ldp-tgp`"),
        ("ldp-moma", {"budget": 4}, "`budget` must be >= 5"),
    ],
)
def test_bad_settings_are_refused_with_rule_and_value(name, values, rule):
    with pytest.raises(SettingsError, match=rule):
        server_of(name, **values)


def test_a_run_needs_an_agent():
    with pytest.raises(SettingsError, match="`agents` must be >= 1, but got 0"):
        server_of(agents=0)


# -- what is known of a problem -------------------------------------------------------------


def synthetic(seed=0, **values):
    task = LDPSyntheticTask(LDPSyntheticSettings(**values))
    task.prepare(Partition(0, 1, seed))
    return task


def test_the_synthetic_problem_is_the_papers():
    task = synthetic()
    problem = task.problem
    assert task.space.points.shape == (100, 1)
    assert problem.bound == np.abs(problem.mean).max()
    assert problem.noise_bound == 1.0
    # f = sum a_i k(., x_i) has norm^2 = f' K^-1 f on the grid (up to K's rounding)
    quadratic = problem.mean @ np.linalg.pinv(problem.covariance, rcond=1e-12) @ problem.mean
    assert problem.norm**2 == pytest.approx(quadratic, rel=1e-3)
    heavy = synthetic(noise_law="student-t").problem
    assert heavy.second_moment == pytest.approx(heavy.bound**2 + 3.0)
    assert heavy.noise_moment == pytest.approx(3.0)
    assert heavy.noise_bound == pytest.approx(5.841, abs=1e-3)  # t tables: 99% two-sided, 3 d.o.f.


def test_all_agents_of_a_run_face_the_same_function_and_other_runs_another():
    tasks = [LDPSyntheticTask() for _ in range(2)]
    for n, task in enumerate(tasks):
        task.prepare(Partition(n, 2, 7))
    assert np.array_equal(tasks[0].problem.mean, tasks[1].problem.mean)
    assert not np.array_equal(tasks[0].problem.mean, synthetic(8).problem.mean)


def test_rewards_of_the_synthetic_problem_are_the_mean_plus_bounded_noise():
    task, rng = synthetic(), np.random.default_rng(0)
    params = {"x": 0.0}
    rewards = np.array([task.evaluate(params, rng=rng) for _ in range(500)])
    assert np.abs(rewards - task.expected(params)).max() <= 1.0
    # sd of the mean of 500: 1 / sqrt(3 * 500) = .026; five of those
    assert rewards.mean() == pytest.approx(task.problem.mean[0], abs=0.13)


def test_regret_is_counted_against_the_known_optimum():
    task = synthetic()
    points = task.space.points
    best = int(task.problem.mean.argmax())
    regret = regret_of_plays(points[[best, 3, 3, 5]], task)
    gaps = task.optimum() - task.problem.mean[[best, 3, 3, 5]]
    assert np.allclose(regret, np.cumsum(gaps))
    assert regret_of_plays(points[:0], task).shape == (0,)
    task.optimum = lambda: None
    assert regret_of_plays(points[:2], task) is None


def test_a_problem_and_a_range_become_settings():
    problem = synthetic().problem
    given = LDPSettings.from_mapping({"epsilon-per-answer": "2"}, problem_presets(problem))
    assert (given.bound, given.noise_bound) == (problem.bound, 1.0)
    assert given.second_moment == problem.second_moment
    unit = LDPSettings.from_mapping({}, range_presets(0.0, 1.0))
    assert (unit.clip, unit.reward_offset) == (0.5, 0.5)
    with pytest.raises(SettingsError, match="`low < high` must hold"):
        range_presets(1.0, 1.0)


def test_a_federation_finds_the_best_arm_of_the_synthetic_problem():
    task = synthetic(seed=1)
    settings = LDPSettings.from_mapping(
        {"epsilon-per-answer": 4.0, "budget": 1500}, problem_presets(task.problem)
    )
    spread = task.optimum() - task.problem.mean.mean()
    regrets = []
    for seed in range(3):  # of who is asked: one draw alone may be unlucky
        learner = make_learner(TGP, task.space, settings, covariance=task.problem.covariance)
        server = RewardServer(task.space, 50, settings, learner, seed)
        evaluate = lambda params, rng: task.evaluate(params, rng=rng)  # noqa: E731
        parties = [
            Party(server.setup(), evaluate, entropy=seeded_entropy(n)) for n in range(server.agents)
        ]
        run(server, parties)
        regret = regret_of_plays(server.played, task)
        assert regret is not None
        regrets.append(regret[-1])
        assert server.report()["epsilon_per_agent_max"] == 4.0 * 30
        chosen = task.expected(server.report()["recommendation"])
        assert task.optimum() - chosen < 0.2 * spread
    assert np.mean(regrets) < 0.35 * 1500 * spread  # uniform play: 1500 * spread


def test_continuous_spaces_work_the_same():
    space = Space({"x": Float(-1.0, 1.0)})
    settings = LDPSettings(budget=60, epsilon_per_answer=50.0, features=40, kernel="se")
    server = RewardServer(space, 5, settings, make_learner(TGP, space, settings))
    parties = [
        Party(server.setup(), lambda p, rng: 1.0 - (p["x"] - 0.3) ** 2, entropy=seeded_entropy(n))
        for n in range(5)
    ]
    run(server, parties)
    assert server.report()["recommendation"]["x"] == pytest.approx(0.3, abs=0.2)
