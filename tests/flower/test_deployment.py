"""A deployment between organisations: TLS, keys, and a node that dies in the middle of a run.

The example's own scripts are what is run here.
"""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from flwr_fbo.runs.history import read_evaluations
from tests.flower.processes import REPOSITORY, Flower, Link, flower, free_ports

EXAMPLE = REPOSITORY / "examples" / "deployment"

#: Seconds that a round may take here.
TIMEOUT = 45
#: Agent 0's evaluation that outlasts its round.
LONG = 4
#: Writes down when an evaluation begins and ends. The long one lasts until agent 1 has begun two
#: more: the second is of a later round, whatever the machine does in between.
SLOW_TASK = f"""
import os, time
from pathlib import Path
from flwr_fbo.core.space import Float
from flwr_fbo.tasks import task

def path(agent):
    return Path(os.environ["FLWR_FBO_HOME"]) / f"agent-{{agent}}.txt"

def begun(agent):
    return path(agent).read_text().count("begin")

def note(agent, word):
    with path(agent).open("a") as file:
        file.write(word + "\\n")

@task(space={{"x": Float(0.0, 1.0)}})
def slow(params, partition):
    note(partition.index, "begin")
    time.sleep(1.5)
    if partition.index == 0 and begun(0) == {LONG}:
        enough = begun(1) + 2
        while begun(1) < enough:
            time.sleep(0.2)
    note(partition.index, "end")
    return -(params["x"] - 0.3) ** 2
"""

pytestmark = [
    pytest.mark.slow(300),
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
    pytest.mark.skipif(
        not (shutil.which("openssl") and shutil.which("ssh-keygen")),
        reason="needs openssl and ssh-keygen to make keys",
    ),
]


def script(name: str) -> str:
    return str(EXAMPLE / name)


def start_node(running: Flower, link: int, port: int, party: int) -> subprocess.Popen[bytes]:
    address = f"127.0.0.1:{link}"
    limits = "answer-within='never'"
    # This checkout is submitted as it is; test_signed_apps.py has apps that are signed.
    return running.start(
        "/usr/bin/env", "UNSIGNED_APPS=1", script("supernode.sh"),
        "keys", address, str(party), "2", str(port), limits,
    )  # fmt: skip


def kill_child(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the SuperNode that a script keeps running."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)


def table(directory: Path) -> list[dict[str, str]]:
    path = directory / "rounds.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def notes(running: Flower, agent: int) -> Counter[str]:
    path = running.folder / "fbo" / f"agent-{agent}.txt"
    return Counter(path.read_text().split()) if path.exists() else Counter()


def test_tls_keys_a_killed_node_and_an_evaluation_that_outlasts_its_round(tmp_path: Path) -> None:
    link, *ports = free_ports(4)
    (tmp_path / "slow_task.py").write_text(SLOW_TASK)
    with flower(tmp_path, quick=True) as running:
        running.command(script("keys.sh"), "keys", "127.0.0.1", "3")
        running.start(script("superlink.sh"), "keys", str(link), "127.0.0.1", port=link)
        running.connect("dep", link, f'root-certificates = "{tmp_path}/keys/ca.crt"')
        running.command(script("register.sh"), "dep", "keys/node-0.key.pub", "keys/node-1.key.pub")
        stranger = start_node(running, link, ports[2], 2)
        nodes = [start_node(running, link, ports[party], party) for party in (0, 1)]
        refused = "Failed to activate SuperNode"
        running.until(lambda: running.log(stranger).count(refused) >= 2)
        assert stranger.poll() is None  # still trying
        stranger.terminate()  # each try takes as much processor time as two messages
        settings = "task='slow_task:slow' strategy='local-ts' agents=2 rounds=12 "
        settings += "settings='initial-points=2' "
        run = ("flwr", "run", str(REPOSITORY), "dep", "--run-config")
        running.command(*run, settings + f"timeout={TIMEOUT}.0")

        running.until(lambda: notes(running, 1)["begin"] >= 3)
        kill_child(nodes[1])  # in the middle of its evaluation of round 1
        running.until_finished(Link(tmp_path / "keys" / "superlink.db"))

        assert running.status("dep").startswith("finished:completed"), running.logs()
        (directory,) = running.run_directories()
        rounds = table(directory)
        assert [int(r["round"]) for r in rounds] == list(range(13))
        histories = read_evaluations(directory / "agents", 2)
        for agent, history in enumerate(histories):
            # What ended is in the journal, once: also what was under way when its node was
            # killed, and what ended when its round had been closed without it.
            keys = [(e.round, e.play) for e in history]
            assert len(keys) == len(set(keys))
            assert notes(running, agent)["end"] == notes(running, agent)["begin"] == len(history)
        assert any(e.round == 1 for e in histories[1])
        # Round 1 did without the node that was killed in it, and the round of agent 0's long
        # evaluation without agent 0: no reply came, or on a busy machine Flower's word for that.
        # (If both are missing, a round is asked again, and has the replies of the second time.)
        long = max(histories[0], key=lambda e: e.seconds).round
        without = [int(r["asked"]) - int(r["replied"]) for r in rounds]
        assert without[1] >= 1, rounds
        assert without[long] >= 1, (long, rounds)
        # The killed one is back: it was killed in round 1, and what evaluates later is another
        # process. Both answer again; on a busy machine not in every round.
        assert rounds[-1]["asked"] == "2"
        back = min(e.round for e in histories[1] if e.round > 2)
        assert any(r["replied"] == "2" for r in rounds[back:])


def test_a_superlink_that_is_killed_costs_no_evaluation(tmp_path: Path) -> None:
    """The run dies with its SuperLink; started again under its name, it goes on where it was."""
    link, *ports = free_ports(3)
    (tmp_path / "slow_task.py").write_text(SLOW_TASK.replace(f"== {LONG}", "== -1"))
    with flower(tmp_path, quick=True) as running:
        running.command(script("keys.sh"), "keys", "127.0.0.1", "2")
        superlink = (script("superlink.sh"), "keys", str(link), "127.0.0.1")
        first = running.start(*superlink, port=link)
        running.connect("dep", link, f'root-certificates = "{tmp_path}/keys/ca.crt"')
        running.command(script("register.sh"), "dep", "keys/node-0.key.pub", "keys/node-1.key.pub")
        for party in (0, 1):
            start_node(running, link, ports[party], party)
        settings = "task='slow_task:slow' strategy='local-ts' agents=2 rounds=3 "
        settings += "settings='initial-points=2' "
        run = ("flwr", "run", str(REPOSITORY), "dep", "--run-config")
        settings += "timeout=120.0 run-name='together'"  # no round ends before its replies
        running.command(*run, settings)

        directory = tmp_path / "fbo" / "runs" / "together"
        running.until(lambda: len(table(directory)) >= 2)
        first.kill()
        first.wait()
        running.start(*superlink, port=link)
        running.command(*run, settings)
        running.until(lambda: [r["round"] for r in table(directory)][-1:] == ["3"])

        assert sorted({int(r["round"]) for r in table(directory)}) == [0, 1, 2, 3]
        for agent, history in enumerate(read_evaluations(directory / "agents", 2)):
            keys = [(e.round, e.play) for e in history]
            assert len(keys) == len(set(keys))
            assert notes(running, agent)["end"] == notes(running, agent)["begin"] == len(history)
