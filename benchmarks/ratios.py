"""Speed as ratios, each side measured in the same run: what `make bench` prints and saves.

    OMP_NUM_THREADS=1 python benchmarks/ratios.py [--only WORDS] [--skip WORDS] [--out FILE]

Everything but whole rounds is CPU time. The two sides take turns, and what is shown is the turn
whose ratio is the middle one, with the least and the greatest: a machine that is faster at one
time than at another is so for both sides of a turn. Optuna's GP sampler needs torch; what is not
installed is left out and said so. `rounds` and `engines` start Ray, `deployment` Flower's own
processes on loopback.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from benchmarks.agent_iteration import MIXED, default_sampler, mixed_sampler, sampler_with
from benchmarks.pages import filled, table
from flwr_fbo.methods.dp_fts_de.aggregation import WeightedSum
from flwr_fbo.methods.thompson.schedules import WeightSchedule
from flwr_fbo.models.hyperparameters import fit
from flwr_fbo.search.acquisition import CANDIDATES, STARTS, argmax, quasi_random

T = TypeVar("T")
#: What ours took and what theirs took, in each turn.
Turns: TypeAlias = list[tuple[float, float]]

SAVED = Path(__file__).parent / "results" / "ratios.json"
OBSERVATIONS, DIMENSION, FEATURES = 60, 2, 100
#: Turns of imports, of rounds through Ray and of those of a deployment.
IMPORTS, RAY_TURNS, DEPLOYED_TURNS = 21, 7, 5
#: Iterations that are timed together: of these one fits the model's parameters, at 66 scores (the
#: fit before is at 54, the one after at 81).
STEPS = 15


@dataclass(frozen=True)
class Ratio:
    """Ours over theirs, by turns; smaller is better. ``most`` is the target, where there is one."""

    name: str
    turns: Turns
    unit: str
    most: float | None = None
    note: str = ""

    @property
    def by_value(self) -> Turns:
        """The turns, smallest ratio first."""
        return sorted(self.turns, key=lambda turn: turn[0] / turn[1])

    @property
    def middle(self) -> tuple[float, float]:
        """Ours and theirs of the turn that counts."""
        return self.by_value[len(self.turns) // 2]

    @property
    def value(self) -> float:
        return self.middle[0] / self.middle[1]

    @property
    def spread(self) -> list[float]:
        """Least and greatest ratio of a turn."""
        (a, b), (c, d) = self.by_value[0], self.by_value[-1]
        return [a / b, c / d]

    @property
    def outcome(self) -> str:
        if self.most is None:
            return "-"
        return "met" if self.value <= self.most else "MISSED"

    def to_dict(self) -> dict[str, Any]:
        ours, theirs = self.middle
        return {
            "name": self.name, "ours": ours, "theirs": theirs, "unit": self.unit,
            "most": self.most, "note": self.note, "ratio": self.value,
            "turns": len(self.turns), "spread": self.spread, "outcome": self.outcome,
        }  # fmt: skip


def turns(
    ours: Callable[[int], object], theirs: Callable[[int], object], repeats: int = 15
) -> Turns:
    """CPU milliseconds of two pieces of work that take turns, and begin in turn."""
    found = []
    for i in range(repeats + 1):
        pair = {side: _cpu(work, i) for side, work in _in_turn(i, ours, theirs)}
        found.append((pair[0], pair[1]))
    return found[1:]  # the first warms up


def _in_turn(i: int, ours: T, theirs: T) -> list[tuple[int, T]]:
    """Both sides by number, ours first every other time."""
    return [(0, ours), (1, theirs)][:: -1 if i % 2 else 1]


def _cpu(work: Callable[[int], object], i: int) -> float:
    start = time.process_time()
    work(i)
    return 1e3 * (time.process_time() - start)


def agent() -> Iterator[Ratio]:
    """An iteration (ask, message, tell, a share of a fit) against Optuna's ask and tell.

    The agent is the default one of dp-fts-de: expected improvement, over advice in its prior mean.
    """
    if importlib.util.find_spec("optuna") is None:
        yield from _left_out("agent against Optuna", "optuna")
        return
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    samplers = {"TPE": (lambda: optuna.samplers.TPESampler(seed=0), 1.0)}
    if importlib.util.find_spec("torch") is not None:
        samplers["GP"] = (lambda: optuna.samplers.GPSampler(seed=0), 1 / 20)
    else:
        yield from _left_out("agent against Optuna's GP", "torch")
    for name, (make, most) in samplers.items():
        ours, theirs = _Ours(), _Optunas(optuna, make())
        found = []
        for i in range(10):
            pair = {}
            for number, side in _in_turn(i, ours, theirs):
                side.prepare()
                pair[number] = _cpu(lambda _, side=side: side.steps(), i) / STEPS  # type: ignore[misc]
            found.append((pair[0], pair[1]))
        yield Ratio(
            f"agent iteration / Optuna {name}, {OBSERVATIONS} observations", found[1:], "ms",
            most, "ours also makes the message for the federation",
        )  # fmt: skip


def mixed() -> Iterator[Ratio]:
    """One ask in a space of reals, integers and categories against Optuna's, 45 scores each."""
    if importlib.util.find_spec("optuna") is None:
        yield from _left_out("ask in mixed spaces against Optuna's TPE", "optuna")
        return
    import optuna

    from flwr_fbo.methods.comparators.optuna_space import distributions_of, params_of

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    failed = optuna.trial.TrialState.FAIL
    for dimension, space in MIXED.items():
        sampler, distributions = mixed_sampler(dimension, 45), distributions_of(space)
        tpe = optuna.samplers.TPESampler(seed=0)
        study = optuna.create_study(direction="maximize", sampler=tpe)
        model = sampler.own_model
        for unit, score in zip(model.units, model.scores.tolist(), strict=True):
            params = params_of(space, unit)
            made = optuna.trial.create_trial(
                params=params, distributions=distributions, value=score
            )
            study.add_trial(made)

        def ours(i: int, sampler: Any = sampler) -> None:
            for t in range(5):
                sampler.ask(1 + 5 * i + t)

        def theirs(i: int, study: Any = study, distributions: Any = distributions) -> None:
            for _ in range(5):
                study.tell(study.ask(distributions), state=failed)

        yield Ratio(
            f"ask / Optuna TPE, {dimension} mixed dimensions",
            [(a / 5, b / 5) for a, b in turns(ours, theirs, 9)], "ms", 1.2,
            "with a shared function; 45 scores",
        )  # fmt: skip


