"""Fed-PNE, measured: the paper's functions, its theory's shape, privacy, and its comparators.

    python benchmarks/fed_pne.py figures|scaling|rounds|privacy|secure|smoothness|comparators|all

Prints tables in Markdown. One process, one thread; `all` takes about half an hour, of which the
comparators are most. HCT and Optuna need the extra `benchmarks`.

Agents here evaluate a whole phase at once: the same agent, with its rewards vectorised.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.protocol import Reply
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Float, Space
from flwr_fbo.methods.fed_pne.agent import FedPNEAgent
from flwr_fbo.methods.fed_pne.report import summarise
from flwr_fbo.methods.fed_pne.search import NodeElimination
from flwr_fbo.methods.fed_pne.server import FedPNEServer
from flwr_fbo.methods.fed_pne.settings import Confidence, FedPNESettings
from flwr_fbo.methods.method import RunParameters
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.registry import find_method
from flwr_fbo.privacy.entropy import seeded_entropy
from flwr_fbo.privacy.secure.noise_share import NoiseShare
from flwr_fbo.search.box_tree import BoxTree
from flwr_fbo.tasks.papers.garland import DoubleSineTask, GarlandTask, RoughTask
from flwr_fbo.tasks.task import Partition

LINE = Space({"x": Float(0.0, 1.0)})
TASKS: tuple[type[RoughTask], ...] = (GarlandTask, DoubleSineTask)
#: Regret per agent at T = 1000 of an independent implementation, and of PyXAB's HCT.
PUBLISHED = {
    ("GarlandTask", 10): 151.5,
    ("GarlandTask", 50): 121.0,
    ("GarlandTask", 100): 104.9,
    ("DoubleSineTask", 10): 81.7,
    ("DoubleSineTask", 50): 38.7,
    ("DoubleSineTask", 100): 34.4,
}


class WholePhases(FedPNEAgent):
    """The agent, but for evaluating all pulls of a phase in one call."""

    def __init__(self, server: Any, task: RoughTask, number: int, seed: int) -> None:
        records = MemoryRecords()
        evaluator = Evaluator(server.space, lambda params, rng: 0.0, records)
        super().__init__(
            server.setup(),
            evaluator,
            records,
            (seed, number),
            entropy=seeded_entropy(10_000 * seed + number),
        )
        self.task, self.rng, self.regret = task, np.random.default_rng([seed, number]), 0.0
        self.trace: list[float] = []
        self.means = np.zeros(0)

    def _rewards(self, phase: int, points: Array, counts: Indices) -> Array:
        points = np.repeat(points, counts, axis=0)
        regret = self.task.optimum() - self.task.function(points[:, 0])
        self.regret += float(regret.sum())
        self.trace.append(self.regret)
        scores = self.task.scores(points[:, 0], self.rng)
        low, high = self.settings.reward_low, self.settings.reward_high
        return (scores - low) / (high - low)


def tasks_of(kind: type[RoughTask], agents: int, seed: int, **settings: float) -> list[RoughTask]:
    tasks = [kind(kind.settings_class(**settings)) for _ in range(agents)]
    for number, task in enumerate(tasks):
        task.prepare(Partition(number, agents, seed))
    return tasks


def run(server: Any, tasks: list[RoughTask], seed: int) -> tuple[float, Any]:
    """Mean cumulative regret of an agent, and the server as it ended."""
    agents = [WholePhases(server, task, n, seed) for n, task in enumerate(tasks)]
    while not server.finished:
        asked = server.requests(range(server.agents))
        server.close({n: agents[n].answer(request) for n, request in asked.items()})
    return float(np.mean([agent.regret for agent in agents])), server


def fed_pne(
    kind: type[RoughTask], agents: int, seed: int, task: dict[str, float], **values: Any
) -> tuple[float, FedPNEServer]:
    server = FedPNEServer(LINE, agents, FedPNESettings(**values), seed)
    return run(server, tasks_of(kind, agents, seed, **task), seed)


def spread(values: list[float]) -> str:
    return f"{np.mean(values):.1f} ± {np.std(values):.1f}"


def table(head: str, *rows: tuple[Any, ...]) -> None:
    names = head.split("|")
    print("\n| " + " | ".join(name.strip() for name in names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |", flush=True)


def figures() -> None:
    """Regret per agent at T = 1000 over ten runs, beside an independent implementation."""
    print("\n## Garland and DoubleSine, T = 1000, ten runs")
    rows = []
    for kind in TASKS:
        for agents in (10, 50, 100):
            variants = {}
            for name, values in {
                "default": {},
                "in order": {"last_phase": "in-order"},
                "literal": {"depth_reading": "literal", "last_phase": "in-order"},
            }.items():
                runs = [fed_pne(kind, agents, seed, {}, **values) for seed in range(10)]
                variants[name] = runs
            rounds = [server.round for _, server in variants["default"]]
            sent = [float(server.sent.mean()) for _, server in variants["default"]]
            rows.append(
                (
                    kind.__name__.removesuffix("Task"),
                    agents,
                    *(spread([regret for regret, _ in runs]) for runs in variants.values()),
                    PUBLISHED[kind.__name__, agents],
                    f"{min(rounds)}-{max(rounds)}",
                    f"{min(sent):.0f}-{max(sent):.0f}",
                )
            )
    table(
        "function | M | regret | last phase in order | literal h, in order | independent reading "
        "| rounds | numbers sent",
        *rows,
    )
    print("\nA third of the agents away in every round, at random, M = 50. Where all answer, what")
    print("differs between agents cancels in the means; here it does not.")
    rows = []
    for label, task in (
        ("offsets N(0, 1)", {}),
        ("perturbation .3", {"client_offset": 0.0, "perturbation": 0.3}),
        ("perturbation 1", {"client_offset": 0.0, "perturbation": 1.0}),
    ):
        cells = [
            spread([_with_absences(kind, 50, seed, task) for seed in range(10)]) for kind in TASKS
        ]
        rows.append((label, *cells))
    table("agents differ by | Garland regret per 1000 pulls | DoubleSine", *rows)


def _with_absences(kind: type[RoughTask], agents: int, seed: int, task: dict[str, float]) -> float:
    server = FedPNEServer(LINE, agents, FedPNESettings(), seed)
    tasks, rng = tasks_of(kind, agents, seed, **task), np.random.default_rng(seed)
    parties = [WholePhases(server, mine, n, seed) for n, mine in enumerate(tasks)]
    pulls = 0.0
    while not server.finished:
        present = np.flatnonzero(rng.random(agents) > 1 / 3)
        asked = server.requests(present.tolist())
        pulls += sum(float(request.arrays["pulls"].sum()) for request in asked.values())
        server.close({n: parties[n].answer(request) for n, request in asked.items()})
    return 1000 * sum(party.regret for party in parties) / pulls


def simulate(
    agents: int, function: Callable[[Array], Array], rng: np.random.Generator, **values: Any
) -> float:
    """Regret of one agent, the means drawn as M agents with noise of deviation .1 would send."""
    chosen = FedPNESettings(**values)
    search = NodeElimination(BoxTree(LINE), Confidence.of(chosen, agents), chosen.budget)
    regret = 0.0
    while not search.finished:
        phase = search.next()
        value = function(search.partition.centres(phase.nodes)[:, 0])
        regret -= float(phase.pulls @ value)
        noise = rng.standard_normal(len(value)) * 0.1 / np.sqrt(phase.pulls * agents)
        search.update(value + noise, agents)
    return regret


def scaling() -> None:
    """Theorem 3.1's shape, by log-log fits on -|x - b|^p, for which d = 1 - 1/p."""
    print("\n## Theorem 3.1: exponents of the regret per agent (30 optima drawn at random)")
    rows, rng = [], np.random.default_rng(0)
    bests = rng.uniform(0.1, 0.9, 30)
    budgets, counts = [int(10**e) for e in np.arange(6, 9.1, 0.5)], [10, 30, 100, 300, 1000]
    for power in (1.0, 2.0, 4.0):
        d = 1 - 1 / power

        def mean(agents: int, budget: int, power: float = power) -> float:
            runs = [
                simulate(agents, lambda x, b=b: -(np.abs(x - b) ** power), rng, budget=budget)
                for b in bests
            ]
            return float(np.mean(runs))

        in_t = np.array([mean(10, budget) for budget in budgets])
        plain = in_t / np.log(10 * np.array(budgets)) ** (1 / (d + 2))
        cells = [f"{power:g}", f"{d:g}", _slope(budgets, in_t), _slope(budgets, plain)]
        cells.append(f"{(d + 1) / (d + 2):.3f}")
        for budget in (10**6, 10**8):
            cells.append(_slope(counts, [mean(agents, budget) for agents in counts]))
        rows.append((*cells, f"{-1 / (d + 2):.3f}"))
    table(
        "p | d | slope in T (M = 10, T = 10^6..10^9) | without the logarithm | (d+1)/(d+2) "
        "| slope in M (M = 10..1000), T = 10^6 | T = 10^8 | -1/(d+2)",
        *rows,
    )


