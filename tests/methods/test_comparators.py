"""Comparators: the same harness, and each does what it is known to do."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from flwr_fbo.core.protocol import Reply, ReplyError
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.methods.comparators import METHODS
from flwr_fbo.methods.comparators.base import import_extra
from flwr_fbo.methods.comparators.fed1_ucb import Fed1UCBServer, Fed1UCBSettings, mesh
from flwr_fbo.methods.comparators.fn_ucb import FNUCBAgent, FNUCBServer, FNUCBSettings, Network
from flwr_fbo.methods.comparators.kernel_bandits import GPUCBServer, GPUCBSettings, UpperBound
from flwr_fbo.methods.fed_pne.agent import FedPNEAgent
from flwr_fbo.methods.registry import find_method
from flwr_fbo.models.gp import GaussianProcess
from flwr_fbo.models.kernels import Matern
from flwr_fbo.tasks.papers.garland import GarlandTask, double_sine, garland

from .fed_pne_harness import LINE, agent_of, fed_pne, one_round  # isort: skip

PACKAGES = {"hct": "PyXAB", "optuna-batch": "optuna"}
INSTALLED = [
    name
    for name in [method.name for method in METHODS]
    if name not in PACKAGES or importlib.util.find_spec(PACKAGES[name]) is not None
]
MIXED = Space({"x": Float(0.01, 1.0, log=True), "n": Int(1, 5), "c": Categorical(["a", "b"])})
FINITE = Space(LINE.parameters, np.linspace(0, 1, 21)[:, None])
# FN-UCB with its public confidence, .1, explores too little to find anything on some meshes.
SIZES = {"fn-ucb": {"arms": 12, "period": 10, "confidence": 1.0}, "fed1-ucb": {"arms": 6}}


def tent(params: Mapping[str, Any], rng: np.random.Generator) -> float:
    return 0.9 - abs(params["x"] - 0.3) + rng.uniform(-0.1, 0.1)


def build(name: str, agents: int, space: Space = LINE, seed: int = 0, **values: Any) -> Any:
    method = find_method(name, "global")
    server, kind = method.server_class, FNUCBAgent if name == "fn-ucb" else FedPNEAgent
    values = {**SIZES.get(name, {}), **values}
    made = server(space, agents, method.settings_class(**values), seed)
    return made, [agent_of(made, tent, n, kind=kind) for n in range(agents)]


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("space", [LINE, MIXED, FINITE], ids=["line", "mixed", "finite"])
def test_every_comparator_keeps_the_budget_and_resumes(name: str, space: Space) -> None:
    budget = 20 if name == "kernel-ts" else 45
    whole, agents = build(name, 3, space, budget=budget)
    for _ in range(2):
        one_round(whole, agents)
    if not whole.finished:
        one_round(whole, agents, present=[1])
        whole.close({})
    resumed, _ = build(name, 3, space, budget=budget)
    resumed.load_state_dict(whole.state_dict())
    while not whole.finished:
        ours, theirs = whole.requests(range(3)), resumed.requests(range(3))
        for n in ours:
            for key, array in ours[n].arrays.items():
                np.testing.assert_array_equal(array, theirs[n].arrays[key])
        replies = {n: agents[n].answer(request) for n, request in ours.items()}
        whole.close(replies)
        resumed.close(replies)
    np.testing.assert_array_equal(whole.best_point(), resumed.best_point())
    np.testing.assert_allclose(space.snap(whole.best_point())[0], whole.best_point(), atol=1e-12)
    spent = [len(agent.evaluator.history) for agent in agents]
    assert spent[1] == budget
    assert max(spent) <= budget
    assert whole.sent.min() > 0
    assert whole.requests(range(3)) == {}


@pytest.mark.parametrize("name", INSTALLED)
def test_every_comparator_finds_a_plain_optimum(name: str) -> None:
    budget = {"optuna-batch": 40, "fed1-ucb": 400, "hct": 400, "kernel-ts": 40}.get(name, 120)
    server, agents = build(name, 5, budget=budget)
    while not server.finished:
        one_round(server, agents)
    # The coarsest mesh has six arms: half a cell is 1/12. A network with few kinks is blunter.
    tolerance = 0.2 if name == "fn-ucb" else 1 / 12 + 0.02
    assert abs(server.best_point()[0] - 0.3) <= tolerance


@pytest.mark.parametrize("name", INSTALLED)
def test_every_comparator_refuses_what_it_did_not_ask_for(name: str) -> None:
    server, agents = build(name, 2, budget=45)
    request = server.requests([0])[0]
    with pytest.raises(ReplyError, match="agent 7"):
        server.close({7: agents[0].answer(request)})
    with pytest.raises(ReplyError):
        server.close({0: Reply({"means": np.zeros((3, 3))})})
    assert server.round == 0
    with pytest.raises(ValueError, match="`agents` must be >= 1"):
        build(name, 0, budget=45)


@pytest.mark.parametrize("name", INSTALLED)
def test_every_comparator_ends_when_nobody_answers(name: str) -> None:
    server, _ = build(name, 2, budget=45, idle_rounds=2)
    server.close({})
    assert not server.finished
    server.close({0: Reply(declined="MemoryError")})
    assert server.finished
    assert server.requests([0, 1]) == {}


def test_names() -> None:
    with pytest.raises(ValueError, match=r"unknown strategy `sgd`; known are .*hct"):
        find_method("sgd")
    with pytest.raises(ImportError, match=r"flwr-fbo\[benchmarks\]"):
        import_extra("benchmarks", "no_such_package.inside")


# -- Fed1-UCB ---------------------------------------------------------------------------------


def fed1(agents: int = 10, **values: Any) -> Fed1UCBServer:
    return Fed1UCBServer(LINE, agents, Fed1UCBSettings(**values), 0)


def test_the_mesh_is_even_and_starts_at_random() -> None:
    arms = mesh(LINE, 10, np.random.default_rng(1))[:, 0]
    np.testing.assert_allclose(np.diff(arms), 0.1)
    assert 0 < arms[0] < 0.1
    assert mesh(LINE, 10, np.random.default_rng(2))[0, 0] != arms[0]
    assert len(mesh(MIXED, 5, np.random.default_rng(0))) == 5 * 5 * 2
    np.testing.assert_array_equal(mesh(FINITE, 3, np.random.default_rng(0)), FINITE.points)
    with pytest.raises(SettingsError, match="at most 1000000 points, but 101 along each of 3"):
        mesh(MIXED, 101, np.random.default_rng(0))


def test_fed1_ucb_phases_and_elimination_by_hand() -> None:
    server = fed1(arms=4, budget=1000)
    ask = server.requests([0])[0].arrays
    np.testing.assert_array_equal(ask["pulls"], [math.ceil(math.log(1000))] * 4)  # 7 each
    bound = 0.5 * math.sqrt(4 * math.log(1000) / (10 * 7))  # .314
    means = np.array([0.9, 0.9 - 2 * bound + 0.01, 0.9 - 2 * bound - 0.01, 0.0])
    server.close({n: Reply({"means": means}) for n in range(10)})
    assert server.requests([0])[0].arrays["pulls"].shape == (2,)
    low = np.array([0.9, -5.0])
    server.close({n: Reply({"means": low}) for n in range(10)})
    last = server.requests([0])[0].arrays
    np.testing.assert_array_equal(last["pulls"], [1000 - 28 - 14])  # one arm: all that is left
    server.close({n: Reply({"means": np.array([0.9])}) for n in range(10)})
    assert server.finished
    assert server.round == 3


# -- kernel bandits -----------------------------------------------------------------------------


def test_the_upper_bound_and_its_gradient() -> None:
    rng = np.random.default_rng(0)
    gp = GaussianProcess(Matern(0.4, 1.3), 0.1, rng.random((8, 2)), rng.standard_normal(8))
    bound = UpperBound(gp, 1.7)
    x = rng.random((5, 2))
    mean, variance = gp.posterior(x)
    value, gradient = bound.value_and_gradient(x)
    np.testing.assert_allclose(value, mean + 1.7 * np.sqrt(variance), rtol=1e-9)
    np.testing.assert_allclose(bound.scan(x), value, rtol=1e-9)
    for d in range(2):
        step = np.eye(2)[d] * 1e-6
        slope = (bound.value(x + step) - bound.value(x - step)) / 2e-6
        np.testing.assert_allclose(gradient[:, d], slope, rtol=1e-4, atol=1e-6)


def test_gp_ucb_plays_the_largest_bound() -> None:
    settings = GPUCBSettings(budget=30, ridge=0.01)
    server = GPUCBServer(FINITE, 2, settings, 0)
    agents = [agent_of(server, tent, n) for n in range(2)]
    for _ in range(12):
        one_round(server, agents)
    mean, variance = server._gp.posterior(FINITE.points)
    asked = server.requests([0])[0].arrays["points"][0]
    np.testing.assert_array_equal(asked, FINITE.points[(mean + 0.5 * np.sqrt(variance)).argmax()])


# -- FN-UCB -------------------------------------------------------------------------------------


def test_the_networks_gradient() -> None:
    rng = np.random.default_rng(0)
    network = Network.draw(6, 3, rng)
    x, theta = rng.standard_normal((4, 3)), network.start + 0.1
    exact = network.jacobian(x, theta)
    for j in range(len(theta)):
        step = np.eye(len(theta))[j] * 1e-6
        slope = (network.value(x, theta + step) - network.value(x, theta - step)) / 2e-6
        np.testing.assert_allclose(exact[:, j], slope, atol=1e-6)


def test_training_lowers_the_error() -> None:
    rng = np.random.default_rng(1)
    network, x = Network.draw(20, 2, rng), rng.random((50, 2))
    y = np.sin(3 * x[:, 0])
    trained = network.train(x, y, 0.1, 300, 0.01)
    before = np.mean((network.value(x, network.start) - y) ** 2)
    assert np.mean((network.value(x, trained) - y) ** 2) < 0.2 * before


def test_fn_ucb_synchronises_sums_and_means() -> None:
    settings = FNUCBSettings(budget=20, period=10, arms=5)
    server = FNUCBServer(LINE, 3, settings, 0)
    agents = [agent_of(server, tent, n, kind=FNUCBAgent) for n in range(3)]
    request = server.requests([0])[0]
    replies = {n: agents[n].answer(request) for n in range(3)}
    server.close(replies)
    grams = [r.arrays["gram"] for r in replies.values()]
    np.testing.assert_allclose(server.gram, sum(grams))
    np.testing.assert_allclose(
        server.theta, np.mean([r.arrays["theta"] for r in replies.values()], 0)
    )
    assert server.alpha == min(float(r.arrays["alpha"]) for r in replies.values())
    # The sum of gradients' outer products is that of the ten arms pulled.
    pulled = np.array([e.unit for e in agents[0].evaluator.history])
    rows = agents[0]._network.gradient(
        np.concatenate([pulled, np.ones((10, 1))], axis=1) / math.sqrt(2)
    )
    np.testing.assert_allclose(grams[0], rows.T @ rows, atol=1e-10)
    assert server.sent[0] == sum(a.size for a in replies[0].arrays.values())


# -- beside Fed-PNE -------------------------------------------------------------------------------


def regret_of(server: Any, function: Any, best: float, seed: int) -> float:
    """Of one agent, where all agents answer with the mean that they would have together."""
    rng, regret = np.random.default_rng(seed), 0.0
    while not server.finished:
        arrays = server.requests([0])[0].arrays
        values = function(arrays["points"][:, 0])
        regret += float(arrays["pulls"] @ (best - values))
        noise = 0.1 / np.sqrt(3 * arrays["pulls"] * server.agents)  # of means of U(-.1, .1)
        reply = Reply({"means": values + noise * rng.standard_normal(len(values))})
        server.close(dict.fromkeys(range(server.agents), reply))
    return regret


@pytest.mark.parametrize("name", [n for n in ("fed1-ucb", "hct") if n in INSTALLED])
@pytest.mark.parametrize("agents", [50])
@pytest.mark.parametrize(
    ("function", "best"), [(garland, GarlandTask.extremes[1]), (double_sine, 0.0)]
)
def test_fed_pne_is_ahead_from_fifty_agents(
    name: str, agents: int, function: Any, best: float
) -> None:
    def mean(make: Any) -> float:
        return float(np.mean([regret_of(make(seed), function, best, seed) for seed in range(2)]))

    other = find_method(name, "global")
    theirs = mean(
        lambda seed: other.server_class(LINE, agents, other.settings_class(), seed)  # type: ignore[call-arg]
    )
    assert mean(lambda seed: fed_pne(agents, seed=seed)) < 0.9 * theirs
