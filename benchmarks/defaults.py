"""The defaults against what a user would pick instead, at equal evaluations.

    FLWR_FBO_DATA=DIR python -m benchmarks.defaults run landmine --seeds 3 [--evaluations 40]
    FLWR_FBO_DATA=DIR python -m benchmarks.defaults join landmine --seeds 1
    python -m benchmarks.defaults table     (or page: into docs/evidence/defaults.md)

``run`` has all parties optimise at the same time; ``join`` has each party come to a federation of
the others when it is over. What was run is kept in ``benchmarks/results/defaults``, a line a method
and seed, and is not run again; ``table`` prints it. Everything that was tried while the
defaults were made used seeds below 4000; reported seeds start at ``FIRST_SEED``.

Curves are of the best score so far by evaluation, initial points included, and compared in pairs
of the same party: per party first the mean over seeds, then Student's interval over parties.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.federations import SHOWN, Problem, alone, curve, federation, newcomer
from flwr_fbo.core.arrays import Array
from flwr_fbo.methods.comparators.rgpe import RGPEAgent, RGPESettings
from flwr_fbo.methods.comparators.surrogates import GPSurrogates, History, numbers_sent
from flwr_fbo.methods.comparators.taf import TAFAgent, TAFSettings
from flwr_fbo.methods.dp_fts_de.settings import DPFTSDESettings
from flwr_fbo.methods.thompson.settings import ThompsonSettings

FIRST_SEED = 4000
PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "defaults.md"
RESULTS = Path(__file__).parent / "results" / "defaults"  # a file a problem
#: Parties of each problem. The 116 of `landmine x 4` hold four different halves of each field;
#: `writers` is the papers' EMNIST task on digits by writer, and needs torch.
PARTIES = {"landmine": 29, "landmine-x4": 116, "activity": 30, "digits": 30, "writers": 50,
           "unrelated": 30}  # fmt: skip
#: The paper's noise and sampling on landmine (Section 5.2).
PAPER: dict[str, Any] = {"preset": "paper", "sampling-rate": 0.35, "noise-multiplier": 1.0}
#: The agent of whose scores TAF and RGPE make models for one who comes late: ours as it was when
#: these runs were made, without the others.
OWN: dict[str, Any] = {
    "acquisition": "improvement", "first-point": "middle", "initial-points": 2, "refit-every": 3,
}  # fmt: skip
FEDERATED: dict[str, tuple[str, dict[str, Any]]] = {
    "random search": ("random", {}),
    "local TS": ("local-ts", {}),
    "our agent, alone": ("alone", {}),
    "DP-FTS-DE, paper (q .35, z 1)": ("dp-fts-de", PAPER),
    "ours, no privacy": ("dp-fts-de", {}),
    "ours, epsilon 8": ("dp-fts-de", {"epsilon": 8.0}),
    "ours, epsilon 4": ("dp-fts-de", {"epsilon": 4.0}),
    "ours, epsilon 2": ("dp-fts-de", {"epsilon": 2.0}),
    "ours, epsilon 1": ("dp-fts-de", {"epsilon": 1.0}),
}
JOINED = {
    "ours, no privacy": {},
    "ours, epsilon 8": {"epsilon": 8.0},
    "ours, epsilon 4": {"epsilon": 4.0},
    "ours, epsilon 2": {"epsilon": 2.0},
    "ours, epsilon 1": {"epsilon": 1.0},
}
#: Evaluations of every party before one joins, and of the one that joins.
BEFORE, AFTER = 20, 10


def problem_named(name: str, seed: int) -> Problem:
    if name == "unrelated":  # every party has a function of its own: alpha = 1
        shape = {"family": "mixed", "alpha": 1.0, "function-lengthscale": 0.15}
        return Problem("synthetic", PARTIES[name], seed, **shape, **{"observation-noise": 1e-4})
    if name == "writers":
        return Problem("emnist", PARTIES[name], seed, data="writers")
    if name == "landmine-x4":
        return Problem("landmine", PARTIES[name], seed, **{"repeat-parties": True})
    return Problem(name, PARTIES[name], seed)


# ------------------------------------------------------------------ what is run


def optuna_present(sampler: str) -> bool:
    try:
        import optuna  # noqa: F401

        if sampler == "gp":
            import torch  # noqa: F401
    except ImportError:
        return False
    return True


def runs(name: str, evaluations: int) -> dict[str, Callable[[int], Array]]:
    """Every method: from a seed to curves (agents, evaluations)."""
    found: dict[str, Callable[[int], Array]] = {}
    for sampler in ("tpe", "gp"):
        if optuna_present(sampler):
            found[f"Optuna {sampler.upper()}, alone"] = lambda s, m=sampler: alone(
                problem_named(name, s), m, evaluations, s
            )
    for label, (strategy, settings) in FEDERATED.items():
        found[label] = lambda s, m=strategy, g=settings: federation(
            problem_named(name, s), m, evaluations, s, **g
        )[0]
    for label, method in (("RGPE", RGPEAgent), ("TAF", TAFAgent)):
        found[f"{label}, others' raw scores"] = lambda s, m=method: exchanged(
            problem_named(name, s), m, evaluations, s
        )
    return found


TRANSFER: dict[Any, Any] = {RGPEAgent: RGPESettings, TAFAgent: TAFSettings}


def exchanged(problem: Problem, method: Any, evaluations: int, seed: int) -> Array:
    """Parties that are given all others' raw scores, before every evaluation but the first two."""
    own, initial, parties = ThompsonSettings(), 2, range(problem.agents)
    evaluators = [problem.evaluator(n, seed) for n in parties]
    nobody = GPSurrogates.of(problem.space, [], own)
    agents: list[Any] = [
        method(problem.space, nobody, TRANSFER[method](initial_points=initial), own, (seed, n))
        for n in parties
    ]
    for t in range(evaluations):
        if t >= initial:
            known = [_history(evaluator) for evaluator in evaluators]
            everyone = GPSurrogates.of(problem.space, known, own)
        for n, (agent, evaluator) in enumerate(zip(agents, evaluators, strict=True)):
            if t >= initial:
                agent.surrogates = Others(everyone, n)
            unit = agent.explore()[t] if t < initial else agent.ask(t)
            agent.tell(unit, evaluator(unit, round=t).score)
    return np.stack([curve(evaluator, evaluations) for evaluator in evaluators])


