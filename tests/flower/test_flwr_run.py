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


def check_run(running: Flower, output: str, name: str, agents: int, parallel: int = 1) -> None:
    assert running.status(name).startswith("finished:completed"), output + running.logs()
    assert f"round 3/3  replies {agents}/{agents}" in output
    (directory,) = running.run_directories()
    found = by_round(read_evaluations(directory / "agents", agents), 3)
    assert found.evaluations == [3 + parallel * t for t in range(4)]
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
        # A simulation owns all journals, so the score may be known; and the path is the last word.
        (directory,) = running.run_directories()
        for text in ("mean best", "privacy", f"flwr-fbo report {directory}"):
            assert text in output
        assert json.loads((directory / "result.json").read_text())["best_score"] is not None
        # Settings that are defaults are not listed.
        assert "weights-hold" not in output


def test_a_simulation_with_too_few_nodes_says_so_at_once(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with flower(tmp_path) as running:
        running.start("flower-superlink", *QUIET, "--simulation", "--port", str(port), port=port)
        running.connect("sim", port)
        output = running.run(
            "sim",
            "--federation-config",
            "num-supernodes=2 client-resources-num-cpus=1",
            "--run-config",
            SETTINGS.format(n=10),
        )
        assert "2 of 10 agents are here" in output
        assert "num-supernodes=10" in output
        assert not (tmp_path / "fbo" / "runs").exists()


@pytest.mark.parametrize("parallel", [1, 2])
def test_in_a_deployment(parallel: int, tmp_path: Path) -> None:
    (port, *node_ports) = free_ports(3)
    with flower(tmp_path) as running:
        running.superlink(port)
        for i, node_port in enumerate(node_ports):
            running.supernode(port, node_port, f"partition-id={i} num-partitions=2")
        settings = SETTINGS.format(n=2).replace("releases", f"parallel={parallel} releases")
        output = running.run("dep", "--run-config", settings)
        check_run(running, output, "dep", 2, parallel)
        assert "mean best" not in output
        assert "each agent's own best is in its own journal" in output
