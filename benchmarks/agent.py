"""The agent against Optuna's TPE at equal evaluations: where evaluations fail, and alone.

    python -m benchmarks.agent run corner hills [--seeds 5] [--methods TPE ...]
    FLWR_FBO_DATA=DIR python -m benchmarks.agent run lcbench rpart lcbench-corner
    python -m benchmarks.agent table      (or page: into docs/evidence/agent.md)

What was run is kept in `benchmarks/results/agent`, a line a method and seed, and is not run again.
Seeds below ``FIRST_SEED`` were used while the agent was made. Federations are those of
`benchmarks/agent_tasks.py`; those of real tuning runs need ``FLWR_FBO_DATA`` and onnxruntime.

A setting is judged by its expected score, which no method sees: 0 is the best known setting of the
party, 1 the median of random settings (and no setting at all). TPE gives out the setting with the
best score, an agent of ours what its ``best`` says. Methods are compared in pairs of the same
party: per party first the mean over seeds, then Student's interval over parties.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks import agent_tasks as tasks
from benchmarks.federations import Problem, server_for
from benchmarks.pages import filled
from flwr_fbo.core.arrays import Array
from flwr_fbo.methods.comparators.optuna_space import distributions_of, unit_of

FIRST_SEED = 6000
PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "agent.md"
RESULTS = Path(__file__).parent / "results" / "agent"
#: Evaluations after which settings are judged.
JUDGED = (5, 10, 20, 30)
OFF: dict[str, Any] = {"learn-failures": False}
TPE = "Optuna TPE"
ALONE = "our agent, alone"
#: Methods by what they answer: what failures cost, and what the agent is worth alone.
FAILING: dict[str, tuple[str, dict[str, Any]]] = {
    "random search": ("random", {}),
    ALONE: ("alone", {}),
    "the same, failures not learned": ("alone", OFF),
    "local TS": ("local-ts", {}),
    "local TS, failures not learned": ("local-ts", OFF),
    "dp-fts-de": ("dp-fts-de", {}),
    "dp-fts-de, failures not learned": ("dp-fts-de", OFF),
    "dp-fts-de, epsilon 8": ("dp-fts-de", {"epsilon": 8.0}),
    "dp-fts-de, epsilon 8, not learned": ("dp-fts-de", {"epsilon": 8.0, **OFF}),
}
SCORING: dict[str, tuple[str, dict[str, Any]]] = {
    "random search": ("random", {}), ALONE: ("alone", {}), "local TS": ("local-ts", {}),
}  # fmt: skip
#: Task, parties, evaluations and methods of each federation.
FEDERATIONS: dict[str, tuple[type[tasks.JudgedTask], int, int, dict[str, Any]]] = {
    "corner": (tasks.CornerTask, 20, 20, FAILING),
    "hills": (tasks.HillsTask, 20, 20, FAILING),
    "lcbench-corner": (tasks.LCBenchCornerTask, 34, 20, FAILING),
    "lcbench": (tasks.LCBenchTask, 34, 30, SCORING),
    "rpart": (tasks.RpartTask, 60, 30, SCORING),
    "hartmann": (tasks.HartmannTask, 20, 30, SCORING),
    "pipeline": (tasks.PipelineTask, 8, 30, SCORING),
}


def run(problem: Problem, strategy: str, settings: dict[str, Any], seed: int, length: int) -> Any:
    """Return regrets (parties, length) and failures (parties,) of a method of ours."""
    server = server_for(problem, strategy, length, seed, settings)
    pairs = [problem.agent(server.setup(), n, seed) for n in range(problem.agents)]
    regret = np.ones((problem.agents, length))
    while not server.finished:
        requests = server.requests(range(problem.agents))
        server.close({n: pairs[n][0].answer(r) for n, r in requests.items()})
        for n, (agent, evaluator) in enumerate(pairs):
            best = agent.sampler.best()
            found = None if best is None else best[0]
            regret[n, len(evaluator.history) - 1 :] = judge(problem, n).regret(found)
    return regret, np.array([sum(e.failed for e in ev.history) for _, ev in pairs])


def judge(problem: Problem, party: int) -> tasks.JudgedTask:
    task = problem.tasks[party]
    assert isinstance(task, tasks.JudgedTask)
    return task


def tpe(problem: Problem, seed: int, length: int) -> Any:
    """Return the same of Optuna's TPE as it comes, each party by itself."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    regret = np.ones((problem.agents, length))
    failed = np.zeros(problem.agents, dtype=np.int64)
    distributions = distributions_of(problem.space)
    for n in range(problem.agents):
        evaluator = problem.evaluator(n, seed)
        key = int(np.random.default_rng([seed, n, 3]).integers(2**31))
        sampler = optuna.samplers.TPESampler(seed=key)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        found: tuple[Array, float] | None = None
        for t in range(length):
            trial = study.ask(distributions)
            unit = unit_of(problem.space, trial.params)
            score = evaluator(unit, round=t).score
            if score is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                failed[n] += 1
            else:
                study.tell(trial, score)
                found = max(found or (unit, score), (unit, score), key=lambda pair: pair[1])
            regret[n, t] = judge(problem, n).regret(None if found is None else found[0])
    return regret, failed