def _history(evaluator: Any) -> History:
    good = [(e.unit, e.score) for e in evaluator.history if e.score is not None]
    return History(np.array([u for u, _ in good]), np.array([s for _, s in good]))


class Others:
    """The models of all but one party."""

    def __init__(self, everyone: GPSurrogates, left_out: int) -> None:
        self._everyone, self._left_out = everyone, left_out
        self._kept = np.delete(np.arange(everyone.count), left_out)
        self.count = everyone.count - 1

    def mean(self, x: Array) -> Array:
        return np.delete(self._everyone.mean(x), self._left_out, axis=0)

    def posterior(self, x: Array, which: Any = None) -> tuple[Array, Array]:
        return self._everyone.posterior(x, self._kept if which is None else self._kept[which])

    def sample(self, x: Array, draws: int, rng: np.random.Generator) -> Array:
        return np.delete(self._everyone.sample(x, draws, rng), self._left_out, axis=0)


def joins(name: str) -> dict[str, Callable[[int], Array]]:
    """Every way to come late: from a seed to curves (agents, AFTER)."""

    def ours(settings: dict[str, Any]) -> Callable[[int], Array]:
        def run(seed: int) -> Array:
            problem = problem_named(name, seed)
            curves = []
            for n in range(problem.agents):
                others = problem.without(n)
                server = federation(others, "dp-fts-de", BEFORE, seed, **settings)[1]
                curves.append(newcomer(problem, n, server, AFTER, seed))
            return np.stack(curves)

        return run

    return {
        "alone": lambda s: federation(problem_named(name, s), "alone", AFTER, s)[0],
        "RGPE, others' raw scores": lambda s: transferred(problem_named(name, s), RGPEAgent, s),
        "TAF, others' raw scores": lambda s: transferred(problem_named(name, s), TAFAgent, s),
        **{label: ours(settings) for label, settings in JOINED.items()},
    }


