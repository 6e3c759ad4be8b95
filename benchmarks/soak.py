"""Kill a deployment thirty times at random, and see that nothing is lost, repeated or uncharged.

    python benchmarks/soak.py [--kills 30] [--seed N] [--rounds 40] [--minutes 45] [--folder F]

Three SuperNodes with TLS and keys, kept by the example's own scripts, run `dp-fts-de` with an
epsilon on loopback. SIGKILL meets SuperLink, ServerApp, SuperNodes and ClientApps, in an order and
at times that the seed decides. What an operator does is done here too, and nothing else: a
SuperLink that is gone is started again, and a run that is gone is started again under its name.

Afterwards these things must hold:

1. the run ended by itself, with a result;
2. every evaluation that was begun is in the journal once: with its score if it ended, as failed if
   its process was killed in the middle; one whose process was stopped by a signal is made again;
3. no evaluation that ended was made again;
4. the ledger has a charge for every release that was drawn, and none besides, but for kills
   between a charge and its noise.

Prints a table, and exits with 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from flwr_fbo.runs.files.journal import Journal, journal_path
from tests.flower.processes import BIN, REPOSITORY, Flower, flower, free_ports

EXAMPLE = REPOSITORY / "examples" / "deployment"
PARTIES = 3
KINDS = ("ClientApp", "ServerApp", "SuperNode", "SuperLink")
#: Seconds from an evaluation that begins after a kill to the next kill.
PAUSES = (0.0, 15.0)
#: Seconds after which a kill no longer waits for an evaluation to begin.
PATIENCE = 90.0
#: Imported by the parties and by the server: evaluations and releases say that they happened.
TASK = """
import os, random, sys, time
from pathlib import Path
from flwr_fbo.core.space import Float
from flwr_fbo.tasks import task

def note(file, words):
    path = Path(os.environ["FLWR_FBO_HOME"]) / file
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, (words + "\\n").encode())
    os.close(descriptor)