class _Ours:
    """Iterations from 60 observations on, one of which fits; then back.

    The fit of before, at 54 scores, is remembered, as an agent does.
    """

    def __init__(self) -> None:
        self.sampler = default_sampler(OBSERVATIONS, DIMENSION)
        self.sampler.model()
        self.start = self.sampler.state_dict()

    def prepare(self) -> None:
        self.sampler.load_state_dict(self.start)

    def steps(self) -> None:
        for t in range(1, STEPS + 1):
            proposal = self.sampler.ask(t)
            self.sampler.message(t)
            self.sampler.tell(proposal.unit, float(np.sin(6 * proposal.unit).sum()))


class _Optunas:
    """The same with a study."""

    def __init__(self, optuna: Any, sampler: Any) -> None:
        self.optuna, self.sampler = optuna, sampler
        self.state = sampler_with(OBSERVATIONS, DIMENSION, FEATURES).state_dict()

    def steps(self) -> None:
        for _ in range(STEPS):
            trial = self.study.ask()
            unit = np.array([trial.suggest_float(f"x{i}", 0.0, 1.0) for i in range(DIMENSION)])
            self.study.tell(trial, float(np.sin(6 * unit).sum()))

    def prepare(self) -> None:
        space = {f"x{i}": self.optuna.distributions.FloatDistribution(0, 1) for i in range(2)}
        self.study = self.optuna.create_study(direction="maximize", sampler=self.sampler)
        for unit, score in zip(self.state["units"], self.state["scores"], strict=True):
            params = {f"x{i}": u for i, u in enumerate(unit)}
            self.study.add_trial(
                self.optuna.trial.create_trial(params=params, distributions=space, value=score)
            )