def transferred(problem: Problem, method: type[RGPEAgent] | type[TAFAgent], seed: int) -> Array:
    """Newcomers that are given the raw histories of all others, made by our agent alone."""
    agents = federation(problem, "local-ts", BEFORE, seed, **OWN)[2]
    histories = [
        History(
            np.array(a.sampler.state_dict()["units"]), np.array(a.sampler.state_dict()["scores"])
        )
        for a in agents
    ]
    own, curves = ThompsonSettings(), []
    for n in range(problem.agents):
        others = GPSurrogates.of(problem.space, histories[:n] + histories[n + 1 :], own)
        settings = TRANSFER[method](initial_points=1)
        agent: Any = method(problem.space, others, settings, own, (seed, n))
        evaluator = problem.evaluator(n, seed)
        for t in range(AFTER):
            unit = agent.explore()[0] if t == 0 else agent.ask(t)
            agent.tell(unit, evaluator(unit, round=t).score)
        curves.append(curve(evaluator, AFTER))
    return np.stack(curves)


def known() -> list[dict[str, Any]]:
    files = (RESULTS / f"{name}.jsonl" for name in PARTIES)
    lines = (line for file in files if file.exists() for line in file.read_text().splitlines())
    return [json.loads(line) for line in lines]


def store(kind: str, name: str, methods: dict[str, Callable[[int], Array]], seeds: range) -> None:
    done = {(r["kind"], r["problem"], r["method"], r["seed"]) for r in known()}
    RESULTS.mkdir(exist_ok=True)
    for seed in seeds:
        for method, run in methods.items():
            if (kind, name, method, seed) in done:
                continue
            start = time.process_time()
            curves = run(seed)
            at = [k for k in SHOWN if k <= curves.shape[1]]
            best = [[round(float(c[k - 1]), 5) for k in at] for c in curves]
            line = {"kind": kind, "problem": name, "method": method, "seed": seed, "at": at,
                    "best": best}  # fmt: skip
            with (RESULTS / f"{name}.jsonl").open("a") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
            shown = " ".join(f"{v:.4f}" for v in 1 - np.mean(best, axis=0))
            spent = time.process_time() - start
            print(f"{name} {method:<32} seed {seed}: {shown}  ({spent:.0f} s)", flush=True)


# ------------------------------------------------------------------ what is printed


def table(kind: str, name: str, against: tuple[str, ...]) -> list[str]:
    """A Markdown table of a problem: what is lacking to 1 (or the regret), and differences."""
    rows = [r for r in known() if (r["kind"], r["problem"]) == (kind, name)]
    if not rows:
        return []
    at = min((r["at"] for r in rows), key=len)
    found = {}
    for method in dict.fromkeys(r["method"] for r in rows):
        mine = [r for r in rows if r["method"] == method]
        found[method] = {r["seed"]: np.array(r["best"])[:, : len(at)] for r in mine}
    top = 0.0 if name == "unrelated" else 1.0
    lines = [
        f"| {name} | seeds | " + " | ".join(f"after {k}" for k in at) + " |",
        "| --- | ---: |" + " ---: |" * len(at),
    ]
    for method, by_seed in found.items():
        means = top - np.mean([b.mean(axis=0) for b in by_seed.values()], axis=0)
        lines.append(
            f"| {method} | {len(by_seed)} | " + " | ".join(_plain(v) for v in means) + " |"
        )
    compared = [other for other in against if other in found]
    for number, other in enumerate(compared):
        shown = [m for m in found if m != other and m not in compared[:number]]
        if shown:
            lines += ["", *folded(f"Gained over {other}", _gains_over(other, shown, found, at))]
    return lines