def _slope(x: Any, y: Any) -> str:
    return f"{np.polyfit(np.log(x), np.log(y), 1)[0]:.3f}"


def rounds() -> None:
    """Communication against the budget, and the time of the state machine alone."""
    print("\n## Communication rounds against T (M = 10)")
    rows = []
    for exponent in range(3, 8):
        cells: list[Any] = [f"10^{exponent}"]
        for kind in TASKS:
            task = kind()
            start = time.perf_counter()
            chosen = FedPNESettings(budget=10**exponent)
            search = NodeElimination(BoxTree(LINE), Confidence.of(chosen, 10), chosen.budget)
            while not search.finished:
                phase = search.next()
                search.update(task.function(search.partition.centres(phase.nodes)[:, 0]), 10)
            cells += [search.phase, search.released, f"{1e3 * (time.perf_counter() - start):.1f}"]
        rows.append(tuple(cells))
    table("T | Garland rounds | numbers | ms | DoubleSine rounds | numbers | ms", *rows)


def privacy() -> None:
    """Utility against epsilon, for each kind of noise and each guarantee."""
    task = {"client_offset": 0.0, "perturbation": 0.2}
    print("\n## DP-Fed-PNE: Garland, T = 1000, five runs, delta = 1e-5, perturbation .2")
    rows = []
    scale = dict(zip(("reward_low", "reward_high"), GarlandTask().extremes, strict=True))
    scale = {k: v + s for (k, v), s in zip(scale.items(), (-0.3, 0.3), strict=True)}

    def measure(agents: int, **values: Any) -> tuple[Any, ...]:
        try:
            FedPNEServer(LINE, agents, FedPNESettings(**scale, **values), 0)
        except SettingsError:
            return ("budget too small for one phase", *"----")
        runs = [fed_pne(GarlandTask, agents, seed, task, **scale, **values) for seed in range(5)]
        ends = [summarise(server) for _, server in runs]
        simple = [
            GarlandTask().optimum() - GarlandTask().expected(end["recommended"]["params"])
            for end in ends
        ]
        promised = runs[0][1].guarantees()
        pulls = np.mean([end["pulls_per_agent"] for end in ends])
        per_pull = [r / end["pulls_per_agent"] for (r, _), end in zip(runs, ends, strict=True)]
        return (
            spread([1000 * regret for regret in per_pull]),
            f"{np.mean(simple):.3f}",
            f"{pulls:.0f}",
            "-" if promised is None else f"{promised.one_reward_epsilon:.3g}",
            "-" if promised is None else f"{promised.one_user_epsilon:.3g}",
        )

    for agents in (10, 100, 1000):
        rows.append((agents, "none", "-", *measure(agents)))
        for noise in ("mean", "reward"):
            for epsilon in (0.1, 0.5, 1.0, 4.0):
                found = measure(agents, noise_on=noise, epsilon_per_reward=epsilon)
                rows.append((agents, f"one reward, on the {noise}", epsilon, *found))
        for epsilon in (2.0, 8.0, 32.0):
            values = {"epsilon": epsilon, "most_means": 30}
            rows.append((agents, "one user, 30 releases", epsilon, *measure(agents, **values)))
    table(
        "M | protects | epsilon set | regret per 1000 pulls | gap of the recommended point "
        "| pulls made | epsilon, one reward | epsilon, one user",
        *rows,
    )


