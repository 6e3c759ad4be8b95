"""The ClientApp as simulations use it: packed, sent to one worker or another, answered there."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from flwr_fbo.clients import client_app as clientapp
from flwr_fbo.clients.client_app import AgentApp, client_app, simulated_client_app
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.runs.callbacks import RoundReport
from flwr_fbo.runs.files import journal as journals
from flwr_fbo.runs.files.journal import journal_path
from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.baselines import LocalTS, RandomSearch
from flwr_fbo.strategies.dp_fts_de import DPFTSDE
from flwr_fbo.strategies.fts import FTS

from .conftest import Federation, hill
from .test_strategies import SMALL

PLAIN = {"initial-points": 2, "features": 8, "refit-every": 0}
LEARNING = {"initial_points": 2, "features": 8, "refit_every": 2}


class Workers(InProcessGrid):
    """As many processes as there are caches, asked in turn: agent 0 by A, then B, then A."""

    def __init__(self, app: ClientApp, nodes: int, caches: int) -> None:
        super().__init__(app, nodes)
        self._caches = [journals._JournalCache() for _ in range(caches)]
        self._asked = 0

    def _call(self, message: Message, context: Context) -> Message:
        cache = (
            self._caches[self._asked % len(self._caches)]
            if self._caches
            else journals._JournalCache()
        )
        self._asked += 1
        before, journals._cache = journals._cache, cache
        try:
            return super()._call(message, context)
        finally:
            journals._cache = before


def points(
    make: Callable[[], FBOStrategy], folder: Path, caches: int, stop: Any = None
) -> list[list[tuple[Any, ...]]]:
    """What each of three agents evaluated, with this many workers that remember (0: none does)."""
    f = Federation(make(), folder, 3, hill)
    f.grid = Workers(simulated_client_app(hill, f.directory.agents), 3, caches)
    if stop is not None:
        f.strategy.stop = lambda report: bool(stop(f, report))
    f.start()
    histories = read_evaluations(f.directory.agents, 3)
    return [[(e.round, e.play, *e.unit, e.score) for e in h] for h in histories]


@pytest.mark.parametrize(
    "make",
    [lambda: FTS(**LEARNING), lambda: LocalTS(**LEARNING), lambda: RandomSearch(**LEARNING),
     lambda: DPFTSDE(**LEARNING, regions=2)],
)  # fmt: skip
def test_which_worker_answered_makes_no_difference(
    make: Callable[[], FBOStrategy], tmp_path: Path
) -> None:
    forgetful = points(make, tmp_path / "0", 0)
    assert [len(h) for h in forgetful] == [6, 6, 6]
    assert points(make, tmp_path / "1", 1) == forgetful
    assert points(make, tmp_path / "2", 2) == forgetful


def test_a_journal_that_was_rolled_back_is_where_the_agent_goes_on(tmp_path: Path) -> None:
    def run(name: str, caches: int) -> Any:
        saved: list[bytes] = []

        def roll_back(f: Federation, report: RoundReport) -> None:
            path = journal_path(f.directory.agents, 1)
            if report.round == 1:
                saved.append(path.read_bytes())
            if report.round == 2:
                path.write_bytes(saved[0])

        return points(lambda: LocalTS(**LEARNING), tmp_path / name, caches, roll_back)

    forgetful = run("0", 0)
    assert [[e[0] for e in h] for h in forgetful] == [
        [0, 0, 1, 2, 3, 4], [0, 0, 1, 3, 4], [0, 0, 1, 2, 3, 4]
    ]  # fmt: skip
    assert run("1", 1) == run("2", 2) == forgetful


def test_a_new_run_at_the_same_path_knows_nothing_of_the_last(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    points(lambda: LocalTS(**LEARNING), folder, 1)
    first = Federation(LocalTS(**SMALL), folder, 3, hill)
    first.start()  # through the process's own cache
    for path in [*folder.rglob("*.jsonl"), folder / "checkpoint.npz"]:
        path.unlink()
    again = Federation(RandomSearch(**SMALL), folder, 3, hill)
    again.start()
    alone = Federation(RandomSearch(**SMALL), tmp_path / "alone", 3, hill)
    alone.start()
    here, there = (read_evaluations(f.directory.agents, 3) for f in (again, alone))
    assert [[e.unit for e in h] for h in here] == [[e.unit for e in h] for h in there]


class TestPacking:
    """An app is packed once and unpacked once by whoever receives it."""

    def test_a_copy_answers_as_the_original(self, tmp_path: Path) -> None:
        spec = RunSpec.from_mapping({"task": "synthetic", "strategy": "fts", "agents": 3} | PLAIN)
        original = simulated_client_app(spec.task, tmp_path)
        app = pickle.loads(pickle.dumps(original))
        assert type(app) is AgentApp
        plan = RunParameters(spec.task.space, 3, 2, timeout=1.0)
        strategy = FBOStrategy.for_spec(spec).open_run(plan)
        strategy.run(InProcessGrid(app, 3))
        assert [r.replied for r in strategy.reports] == [3, 3, 3]

    def test_it_is_packed_and_unpacked_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        packed: list[Any] = []
        dumps = pickle.dumps
        monkeypatch.setattr(clientapp, "_pickled", lambda made: packed.append(made) or dumps(made))
        app = client_app("synthetic", family="hills")
        first, second = pickle.dumps(app), pickle.dumps(app)
        assert first == second
        assert len(packed) == 1
        assert pickle.loads(first) is pickle.loads(second)

    @pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray, which packs notebooks' tasks")
    def test_a_task_made_in_a_notebook_is_packed(self) -> None:
        import ray.cloudpickle

        app = client_app(hill)  # its function is not what its name says: it has a decorator
        copied = pickle.loads(ray.cloudpickle.dumps(app))
        assert copied._find_task.task.space == hill.space

    def test_the_app_of_a_run_config_can_be_packed(self) -> None:
        assert pickle.loads(pickle.dumps(clientapp.app))._find_task is clientapp._task_of_run_config


def test_run_configs_of_equal_values_and_other_types_are_read_apart() -> None:
    """1, 1.0 and true are equal, and not the same setting."""
    given = {"task": "landmine"}
    values = ("true", 1)
    items = [tuple((k, type(v), v) for k, v in (given | {"generated": g}).items()) for g in values]
    assert clientapp._cached_task(items[0]) is clientapp._cached_task(items[0])
    with pytest.raises(ValueError, match="`generated` must be bool"):
        clientapp._cached_task(items[1])


def test_a_setup_of_another_version_is_asked_for_again(federation: Any) -> None:
    f = federation(LocalTS(**SMALL))
    lost: list[int] = []

    def spoil(report: RoundReport) -> bool:
        if report.round == 1:
            for context in f.grid.contexts.values():
                lost.append(len(context.state))
                context.state.clear()
        return False

    f.strategy.stop = spoil
    reports = f.start().reports
    assert lost == [1, 1, 1]
    assert [dict(r.declined) for r in reports] == [{}, {}, {"needs-setup": 3}, {}, {}]
