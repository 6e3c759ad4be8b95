"""Agents in the server's process do what agents behind messages do, and cost what is asked."""

from __future__ import annotations

import cProfile
import pstats
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_fbo import Float, resume, simulate, task
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.clients.tuning_client import EvaluationOptions
from flwr_fbo.core.protocol import Reply, Request
from flwr_fbo.methods.ldp.server import RewardServer
from flwr_fbo.methods.ldp.settings import LDPSettings
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.registry import find_method
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.journal_check import JournalError
from flwr_fbo.runs.files.simulation_store import SimulationStore, check_room
from flwr_fbo.runs.history import RunHistory, read_evaluations
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.runs.stopping import Stopper
from flwr_fbo.simulation.in_process_agents import InProcessAgents
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.server_app import serve

PLANS: dict[str, dict[str, Any]] = {
    "alone": {"rounds": 3, "initial-points": 2},
    "dp-fts-de": {"rounds": 4, "initial-points": 2, "regions": 2},
    "fts": {"rounds": 4, "initial-points": 2},
    "tpe": {"rounds": 4},
    "random": {"rounds": 3, "initial-points": 2},
    "fed-pne": {"task": "garland", "budget": 60},
    "fed-pne in parts": {"task": "garland", "budget": 60, "pulls-per-message": 7},
    "fed-pne drawn": {"task": "garland", "budget": 40, "pull": "uniform"},
    "hct": {"task": "garland", "budget": 20},
    "tgp": {"task": "ldp-synthetic", "budget": 30},
    "moma": {"task": "ldp-synthetic", "budget": 30},
}


@task(space={"x": Float(0.0, 1.0)})
def hill(params: Any, rng: np.random.Generator) -> float:
    if params["x"] > 0.8:
        raise ValueError("no model")
    return float(1.0 - (params["x"] - 0.3) ** 2 + 0.1 * rng.standard_normal())


def spec_of(name: str) -> RunSpec:
    given = {"task": hill, "agents": 4, "strategy": name.split()[0], "seed": 3, **PLANS[name]}
    return RunSpec.from_mapping(given)


def by_messages(spec: RunSpec, folder: Path) -> Path:
    """Run a spec with Flower's messages, in this process."""
    directory = RunDirectory(folder).create(spec.to_mapping(), spec.task.space)
    clients = simulated_client_app(spec.task, directory.agents)
    history = RunHistory(directory.agents, 4, directory.identity)
    serve(spec, InProcessGrid(clients, 4), directory, stopper=Stopper(spec.run, history))
    return folder


def evaluations(folder: Path) -> list[list[dict[str, Any]]]:
    return [
        [{**vars(e), "seconds": 0.0} for e in history]
        for history in read_evaluations(folder / "agents", 4, RunDirectory(folder).identity)
    ]


@pytest.mark.parametrize("name", PLANS)
def test_agents_without_messages_do_what_agents_with_messages_do(name: str, tmp_path: Path) -> None:
    spec = spec_of(name)
    given = {k.replace("-", "_"): v for k, v in PLANS[name].items() if k != "task"}
    simulate(
        spec.task, agents=4, strategy=name.split()[0], seed=3, run_dir=tmp_path / "here", **given
    )
    by_messages(spec_of(name), tmp_path / "there")
    assert evaluations(tmp_path / "here") == evaluations(tmp_path / "there")


class Interrupt(Callback):
    """End the process after a round, as far as a test can."""

    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, strategy: Any, report: Any) -> None:
        if report.round == self.round:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["dp-fts-de", "fts", "fed-pne in parts", "tgp"])
