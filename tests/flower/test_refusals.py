"""Nodes that a deployment must not take in: a party's double, and another version."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flwr_fbo.runs.history import read_evaluations
from flwr_fbo.wire import SCHEMA
from tests.flower.processes import Flower, flower, free_ports

pytestmark = [
    pytest.mark.slow(90),
    pytest.mark.skipif(sys.platform == "win32", reason="uses env"),
]

#: Read by every Python that starts; only the odd node has the variable set.
OTHER_VERSION = """
import os
if "FLWR_FBO_TEST_SCHEMA" in os.environ:
    import flwr_fbo.wire
    flwr_fbo.wire.SCHEMA = int(os.environ["FLWR_FBO_TEST_SCHEMA"])
"""


def node(
    running: Flower, link: int, port: int, party: int, *variables: str
) -> subprocess.Popen[bytes]:
    config = f"partition-id={party} num-partitions=2"
    return running.supernode(link, port, config, *variables)


def test_a_double_and_another_version_are_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    link, *ports = free_ports(4)
    (tmp_path / "sitecustomize.py").write_text(OTHER_VERSION)
    with flower(tmp_path, quick=True) as running:
        running.superlink(link)
        nodes = [node(running, link, ports[0], 0), node(running, link, ports[1], 0)]
        odd = node(running, link, ports[2], 1, "FLWR_FBO_TEST_SCHEMA=7")
        for one in (*nodes, odd):
            running.until(lambda one=one: "SuperNode ID" in running.log(one))  # type: ignore[misc]
        said = running.run(
            "dep", "--run-config",
            "task='synthetic' strategy='local-ts' agents=2 rounds=1 timeout=45.0 "
            "run-name='odd' settings='initial-points=1 points=10 refit-every=0'",
        )  # fmt: skip
        assert running.status("dep").startswith("finished:completed"), running.logs()
        assert "another node already speaks for agent 0" in said
        assert f"is not registered: a reply must have schema {SCHEMA}, but has 7" in said
        assert "1 of 2 agents are registered; starting with them" in said
        assert f"must be 7, but got {SCHEMA}" in running.log(odd)
        first, second = read_evaluations(tmp_path / "fbo" / "runs" / "odd" / "agents", 2)
        assert [e.round for e in first] == [0, 1]
        assert second == []
