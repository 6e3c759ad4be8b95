"""What an agent's owner allows in the node's configuration holds, whatever a server asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from flwr_fbo import wire
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.clients.tuning_client import TuningClient
from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.fed_pne.agent import FedPNEAgent
from flwr_fbo.methods.fed_pne.server import FedPNEServer
from flwr_fbo.methods.fed_pne.settings import FedPNESettings
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.thompson.server import ThompsonServer
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.privacy.calibration import gaussian_multiplier
from flwr_fbo.runs.locations import owners_books
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.fed_pne import FedPNE
from flwr_fbo.strategies.fts import FTS
from flwr_fbo.strategies.ldp import LDPBO
from flwr_fbo.tasks import task

SPACE = Space({"x": Float(0.0, 1.0)})


@task(space=SPACE, score_range=(0.0, 1.0))
def hill(params: Any) -> float:
    return 1.0 - abs(float(params["x"]) - 0.3)


def start(strategy: FBOStrategy, folder: Path, agents: int = 3, **node: Any) -> FBOStrategy:
    grid = InProcessGrid(simulated_client_app(hill, folder), agents)
    for context in grid.contexts.values():
        context.node_config.update(node)
    strategy.open_run(RunParameters(SPACE, agents, 3, timeout=0.5))
    strategy.run(grid)
    return strategy


def ldp(**settings: Any) -> LDPBO:
    return LDPBO(learner="tgp", budget=30, epsilon_per_answer=1.0, features=10, **settings)


def test_an_answer_beyond_the_owners_limit_is_refused(tmp_path: Path) -> None:
    server: Any = start(ldp(), tmp_path, **{"epsilon-limit": 4.0}).server
    assert server.stopped == "budgets"
    assert len(server.played) == 3 * 4


def test_the_owners_books_go_on_over_runs(tmp_path: Path) -> None:
    node = {"epsilon-limit": 7.0, "budget-file": str(tmp_path / "mine.books")}
    first: Any = start(
        LDPBO(learner="tgp", budget=5, epsilon_per_answer=1.0, features=10),
        tmp_path / "1",
        agents=1,
        **node,
    ).server
    assert first.stopped == "done"
    second: Any = start(ldp(), tmp_path / "2", agents=1, **node).server
    assert second.stopped == "budgets"
    assert len(second.played) == 2
    assert (tmp_path / "mine.books").read_text().count('"event"') == 7


@pytest.mark.parametrize("asked", [None, 8.0])
def test_a_limit_makes_vectors_locally_private(tmp_path: Path, asked: float | None) -> None:
    strategy = FTS(initial_points=2, features=8, refit_every=0, local_epsilon=asked)
    strategy.stop = lambda report: report.round == 0
    start(strategy, tmp_path, **{"epsilon-limit": 0.5})
    server: Any = strategy.server
    vectors = np.array(list(server.messages.values()))
    assert vectors.shape == (3, 8)
    # The clip is sqrt(8), and the limit is for ten answers. The noise is from the OS: less than
    # this has a probability of 1e-9, and is still twenty times what is sent without noise.
    least = 2.0 * np.sqrt(8) * gaussian_multiplier(0.5, 1e-5) * np.sqrt(10)
    assert np.linalg.norm(vectors) > least * np.sqrt(chi2.ppf(1e-9, df=vectors.size))
    assert len(list(owners_books(0).parent.glob("agent-*.jsonl"))) == 3
    assert not list(tmp_path.glob("*.privacy.jsonl"))  # a limit's ledger belongs to no run


def test_books_need_a_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = {"budget-file": str(tmp_path / "mine.books")}
    strategy = start(ldp(), tmp_path, **node)
    assert strategy.reports[0].declined == {"error": 1}
    assert "`budget-file` needs `epsilon-limit`" in caplog.text  # in the party's own log only
    assert not (tmp_path / "mine.books").exists()


@pytest.mark.parametrize("limit", [{"epsilon-limit": 0.5}, {"epsilon-limit-reward": 0.01}])
def test_fed_pne_agents_decline_what_is_beyond_their_limits(
    tmp_path: Path, limit: dict[str, float]
) -> None:
    strategy = FedPNE(budget=40, epsilon_per_reward=1.0)
    server: Any = start(strategy, tmp_path, **limit).server
    assert server.stopped == "budget"
    assert strategy.reports[0].declined == {"budget": 3}


def test_without_limits_the_same_runs_are_made(tmp_path: Path) -> None:
    server: Any = start(FedPNE(budget=40, epsilon_per_reward=1.0), tmp_path / "a").server
    assert server.stopped == ""
    learner: Any = start(ldp(), tmp_path / "b").server
    assert learner.stopped == "done"


# -- a server that wants more than the owner allows ---------------------------------------------


LIMIT = {"epsilon-limit": 0.1}


def asked(agents: int, setup: Setup, request: Request, folder: Path, **node: Any) -> list[Reply]:
    """What agents of a hostile server reply to a request of its own making."""
    grid = InProcessGrid(simulated_client_app(hill, folder), agents)
    replies = []
    for context in grid.contexts.values():
        context.node_config.update(node)
        client = TuningClient(context, hill, folder)
        client.fit(*wire.fit_arguments(wire.encode_setup(setup)))
        arrays, _, metrics = client.fit(
            *wire.fit_arguments(wire.encode_request(request, setup.digest))
        )
        names = sorted(request.expects) if not str(metrics["declined"]).strip() else []
        replies.append(
            Reply(dict(zip(names, arrays, strict=False)), str(metrics["declined"]).strip())
        )
    return replies


def thompson(**settings: Any) -> Setup:
    chosen = ThompsonSettings(initial_points=2, features=8, refit_every=0, **settings)
    return ThompsonServer(SPACE, 1, chosen, 3).setup()


@pytest.mark.parametrize("diagnostics", [False, True])
def test_no_scores_leave_an_agent_with_a_limit(tmp_path: Path, diagnostics: bool) -> None:
    setup = thompson(diagnostics=diagnostics)
    request = Request(
        "explore", 0, {"count": 2, "home": -1}, {}, {"diagnostics": (2,), "omega": (8,)}
    )
    (reply,) = asked(1, setup, request, tmp_path, **LIMIT)
    assert reply.declined == "refused"
    assert not reply.arrays


def test_no_scores_leave_an_agent_unless_the_setup_says_so(tmp_path: Path) -> None:
    request = Request("explore", 0, {"count": 2, "home": -1}, {}, {"diagnostics": (2,)})
    (reply,) = asked(1, thompson(), request, tmp_path)
    assert not reply.arrays


@pytest.mark.parametrize(
    "wanted",
    [
        {"local_delta": 0.999999},
        {"local_epsilon": 1e6, "local_delta": 0.999999},
        {"local_epsilon": 50.0, "local_answers": 1},
        {"local_clip": 1e-6},
    ],
)
def test_a_server_cannot_take_the_noise_away(tmp_path: Path, wanted: dict[str, Any]) -> None:
    setup = thompson(**wanted)
    request = Request("explore", 0, {"count": 2, "home": -1}, {}, {"omega": (8,)})
    sent = [
        asked(
            1,
            setup,
            request,
            tmp_path / str(n),
            **{**LIMIT, "budget-file": str(tmp_path / f"b{n}")},
        )
        for n in range(40)
    ]
    vectors = np.array([reply.arrays["omega"] for (reply,) in sent])
    clip = min(wanted.get("local_clip", np.inf), thompson().read(ThompsonSettings).max_norm)
    # One answer at epsilon 0.1, delta 1e-5 over a distance of two clips, at the very least.
    least = 2.0 * clip * gaussian_multiplier(0.1, 1e-5)
    assert vectors.std(axis=0).mean() > 0.75 * least


def test_three_runs_share_one_budget(tmp_path: Path) -> None:
    answered = 0
    for run in range(3):
        strategy = FTS(initial_points=2, features=8, refit_every=0, local_answers=2)
        done = start(strategy, tmp_path / f"run{run}", agents=1, **{"epsilon-limit": 0.5})
        answered += sum(report.replied for report in done.reports[:-1])
    assert answered == 2  # and not two in each run
    assert owners_books(0).read_text().count('"event"') == 2


def test_fed_pne_values_every_release_with_the_noise_it_had(tmp_path: Path) -> None:
    """A second setup with more noise must not make an earlier release look cheap."""
    records, space = MemoryRecords(), SPACE

    def agent(epsilon: float) -> FedPNEAgent:
        settings = FedPNESettings(budget=10**6, epsilon_per_reward=epsilon)
        setup = FedPNEServer(space, 30, settings, 0).setup()
        evaluator = Evaluator(space, lambda params, rng: 0.5, records)
        return FedPNEAgent(setup, evaluator, records, (0,))

    pulls = {"pulls": np.array([4.0]), "points": np.array([[0.5]])}
    agent(8.0).answer(Request("pull", 0, {"phase": 0}, pulls, {"means": (1,)}))
    honest, later = agent(8.0).guarantees(), agent(0.01).guarantees()
    assert honest is not None
    assert later is not None
    assert later.one_user_epsilon == pytest.approx(honest.one_user_epsilon)


def test_an_agent_that_was_private_sends_nothing_without_noise(tmp_path: Path) -> None:
    first = start(FedPNE(budget=40, epsilon_per_reward=1.0), tmp_path)
    assert first.server.finished
    assert first.reports[0].replied == 3
    second: Any = start(FedPNE(budget=400), tmp_path)
    assert second.reports[0].declined == {"budget": 3}
