"""An evaluation that ends its process is a failed evaluation, and the run goes on."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from flwr_fbo import Float, LocalTS, Result, resume, simulate, task
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.clients.tuning_client import EvaluationOptions
from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.runs.history import ended_a_run, read_evaluations
from flwr_fbo.simulation import engine
from flwr_fbo.simulation.in_process_grid import InProcessGrid

from . import dying_tasks
from .processes import BIN, REPOSITORY

PLAN: dict[str, Any] = {"agents": 3, "strategy": "local-ts", "rounds": 3, "initial_points": 3}


def histories(run: Path) -> list[list[Evaluation]]:
    return read_evaluations(run / "agents", 3)


def check(run: Path, says: str) -> None:
    """Exactly the points that end their process failed, and each is recorded once."""
    made = [e for history in histories(run) for e in history]
    assert len(made) == 3 * 6
    assert all(e.failed == (e.params["x"] > 0.5) for e in made)
    failed = [e for e in made if e.failed]
    assert failed
    assert all(says in e.failure for e in failed)
    for history in histories(run):
        assert len({(e.round, e.play) for e in history}) == len(history)
    result = Result.read(run)
    assert result.complete
    assert result.failures == len(failed)


def test_sys_exit_does_not_end_the_command(tmp_path: Path) -> None:
    simulate(dying_tasks.exits, run_dir=tmp_path / "run", **PLAN)
    check(tmp_path / "run", "SystemExit: 0")


def test_sys_exit_while_data_are_loaded_is_an_agent_that_declines(tmp_path: Path) -> None:
    strategy = LocalTS(initial_points=1)
    strategy.open_run(RunParameters(dying_tasks.SPACE, 2, 1, timeout=5.0))
    strategy.run(InProcessGrid(simulated_client_app(dying_tasks.no_data, tmp_path), 2))
    assert [r.declined for r in strategy.reports] == [{"SystemExit": 2}] * 2


def test_a_run_that_an_evaluation_ended_is_resumed_without_another_end(tmp_path: Path) -> None:
    """Inline, `os._exit` ends the whole run; resumed, evaluations have processes of their own."""
    run = tmp_path / "run"
    code = (
        "from flwr_fbo import simulate; from tests.flower import dying_tasks\n"
        f"simulate(dying_tasks.vanishes, engine='inline', run_dir={str(run)!r}, **{PLAN!r})"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=REPOSITORY, timeout=120,
        env={**os.environ, "FLWR_TELEMETRY_ENABLED": "0"},
    )  # fmt: skip
    assert not (run / "result.json").exists()
    said = ended_a_run(run / "agents")
    assert said.startswith("agent 0, round 0, {'x': ")
    resume(run, task=dying_tasks.vanishes, engine="inline")
    check(run, "the evaluation ended its process with exit code 0")
    (x,) = [e.params["x"] for e in histories(run)[0] if repr(e.params["x"]) in said]
    assert isinstance(x, float)
    assert x > 0.5


@pytest.mark.slow(80)
@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
def test_a_worker_of_ray_that_dies_is_replaced(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(BIN / "flwr-fbo"), "run", "tests.flower.dying_tasks:killed",
         "--strategy", "local-ts", "--agents", "3", "--rounds", "3", "--set", "initial-points=3",
         "--engine", "ray", "--set", "timeout=900", "--run-dir", str(tmp_path / "run")],
        check=True, cwd=REPOSITORY, timeout=1800, capture_output=True, text=True,
        env={**os.environ, "FLWR_TELEMETRY_ENABLED": "0"},
    )  # fmt: skip
    # Ray may say that a message is given to another worker, but not that workers end with the run.
    assert "terminate" not in done.stdout + done.stderr
    check(tmp_path / "run", "the process ended in the middle of the evaluation")
    # Agents reply in the round in which their worker died: a replacement answers the message.
    rows = (tmp_path / "run" / "rounds.csv").read_text().splitlines()[1:]
    assert [row.split(",")[1:3] for row in rows] == [["3", "3"]] * 4


@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
def test_ray_does_not_repeat_the_call_that_ends_a_worker() -> None:
    from flwr.simulation.ray_transport.ray_actor import ClientAppActor

    engine._end_workers_once()
    retries: Any = vars(ClientAppActor)["__ray_metadata__"].method_meta.max_task_retries
    assert retries == {"terminate": 0}
    assert engine._RESTARTS["max_task_retries"] > 0  # as before, for messages


class TestTimeouts:
    def test_an_evaluation_that_hangs_is_ended_and_everybody_has_a_turn(
        self, tmp_path: Path
    ) -> None:
        @task(space={"x": Float(0.0, 1.0)})
        def hangs(params: Any) -> float:
            time.sleep(1000.0)
            return 0.0

        grid = InProcessGrid(
            simulated_client_app(hangs, tmp_path, EvaluationOptions(limit=0.3)), 3, in_time=True
        )
        strategy = LocalTS(initial_points=1)
        strategy.open_run(RunParameters(hangs.space, 3, 5, timeout=0.3))

        class InTime(Callback):
            """Time counts once all agents are registered, however slow the machine is."""

            def on_start(self, run: Any) -> None:
                grid._in_time = True

        grid._in_time = False
        strategy.callbacks.append(InTime())
        while len(strategy.roster.present) < 3:
            strategy.rounds.register(grid)
        strategy.run(grid)
        # One agent a round: the others' turn does not come in time, and comes first the next time.
        assert [r.replied for r in strategy.reports] == [1] * 6
        made = read_evaluations(tmp_path, 3)
        assert sum(map(len, made)) == 6
        assert all(made)  # an agent that is silent twice is asked more rarely, but is asked
        assert all("ended after 0.3 s" in e.failure for history in made for e in history)

    def test_an_isolated_evaluation_that_hangs_is_ended(self, tmp_path: Path) -> None:
        @task(space={"x": Float(0.0, 1.0)})
        def hangs(params: Any) -> float:
            while True:
                time.sleep(1000.0)

        options = EvaluationOptions(limit=0.2, isolated=True)
        strategy = LocalTS(initial_points=1)
        strategy.open_run(RunParameters(hangs.space, 1, 0, timeout=5.0))
        strategy.run(InProcessGrid(simulated_client_app(hangs, tmp_path, options), 1))
        ((only,),) = read_evaluations(tmp_path, 1)
        assert "ended after 0.2 s" in only.failure
        with contextlib.suppress(ChildProcessError):  # the child is gone too
            assert os.waitpid(-1, os.WNOHANG) == (0, 0)


def test_a_simulation_limits_its_evaluations_by_its_timeout(tmp_path: Path) -> None:
    @task(space={"x": Float(0.0, 1.0)})
    def hangs(params: Any) -> float:
        time.sleep(1000.0)
        return 0.0

    result = simulate(hangs, timeout=0.2, run_dir=tmp_path / "run", **{**PLAN, "rounds": 1})
    assert result.failures
    assert not result.complete
