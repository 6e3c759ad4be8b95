"""Secure sums between four SuperNodes with authentication, of which one dies in each leg.

The test looks into the SuperLink's database instead of asking with Flower's commands: these start
a process each, and would take the processor from the nodes that are waited for. A SuperLink counts
a dead node as online for another minute, and refuses its key meanwhile; the test lets this minute
pass at once (:meth:`~tests.flower.processes.Link.forget`).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flwr_fbo.privacy.releases import Release
from flwr_fbo.privacy.secure.party import LEGS
from flwr_fbo.runs.files.directory import RunDirectory
from tests.flower.processes import REPOSITORY, Flower, Link, flower, free_ports

EXAMPLE = REPOSITORY / "examples" / "deployment"
NODES = 4
#: Seconds that a round may take, and so a leg without all replies.
TIMEOUT = 60
#: Settings of a run with one release.
DP = "epsilon=20 releases=0 features=20"
#: In the process of the victim, one leg says that it has begun and never ends: the test then kills
#: the SuperNode, and the process ends with it.
TASK = """
import os, time
from pathlib import Path
from flwr_fbo.core.space import Float
from flwr_fbo.privacy.secure.party import LEGS, Party
from flwr_fbo.tasks import task

HOME = Path(os.environ["FLWR_FBO_HOME"])

def dying(leg):
    real = getattr(Party, leg)

    def answer(self, *arguments):
        order, parent = HOME / "die.txt", os.getppid()
        if os.environ.get("FBO_VICTIM") and order.exists() and order.read_text() == leg:
            order.unlink()
            while os.getppid() == parent:
                time.sleep(0.1)
            os._exit(1)
        return real(self, *arguments)

    setattr(Party, leg, answer)

for name in LEGS:
    dying(name)

@task(space={"x": Float(0.0, 1.0)}, score_range=(-1.0, 0.0))
def hill(params):
    return -(params["x"] - 0.3) ** 2
"""

pytestmark = [
    pytest.mark.slow(700),
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.skipif(
        not (shutil.which("openssl") and shutil.which("ssh-keygen")),
        reason="needs openssl and ssh-keygen to make keys",
    ),
]


def start_node(running: Flower, link: int, party: int, port: int, key: int, *variables: str):
    keys = running.folder / "keys"
    pinned = f"secure-key='{keys}/node-{key}.key' secure-peers='{keys}/peers.pub'"
    # This checkout is submitted as it is, without a signature.
    return running.start(
        "/usr/bin/env", "UNSIGNED_APPS=1", *variables,
        str(EXAMPLE / "supernode.sh"), "keys", f"127.0.0.1:{link}",
        str(party), str(NODES), str(port), pinned,
    )  # fmt: skip


def child(process: subprocess.Popen[bytes]) -> int:
    """The SuperNode that a script keeps running."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0])


@dataclass
class Deployment:
    """Four SuperNodes; the last one is the victim."""

    running: Flower
    link: Link
    runs: int = 0

    @property
    def home(self) -> Path:
        return self.running.folder / "fbo"

    def await_nodes(self) -> None:
        self.running.until(lambda: len(self.link.online()) == NODES, 400)

    def submit(self, name: str, settings: str = DP, strategy: str = "dp-fts-de") -> None:
        self.runs += 1
        given = f"task='dying:hill' strategy='{strategy}' agents={NODES} rounds=1 "
        given += f"timeout={TIMEOUT}.0 run-name='{name}' settings='aggregation=secure {settings}'"
        self.running.command("flwr", "run", str(REPOSITORY), "dep", "--run-config", given)

    def await_end(self) -> None:
        self.running.until_finished(self.link, self.runs)
        assert self.running.status("dep").startswith("finished:completed"), self.running.logs()

    def outcome(self, name: str) -> tuple[list[Release], int, dict[str, Any]]:
        """The releases of a run, the number of its charges, and its privacy statement."""
        directory = RunDirectory(self.home / "runs" / name)
        charges = len(directory.ledger.read_text().splitlines()) - 1  # but for the header
        statement = json.loads((directory.root / "privacy.json").read_text())
        return list(directory.releases.read()), charges, statement