def _gains_over(
    other: str, shown: Sequence[str], found: dict[str, dict[int, Array]], at: Sequence[int]
) -> list[str]:
    """A table of what some methods gained over another one, with 95 % intervals."""
    lines = [
        f"| gained over {other} | " + " | ".join(f"after {k}" for k in at) + " |",
        "| --- |" + " ---: |" * len(at),
    ]
    for method in shown:
        lines.append(f"| {method} | " + " | ".join(_gains(found[method], found[other])) + " |")
    return lines


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Lines of Markdown that a reader unfolds by a click on the title."""
    return [f"<details><summary>{title}</summary>", "", *lines, "", "</details>"]


def _plain(value: float) -> str:
    return f"{value:.4f}"


def _gains(mine: dict[int, Array], other: dict[int, Array]) -> list[str]:
    """Mean difference by evaluation with its interval over parties, of the seeds both have."""
    seeds = sorted(mine.keys() & other.keys())
    differences = np.mean([mine[s] - other[s] for s in seeds], axis=0)  # (agents, evaluations)
    error = differences.std(axis=0, ddof=1) / np.sqrt(len(differences))
    width = error * stats.t.ppf(0.975, len(differences) - 1)
    means = differences.mean(axis=0)
    return [f"{m:+.4f} ± {w:.4f}" for m, w in zip(means, width, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("command", choices=["run", "join", "table", "page"])
    parser.add_argument("problem", nargs="?", choices=list(PARTIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--methods", nargs="*", help="only these (beginnings of names)")
    given = parser.parse_args()
    if given.command == "table":
        print("\n".join(report()))
        return
    if given.command == "page":
        PAGE.write_text(written(PAGE.read_text()))
        return
    if given.problem is None:
        parser.error("a problem must be named")
    methods = (
        runs(given.problem, given.evaluations) if given.command == "run" else joins(given.problem)
    )
    if given.methods:
        methods = {k: v for k, v in methods.items() if k.startswith(tuple(given.methods))}
    store(given.command, given.problem, methods, range(FIRST_SEED, FIRST_SEED + given.seeds))


def written(page: str) -> str:
    """The page with the tables of what is known now."""
    before, rest = page.split("<!-- measured -->\n")
    after = rest.split("<!-- end -->")[1]
    return before + "<!-- measured -->\n" + "\n".join(report()) + "\n<!-- end -->" + after


def sent() -> list[str]:
    """A Markdown table of what a party of landmine sends in a run of 20 evaluations, and gets."""
    parties, evaluations, dimension = PARTIES["landmine"], 20, 2
    rows = []
    for label, (strategy, given) in FEDERATED.items():
        if strategy != "dp-fts-de" or "preset" in given:
            continue
        settings = DPFTSDESettings.from_mapping({**given, "reward-low": 0.0, "reward-high": 1.0})
        rounds = evaluations - settings.initial_points
        releases = len(settings.release_plan(parties, rounds).rounds)
        vector = settings.vector_length
        seen = "a noisy mean" if settings.epsilon else "the mean"
        rows.append((label, releases * vector, rounds * vector, seen))
    raw = numbers_sent("rgpe", "history", observations=evaluations, dimension=dimension)
    rows.append(("RGPE or TAF, raw scores", raw, raw * (parties - 1), "every point and score"))
    weights = numbers_sent("rgpe", features=100)
    told = evaluations * weights
    rows.append(
        ("RGPE, as FTS adapts it", told, told * (parties - 1), "its posterior, every round")
    )
    lines = [
        "| landmine, 20 evaluations | numbers sent | received | what other parties see |",
        "| --- | ---: | ---: | --- |",
    ]
    return lines + [f"| {label} | {up:,} | {down:,} | {what} |" for label, up, down, what in rows]


def report() -> list[str]:
    """All tables."""
    lines: list[str] = ["### What is sent", "", *sent(), ""]
    for name in PARTIES:
        against = ("Optuna TPE, alone", "random search", "local TS", "our agent, alone")
        for kind, others in (("run", against), ("join", ("alone",))):
            made = table(kind, name, others)
            said = (
                "all at the same time" if kind == "run" else f"one after {BEFORE} evaluations each"
            )
            lines += [f"### {name}, {said}", "", *made, ""] if made else []
    return lines


if __name__ == "__main__":
    main()
