"""What things cost as they grow: an agent's step, the server's sum, whole federations, bytes.

    python -m benchmarks.scale [agent server federation single plays wire axis plan] [--quick]
    python -m benchmarks.scale --table docs/evidence/scale.md

Prints tables, and saves scale.json and charts as SVG (``--out DIR``). ``--table`` writes what is
saved into a page. CPU seconds of one thread (OMP_NUM_THREADS=1).
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.agent_iteration import sampler_with
from benchmarks.charts import alone, log_axis, style
from benchmarks.load import resident
from benchmarks.pages import filled, table
from flwr_fbo.clients.client_app import simulated_client_app
from flwr_fbo.methods.comparators.surrogates import numbers_sent
from flwr_fbo.methods.dp_fts_de.aggregation import WeightedSum
from flwr_fbo.methods.registry import method_names
from flwr_fbo.methods.thompson.schedules import WeightSchedule
from flwr_fbo.methods.thompson.shared_function import SharedFunction
from flwr_fbo.privacy.accountants import make_accountant
from flwr_fbo.privacy.entropy import system_entropy
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.mechanisms import GaussianSum
from flwr_fbo.report.svg import Chart
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.search.regions import split_space
from flwr_fbo.simulation.engine import run
from flwr_fbo.simulation.in_process_grid import InProcessGrid
from flwr_fbo.strategies.server_app import serve

#: Bound on vectors of 100 standard normals: about 2 % are clipped, as the paper recommends.
CLIP = 11.5
Rows = list[dict[str, Any]]


def median_ms(work: Callable[[int], object], repeats: int) -> float:
    """Median CPU milliseconds; the first call warms up."""
    times = []
    for i in range(repeats + 1):
        start = time.process_time()
        work(i)
        times.append(1e3 * (time.process_time() - start))
    return float(np.median(times[1:]))


def step_costs(observations: int, dimension: int, features: int, regions: int) -> dict[str, float]:
    """One iteration of an agent that has its model: query, message, one more observation."""
    sampler = sampler_with(observations, dimension, features)
    # the model's parameters are learned once and kept: what follows is the step itself
    divided = split_space(sampler.space, regions)
    rng = np.random.default_rng(0)
    advice = SharedFunction(rng.standard_normal((divided.count, features)), divided)
    repeats = 3 if observations > 1000 or features > 1000 else 7
    sampler.model().information_gain()  # the factor is made when it is first needed

    def more(i: int) -> None:
        sampler.tell(rng.random(dimension), 0.0)
        sampler.model().sample_path(np.random.default_rng(i))

    return {
        "own query": median_ms(lambda i: sampler.ask(i + 1, 1.0), repeats),
        "advised query": median_ms(lambda i: sampler.ask(i + 1, 0.0, advice), repeats),
        "message": median_ms(lambda i: sampler.message(i + 1), repeats),
        "new observation": median_ms(more, repeats),
    }


def agent(quick: bool) -> dict[str, Rows]:
    """One agent's step against observations, dimensions, M and P."""
    plans: dict[str, tuple[str, Sequence[int]]] = {
        "observations": ("t", (10, 30, 100) if quick else (10, 30, 100, 300, 1000, 2000, 5000)),
        "dimensions": ("D", (1, 2, 5) if quick else (1, 2, 5, 10, 20)),
        "features": ("M", (50, 100) if quick else (50, 100, 200, 500, 1000, 2000)),
        "sub-regions": ("P", (1, 4) if quick else (1, 2, 4, 8, 16, 32, 64)),
    }
    found: dict[str, Rows] = {}
    for name, (symbol, values) in plans.items():
        base = {"observations": 60, "dimensions": 2, "features": 100, "sub-regions": 4}
        rows = []
        for value in values:
            given = {**base, name: value}
            if name == "sub-regions":
                given["dimensions"] = 6  # so that 64 of them exist
            costs = step_costs(*given.values())
            rows.append({symbol: value, **costs})
        found[name] = rows
        show(f"agent's step, CPU ms, against {name}", rows)
    return found


