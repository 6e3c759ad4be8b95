"""What secure sums cost in utility: the same epsilon with a trusted server and with shared noise.

    python -m benchmarks.secure_utility [--task landmine] [--agents 29] [--evaluations 15]
                                        [--epsilon 4] [--seeds 6]

Prints the mean of the agents' best scores after some evaluations, its spread over seeds, and the
deviation of the noise in each released number. With "a third lost" another random third of the
agents drops out of every sum. Sums are drawn without masks, which gives the same sums bit for bit
(tests/privacy/test_secure_sum.py).
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.federations import Problem, curve, server_for
from flwr_fbo.core.protocol import Request
from flwr_fbo.methods.dp_fts_de.server import DPFTSDEServer
from flwr_fbo.methods.thompson.agent import ThompsonAgent
from flwr_fbo.privacy.entropy import system_entropy
from flwr_fbo.privacy.mechanisms import clip_rows

SHOWN = (3, 5, 10, 15)


def release(server: DPFTSDEServer, agents: list[ThompsonAgent], alive: list[int]) -> None:
    """Draw the open sum without masks."""
    opened, aggregation, budget = server._sum, server.aggregation, server.budget
    assert opened is not None
    assert budget is not None
    round, share = opened.terms.release, opened.noise
    weights, bound = aggregation.weights(round), aggregation.bound
    assert bound is not None
    expects = {"omega": (server.settings.vector_length,)}
    total = np.zeros(opened.terms.length, dtype=np.int64)
    for n in alive:
        omega = agents[n].share(Request("share", round, expects=expects)).arrays["omega"]
        vector = (weights[:, n, None] * clip_rows(omega, bound)[0][None, :]).ravel()
        total += share.contribution(vector, system_entropy())
    budget.charge(aggregation.event(round))
    server._sum = None
    released = share.lattice.values(total).reshape(len(weights), -1)
    server._remember(released, share.deviation(len(alive)), round)


def run(
    problem: Problem, evaluations: int, seed: int, epsilon: float, secure: bool, lost: float
) -> tuple[np.ndarray, float]:
    """Return the mean curve of a federation, and the deviation of its noise."""
    aggregation = "secure" if secure else "central"
    given = {"epsilon": epsilon, "aggregation": aggregation}
    server = server_for(problem, "dp-fts-de", evaluations, seed, given)
    assert isinstance(server, DPFTSDEServer)
    pairs = [problem.agent(server.setup(), n, seed) for n in range(problem.agents)]
    agents = [agent for agent, _ in pairs]
    rng = np.random.default_rng([seed, 9])
    while not server.finished:
        requests = server.requests(range(problem.agents))
        server.close({n: agents[n].answer(r) for n, r in requests.items()})
        if server.legs_left:
            kept = problem.agents - int(lost * problem.agents)
            alive = rng.permutation(problem.agents)[:kept]
            release(server, agents, [int(n) for n in alive])
    curves = np.stack([curve(evaluator, evaluations) for _, evaluator in pairs])
    return curves.mean(axis=0), server.released.releases[-1].deviation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--task", default="landmine")
    parser.add_argument("--agents", type=int, default=29)
    parser.add_argument("--evaluations", type=int, default=15)
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--seeds", type=int, default=6)
    given = parser.parse_args()
    shown = [t for t in SHOWN if t <= given.evaluations]
    print(f"| {given.task}, N = {given.agents}, epsilon {given.epsilon:g} | noise | "
          + " | ".join(f"after {t}" for t in shown) + " |")  # fmt: skip
    print("|---|---|" + "---|" * len(shown))
    for name, secure, lost in (
        ("trusted server", False, 0.0),
        ("secure sum, all alive", True, 0.0),
        ("secure sum, a third lost", True, 1 / 3),
    ):
        curves, noise = [], 0.0
        for seed in range(200, 200 + given.seeds):
            problem = Problem(given.task, given.agents, seed)
            found, noise = run(problem, given.evaluations, seed, given.epsilon, secure, lost)
            curves.append(found)
        values = np.stack(curves)
        cells = [f"{values[:, t - 1].mean():.4f} ± {values[:, t - 1].std():.4f}" for t in shown]
        print(f"| {name} | {noise:.3f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
