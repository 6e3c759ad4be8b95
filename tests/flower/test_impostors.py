"""Impostors in a deployment with TLS and node authentication: keys that claim another's number."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flower.processes import BIN, REPOSITORY, Flower, flower, free_ports

EXAMPLE = REPOSITORY / "examples" / "deployment"
TASK = """
import time
from flwr_fbo.core.space import Float
from flwr_fbo.tasks import task

@task(space={"x": Float(0.0, 1.0)})
def quick(params):
    time.sleep(0.5)
    return -(params["x"] - 0.3) ** 2
"""

#: Parties of the run, and keys that are let in: more than there are parties.
AGENTS, KEYS = 3, 5

pytestmark = [
    pytest.mark.slow(130),
    pytest.mark.skipif(sys.platform == "win32", reason="runs shell scripts"),
    pytest.mark.skipif(
        not (shutil.which("openssl") and shutil.which("ssh-keygen")),
        reason="needs openssl and ssh-keygen to make keys",
    ),
]


class Parties:
    """A SuperLink, and nodes that have a key, claim a number, and keep a disk of their own."""

    def __init__(self, running: Flower) -> None:
        self.running = running
        self.link, *self.ports = free_ports(12)
        self.address = f"127.0.0.1:{self.link}"
        running.command(str(EXAMPLE / "keys.sh"), "keys", "127.0.0.1", str(KEYS))
        superlink = str(EXAMPLE / "superlink.sh")
        running.start(superlink, "keys", str(self.link), "127.0.0.1", port=self.link)
        certificate = f'root-certificates = "{running.folder}/keys/ca.crt"'
        running.connect("dep", self.link, certificate)
        keys = [f"keys/node-{n}.key.pub" for n in range(KEYS)]
        said = running.command(str(EXAMPLE / "register.sh"), "dep", *keys)
        self.node_ids = re.findall(r"is node (\d+)", said)
        assert f"node-ids='{','.join(self.node_ids)}'" in said.splitlines()[-1]

    def node(self, key: int, number: int, disk: str) -> subprocess.Popen[bytes]:
        """A SuperNode with a key and a disk that says it is this party."""
        return self.running.start(
            "/usr/bin/env", f"FLWR_FBO_HOME={self.running.folder}/{disk}",
            str(BIN / "flower-supernode"), "--superlink", self.address,
            "--port", str(self.ports.pop()), "--root-certificates", "keys/ca.crt",
            "--auth-supernode-private-key", f"keys/node-{key}.key",
            "--node-config", f"partition-id={number} num-partitions={AGENTS}",
        )  # fmt: skip

    def run(self, settings: str = "") -> None:
        self.server = self.running.start(
            "flwr", "run", str(REPOSITORY), "dep", "--stream", "--run-config",
            f"task='quick_task:quick' strategy='local-ts' agents={AGENTS} rounds=200 "
            f"timeout=60.0 run-name='together' settings='initial-points=1' {settings}",
        )  # fmt: skip

    @property
    def rounds(self) -> list[dict[str, str]]:
        path = self.running.folder / "fbo" / "runs" / "together" / "rounds.csv"
        return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []

    def until_round(self, asked: int) -> None:
        """Wait for a round in which this number of agents replied."""
        before = len(self.rounds)
        there = lambda: any(r["replied"] == str(asked) for r in self.rounds[before:])  # noqa: E731
        self.running.until(there, 900)

    def until_said(self, text: str) -> None:
        self.running.until(lambda: text in self.running.log(self.server), 600)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(300)


def test_no_key_takes_another_partys_place_and_no_owner_is_locked_out(tmp_path: Path) -> None:
    (tmp_path / "quick_task.py").write_text(TASK)
    with flower(tmp_path, quick=True) as running:
        parties = Parties(running)
        ids = parties.node_ids
        first, second, _ = (parties.node(n, n, f"disk-{n}") for n in range(AGENTS))
        parties.run()
        parties.until_round(3)
        stop(first)
        stop(second)  # both are briefly away

        thief = parties.node(0, 1, "disk-0")  # party 0's key with partition-id=1
        stranger = parties.node(3, 1, "disk-3")  # another key that is let in
        parties.until_said(f"node {ids[0]} is refused: it is the node of agent 0")
        parties.until_said(f"node {ids[3]} is refused: agent 1 is another owner's")
        stop(thief)

        parties.node(0, 0, "disk-0")  # the owner of agent 0 with its key,
        parties.node(4, 1, "disk-1")  # and that of agent 1 from another node, with its disk
        parties.until_round(3)
        assert stranger.poll() is None
        assert {r["asked"] for r in parties.rounds} <= {"1", "2", "3"}


def test_with_node_ids_the_first_to_come_is_not_always_right(tmp_path: Path) -> None:
    (tmp_path / "quick_task.py").write_text(TASK)
    with flower(tmp_path, quick=True) as running:
        parties = Parties(running)
        ids = parties.node_ids
        parties.node(0, 1, "disk-0")  # before party 1 has ever come
        parties.node(3, 0, "disk-3")
        parties.node(2, 2, "disk-2")
        parties.run(f"node-ids='{','.join(ids[:AGENTS])}'")
        parties.until_said(f"node {ids[0]} is refused: the node of agent 1 is {ids[1]}")
        parties.until_said(f"node {ids[3]} is refused: the node of agent 0 is {ids[0]}")
        parties.node(1, 1, "disk-1")
        parties.until_round(2)