@task(space={"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
def slow(params, partition):
    point = f"{params['x']!r} {params['y']!r}"
    note(f"party-{partition.index}.txt", "begin " + point)
    time.sleep(random.uniform(3.0, 9.0))
    note(f"party-{partition.index}.txt", "end " + point)
    return 1.0 - (params["x"] - 0.3) ** 2 - (params["y"] - 0.1 * partition.index) ** 2

if Path(sys.argv[0]).name == "flwr-serverapp":
    from flwr_fbo.privacy import mechanisms
    plain = mechanisms.GaussianSum.release

    def release(*given, **named):
        drawn = plain(*given, **named)
        note("releases.txt", "drawn")
        return drawn

    mechanisms.GaussianSum.release = release
"""


@dataclass
class Soak:
    """One deployment, its processes and what was done to them."""

    running: Flower
    link: int
    settings: str
    scripts: list[subprocess.Popen[bytes]] = field(default_factory=list)
    superlink: subprocess.Popen[bytes] | None = None
    kills: Counter[str] = field(default_factory=Counter)
    restarts: Counter[str] = field(default_factory=Counter)
    started_run: float = -1e9

    @property
    def home(self) -> Path:
        return self.running.folder / "fbo"

    @property
    def run(self) -> Path:
        return self.home / "runs" / "soak"

    @property
    def ended(self) -> bool:
        return (self.run / "result.json").exists()

    @property
    def begun(self) -> int:
        """How many evaluations have begun."""
        return sum(_begun(self, party) for party in range(PARTIES))

    def start_superlink(self) -> None:
        self.superlink = self.running.start(
            str(EXAMPLE / "superlink.sh"), "keys", str(self.link), "127.0.0.1", port=self.link
        )

    def start_run(self) -> None:
        """Send the run off; the command is tried again if the SuperLink dies meanwhile."""
        self.started_run = time.monotonic()
        self.restarts["run"] += 1
        subprocess.run(
            [str(BIN / "flwr"), "run", str(REPOSITORY), "dep", "--run-config", self.settings],
            capture_output=True, env=self.running.environment, cwd=self.running.folder,
            timeout=300, check=False,
        )  # fmt: skip

    def keep(self) -> None:
        """Do what an operator does: start again what is gone."""
        assert self.superlink is not None
        if self.superlink.poll() is not None:
            self.restarts["SuperLink"] += 1
            self.start_superlink()
        gone = not processes_below(self.superlink.pid, "flwr-serverapp")
        # A run takes a while from its command to its process.
        if gone and not self.ended and time.monotonic() - self.started_run > 20.0:
            self.start_run()

    def targets(self, kind: str) -> list[int]:
        """The processes of a kind that are alive."""
        assert self.superlink is not None
        if kind == "SuperLink":
            return [self.superlink.pid] if self.superlink.poll() is None else []
        if kind == "ServerApp":
            return processes_below(self.superlink.pid, "flwr-serverapp")
        name = "flower-supernode" if kind == "SuperNode" else "flwr-clientapp"
        return [pid for script in self.scripts for pid in processes_below(script.pid, name)]

    def kill(self, kind: str, rng: random.Random, seconds: float = 120.0) -> bool:
        """Kill a process of a kind, as soon as there is one; say whether there was one."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.ended:
            found = self.targets(kind)
            if found:
                os.kill(rng.choice(found), signal.SIGKILL)
                self.kills[kind] += 1
                return True
            self.keep()
            time.sleep(0.2)
        return False


def processes_below(root: int, name: str) -> list[int]:
    """The living processes below another one whose program has this name."""
    listing = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,stat=,args="],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split(None, 3) for line in listing.stdout.splitlines()]
    parents = {int(row[0]): int(row[1]) for row in rows}

    def is_below(pid: int) -> bool:
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root

    return [
        int(row[0])
        for row in rows
        if len(row) == 4
        and not row[2].startswith("Z")
        and any(Path(word).name == name for word in row[3].split()[:3])
        and is_below(int(row[0]))
    ]


def disturb(soak: Soak, kills: int, rng: random.Random, deadline: float) -> None:
    """Kill so many processes, as many of each kind as can be, in a random order."""
    kinds = [KINDS[i % len(KINDS)] for i in range(kills)]
    rng.shuffle(kinds)
    for kind in kinds:
        # The run is at work again before the next kill, or a kill hits nothing but starts.
        before, until = soak.begun, time.monotonic() + PATIENCE
        while soak.begun == before and time.monotonic() < until:
            soak.keep()
            time.sleep(0.5)
        until = time.monotonic() + rng.uniform(*PAUSES)
        while time.monotonic() < until:
            soak.keep()
            time.sleep(0.5)
        for other in (kind, *rng.sample(KINDS, len(KINDS))):
            if soak.ended or time.monotonic() > deadline or soak.kill(other, rng):
                break
        done = sum(soak.kills.values())
        print(f"{done} kills, last {kind}; {len(rows(soak.run))} rounds closed", flush=True)


def rows(run: Path) -> list[str]:
    path = run / "rounds.csv"
    return path.read_text().splitlines()[1:] if path.exists() else []


def check(soak: Soak) -> tuple[dict[str, Any], list[str]]:
    """What was measured, and what did not hold."""
    faults: list[str] = []
    totals: Counter[str] = Counter()
    for party in range(PARTIES):
        found, wrong = _check_party(soak, party)
        totals += found
        faults += [f"party {party}: {text}" for text in wrong]
    ledger = soak.run / "ledger.jsonl"
    drawn = _lines(soak.home / "releases.txt").count("drawn")
    charged = ledger.read_text().count('"event"') if ledger.exists() else 0
    if not drawn <= charged <= drawn + soak.kills["ServerApp"] + soak.kills["SuperLink"]:
        faults.append(f"{drawn} releases were drawn, {charged} are charged")
    result = json.loads((soak.run / "result.json").read_text()) if soak.ended else {}
    if not result:
        faults.append("the run did not end by itself")
    found = {
        **{f"killed: {kind}": soak.kills[kind] for kind in KINDS},
        "SuperLink started again": soak.restarts["SuperLink"],
        "run started under its name": soak.restarts["run"],
        **{name: totals[name] for name in (
            "begun", "ended", "recorded with a score", "recorded as failed",
            "interrupted and made again", "lost", "repeated",
        )},
        "releases drawn": drawn,
        "releases charged": charged,
        "rounds": len({row.split(",")[0] for row in rows(soak.run)}),
        "replies that came": result.get("answered"),
        "complete": result.get("complete"),
        "epsilon spent": result.get("privacy", {}).get("spent"),
    }  # fmt: skip
    return found, faults


def _check_party(soak: Soak, party: int) -> tuple[Counter[str], list[str]]:
    """Compare a party's journal with what its objective wrote down."""
    journal = Journal(journal_path(soak.run / "agents", party), reading=True)
    made = journal.read("evaluation")
    ended = [line.split()[1:] for line in _lines(_notes(soak, party)) if line.startswith("end")]
    begun = _begun(soak, party)
    scored = [e for e in made if e["score"] is not None]
    keys = Counter((e["round"], e["play"]) for e in made)
    starts = Counter((b["round"], b["play"]) for b in journal.read("begun"))
    interrupted = Counter((b["round"], b["play"]) for b in journal.read("interrupted"))
    points = {(repr(e["params"]["x"]), repr(e["params"]["y"])) for e in scored}
    lost = sum(tuple(point) not in points for point in ended)
    again = len(ended) - len({tuple(point) for point in ended})
    repeated = again + sum(count - 1 for count in keys.values())
    faults = []
    if lost or repeated:
        faults.append(f"{lost} evaluations lost, {repeated} repeated")
    unfinished = [k for k in starts if k not in keys and starts[k] > interrupted[k]]
    # The last evaluation of a party may have been under way when the run ended.
    if len(unfinished) > 1:
        faults.append(f"begun and neither recorded nor failed: {unfinished}")
    found = Counter({
        "begun": begun, "ended": len(ended), "recorded with a score": len(scored),
        "recorded as failed": len(made) - len(scored), "lost": lost, "repeated": repeated,
        "interrupted and made again": sum((starts - Counter(set(starts))).values()),
    })  # fmt: skip
    return found, faults


def _begun(soak: Soak, party: int) -> int:
    return sum(line.startswith("begin") for line in _lines(_notes(soak, party)))


def _notes(soak: Soak, party: int) -> Path:
    return soak.home / f"party-{party}.txt"


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def soak_once(folder: Path, kills: int, rounds: int, seed: int, minutes: float) -> bool:
    rng, started = random.Random(seed), time.monotonic()
    os.environ["UNSIGNED_APPS"] = "1"  # what is signed and by whom makes no difference here
    deadline = started + 60.0 * minutes
    (folder / "soak_task.py").write_text(TASK)
    link, *ports = free_ports(1 + PARTIES)
    settings = (
        f"task='soak_task:slow' strategy='dp-fts-de' agents={PARTIES} rounds={rounds} "
        "settings='epsilon=8 initial-points=2 regions=1' timeout=40.0 run-name='soak'"
    )
    with flower(folder) as running:
        soak = Soak(running, link, settings)
        soak.home.mkdir()
        running.command(str(EXAMPLE / "keys.sh"), "keys", "127.0.0.1", str(PARTIES))
        soak.start_superlink()
        running.connect("dep", link, f'root-certificates = "{folder}/keys/ca.crt"')
        keys = [f"keys/node-{n}.key.pub" for n in range(PARTIES)]
        running.command(str(EXAMPLE / "register.sh"), "dep", *keys)
        for party, port in enumerate(ports):
            soak.scripts.append(running.start(
                str(EXAMPLE / "supernode.sh"), "keys", f"127.0.0.1:{link}", str(party),
                str(PARTIES), str(port),
            ))  # fmt: skip
        soak.start_run()
        while not rows(soak.run) and time.monotonic() < deadline:
            soak.keep()
            time.sleep(0.5)
        disturb(soak, kills, rng, deadline)
        while not soak.ended and time.monotonic() < deadline:
            soak.keep()
            time.sleep(0.5)
        watchdogs = sum("answers nothing; ending it" in running.log(s) for s in soak.scripts)
    time.sleep(5.0)  # evaluations that were under way are over
    found, faults = check(soak)
    found["nodes ended by their watchdog"] = watchdogs
    if sum(soak.kills.values()) < kills:
        faults.append(f"only {sum(soak.kills.values())} of {kills} kills: more rounds are needed")
    report(found, faults, seed, (time.monotonic() - started) / 60)
    return not faults


def report(found: dict[str, Any], faults: list[str], seed: int, minutes: float) -> None:
    print(f"\nseed {seed}, {minutes:.0f} minutes\n\n| what | count |\n| --- | ---: |")
    for name, value in found.items():
        shown = f"{value:.3g}" if isinstance(value, float) else value
        print(f"| {re.sub('^killed: ', 'killed by SIGKILL: ', name)} | {shown} |")
    for fault in faults:
        print(f"FAILED: {fault}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=None, help="where unset, a random one")
    parser.add_argument("--minutes", type=float, default=45.0, help="the most that it may take")
    parser.add_argument("--folder", type=Path, help="where its files stay; where unset, nowhere")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    folder = given.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    well = False
    try:
        well = soak_once(folder.absolute(), given.kills, given.rounds, seed, given.minutes)
    finally:
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