def test_a_run_that_was_interrupted_ends_as_one_that_was_not(name: str, tmp_path: Path) -> None:
    given = {k.replace("-", "_"): v for k, v in PLANS[name].items() if k != "task"}
    run = partial(simulate, spec_of(name).task, agents=4, strategy=name.split()[0], seed=3, **given)
    run(run_dir=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(run_dir=tmp_path / "parts", callbacks=[Interrupt(2)])
    resume(tmp_path / "parts", task=hill if spec_of(name).task.name == "hill" else None)
    assert evaluations(tmp_path / "whole") == evaluations(tmp_path / "parts")


def asked(agents: int, budget: int, folder: Path) -> int:
    """Return the calls of a run of single answers, of which few are asked for."""
    given = {
        "task": "ldp-synthetic", "strategy": "ldp-tgp", "agents": agents, "budget": budget,
        "epsilon-per-answer": 1.0,
    }  # fmt: skip
    spec = RunSpec.from_mapping(given)
    directory = RunDirectory(folder / f"{agents}-{budget}")
    profile = cProfile.Profile()
    from flwr_fbo.simulation.engine import run

    profile.runcall(lambda: run(spec, directory, "inline"))
    assert len(SimulationStore(directory.agents, None, reading=True).agents) == budget
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def test_a_play_costs_the_same_however_many_agents_there_are(
    tmp_path: Path, monkeypatch: Any
) -> None:
    # How many checkpoints there are must not depend on the machine.
    monkeypatch.setattr(RewardServer, "checkpoint_seconds", 1e9)
    asked(100, 10, tmp_path)  # fills caches
    plays = [asked(agents, 40, tmp_path) - asked(agents, 10, tmp_path) for agents in (100, 5000)]
    assert plays[1] < 1.15 * plays[0]


def test_all_agents_share_a_journal(tmp_path: Path) -> None:
    asked(300, 5, tmp_path)
    names = {path.name for path in (tmp_path / "300-5" / "agents").iterdir()}
    assert names == {"agents.jsonl", "agents.jsonl.head"}


# -- the server of LDP, with many agents ---------------------------------------------------------


def reward_server(agents: int, **settings: Any) -> Any:
    method = find_method("ldp-tgp")
    from flwr_fbo.core.space import Space

    given = LDPSettings(budget=agents, epsilon_per_answer=1.0, bound=1.0, **settings)
    run = RunParameters(Space({"x": Float(0.0, 1.0)}), agents, 1, seed=5)
    return method.make_server(run, given)


def play(server: Any) -> list[int]:
    requests = server.requests(range(server.agents))
    assert server.requests(range(server.agents)).keys() == requests.keys()
    server.close({n: Reply({"reward": np.array(0.5)}) for n in requests})
    return list(requests)


def test_every_agent_answers_once_and_nobody_is_asked_in_vain() -> None:
    server = reward_server(200)
    order = [n for _ in range(200) for n in play(server)]
    assert sorted(order) == list(range(200))
    assert server.stopped == "done"
    assert server.report()["refused"] == 0


def test_a_restored_server_asks_whom_it_would_have_asked() -> None:
    server, again = reward_server(60), reward_server(60)
    for _ in range(47):
        play(server)
    again.load_state_dict(server.state_dict())
    assert [play(again) for _ in range(13)] == [play(server) for _ in range(13)]


def test_agents_are_drawn_evenly() -> None:
    counts, server = np.zeros(8), reward_server(8)
    server.exhausted = {1, 6}
    for round in range(4000):
        server.round = round  # the draws of a round depend on its number and on nobody's past
        counts[list(server.requests(range(8)))] += 1
    assert counts[[1, 6]].sum() == 0
    rest = np.delete(counts, [1, 6])
    # chi-square with 5 degrees of freedom, .9999 quantile
    assert float(((rest - 4000 / 6) ** 2).sum() / (4000 / 6)) < 25.7


# -- requests and replies in one process ---------------------------------------------------------


class Careless:
    """An agent that writes into what it was sent, and sends what it keeps."""

    kept = np.zeros(2, dtype=np.float32)

    def __init__(self, *_: Any) -> None: ...

    def answer(self, request: Request) -> Reply:
        if request.values["write"]:
            request.arrays["a"][0] = 9.0
        return Reply({"b": Careless.kept})


def test_server_and_agents_share_no_array(tmp_path: Path, monkeypatch: Any) -> None:
    method = find_method("random")
    monkeypatch.setattr(type(method), "make_agent", lambda self, *rest: Careless())
    spec = spec_of("random")
    agents = InProcessAgents(spec.task, tmp_path, 2, EvaluationOptions())
    setup = method.make_server(
        RunParameters(spec.task.space, 2, 1), method.settings_class()
    ).setup()
    array = np.zeros(3)
    requests = {
        n: Request("step", 1, {"write": bool(n)}, {"a": array}, {"b": (2,)}) for n in range(2)
    }
    replies = agents.answer(setup, requests, 60.0, lambda count: None)
    assert replies[0].arrays["b"].dtype == np.float64
    replies[0].arrays["b"][0] = 5.0
    assert Careless.kept.tolist() == [0.0, 0.0]
    assert replies[1].declined == "ValueError"
    assert array.tolist() == [0.0, 0.0, 0.0]


def test_agents_whose_turn_did_not_come_are_first_the_next_time(
    tmp_path: Path, monkeypatch: Any
) -> None:
    spec = spec_of("random")
    agents = InProcessAgents(spec.task, tmp_path, 4, EvaluationOptions())
    setup = (
        find_method("random")
        .make_server(RunParameters(spec.task.space, 4, 1), spec.settings)
        .setup()
    )
    now = iter(range(100))
    monkeypatch.setattr(
        "flwr_fbo.simulation.in_process_agents.time.monotonic", lambda: float(next(now))
    )
    requests = {n: Request("explore", 0, {"count": 1, "home": -1}) for n in range(4)}
    order: list[int] = []
    answer_here = agents._client.answer_here
    monkeypatch.setattr(
        agents._client, "answer_here",
        lambda *given: order.append(given[2].index) or answer_here(*given),
    )  # fmt: skip
    assert list(agents.answer(setup, requests, 2.5, lambda count: None)) == [0, 1]
    assert list(agents.answer(setup, requests, 3.5, lambda count: None)) == [0, 2, 3]
    assert order == [0, 1, 2, 3, 0]


# -- a full disk ---------------------------------------------------------------------------------


def test_a_full_disk_is_noticed_before_anything_is_evaluated(
    tmp_path: Path, monkeypatch: Any
) -> None:
    class Full:
        f_bavail, f_frsize = 3, 4096

    monkeypatch.setattr("flwr_fbo.runs.files.simulation_store.os.statvfs", lambda folder: Full())
    with pytest.raises(JournalError, match="no space is left"):
        check_room(tmp_path)
    result = simulate(
        hill, agents=2, strategy="random", rounds=2, timeout=1.0, run_dir=tmp_path / "run"
    )
    assert result.best_score is None