def secure() -> None:
    """Regret of a whole agent's promise: its own noise on its own means, or a secure sum."""
    task = {"client_offset": 0.0, "perturbation": 0.2}
    low, high = (e + s for e, s in zip(GarlandTask().extremes, (-0.3, 0.3), strict=True))
    scale = {"reward_low": low, "reward_high": high}
    seeds = range(100, 110)
    print("\n## A whole agent's epsilon: Garland, T = 1000, ten runs, delta = 1e-5")
    print("Regret of an agent that makes the rest of its 1000 pulls at the recommended point.")
    rows = []
    for agents in (50, 100, 1000):
        own = {"epsilon": 4.0, "most_means": 30}
        by_sums = {**own, "aggregation": "secure"}
        for name, values, lost in (
            ("none", {}, 0.0),
            ("epsilon 4, secure sum", by_sums, 0.0),
            ("the same, a third lost", by_sums, 1 / 3),
            ("the same, `most-means` 64", {**by_sums, "most_means": 64}, 0.0),
            ("`most-means` 64, a third lost", {**by_sums, "most_means": 64}, 1 / 3),
            ("epsilon 4, own noise", own, 0.0),
        ):
            rows.append((agents, name, *_secure_row(agents, seeds, task, lost, scale | values)))
    table("M | promise | regret at T = 1000 | gap | pulls of the search | epsilon spent", *rows)