def store(name: str, seeds: range, chosen: list[str] | None) -> None:
    """Run what is not saved yet, and save it."""
    task, parties, length, methods = FEDERATIONS[name]
    saved = {(row["method"], row["seed"]) for row in known(name)}
    RESULTS.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        problem = None
        for label in [TPE, *methods]:
            if (label, seed) in saved or (chosen and not label.startswith(tuple(chosen))):
                continue
            problem = problem or Problem(task(), parties, seed)
            start = time.process_time()
            if label == TPE:
                regret, failed = tpe(problem, seed, length)
            else:
                regret, failed = run(problem, *methods[label], seed, length)
            at = [k for k in JUDGED if k <= length]
            rows = np.round(regret[:, [k - 1 for k in at]], 4).tolist()
            line = {"method": label, "seed": seed, "at": at, "regret": rows}
            with (RESULTS / f"{name}.jsonl").open("a") as file:
                entry = {**line, "failed": failed.tolist(), "evaluations": length}
                file.write(json.dumps(entry, separators=(",", ":")) + "\n")
            shown = " ".join(f"{v:.3f}" for v in np.mean(rows, axis=0))
            spent = time.process_time() - start
            share = failed.sum() / (length * parties)
            print(f"{name} {label:<34} {seed}: {shown} failed {share:.3f} ({spent:.0f} s)")


def known(name: str) -> list[dict[str, Any]]:
    """Return what was run of a federation."""
    file = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def table(name: str) -> list[str]:
    """Return the table of a federation: regrets, failures, and how far TPE's regret is above."""
    rows = known(name)
    if not rows:
        return []
    at = rows[0]["at"]
    curves = {m: _by_seed(rows, m) for m in dict.fromkeys(r["method"] for r in rows)}
    failing = any(sum(r["failed"]) for r in rows)
    head = [f"after {k}" for k in at] + [f"TPE's less this, after {k}" for k in at]
    titles = ["failed", "failed less TPE"] if failing else []
    lines = [
        f"| {name} | seeds | " + " | ".join(head + titles) + " |",
        "| --- | ---: |" + " ---: |" * len(head + titles),
    ]
    for method, by_seed in curves.items():
        regret = np.mean([c[:, :-1] for c in by_seed.values()], axis=(0, 1))
        cells = [f"{v:.3f}" for v in regret]
        gains = _gains(curves[TPE], by_seed)
        cells += ["-"] * len(at) if method == TPE else gains[:-1]
        if failing:
            share = np.mean([c[:, -1] for c in by_seed.values()])
            cells += [f"{share:.1%}", "-" if method == TPE else gains[-1].translate(_SWAP)]
        lines.append(f"| {method} | {len(by_seed)} | " + " | ".join(cells) + " |")
    return lines


#: Turns a difference around.
_SWAP = str.maketrans("+-", "-+")


def _by_seed(rows: list[dict[str, Any]], method: str) -> dict[int, Array]:
    """Return regrets and the share of failures by seed: (parties, judged + 1) each."""
    found = {}
    for row in rows:
        if row["method"] == method:
            share = np.array(row["failed"]) / row["evaluations"]
            found[row["seed"]] = np.column_stack([row["regret"], share])
    return found


def _gains(other: dict[int, Array], mine: dict[int, Array]) -> list[str]:
    """Return other less mine, with 95 % intervals over parties, of the seeds both have."""
    seeds = sorted(mine.keys() & other.keys())
    differences = np.mean([other[s] - mine[s] for s in seeds], axis=0)  # (parties, judged + 1)
    error = differences.std(axis=0, ddof=1) / np.sqrt(len(differences))
    width = error * stats.t.ppf(0.975, len(differences) - 1)
    return [f"{m:+.3f} ± {w:.3f}" for m, w in zip(differences.mean(axis=0), width, strict=True)]


def written(page: str) -> str:
    """Return the page with the tables of what is saved."""
    for name in FEDERATIONS:
        if f"<!-- agent: {name} -->" in page:
            page = filled(page, f"agent: {name}", table(name))
    return page


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("command", choices=["run", "table", "page"])
    parser.add_argument("federations", nargs="*", choices=[*FEDERATIONS, []])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=FIRST_SEED)
    parser.add_argument("--methods", nargs="*", help="only these (beginnings of names)")
    given = parser.parse_args()
    if given.command == "page":
        PAGE.write_text(written(PAGE.read_text()))
    elif given.command == "table":
        print("\n".join(line for name in FEDERATIONS for line in [*table(name), ""]))
    else:
        for name in given.federations or FEDERATIONS:
            store(name, range(given.first, given.first + given.seeds), given.methods)


if __name__ == "__main__":
    main()