def gp() -> Iterator[Ratio]:
    """Fit of the parameters (of four starts ours climbs from two) and a sample at 1,000 points."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    warnings.simplefilter("ignore")  # sklearn's bounds and convergence
    sampler = sampler_with(OBSERVATIONS, DIMENSION, FEATURES)
    model, grid = sampler.model(), np.random.default_rng(0).random((1000, DIMENSION))
    x, y = model.x, model.y

    def ours_fit(i: int) -> None:
        fit("matern52", sampler.space, x, y, np.random.default_rng(i))

    def theirs_fit(i: int) -> GaussianProcessRegressor:
        kernel = ConstantKernel() * Matern([0.5] * DIMENSION, nu=2.5) + WhiteKernel(0.01)
        made = GaussianProcessRegressor(kernel, n_restarts_optimizer=3, random_state=i)
        return made.fit(x, y)

    fitted = theirs_fit(0)
    yield Ratio("GP fit / scikit-learn's", turns(ours_fit, theirs_fit, 5), "ms", 1.0)

    def ours_sample(i: int) -> None:
        model.sample_path(np.random.default_rng(i)).value(grid)

    found = turns(ours_sample, lambda i: fitted.sample_y(grid, random_state=i), 5)
    yield Ratio("GP sample at 1,000 points / scikit-learn's", found, "ms", 1.0)


def search() -> Iterator[Ratio]:
    """The maximiser of one sample: twenty starts together, or scipy for each."""
    from scipy.optimize import minimize

    sampler = sampler_with(OBSERVATIONS, DIMENSION, FEATURES)
    path = sampler.model().sample_path(np.random.default_rng(0))
    mine: dict[int, float] = {}
    scipys: dict[int, float] = {}

    def ours(i: int) -> None:
        unit = argmax(path, sampler.space, np.random.default_rng(i))
        mine[i] = float(path.value(unit[None])[0])

    def theirs(i: int) -> None:
        points = quasi_random(CANDIDATES, DIMENSION, np.random.default_rng(i))
        starts = points[np.argsort(-path.scan(points))[:STARTS]]

        def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = path.value_and_gradient(x[None])
            return -float(value[0]), -gradient[0]

        bounds = [(0.0, 1.0)] * DIMENSION
        scipys[i] = -min(minimize(negative, s, jac=True, bounds=bounds).fun for s in starts)

    found = turns(ours, theirs, 11)
    gap = max(scipys[i] - mine[i] for i in mine)
    yield Ratio("argmax / scipy L-BFGS-B a restart", found, "ms", 1.0,
                f"scipy's maximum is above ours by at most {gap:.1e}")  # fmt: skip


def features() -> Iterator[Ratio]:
    """phi(x)' omega at 1,000 points in single precision, to find starts, and in double."""
    sampler = default_sampler(OBSERVATIONS, DIMENSION)
    assert sampler.features is not None
    shared, points = sampler.features, quasi_random(CANDIDATES, DIMENSION, np.random.default_rng(0))
    omega = sampler.message(0)
    found = turns(lambda i: shared.scan(points, omega), lambda i: shared.value(points, omega))
    yield Ratio("scan of the features / in double precision", found, "ms", 1.0)