def _secure_row(
    agents: int, seeds: range, task: dict[str, float], lost: float, values: dict[str, Any]
) -> tuple[str, ...]:
    """Return regret, gap, pulls and epsilon of some runs."""
    regrets, gaps, pulls, spent = [], [], [], 0.0
    for seed in seeds:
        try:
            server = FedPNEServer(LINE, agents, FedPNESettings(**values), seed)
        except SettingsError:
            return ("the budget does not pay for one phase", "-", "-", "-")
        tasks = tasks_of(GarlandTask, agents, seed, **task)
        parties = [WholePhases(server, t, n, seed) for n, t in enumerate(tasks)]
        alive = np.random.default_rng(seed).permutation(agents)[: agents - int(lost * agents)]
        while not server.finished:
            _open_phase(server, parties, [int(n) for n in alive])
        end = summarise(server)
        made = end["pulls_per_agent"]
        best = GarlandTask().expected(end["recommended"]["params"])
        gaps.append(GarlandTask().optimum() - best)
        searching = float(np.mean([parties[n].regret for n in alive]))
        regrets.append(searching + (1000 - made) * gaps[-1])
        pulls.append(made)
        spent = max(spent, server.statement().spent or 0.0)
    shown = f"{spent:.3g}" if spent else "-"
    gap = f"{np.mean(gaps):.3f} ± {np.std(gaps):.3f}"
    return (spread(regrets), gap, f"{np.mean(pulls):.0f}", shown)


def _open_phase(server: FedPNEServer, parties: list[WholePhases], alive: list[int]) -> None:
    """Run a phase; a secure sum is drawn as it is without masks, which is the same bit for bit."""
    opened = server._sum
    if opened is None:
        asked = server.requests(alive)
        replies = {}
        for n, request in asked.items():
            party = parties[n]
            if server.secure_plan is None:
                replies[n] = party.answer(request)
                continue
            counts = request.arrays["pulls"].astype(np.int64)
            phase = int(request.values["phase"])
            rewards = party._rewards(phase, *party._points(request, phase, counts))
            node = np.repeat(np.arange(len(counts)), counts)
            party.means = np.bincount(node, np.clip(rewards, 0, 1)) / counts
            replies[n] = Reply()
        server.close(replies)
        return
    plan, terms = server.secure_plan, opened.terms
    share, entropy = NoiseShare.of(terms), seeded_entropy(server.round)
    total = sum(share.contribution(parties[n].means - 0.5, entropy) for n in alive)
    assert plan is not None
    assert server.budget is not None
    server.budget.charge(plan.event(terms.length, terms.release, replaced=True))
    server._sum = None
    server._end_phase(share.lattice.values(total) / len(alive) + 0.5, len(alive))


