"""What becomes of a message whose evaluation takes 100 seconds, by how it spends them.

    python benchmarks/heartbeats.py [sleeps] [holds]

A deployment on loopback, one agent, `timeout` 150 s. `sleeps` lets Python's other threads run;
`holds` does not, as a long call into C code may not. Prints how the round ended, and what the
agent's journal holds once there is something in it, or three minutes after the run was sent off.
About five minutes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.flower.processes import REPOSITORY, flower, free_ports

TASKS = """
import ctypes, time
from flwr_fbo.core.space import Float
from flwr_fbo.tasks import task

@task(space={"x": Float(0.0, 1.0)})
def holds(params):
    ctypes.PyDLL(None).sleep(100)
    return params["x"]

@task(space={"x": Float(0.0, 1.0)})
def sleeps(params):
    time.sleep(100)
    return params["x"]
"""


#: Seconds after which nothing more is expected of an evaluation of 100 s.
LATEST = 180.0


def recorded(journal: Path, deadline: float) -> str:
    """What a journal holds, as soon as it holds anything or it is too late."""
    while not (text := journal.read_text() if journal.exists() else ""):
        if time.monotonic() >= deadline:
            return "nothing was recorded"
        time.sleep(1)
    return text


def main() -> None:
    names = sys.argv[1:] or ["sleeps", "holds"]
    folder = Path(tempfile.mkdtemp())
    (folder / "long_tasks.py").write_text(TASKS)
    link, port = free_ports(2)
    with flower(folder) as running:
        running.superlink(link)
        running.supernode(link, port, "partition-id=0 num-partitions=1")
        for name in names:
            settings = (
                f"task='long_tasks:{name}' strategy='local-ts' agents=1 rounds=0 "
                f"timeout=150.0 run-name='{name}' settings='initial-points=1'"
            )
            started = time.monotonic()
            running.command("flwr", "run", str(REPOSITORY), "dep", "--run-config", settings)
            while not running.status("dep").startswith("finished"):
                time.sleep(2)
            run = folder / "fbo" / "runs" / name
            print(name, (run / "rounds.csv").read_text().splitlines()[-1], flush=True)
            found = recorded(run / "agents" / "agent-0000.jsonl", started + LATEST)
            print(
                f"  {time.monotonic() - started:.0f} s after it was sent off: {found}", flush=True
            )


if __name__ == "__main__":
    main()
