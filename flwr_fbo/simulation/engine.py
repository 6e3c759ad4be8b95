"""The engines that run a whole federation on one machine: what calls the agents.

``inline`` asks the agents one after another in this process, without messages. ``processes`` asks
them in a pool of processes on all processors, without messages too. ``auto``, the default, measures
the first evaluations inline, and uses processes where evaluations are slow
(:mod:`flwr_fbo.simulation.automatic_agents`). ``ray`` is Flower's simulation engine, in which
messages reach the agents in Ray's workers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.clients.evaluation_job import EvaluationMeter
from flwr_fbo.clients.tuning_client import EvaluationOptions
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.runs.callbacks import Callback
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.history import ended_a_run
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.runs.stopping import Stopper
from flwr_fbo.simulation.automatic_agents import AutomaticAgents
from flwr_fbo.simulation.in_process_agents import InProcessAgents
from flwr_fbo.simulation.in_process_grid import SimulatedGrid
from flwr_fbo.simulation.process_agents import (
    ProcessAgents,
    number_of_processes,
    why_no_processes,
)
from flwr_fbo.strategies.base import FBOStrategy
from flwr_fbo.strategies.local import LocalAgents
from flwr_fbo.strategies.server_app import serve

Engine: TypeAlias = Literal["auto", "inline", "processes", "ray"]

BackendInit: TypeAlias = dict[str, int | float | str | bool]

#: The most seconds after which Python lets another thread of a simulation's process continue.
SWITCH_INTERVAL = 0.0005

#: Options of Ray's workers, which Flower passes on as resources. A worker that dies is started
#: again, and answers its message from the agent's journal, in which the evaluation that ended the
#: worker counts as failed. A message that ends more workers than this has no reply in its round.
_RESTARTS = {"max_restarts": -1, "max_task_retries": 20}
#: Settings of Ray that keep the logs of its workers out of the terminal.
_QUIET: BackendInit = {"log_to_driver": False, "logging_level": "error", "include_dashboard": False}


def run(
    spec: RunSpec,
    directory: RunDirectory,
    engine: Engine,
    callbacks: Sequence[Callback] = (),
    stopper: Stopper | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> FBOStrategy:
    """Run a federation to its end, and return the strategy with the result.

    Errors on the server's side are raised. ``say`` takes the line of the engine ``auto`` that says
    what it chose, and why.
    """
    check_engine(engine)
    _silence_logs()
    agents = number_of_agents(spec)
    spec.task.check_agents(agents, spec.run.seed)
    spec.task.fetch()  # here, so that workers do not download the same files at the same time
    if engine != "ray":
        with _local_agents(spec, directory, engine, agents, say) as local:
            return serve(spec, SimulatedGrid(local), directory, callbacks, stopper)
    options = EvaluationOptions(spec.run.timeout, durable=False)
    clients = simulated_client_app(spec.task, directory.agents, options)
    served: list[FBOStrategy] = []
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        served.append(serve(spec, grid, directory, callbacks, stopper))

    _run_with_ray(app, clients, agents)
    return served[0]


def check_engine(engine: str) -> None:
    """Raise SettingsError for an engine that does not exist, or not on this machine."""
    if engine not in get_args(Engine):
        raise SettingsError(
            f"`engine` must be one of {', '.join(get_args(Engine))}, but got {engine!r}"
        )
    reason = why_no_processes() if engine == "processes" else ""
    if reason:
        raise SettingsError(f"`engine` cannot be processes: {reason}")


@contextlib.contextmanager
def _local_agents(
    spec: RunSpec, directory: RunDirectory, engine: Engine, agents: int, say: Callable[[str], None]
) -> Iterator[LocalAgents]:
    """Yield the agents of a run without messages; afterwards their processes have ended."""
    ended, meter = ended_a_run(directory.agents), EvaluationMeter()
    given = spec.task, directory.agents, agents
    options = EvaluationOptions(spec.run.timeout, durable=False)
    # An evaluation that has ended this run before may end a process of the pool, but not the run.
    if engine == "auto" and (why_no_processes() or not (number_of_processes() > 1 or ended)):
        engine = "inline"
    local: ProcessAgents | AutomaticAgents
    if engine == "processes" or (engine == "auto" and ended):
        local = ProcessAgents(*given, options)
    elif engine == "inline":
        yield InProcessAgents(*given, replace(options, isolated=bool(ended)))
        return
    else:
        inline = InProcessAgents(*given, replace(options, meter=meter))
        local = AutomaticAgents(inline, meter, lambda: ProcessAgents(*given, options), say)
    try:
        yield local
    finally:
        local.close()


def _run_with_ray(app: ServerApp, clients: ClientApp, agents: int) -> None:
    """Run both apps in Flower's simulation engine; raise SettingsError where Ray is missing."""
    if find_spec("ray") is None:
        raise SettingsError(
            "the engine ray needs the package ray, which is not installed: install "
            "flwr-fbo[simulation] if Ray has a wheel for Python "
            f"{platform.python_version()} on this system, or use --engine auto"
        )
    _share_import_path()
    from flwr.simulation import run_simulation  # slow to import, and needed here only

    _end_workers_once()
    with _prompt_threads():
        run_simulation(
            app,
            clients,
            num_supernodes=agents,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0, **_RESTARTS},
                "init_args": {**_QUIET},
            },
        )


