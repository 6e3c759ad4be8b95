"""The app as a user runs it: ``flwr run`` in Flower's simulation, and in a deployment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flwr_fbo.runs.history import by_round, read_evaluations
from tests.flower.processes import Flower, flower, free_ports

SETTINGS = (
    "task='synthetic' agents={n} rounds=3 "
    "settings='epsilon=4.0 releases=all initial-points=3 points=200'"
)
QUIET = ("--insecure", "--disable-runtime-dependency-installation")

pytestmark = pytest.mark.slow


def check_run(running: Flower, output: str, name: str, agents: int) -> None:
    assert running.status(name).startswith("finished:completed"), output
    assert f"round 3/3  replies {agents}/{agents}" in output
    (directory,) = running.run_directories()
    found = by_round(read_evaluations(directory / "agents", agents), 3)
    assert found.evaluations == [3, 4, 5, 6]
    releases = (directory / "ledger.jsonl").read_text().splitlines()
    assert sum('"kind": "gaussian"' in line for line in releases) == 3
    assert json.loads((directory / "config.json").read_text())["epsilon"] == 4.0


def test_in_simulation(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with flower(tmp_path) as running:
        running.start("flower-superlink", *QUIET, "--simulation", "--port", str(port), port=port)
        running.connect("sim", port)
        output = running.run(
            "sim",
            "--federation-config",
            "num-supernodes=4 client-resources-num-cpus=1",
            "--run-config",
            SETTINGS.format(n=4),
        )
        check_run(running, output, "sim", 4)


def test_in_a_deployment(tmp_path: Path) -> None:
    (port, *node_ports) = free_ports(3)
    with flower(tmp_path) as running:
        running.superlink(port)
        for i, node_port in enumerate(node_ports):
            running.supernode(port, node_port, f"partition-id={i} num-partitions=2")
        output = running.run("dep", "--run-config", SETTINGS.format(n=2))
        check_run(running, output, "dep", 2)