def aggregation() -> Iterator[Ratio]:
    """The server's sum of 20,000 vectors against numpy's passes over the same bytes."""
    from flwr_fbo.privacy.mechanisms import GaussianSum

    agents, regions = 20_000, 4
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((agents, FEATURES))
    weights, every = WeightSchedule().at(0, agents, regions), np.arange(agents)
    mechanism = GaussianSum(11.5 * float(np.linalg.norm(weights, axis=0).max()), 1.0)

    def plain(i: int) -> None:
        WeightedSum(weights, FEATURES, 11.5).add(every, vectors)

    def private(i: int) -> None:
        WeightedSum(weights, FEATURES, 11.5, mechanism).add(every, vectors)

    def one_pass(i: int) -> None:
        norms = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
        weights @ (vectors / np.maximum(1.0, norms / 11.5))

    def joint_pass(i: int) -> None:
        joint = weights.T[:, :, None] * vectors[:, None, :]
        np.trunc(joint / 1e-9).astype(np.int64).sum(axis=0)

    yield Ratio("clipped sum / the same in plain numpy", turns(plain, one_pass, 9), "ms", 1.5)
    yield Ratio("private exact sum / weigh, round, add in plain numpy",
                turns(private, joint_pass, 9), "ms", 1.5,
                "both over P M integers an agent; ours clips twice besides")  # fmt: skip


def elimination() -> Iterator[Ratio]:
    """Fed-PNE's state machine and agents a pull, against PyXAB's HCT an evaluation."""
    if importlib.util.find_spec("PyXAB") is None:
        yield from _left_out("Fed-PNE against HCT", "PyXAB")
        return
    from benchmarks.fed_pne import LINE, fed_pne
    from flwr_fbo.methods.comparators.hct import HCTServer
    from flwr_fbo.tasks.papers.garland import GarlandTask

    budget = 1000

    def ours(i: int) -> None:
        fed_pne(GarlandTask, 10, i, {}, budget=budget)

    def theirs(i: int) -> None:
        server = HCTServer(LINE, 1, HCTServer.settings_class(budget=budget), i)
        rng, task = np.random.default_rng(i), GarlandTask()
        while not server.finished:
            ask = server.ask()
            value = task.function(ask.points[:, 0]) + rng.uniform(-0.1, 0.1, len(ask.points))
            server.used += int(ask.pulls.sum())
            server.tell(ask, value, 1)

    told = "Fed-PNE with 10 clients of 1,000 pulls"
    each = [(1e3 * a / (10 * budget), 1e3 * b / budget) for a, b in turns(ours, theirs, 5)]
    yield Ratio("Fed-PNE an evaluation / HCT an evaluation", each, "us", 1.0, told)


def accounting() -> Iterator[Ratio]:
    """What a run's next epsilon costs, against accounting for the whole ledger again."""
    from flwr_fbo.privacy import pld
    from flwr_fbo.privacy.accountants import make_accountant
    from flwr_fbo.privacy.events import GaussianRelease

    for name in ("rdp", "pld"):
        events = [GaussianRelease(1.0 + 0.01 * (t % 5), 0.25, t) for t in range(40)]
        running = make_accountant(name)
        for event in events:
            running.compose(event)
        running.epsilon(1e-3)

        def again(i: int, events: Any = events, name: str = name) -> None:
            _forget()
            fresh = make_accountant(name)
            for event in events:
                fresh.compose(event)
            fresh.epsilon(1e-3)

        def query(i: int, running: Any = running) -> None:
            running.epsilon(1e-3)

        found = []
        for i in range(3):
            query(i)  # forgotten with everything else
            found.append((_cpu(query, i), _cpu(again, i)))
        yield Ratio(f"epsilon query / from scratch ({name})", found, "ms", 1.0)
    assert pld


def _forget() -> None:
    """Empty the accountants' caches."""
    from flwr_fbo.privacy import pld, renyi

    for module in (pld, renyi):
        for entry in vars(module).values():
            if hasattr(entry, "cache_clear"):
                entry.cache_clear()