def server(quick: bool) -> Rows:
    """The private sum of N vectors (M = 100, P = 4), streamed as replies come."""
    features, regions, chunk = 100, 4, 4096
    rows: Rows = []
    for agents in (10**2, 10**3, 10**4) if quick else tuple(10**e for e in range(2, 7)):
        weights = WeightSchedule().at(0, agents, regions)
        mechanism = GaussianSum(CLIP * float(np.linalg.norm(weights, axis=0).max()), 1.0)
        total = WeightedSum(weights, features, CLIP, mechanism)
        rng, seconds, before = np.random.default_rng(0), 0.0, resident()
        most = before
        vectors = rng.standard_normal((chunk, features))
        for first in range(0, agents, chunk):
            numbers = np.arange(first, min(first + chunk, agents))
            start = time.process_time()
            total.add(numbers, vectors[: len(numbers)])
            seconds += time.process_time() - start
            most = max(most, resident())
        start = time.process_time()
        mechanism.release(total.exact.ravel(), system_entropy())
        rows.append({
            "N": agents, "CPU ms": 1e3 * (seconds + time.process_time() - start),
            "us an agent": 1e6 * seconds / agents, "MB more": most - before,
            "weights, MB": weights.nbytes / 2**20,
        })  # fmt: skip
    show("server's private sum", rows)
    return rows


#: Agents and rounds of whole federations.
SIZES = ((1_000, 5), (5_000, 5), (10_000, 3))
#: Settings of DP-FTS-DE whose agents compute little, and the defaults but for the epsilon.
FEW: dict[str, Any] = {"accountant": "rdp", "refit-every": 0, "features": 50, "initial-points": 1}
FEDERATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "few features, no fits": {
        "dp-fts-de": {"epsilon": 5.0, **FEW},
        "random": {"initial-points": 1},
    },
    "defaults": {"dp-fts-de": {"epsilon": 5.0}, "random": {}},
}


def federation(quick: bool) -> Rows:
    """Whole simulated federations in this process, on a task that costs nothing."""
    rows: Rows = []
    for agents, rounds in ((100, 2),) if quick else SIZES:
        for told, methods in FEDERATIONS.items():
            costs = {}
            for name, settings in methods.items():
                given = {"task": "benchmarks.load:free", "strategy": name, "agents": agents,
                         "rounds": rounds, **settings}  # fmt: skip
                seconds, disk, files = _here(given)
                costs[name] = 1e3 * seconds / agents / (rounds + 1)
                rows.append({
                    "strategy": f"`{name}`", "settings": told, "agents": agents, "rounds": rounds,
                    "CPU s": seconds, "ms an agent and round": costs[name],
                    "of random": None, "MB on the disk": disk, "files": files,
                })  # fmt: skip
            rows[-2]["of random"] = costs["dp-fts-de"] / costs["random"]
    show("whole federations in process (DP-FTS-DE, epsilon 5, and random search)", rows)
    return rows


def plays(quick: bool) -> Rows:
    """Federations in which few agents are asked at a time, or each makes many evaluations."""
    answers = {"task": "ldp-synthetic", "strategy": "ldp-tgp", "epsilon-per-answer": 1.0}
    pulls = {"task": "garland", "strategy": "fed-pne"}
    sizes = ((100, 50), (1_000, 50)) if quick else ((100, 100), (20_000, 100), (20_000, 20_000))
    rows: Rows = []
    for given, agents, budget, made in (
        *((answers, agents, budget, budget) for agents, budget in sizes),
        *((pulls, agents, budget, agents * budget)
          for agents, budget in (((10, 100),) if quick else ((100, 1_000), (100, 4_000)))),
    ):  # fmt: skip
        seconds, disk, files = _here({**given, "agents": agents, "budget": budget})
        rows.append({
            "strategy": f"`{given['strategy']}`", "agents": agents, "evaluations": made,
            "CPU s": seconds, "ms an evaluation": 1e3 * seconds / made,
            "MB on the disk": disk, "files": files,
        })  # fmt: skip
    show("single answers of a few agents, and many pulls of each (in process)", rows)
    return rows


#: Agents that compute together in a group, and those that compute when they are asked.
STATES: dict[str, dict[str, Any]] = {
    "two dimensions (together)": {"task": "free_plane"},
    "three dimensions": {"task": "free_cube"},
    "a category": {"task": "free_mixed"},
    "failed evaluations in two dimensions": {"task": "failing"},
    "two evaluations at once": {"task": "free_plane", "parallel": 2},
    "local privacy": {
        "task": "free_plane",
        "epsilon": None,
        "local-epsilon": 5.0,
        "local-answers": 10,
    },
    "draws of functions": {"task": "free_plane", "acquisition": "thompson"},
    "random search": {"task": "free_plane", "strategy": "random"},
}


