"""What a secure sum costs: messages, bytes and CPU time of a party and of the server.

    python -m benchmarks.secure_sum                  # N = 10, 30, 100, 300, 1000
    python -m benchmarks.secure_sum --agents 10 30

One release of a vector of 202 numbers, as with the default settings of dp-fts-de, with all agents
alive and with a third lost before they send their masked vectors. Bytes are those of arrays. Every
agent's state is turned into JSON after each leg, as a file would hold it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.secure_sum import PLAN, SecureAnswers, SecurePlan, SecureSum
from flwr_fbo.privacy.secure.collector import new_nonce
from flwr_fbo.privacy.secure.graph import degree
from flwr_fbo.privacy.secure.party import LEGS
from flwr_fbo.privacy.secure.terms import default_threshold

LENGTH = 202


class Memory:
    """A store that keeps a state as JSON text."""

    def __init__(self) -> None:
        self.text = ""

    def load(self) -> dict[str, Any] | None:
        return json.loads(self.text) if self.text else None

    def save(self, state: Mapping[str, Any]) -> None:
        self.text = json.dumps(state)


def size(message: Request | Reply) -> int:
    arrays = [*message.arrays.values(), *message.words.values()]
    return sum(a.nbytes for a in arrays)


def measure(agents: int, lost: int) -> dict[str, float]:
    """Run one sum, and return its cost."""
    plan = SecurePlan(agents, default_threshold(agents, 1), 1, 2.0, 1)
    setup = Setup("thompson", Space({"x": Float(0.0, 1.0)}), {}, {PLAN: plan.to_array()})
    one = SecureSum(
        plan.terms(setup.digest, 0, new_nonce(), LENGTH, 2.0),
        lambda n: ({}, {"weights": np.ones(1) / agents}),
    )
    stores = [Memory() for _ in range(agents)]
    vector = np.zeros(LENGTH)
    party = server = 0.0
    sent = received = 0
    total = None
    for leg in LEGS:
        began = time.process_time()
        requests = one.requests(range(agents))
        server += time.process_time() - began
        gone = set(range(lost)) if leg == "masked" else set()
        replies = {}
        for n, request in requests.items():
            if n in gone:
                continue
            began = time.process_time()
            owner = Owner(f"agent {n}")
            replies[n] = SecureAnswers(setup, lambda r: vector, stores[n], owner).answer(request)
            party += time.process_time() - began
            sent, received = sent + size(replies[n]), received + size(request)
        began = time.process_time()
        total = one.close(replies)
        server += time.process_time() - began
    assert total is not None
    near = degree(agents, plan.threshold, 1)
    return {
        "neighbours": near.neighbours,
        "sent": sent / agents,
        "received": received / agents,
        "party": 1000.0 * party / agents,
        "server": server,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, nargs="+", default=[10, 30, 100, 300, 1000])
    measure(5, 0)  # imports and caches
    print(
        "| N | neighbours | lost | kB sent | kB received | CPU ms a party | CPU s of the server |"
    )
    print("|---|---|---|---|---|---|---|")
    print(f"| any, plain | - | - | {LENGTH * 8 / 1000:.1f} | 0.0 | - | - |")
    for agents in parser.parse_args().agents:
        for lost in (0, agents - default_threshold(agents, 1)):
            m = measure(agents, lost)
            print(
                f"| {agents} | {m['neighbours']:.0f} | {lost} | {m['sent'] / 1000:.1f} | "
                f"{m['received'] / 1000:.1f} | {m['party']:.1f} | {m['server']:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