def imports() -> Iterator[Ratio]:
    """`import flwr_fbo` and its parts, against importing the third-party modules they need."""
    for name in (
        "flwr_fbo",
        "flwr_fbo.strategies.server_app",
        "flwr_fbo.clients.client_app",
        "flwr_fbo.cli.main",
    ):
        # All modules of others that it loads, the standard library's too, in their order.
        listing = (
            f"import sys; before = set(sys.modules); import {name}; "
            "found = [m for m in sys.modules if m not in before]; "
            "print(*(m for m in found if m.split('.')[0] != 'flwr_fbo'))"
        )
        needed = _python(listing)[1].split()
        theirs = "import importlib\n" + "\n".join(
            f"try: importlib.import_module({m!r})\nexcept Exception: pass" for m in needed
        )
        told = f"{len(needed)} modules of others; both with Python's own start"
        found = _programs(f"import {name}", theirs)
        yield Ratio(f"import {name} / what it needs", found, "ms", 1.1, told)


def flower() -> Iterator[Ratio]:
    """What is paid before anything is used, and for the apps, against Flower's own."""
    for ours, theirs in (("flwr_fbo", "flwr"), ("flwr_fbo.strategies.server_app", "flwr.serverapp"),
                         ("flwr_fbo.clients.client_app", "flwr.clientapp")):  # fmt: skip
        found = _programs(f"import {ours}", f"import {theirs}")
        yield Ratio(f"import {ours} / import {theirs}", found, "ms", None,
                    "both with Python's own start")  # fmt: skip


def _programs(ours: str, theirs: str) -> Turns:
    """CPU milliseconds of two programs that take turns."""
    found = []
    for i in range(1 + IMPORTS):
        pair = {side: _python(code)[0] for side, code in _in_turn(i, ours, theirs)}
        found.append((pair[0], pair[1]))
    return found[1:]


_BYTECODE = tempfile.TemporaryDirectory()


def _python(code: str) -> tuple[float, str]:
    """CPU milliseconds of a process, and what it printed.

    Compiled modules are kept, as they are on anybody's machine, in a folder of our own: where the
    environment forbids that, only our modules would be compiled each time.
    """
    env = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "PYTHONPYCACHEPREFIX": _BYTECODE.name}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    return 1e3 * spent, done.stdout


def rounds() -> Iterator[Ratio]:
    """A round of 200 agents through Ray, against a Flower app that does nothing."""
    if importlib.util.find_spec("ray") is None:
        yield from _left_out("a round through Ray", "ray")
        return
    from benchmarks.noop import fbo_rounds, noop_rounds

    agents, count = 200, 16
    found: dict[str, Turns] = {"random": [], "dp-fts-de": []}
    for _ in range(RAY_TURNS):
        theirs = noop_rounds(agents, count)
        for strategy, kept in found.items():
            kept.append((1e3 * fbo_rounds(strategy, agents, count), 1e3 * theirs))
    yield Ratio("Ray round, random search, N=200 / no-op app", found["random"], "ms", 1.25,
                "nothing to compute")  # fmt: skip
    yield Ratio("Ray round, DP-FTS-DE, N=200 / no-op app", found["dp-fts-de"], "ms", 1.25,
                "with the agents' own computing")  # fmt: skip


def process() -> Iterator[Ratio]:
    """A round in this process: what agents of DP-FTS-DE compute, which random search does not.

    The agents of DP-FTS-DE compute together.
    """
    from benchmarks.noop import fbo_rounds

    agents, count = 200, 8
    found = []
    for i in range(1 + RAY_TURNS):
        strategies = _in_turn(i, "dp-fts-de", "random")
        pair = {
            n: 1e3 * fbo_rounds(s, agents, count, "inline", processor=True) for n, s in strategies
        }
        found.append((pair[0], pair[1]))
    yield Ratio("round in one process, DP-FTS-DE / random search, N=200", found[1:], "ms", 1.8,
                "no Ray, CPU time")  # fmt: skip