def single(quick: bool) -> Rows:
    """Agents of DP-FTS-DE in one process that compute together, and those that compute alone."""
    agents, rounds = (20, 2) if quick else (200, 6)
    rows: Rows = []
    for told, special in STATES.items():
        given = {"strategy": "dp-fts-de", "agents": agents, "rounds": rounds, **special}
        given["task"] = f"benchmarks.load:{given['task']}"
        if given["strategy"] == "dp-fts-de":
            given.setdefault("epsilon", 5.0)
        seconds, _, _ = _here({name: value for name, value in given.items() if value is not None})
        rows.append({"agents with": told, "ms an agent and round": 1e3 * seconds / agents / rounds})
    show(f"{agents} agents of DP-FTS-DE, defaults, {rounds} rounds", rows)
    return rows


def _here(given: dict[str, Any]) -> tuple[float, float, int]:
    """A run without messages: its CPU seconds, the megabytes of its files, and their number."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    spec = RunSpec.from_mapping(given)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder) / "run")
        start = time.process_time()
        run(spec, directory, "inline")
        seconds = time.process_time() - start
        sizes = [path.stat().st_size for path in directory.root.rglob("*") if path.is_file()]
    return seconds, sum(sizes) / 2**20, len(sizes)


def _run(given: dict[str, Any], agents: int) -> _Counting:
    """A run in this process; the grid has counted what was sent."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)  # Flower's start sets its own
    spec = RunSpec.from_mapping(given)
    with tempfile.TemporaryDirectory() as folder:
        directory = RunDirectory(Path(folder) / "run").create(spec.to_mapping())
        app = simulated_client_app(spec.task, directory.agents)
        grid = _Counting(app, agents)
        serve(spec, grid, directory)
    return grid


#: Agents of the federations whose messages are measured, and their rounds or evaluations.
PARTIES, STEPS = 10, 10
OWN: dict[str, Any] = {
    "task": "benchmarks.load:free", "rounds": STEPS, "features": 100, "initial-points": 2,
    "refit-every": 0,
}  # fmt: skip
REWARDS: dict[str, Any] = {"task": "ldp-synthetic", "budget": 100}
PRIVATE: dict[str, Any] = {"epsilon": 5.0, "accountant": "rdp"}


def wired(name: str) -> dict[str, dict[str, Any]]:
    """Runs whose messages show what a strategy sends, by what is said of them."""
    if name == "dp-fts-de":
        return {
            "epsilon 5, defaults (M = 200, P = 1, planned releases)": {
                **OWN, **PRIVATE, "features": 200,
            },
            "epsilon 5, P = 4, early releases": {
                **OWN, **PRIVATE, "regions": 4, "releases": "early",
            },
        }  # fmt: skip
    if name in ("alone", "fts", "local-ts", "random"):
        return {f"{STEPS} rounds": OWN}
    if name == "tpe":
        return {f"{STEPS} rounds": {"task": OWN["task"], "rounds": STEPS}}
    if name == "voting":
        return {"20 settings, epsilon 5": {"task": OWN["task"], "budget": 20, "epsilon": 5.0}}
    if name == "fed-pne":
        pulled = {"task": "garland", "budget": 200}
        return {"T = 200": pulled, "T = 200, epsilon 5": {**pulled, "epsilon-per-reward": 5.0}}
    if name.startswith("ldp-"):
        return {"T = 100, epsilon 1": {**REWARDS, "epsilon-per-answer": 1.0}}
    if name in ("ata", "tgp", "moma", "uniform"):
        return {"T = 100": REWARDS}
    if name == "gp-ucb":  # two methods, by what the task seeks
        return {
            "T = 100": REWARDS, "T = 50, global objective": {"task": "garland", "budget": 50},
        }  # fmt: skip
    return {"T = 50": {"task": "garland", "budget": 50}}


