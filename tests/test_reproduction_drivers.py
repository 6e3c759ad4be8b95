"""The papers' figures, run again: shortcuts of the drivers give what the package gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.reproduce import drivers, finite_arms, fts
from benchmarks.reproduce.batch import GridAgents, can_batch
from benchmarks.reproduce.dp_fts_de import SYNTHETIC, de, dp, ts
from benchmarks.reproduce.objectives import made_faster
from benchmarks.reproduce.printed import Effect
from benchmarks.reproduce.targets import IncumbentTAF
from flwr_fbo.core.protocol import Request
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.comparators.surrogates import History, WeightSurrogates
from flwr_fbo.methods.comparators.taf import TAFSettings
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.models.features import RandomFeatures, WeightPosterior
from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.models.kernels import kernel_named
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.tasks import load
from flwr_fbo.tasks.task import Partition

DRAWS = 4000
SMALL = {"agents": 8, "rounds": 3}


def grid_agents(count: int, **settings: Any) -> GridAgents:
    """Return agents of one function on a grid of 60 points, which have evaluated three points."""
    run = de(SYNTHETIC, regions=1, clip=1e6).settings
    given = {"preset": "paper", **run, "agents": count, "points": 60, "difference": 0, **settings}
    spec = RunSpec.from_mapping({**given, "seed": 1})
    plan = RunParameters(spec.task.space, count, spec.run.rounds, 1, task=spec.task)
    server: Any = spec.method.make_server(plan, spec.settings)
    task: Any = spec.task
    assert can_batch(server.settings, task)
    agents = GridAgents(server.setup(), task, count, 1, 1)
    agents._evaluate(np.tile([5, 30, 32], (count, 1)), 0)
    return agents


def test_agents_together_begin_as_the_agents_of_the_package() -> None:
    for run in (ts(SYNTHETIC), dp(SYNTHETIC, 0.5, 1.0)):
        settings = run.with_(**SMALL).settings
        together = drivers.on_grid(settings, 3)
        assert together is not None
        one_by_one = drivers.Federation(settings, 3)
        while not one_by_one.server.finished:
            one_by_one.round()
        curve = drivers.error_curve(one_by_one.histories, one_by_one.rounds)
        assert together["curve"][0] == pytest.approx(curve[0], abs=1e-12)
        assert len(together["curve"]) == len(curve) == 4
        assert all(x >= y for x, y in zip(together["curve"], together["curve"][1:], strict=False))


def test_only_the_papers_synthetic_agents_are_computed_together() -> None:
    settings = de(SYNTHETIC, clip=1e6).with_(**SMALL).settings
    assert drivers.on_grid(settings, 1) is not None
    assert drivers.on_grid({**settings, "refit-every": 5}, 1) is None
    assert drivers.on_grid({**settings, "advice-use": "prior"}, 1) is None
    assert drivers.on_grid({**settings, "measured": 2}, 1) is None


def test_paths_of_agents_together_have_the_posterior_of_a_gaussian_process() -> None:
    agents = grid_agents(2)
    paths = agents._own_paths(np.zeros(DRAWS, dtype=np.int64), 1)  # (draws, G)
    x, y = agents.grid[agents.points[0]], agents.scores[0]
    process = GaussianProcess(kernel_named("se", 0.03), agents.settings.noise, x, y)
    mean, variance = process.posterior(agents.grid)
    # 60 points: 5 standard errors are passed by chance once in some 30,000 tests.
    assert np.all(np.abs(paths.mean(axis=0) - mean) < 5 * np.sqrt(variance / DRAWS) + 1e-9)
    error = variance * np.sqrt(2 / DRAWS)
    assert np.all(np.abs(paths.var(axis=0) - variance) < 5 * error + 1e-9)


def test_messages_of_agents_together_have_the_law_of_equation_2() -> None:
    agents = grid_agents(DRAWS)
    agents.scores[:] = agents.scores[0]
    rows = agents.features[agents.points]
    agents.product = np.einsum("nk,nkm->nm", agents.scores, rows)
    sent = agents._messages(1)  # (draws, M): the same data at each agent
    noise = agents.settings.feature_noise
    posterior = WeightPosterior(agents.features[agents.points[0]], agents.scores[0], noise)
    square = posterior.design.T @ posterior.design + noise * np.eye(sent.shape[1])
    variance = noise * np.diag(np.linalg.inv(square))
    error = np.sqrt(variance / DRAWS)
    assert np.all(np.abs(sent.mean(axis=0) - posterior.mean()) < 5 * error)
    assert np.all(np.abs(sent.var(axis=0) - variance) < 5 * variance * np.sqrt(2 / DRAWS))


def test_the_advised_point_is_that_of_each_regions_own_function() -> None:
    agents = grid_agents(2, regions=2)
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((2, agents.features.shape[1]))
    values = agents.features @ weights.T  # (G, 2)
    half = np.where(agents.grid[:, 0] < 0.5, values[:, 0], values[:, 1])
    assert agents._advised(weights) == int(half.argmax())
    assert agents._advised(weights[:1]) == int(values[:, 0].argmax())


def test_the_posterior_of_arms_is_that_of_a_gaussian_process() -> None:
    units, kernel = np.linspace(0, 1, 9)[:, None], kernel_named("se", 0.2)
    posterior = finite_arms.ArmPosterior(kernel(units, units), 0.3)
    pulled, rewards = [2, 7, 2, 4], [1.0, -0.5, 0.4, 0.1]
    for arm, reward in zip(pulled, rewards, strict=True):
        posterior.add(arm, reward)
    process = GaussianProcess(kernel, 0.3, units[pulled], np.array(rewards))
    mean, variance = process.posterior(units)
    assert posterior.mean == pytest.approx(mean)
    assert posterior.variance == pytest.approx(variance)


def test_learners_on_arms_find_the_best_arm_of_a_smooth_function() -> None:
    space, units = Space({"x": Float(0.0, 1.0)}), np.linspace(0, 1, 101)[:, None]
    for name, learner in finite_arms.LEARNERS.items():
        made = learner(units, space, np.random.default_rng(0))
        asked = []
        for _ in range(200):
            asked.append(made.ask())
            made.tell(asked[-1], float(np.exp(-((units[asked[-1], 0] - 0.3) ** 2) / 0.02)))
        # Points at random are .34 away on average.
        assert np.abs(units[asked[-50:], 0] - 0.3).mean() < 0.2, name


def test_the_logarithm_of_an_improvement_does_not_vanish() -> None:
    u = np.array([-3.0, -1.0, 0.0, 2.0])
    plain = norm.pdf(u) + u * norm.cdf(u)
    assert finite_arms.log_improvement(u) == pytest.approx(np.log(plain))
    far = finite_arms.log_improvement(np.array([-1e6, -2e4, -9e3, -50.0, 5.1, 6.0]))
    assert np.all(np.isfinite(far))
    assert np.all(np.diff(far) > 0)


def test_arms_are_a_mesh_of_at_most_so_many_points() -> None:
    assert len(finite_arms.arms_of(Space({"x": Float(0.0, 1.0)}), 100)) == 100
    square = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
    arms = finite_arms.arms_of(square, 100)
    assert arms.shape == (100, 2)
    assert (arms.min(), arms.max()) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("landmine", {"scale": "linear"}),
        ("landmine-global", {}),
        ("activity", {"scale": "linear", "split": "random"}),
        ("activity", {"ranges": "fts", "epochs": 3}),
    ],
)
def test_scores_from_distances_and_inner_products_are_the_tasks_own(
    name: str, settings: dict[str, Any]
) -> None:
    def prepared() -> Any:
        task: Any = load(name, {**settings, "generated": True})
        task.prepare(Partition(3, 29, 0))
        return task

    plain, faster = prepared(), made_faster(prepared())
    for unit in plain.space.sample(12, np.random.default_rng(0)):
        params = plain.space.from_unit(unit)
        # Accuracies are multiples of 1 / 170 or so: rounding could at most move one example.
        assert faster.score(params) == pytest.approx(plain.score(params), abs=1e-9), params


def test_a_placebo_is_as_long_as_the_broadcast_and_the_same_for_all() -> None:
    advice = np.array([[3.0, 0.0], [0.0, 4.0]])
    asked = {n: Request("step", 1, {}, {"advice": advice}, {}) for n in (0, 1)}
    asked[2] = Request("step", 1, {}, {}, {})
    changed = drivers.with_placebo(asked, np.random.default_rng(0))
    sent = changed[0].arrays["advice"]
    assert np.linalg.norm(sent) == pytest.approx(5.0)
    assert not np.allclose(sent, advice)
    assert np.array_equal(sent, changed[1].arrays["advice"])
    assert changed[2].arrays == {}


def test_taf_in_the_form_of_fts_compares_with_incumbents() -> None:
    space = Space({"x": Float(0.0, 1.0)})
    features = RandomFeatures.draw(kernel_named("se", 0.2), 40, 1, np.random.default_rng(0))
    history = History(np.array([[0.1], [0.5], [0.9]]), np.array([0.0, 1.0, 0.0]))
    others = WeightSurrogates.of(space, [history], features, 1e-4)
    given = (space, others, TAFSettings(), ThompsonSettings(refit_every=0), (1,))
    incumbents = np.array([1.4142])  # the best of the three scores with mean 0 and spread 1
    agent = IncumbentTAF(incumbents, *given)
    for x in (0.2, 0.5, 0.8):
        agent.tell(np.array([x]), -((x - 0.5) ** 2))
    agent.ask(1)
    assert np.array_equal(agent._reference, incumbents)
    assert 0.3 < agent.ask(2)[0] < 0.7


def test_a_slower_method_is_read_where_the_faster_one_has_ended() -> None:
    fast = {"curve": [0.9, 0.5, 0.4], "clock": [1.0, 2.0, 3.0]}
    slow = {"curve": [0.8, 0.3, 0.1], "clock": [2.0, 3.5, 9.0]}
    assert fts._error_after(slow, 3.0) == 0.8
    assert fts._error_after(slow, 3.5) == 0.3
    assert fts._error_after(slow, 0.1) == 0.8  # before its first iteration
    assert fts._error_after(fast, 99.0) == 0.4
    check = fts.error_at_end_of("fast", "slow")
    results = {"fast": [fast] * 3, "slow": [slow, {**slow, "curve": [0.81, 0.3, 0.1]}, slow]}
    found = check({}, results, Effect("words"))
    assert found.outcome == "holds"  # .4 against .8
    assert found.says == "fast below slow when fast has ended"