def engines() -> Iterator[Ratio]:
    """A round of 16 evaluations of 50 ms by two processes, against the other engines."""
    from benchmarks.noop import fbo_rounds

    agents, count = 16, 8
    os.environ["FLWR_FBO_PROCESSES"] = "2"
    found: dict[str, Turns] = {"inline": [], "ray": []}
    for engine in ("inline", "ray"):
        if engine == "ray" and importlib.util.find_spec("ray") is None:
            yield from _left_out("processes against Ray", "ray")
            continue
        for i in range(1 + RAY_TURNS):
            pair = {
                n: 1e3 * fbo_rounds("random", agents, count, side, "waiting")
                for n, side in _in_turn(i, "processes", engine)
            }
            found[engine].append((pair[0], pair[1]))
    told = "evaluations that wait 50 ms; two processes"
    yield Ratio("round of slow evaluations, N=16, processes / inline", found["inline"][1:], "ms",
                0.65, told)  # fmt: skip
    if found["ray"]:
        yield Ratio("round of slow evaluations, N=16, processes / ray", found["ray"][1:], "ms",
                    1.0, told)  # fmt: skip


def deployment() -> Iterator[Ratio]:
    """A round of two SuperNodes on loopback, against a Flower app that does nothing."""
    from benchmarks.noop import deployed_rounds

    found = []
    for i in range(DEPLOYED_TURNS):
        pair = {}
        for number, app in _in_turn(i, None, "noop"):
            with tempfile.TemporaryDirectory() as folder:
                pair[number] = 1e3 * deployed_rounds(Path(folder), app)
        found.append((pair[0], pair[1]))
    yield Ratio("deployment round, two nodes / no-op app", found, "ms", None,
                "Flower's Grid sleeps 3 s between pulls")  # fmt: skip


def _left_out(name: str, package: str) -> Iterator[Ratio]:
    print(f"{name}: left out, {package} is not installed", flush=True)
    yield from ()


SECTIONS: dict[str, Callable[[], Iterator[Ratio]]] = {
    section.__name__: section
    for section in (agent, mixed, gp, search, features, aggregation, elimination, accounting,
                    imports, flower, rounds, process, engines, deployment)
}  # fmt: skip


def with_table(page: str, saved: Path) -> str:
    """A page with the saved ratios between its marks."""
    rows = []
    for entry in json.loads(saved.read_text()):
        spread = " to ".join(f"{r:.2g}" for r in entry["spread"]) if entry["turns"] > 1 else "1"
        rows.append({
            "ours / theirs": entry["name"],
            **{side: f"{entry[side]:.3g} {entry['unit']}" for side in ("ours", "theirs")},
            "ratio": f"{entry['ratio']:.3g}", "of turns": spread,
            "target": "-" if entry["most"] is None else f"<= {entry['most']:g}",
            "": entry["outcome"].lower(),
        })  # fmt: skip
    return filled(page, "ratios", table(rows))


def show(ratio: Ratio) -> None:
    most = "" if ratio.most is None else f"<= {ratio.most:g}"
    (ours, theirs), (low, high) = ratio.middle, ratio.spread
    print(
        f"{ratio.name:<58}{ours:10.3f} {ratio.unit:<3}{theirs:11.3f} {ratio.unit:<3}"
        f"{ratio.value:9.4f} {low:7.3g} to {high:<7.3g} {most:>9} {ratio.outcome:>7}"
        + (f"   ({ratio.note})" if ratio.note else ""),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--skip", nargs="*", choices=SECTIONS, default=[])
    parser.add_argument("--out", type=Path, help="where to save everything as JSON")
    parser.add_argument("--table", type=Path, help="put the saved figures into a page, and end")
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    if given.table:
        given.table.write_text(with_table(given.table.read_text(), SAVED))
        return
    head = f"{'ours / theirs':<58}{'ours':>13}{'theirs':>14}{'ratio':>10}"
    print(f"{head}{'of turns':>17}{'target':>12}")
    found = []
    for name in given.only:
        if name not in given.skip:
            for ratio in SECTIONS[name]():
                show(ratio)
                found.append(ratio)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        known = json.loads(given.out.read_text()) if given.out.exists() else []
        merged = {entry["name"]: entry for entry in known} | {r.name: r.to_dict() for r in found}
        given.out.write_text(json.dumps(list(merged.values()), indent=2) + "\n")


if __name__ == "__main__":
    main()