def wire(quick: bool) -> Rows:
    """Bytes a party and message of every strategy; RGPE's and TAF's from what they need."""
    rows: Rows = []
    for name in method_names():
        for told, given in wired(name).items():
            grid = _run({"agents": PARTIES, "strategy": name, **given}, PARTIES)
            rows.append({
                "strategy": f"`{name}`, {told}", "setup, once": grid.setup,
                "to a party": grid.down / max(1, grid.messages),
                "from a party": grid.up / max(1, grid.messages),
                "messages a party": grid.messages / PARTIES,
            })  # fmt: skip
    for method in ("rgpe", "taf"):
        for share, told in (("posterior", "posteriors of M = 100"), ("history", "50 raw scores")):
            numbers = numbers_sent(method, share, features=100, observations=50, dimension=2)  # type: ignore[arg-type]
            rows.append({
                "strategy": f"{method.upper()}, {told}", "setup, once": None, "to a party": None,
                "from a party": 8 * numbers, "messages a party": 1,
            })  # fmt: skip
    show("bytes a party and message (arrays and scalars; D = 1 where measured)", rows)
    return rows


def axis(quick: bool) -> Rows:
    """The horizontal axis of FTS's Fig. 2: what a helper sends, by M; FTS's as it is measured."""
    rows: Rows = []
    for features in (50, 100, 150, 200):
        grid = _run({"agents": PARTIES, "strategy": "fts", **OWN, "features": features}, PARTIES)
        sent = {
            f"{method.upper()}, {share}": 8 * numbers_sent(method, share, features=features)  # type: ignore[arg-type]
            for method, share in (("rgpe", "posterior"), ("taf", "posterior"), ("rgpe", "history"))
        }
        rows.append({"M": features, "FTS, measured": grid.up / grid.messages, **sent})
    show("bytes of a helper's message by M (FTS Fig. 2; histories of 50 scores, D = 2)", rows)
    return rows