def _end_workers_once() -> None:
    """Let Ray not repeat the call by which Flower ends a worker at the end of a run.

    That call never returns, as its worker ends. Ray would count it as a task that failed and that
    has retries left (:data:`_RESTARTS`), and would say so in the terminal.
    """
    from flwr.simulation.ray_transport.ray_actor import ClientAppActor

    # `ray.method(max_task_retries=0)` does this too, but only where the class is defined. If Ray
    # renames its attributes, its message comes back and nothing else changes.
    with contextlib.suppress(AttributeError):
        metadata: Any = ClientAppActor.__ray_metadata__  # type: ignore[attr-defined]
        metadata.method_meta.max_task_retries["terminate"] = 0


@contextlib.contextmanager
def _prompt_threads() -> Iterator[None]:
    """Shorten the time for which a thread waits for the interpreter."""
    # One thread of the simulation searches all messages in an endless loop. Python's default would
    # make the threads that pass work to Ray wait five milliseconds each time, which is as long as
    # a message takes.
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_INTERVAL))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _silence_logs() -> None:
    """Show Flower's and Ray's warnings, but not their messages of lower levels."""
    logger = logging.getLogger("flwr")
    logger.setLevel(logging.WARNING)
    logger.addFilter(_is_no_deprecation)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


def _is_no_deprecation(record: logging.LogRecord) -> bool:
    """Return False for Flower's notice that ``run_simulation`` is deprecated.

    Flower's other way is ``flwr run``: it packs an app, installs it into a new environment, needs a
    package index, takes 17 seconds or more, leaves a SuperLink running, and exits with 0 when the
    run fails. A command or a notebook that runs a task of its own memory needs the function, and
    Flower 1.41 has no other one. The notice is addressed to us and not to the user of a command.
    """
    return "`run_simulation` function is deprecated" not in record.getMessage()


def number_of_agents(spec: RunSpec) -> int:
    """Return the number of agents in a simulation: as set, or as many as the data have parties."""
    agents = spec.run.agents or spec.task.default_agents or spec.task.parties or 0
    if agents < 1:
        raise SettingsError(
            f"`agents` must be given for the task {spec.task.name!r}: any number of agents can "
            "share its data"
        )
    return agents


def _share_import_path() -> None:
    """Let Ray's workers import a task from the current directory, as this process can."""
    here = str(Path.cwd())
    parts = [here, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(p for p in parts if p))
    if here not in sys.path:
        sys.path.insert(0, here)