def smoothness() -> None:
    """What wrong smoothness costs, and what running several searches at once gives back."""
    print("\n## Unknown smoothness: M = 50, T = 1000, ten runs")
    rows = []
    variants: list[dict[str, Any]] = [
        {"decay": 0.25},
        {"decay": 0.5},
        {"decay": 0.75},
        {"smoothness": 0.3},
        {"smoothness": 3.0},
        {"searches": 2},
        {"searches": 3},
        {"decay": 0.25, "searches": 3},
        {"pull": "uniform"},
        {"constants": "theory"},
        {"last_phase": "even"},
    ]
    for values in variants:
        cells: list[Any] = [", ".join(f"{k} {v}" for k, v in values.items())]
        for kind in TASKS:
            runs = [fed_pne(kind, 50, seed, {}, **values) for seed in range(10)]
            gaps = [
                kind().optimum() - kind().expected(summarise(s)["recommended"]["params"])
                for _, s in runs
            ]
            sent = np.mean([s.sent.mean() for _, s in runs])
            cells += [spread([r for r, _ in runs]), f"{np.mean(gaps):.4f}", f"{sent:.0f}"]
        rows.append(tuple(cells))
    table("settings | Garland regret | gap | sent | DoubleSine regret | gap | sent", *rows)


def comparators() -> None:
    """Everything in one harness: regret per agent, rounds, numbers sent, seconds."""
    plans: list[tuple[str, dict[str, Any], int, int]] = [
        ("hct", {}, 1000, 10),
        ("fed1-ucb", {"arms": 5}, 1000, 10),
        ("fed1-ucb", {"arms": 10}, 1000, 10),
        ("fed1-ucb", {"arms": 20}, 1000, 10),
        ("fn-ucb", {}, 1000, 3),
        ("fn-ucb", {"confidence": 1.0}, 1000, 3),
        ("kernel-ts", {}, 1000, 2),
        ("gp-ucb", {}, 1000, 2),
        ("optuna-batch", {}, 100, 3),
    ]
    for agents in (10, 50):
        print(f"\n## Comparators, M = {agents}")
        rows = []
        for budget in (100, 1000):
            cells: list[Any] = ["**fed-pne**", budget, 10]
            for kind in TASKS:
                cells += _row([fed_pne(kind, agents, s, {}, budget=budget) for s in range(10)])
            rows.append((*cells, "-"))
        for name, values, budget, runs in plans:
            package = {"hct": "PyXAB", "optuna-batch": "optuna"}.get(name)
            if package and importlib.util.find_spec(package) is None:
                print(f"\n{name} is left out: {package} is not installed")
                continue
            label = ", ".join([name, *(f"{k} {v}" for k, v in values.items())])
            cells, start = [label, budget, runs], time.perf_counter()
            for kind in TASKS:
                cells += _row(
                    [_compare(name, kind, agents, s, budget, values) for s in range(runs)]
                )
            rows.append((*cells, f"{(time.perf_counter() - start) / 2 / runs:.1f}"))
        table(
            "method | T | runs | Garland regret | rounds | numbers sent | DoubleSine regret "
            "| rounds | numbers sent | seconds a run",
            *rows,
        )


def _row(runs: list[tuple[float, Any]]) -> list[str]:
    return [
        spread([regret for regret, _ in runs]),
        f"{np.mean([server.round for _, server in runs]):.0f}",
        f"{np.mean([server.sent.mean() for _, server in runs]):.0f}",
    ]


def _compare(
    name: str, kind: type[RoughTask], agents: int, seed: int, budget: int, values: dict[str, Any]
) -> tuple[float, Any]:
    method = find_method(name, "global")
    parameters = RunParameters(LINE, agents, 0, seed)
    server = method.make_server(parameters, method.settings_class(budget=budget, **values))
    tasks = tasks_of(kind, agents, seed)
    if method.agent_kind == "fed-pne":
        return run(server, tasks, seed)
    parties = []
    for number, task in enumerate(tasks):
        records = MemoryRecords()
        evaluator = Evaluator(
            LINE,
            lambda params, rng, task=task: task.evaluate(params, rng=rng),
            records,
            (seed, number),
            lambda params, task=task: task.optimum() - task.expected(params),
        )
        parties.append(
            method.make_agent(
                server.setup(), evaluator, records, (seed, number), Owner("benchmark")
            )
        )
    while not server.finished:
        asked = server.requests(range(agents))
        server.close({n: parties[n].answer(request) for n, request in asked.items()})
    regrets = [sum(e.regret for e in p.evaluator.history) for p in parties]
    return float(np.mean(regrets)), server


PARTS = {
    part.__name__: part
    for part in (figures, scaling, rounds, privacy, secure, smoothness, comparators)
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=[*PARTS, "all"])
    chosen = parser.parse_args().part
    for name, part in PARTS.items():
        if chosen in (name, "all"):
            part()


if __name__ == "__main__":
    main()