class _Counting(InProcessGrid):
    """Counts the messages after a node's first, which carries the setup."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.met: set[int] = set()
        self.setup = self.down = self.up = self.messages = 0

    def push_messages(self, messages: Any) -> Any:
        numbers = []
        for message in messages:
            sent, received = self.bytes_sent, self.bytes_received
            numbers += list(super().push_messages([message]))
            node = message.metadata.dst_node_id
            if node in self.met:
                self.messages += 1
                self.down += self.bytes_sent - sent
                self.up += self.bytes_received - received
            else:
                self.met.add(node)
                self.setup = self.bytes_sent - sent
        return numbers


def plan(quick: bool) -> Rows:
    """10^8 parties, q = 10^-5: privacy, the signal left, bytes, and aggregators."""
    agents, q, features, regions, rounds = 10**8, 1e-5, 100, 4, 40
    delta = agents**-1.1
    rows: Rows = []
    for z in (0.6, 0.8, 1.0, 2.0):
        book = make_accountant("pld")
        for t in range(rounds):
            book.compose(GaussianRelease(z, q, t))
        epsilon = book.epsilon(delta)
        # Noise of the mean vector: z phi_max S / q with uniform weights 1/N and S sqrt(P) clip.
        clip = math.sqrt(features)
        noise = z * math.sqrt(regions) * clip / (agents * q)
        rows.append({
            "z": z, "releases": rounds, "epsilon (pld)": epsilon, "delta": delta,
            "noise of a number": noise, "over clip/sqrt(M)": noise / (clip / math.sqrt(features)),
        })  # fmt: skip
    show(f"N = 1e8, q = 1e-5 ({agents * q:.0f} parties a release), M = {features}, P = {regions}",
         rows)  # fmt: skip
    up, down = 8 * features, 8 * features * regions
    asked = int(agents * q)
    print(
        f"a release: {asked} vectors of {up} B in = {asked * up / 1e6:.2f} MB; out {down} B to "
        f"whoever asks: {down * agents / 1e9:.0f} GB if all do, or from a cache; a party is "
        f"sampled {rounds * q:.1e} times in {rounds} releases on average"
    )
    rows += _hierarchy(quick)
    return rows


def _hierarchy(quick: bool) -> Rows:
    """Sums of sums: integers add up exactly, in whatever tree. One release, simulated."""
    agents, features, regions = (10**5 if quick else 10**6), 100, 4
    rng, chunk = np.random.default_rng(0), 1000
    # Of N parties a draw of N q = 1,000 takes part; here every party of a sample a thousand times
    # as large does, under a thousand leaf aggregators and ten middle ones.
    weights = np.full((regions, 1), 1.0 / agents)
    mechanism = GaussianSum(CLIP * float(np.linalg.norm(weights)), 1.0)
    leaves = agents // chunk
    middle = np.zeros((10, regions, features), dtype=np.int64)
    flat = np.zeros((regions, features), dtype=np.int64)
    start = time.process_time()
    for leaf in range(leaves):
        block = WeightedSum(np.repeat(weights, chunk, axis=1), features, CLIP, mechanism)
        block.add(np.arange(chunk), rng.standard_normal((chunk, features)))
        middle[leaf % 10] += block.exact
        flat += block.exact
    root = middle.sum(axis=0)
    assert np.array_equal(root, flat)
    mechanism.release(root.ravel(), system_entropy())
    seconds = time.process_time() - start
    size = 8 * features * regions
    rows: Rows = [{
        "parties": agents, "leaf aggregators": leaves, "middle": 10,
        "CPU s in all": seconds, "bytes from an aggregator": size,
    }]  # fmt: skip
    show("a tree of aggregators, simulated: the root's sum is the flat sum to the last bit", rows)
    return rows


def show(title: str, rows: Rows) -> None:
    """A Markdown table."""
    print("\n".join(["", title, "", *table(rows)]), flush=True)


def chart(rows: Rows, x: str, names: Sequence[str], title: str, unit: str) -> str:
    """A chart with logarithmic axes, as a file of its own."""
    horizontal = np.log10([r[x] for r in rows])
    series = {n: np.log10([max(r[n], 1e-3) for r in rows]) for n in names}
    drawn = Chart("scale", title, log_axis(horizontal, x),
                  log_axis(np.concatenate(list(series.values())), unit))  # fmt: skip
    for i, (name, values) in enumerate(series.items()):
        drawn.line(horizontal, values, style(i), name)
    return alone(drawn)


def charts(found: dict[str, Any]) -> dict[str, str]:
    """A file for each table that has a size on its axis."""
    drawn = {}
    for name, rows in found.get("agent", {}).items():
        columns = ("own query", "advised query", "message")
        text = chart(rows, next(iter(rows[0])), columns, f"agent's step against {name}", "CPU ms")
        drawn[f"agent-{name}.svg"] = text
    if "server" in found:
        text = chart(found["server"], "N", ("CPU ms",), "server's private sum", "CPU ms")
        drawn["server.svg"] = text
    if "axis" in found:
        columns = ("FTS, measured", "RGPE, posterior", "RGPE, history")
        text = chart(found["axis"], "M", columns, "a helper's message against M", "bytes")
        drawn["wire.svg"] = text
    return drawn


def save_charts(found: dict[str, Any], out: Path) -> None:
    for name, text in charts(found).items():
        (out / name).write_text(text)


#: The saved tables of a page, by their marks.
TABLES: dict[str, Callable[[dict[str, Any]], Rows]] = {
    **{
        name: lambda found, name=name: _in_ms(found["agent"][name])
        for name in ("observations", "dimensions", "features", "sub-regions")
    },
    "server": lambda found: found["server"],
    "federation": lambda found: found["federation"],
    "single": lambda found: found["single"],
    "plays": lambda found: found["plays"],
    "wire": lambda found: found["wire"],
    "axis": lambda found: found["axis"],
    "plan": lambda found: found["plan"][:-1],
    "tree": lambda found: found["plan"][-1:],
}


def _in_ms(rows: Rows) -> Rows:
    return [{f"{k}, ms" if i else k: v for i, (k, v) in enumerate(row.items())} for row in rows]


def page(text: str, found: dict[str, Any]) -> str:
    """A page with the saved tables between its marks."""
    for name, rows in TABLES.items():
        text = filled(text, name, table(rows(found)))
    return text


SECTIONS: dict[str, Callable[[bool], Any]] = {
    section.__name__: section
    for section in (agent, server, federation, single, plays, wire, axis, plan)
}
SAVED = Path(__file__).parents[1] / "docs" / "evidence" / "images" / "scale"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], default=[])
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--out", type=Path, help="where to save figures and charts")
    parser.add_argument(
        "--table", type=Path, help="write the saved tables into a page, and their charts"
    )
    given = parser.parse_args()
    if given.table:
        saved = json.loads((SAVED / "scale.json").read_text())
        given.table.write_text(page(given.table.read_text(), saved))
        save_charts(saved, SAVED)
        return
    found = {name: SECTIONS[name](given.quick) for name in given.sections or SECTIONS}
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        path = given.out / "scale.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**known, **found}, indent=1) + "\n")
        save_charts(found, given.out)


if __name__ == "__main__":
    main()