def test_one_of_four_dies_in_each_leg_and_swapped_keys_are_refused(tmp_path: Path) -> None:
    port, *ports = free_ports(NODES + 1)
    (tmp_path / "dying.py").write_text(TASK)
    with flower(tmp_path, quick=True) as running:
        running.command(str(EXAMPLE / "keys.sh"), "keys", "127.0.0.1", str(NODES + 1))
        keys = [f"keys/node-{i}.key.pub" for i in range(NODES)]
        peers = "".join((tmp_path / key).read_text() for key in keys)
        (tmp_path / "keys" / "peers.pub").write_text(peers)
        running.start(str(EXAMPLE / "superlink.sh"), "keys", str(port), "127.0.0.1", port=port)
        running.connect("dep", port, f'root-certificates = "{tmp_path}/keys/ca.crt"')
        running.command(str(EXAMPLE / "register.sh"), "dep", *keys)
        made = Deployment(running, Link(tmp_path / "keys" / "superlink.db"))
        made.home.mkdir()
        for party in range(NODES - 1):
            start_node(running, port, party, ports[party], party)
        running.until(lambda: len(made.link.online()) == NODES - 1, 400)
        others = made.link.online()
        last = NODES - 1
        victim = start_node(running, port, last, ports[last], last, "FBO_VICTIM=1")
        made.await_nodes()
        (place,) = made.link.online() - others

        deviations = [deviation_where_one_dies(made, leg, victim, place) for leg in LEGS]
        # Who died before its masked vector left is not in the sum, and its noise neither.
        ratio = math.sqrt(3 / 4)
        assert deviations[0] == deviations[1] == deviations[2]
        assert deviations[3] == deviations[4]
        assert deviations[0] == pytest.approx(ratio * deviations[3])

        check_fed_pne(made)
        check_voting(made)

        # The server, or whoever holds another key, speaks in the place of the last party.
        victim.terminate()
        victim.wait(300)
        running.until(lambda: len(made.link.online()) < NODES, 400)
        start_node(running, port, last, ports[last], NODES, "SWAPPED=1")
        # The SuperNode authenticates as before; what it signs its masks' keys with is another key.
        made.await_nodes()
        made.submit("swapped")
        made.await_end()
        releases, charges, _ = made.outcome("swapped")
        assert (releases, charges) == ([], 0)
        assert "the server may have swapped keys" in running.logs()


def deviation_where_one_dies(
    made: Deployment, leg: str, victim: subprocess.Popen[bytes], place: int
) -> float:
    """The deviation of the noise of a release during whose leg the victim is killed."""
    order = made.home / "die.txt"
    made.await_nodes()
    order.write_text(leg)
    made.submit(leg)
    made.running.until(lambda: not order.exists(), 400)
    os.kill(child(victim), signal.SIGKILL)
    made.link.forget(place)
    made.await_end()
    (release,), charges, privacy = made.outcome(leg)
    assert charges == 1
    assert privacy["trust"] == "secure-sum"
    assert privacy["secure_sum"]["threshold"] == 3
    return float(release.deviation)


def check_fed_pne(made: Deployment) -> None:
    """Every phase of Fed-PNE is one sum, which is charged to the server's ledger."""
    made.await_nodes()
    made.submit("phases", "epsilon=20 budget=2 most-means=2", "fed-pne")
    made.await_end()
    _, charges, privacy = made.outcome("phases")
    result = json.loads((made.home / "runs" / "phases" / "result.json").read_text())
    assert charges == result["findings"]["phases"] >= 1
    assert privacy["trust"] == "secure-sum"
    assert privacy["unit"] == "party"
    assert 0 < privacy["spent"] <= 20


def check_voting(made: Deployment) -> None:
    """All parties' votes are counted, in one sum with the noise of all four."""
    made.submit("votes", "epsilon=200 budget=4 votes=1 batch=4", "voting")
    made.await_end()
    (release,), charges, privacy = made.outcome("votes")
    assert charges == 1
    assert release.vector.shape == (1, 4)
    assert release.vector.sum() == pytest.approx(NODES, abs=10.0 * release.deviation)
    assert privacy["trust"] == "secure-sum"
    assert privacy["secure_sum"]["excess_noise"] == pytest.approx(math.sqrt(4 / 2))
