"""Flower apps that do nothing, to see what a round costs before anybody computes."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from benchmarks.load import Watch
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.simulation.engine import Engine, run

#: Numbers in a message, each way.
NUMBERS = 100
#: Rounds that are not counted: workers start.
WARMING = 2

client = ClientApp()


@client.train()
def reply(message: Message, context: Context) -> Message:
    """Send back as much as came."""
    return Message(message.content, reply_to=message)


def exchange(grid: Grid, nodes: list[int], round: int) -> float:
    """Seconds of one round: a message to every node, and a reply from each."""
    start = time.perf_counter()
    content = [RecordDict({"x": ArrayRecord([np.zeros(NUMBERS)])}) for _ in nodes]
    messages = [
        Message(c, dst_node_id=n, message_type="train", group_id=str(round))
        for c, n in zip(content, nodes, strict=True)
    ]
    replies = list(grid.send_and_receive(messages))
    assert len(replies) == len(nodes)
    return time.perf_counter() - start


def serve(grid: Grid, agents: int, rounds: int) -> list[float]:
    """Seconds of every round, once so many nodes are there."""
    while len(nodes := list(grid.get_node_ids())) < agents:
        time.sleep(0.1)
    return [exchange(grid, nodes, r) for r in range(rounds)]


def noop_rounds(agents: int, rounds: int) -> float:
    """Median seconds of a round of Flower's simulation whose app does nothing."""
    from flwr.simulation import run_simulation

    times: list[float] = []
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        times.extend(serve(grid, agents, rounds))

    run_simulation(
        app, client, num_supernodes=agents,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"log_to_driver": False, "logging_level": "error",
                          "include_dashboard": False},
        },
    )  # fmt: skip
    return float(np.median(times[WARMING:]))


def fbo_rounds(
    strategy: str,
    agents: int,
    rounds: int,
    engine: Engine = "ray",
    task: str = "free",
    *,
    processor: bool = False,
) -> float:
    """Median seconds of a round of ours through the same simulation, on a task of `load`.

    With ``processor`` they are CPU seconds of this process.
    """
    given = {
        "task": f"benchmarks.load:{task}", "strategy": strategy, "agents": agents, "rounds": rounds,
        "initial-points": 1, "refit-every": 0, "features": NUMBERS,
        **({"epsilon": 5.0, "accountant": "rdp"} if strategy == "dp-fts-de" else {}),
    }  # fmt: skip
    spec, watch = RunSpec.from_mapping(given), Watch(10_000)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder) / "run").create(spec.to_mapping())
        run(spec, directory, engine, [watch])
    seconds = watch.processor if processor else watch.seconds
    return float(np.median(seconds[WARMING:]))


APP = '''"""An app that does nothing."""
import json, os
from pathlib import Path
from flwr.serverapp import ServerApp
from benchmarks.noop import client, serve

client_app = client
server_app = ServerApp()

@server_app.main()
def main(grid, context):
    times = serve(grid, 2, 6)
    folder = Path(os.environ["FLWR_FBO_HOME"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "times.json").write_text(json.dumps(times))
'''
PROJECT = """[project]
name = "noop"
version = "1.0.0"
dependencies = ["flwr>=1.41"]
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[tool.flwr.app]
publisher = "noop"
[tool.flwr.app.components]
serverapp = "nothing:server_app"
clientapp = "nothing:client_app"
[tool.flwr.app.config]
"""


def deployed_rounds(folder: Path, app: str | None) -> float:
    """Median seconds of a round of two SuperNodes on loopback: ours, or an idle app."""
    from tests.flower.processes import REPOSITORY, flower, free_ports

    link, *ports = free_ports(3)
    target = REPOSITORY
    if app is not None:
        target = folder / "noop"
        target.mkdir()
        (target / "pyproject.toml").write_text(PROJECT)
        (target / "nothing.py").write_text(APP)
    with flower(folder) as running:
        running.superlink(link)
        for party, port in enumerate(ports):
            running.supernode(link, port, f"partition-id={party} num-partitions=2")
        settings = "strategy='random' agents=2 rounds=6 task='benchmarks.load:free'"
        config = () if app is not None else ("--run-config", settings)
        running.run("dep", *config, app=target)
        assert running.status("dep").startswith("finished:completed"), running.logs()
        if app is not None:
            times = json.loads((folder / "fbo" / "times.json").read_text())
            return float(np.median(times[1:]))
        (directory,) = running.run_directories()
        rows = (directory / "rounds.csv").read_text().splitlines()
        column = rows[0].split(",").index("seconds")
        return float(np.median([float(r.split(",")[column]) for r in rows[2:]]))
