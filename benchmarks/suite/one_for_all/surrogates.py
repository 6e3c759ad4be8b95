"""One setting for all on surrogates: the loss of what is recommended, and of parties' own picks.

    python -m benchmarks.suite.one_for_all.surrogates run [--federation NAME ...] [--seeds 1 2]
        [--epsilon 1 3] [--method WORDS] [--results FOLDER]
    python -m benchmarks.suite.one_for_all.surrogates page [--results FOLDER] [--out FILE]

Every method recommends one setting to all parties, at delta 1e-5. Its loss is the mean over the
parties, 1 for the median random setting and 0 for the best one known to a party. Runs that were
saved are not made again; other seeds than the reported ones are development.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import filled
from benchmarks.suite import REPORTED, VERSION
from benchmarks.suite.contestants import pair, play
from benchmarks.suite.federation import Federation, MissingDataError, Parties
from benchmarks.suite.federations.yahpo import RPART_60
from benchmarks.suite.one_for_all.mixed import BOOSTING, LEARNER
from benchmarks.suite.page import DEVELOPMENT as WARNING
from benchmarks.suite.page import PAGE
from benchmarks.suite.ranking import interval_of
from benchmarks.suite.results import DEVELOPMENT, RESULTS, Record, Store, is_development

NAME = MARK = "one-for-all-surrogates"
EPSILONS = (0.25, 0.5, 1.0, 3.0, 8.0)
SEEDS = REPORTED[:5]
FEDERATIONS: tuple[Federation, ...] = (RPART_60, BOOSTING, LEARNER)
#: Methods by name: the strategy, the evaluations of a party, and settings.
METHODS: dict[str, tuple[str, int, Mapping[str, Any]]] = {
    "voting": ("voting", 100, {}),
    "ours, 8 finalists": ("dp-fts-de", 20, {"finalists": 8}),
    "ours, 8 of a list": ("dp-fts-de", 20, {"finalists": 8, "finalists-from": "list"}),
    "ours, 20 evaluations": ("dp-fts-de", 20, {}),
    "ours, 12 evaluations": ("dp-fts-de", 12, {}),
}
REFERENCE = "voting"
NOTHING = ["No reported run is saved yet: `python -m benchmarks.suite.one_for_all.surrogates run`."]


def measure(federation: Federation, method: str, epsilon: float, seed: int) -> Record:
    """Make one run, and return its record."""
    strategy, evaluations, given = METHODS[method]
    settings = {"epsilon": epsilon, "delta": 1e-5, **given}
    limited = dataclasses.replace(federation, evaluations=evaluations)
    parties, began = Parties(limited, seed), time.process_time()
    own = None
    if strategy == "voting":  # nobody keeps a pick of its own
        params = play(parties, strategy, seed, settings)
        unit = None if params is None else parties.space.to_unit(params)
        losses = None if unit is None else [parties.loss(n, unit) for n in range(parties.agents)]
    else:
        trace = pair(strategy, settings)(parties, seed)
        losses, own = trace.recommended, round(float(trace.picks[:, -1].mean()), 5)
    return {
        "suite": VERSION, "federation": NAME,
        "case": federation.name, "version": federation.version,
        "method": method, "evaluations": evaluations, "asked_epsilon": epsilon, "seed": seed,
        "development": is_development(seed), "own": own,
        # A method that recommends nothing leaves the parties with a random setting.
        "recommended": 1.0 if losses is None else round(float(np.mean(losses)), 5),
        "cpu_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def _key(row: Record) -> tuple[Any, ...]:
    return tuple(row[k] for k in ("case", "version", "method", "asked_epsilon", "seed"))


def run(federations: Sequence[Federation], methods: Sequence[str], epsilons: Sequence[float],
        seeds: Sequence[int], folder: Path | None) -> int:  # fmt: skip
    """Make the missing runs, seed by seed; return 1 if the data of a federation are missing."""
    status = 0
    for seed in seeds:
        store = Store(folder or (DEVELOPMENT if is_development(seed) else RESULTS))
        for federation in federations:
            try:
                _run(federation, methods, epsilons, seed, store)
            except MissingDataError as error:
                print(f"{federation.name}: left out: {error}", file=sys.stderr)
                status = 1
    return status


def _run(federation: Federation, methods: Sequence[str], epsilons: Sequence[float], seed: int,
         store: Store) -> None:  # fmt: skip
    known = {_key(row) for row in store.read(NAME)}
    for method in methods:
        for epsilon in epsilons:
            if (federation.name, federation.version, method, epsilon, seed) in known:
                continue
            row = measure(federation, method, epsilon, seed)
            store.add(row)
            print(f"{federation.name}  seed {seed}  {method}, epsilon {epsilon:g}: "
                  f"{row['recommended']:.3f}, {row['cpu_seconds']:.0f} s", flush=True)  # fmt: skip


# ------------------------------------------------------------------ the page


def content(rows: Sequence[Record]) -> list[str]:
    """Return the generated part of the page: a table a federation, and where voting wins."""
    if not rows:
        return list(NOTHING)
    lines = [WARNING, ""] if any(r["development"] for r in rows) else []
    wins: list[str] = []
    for federation in FEDERATIONS:
        mine = [r for r in rows if r["case"] == federation.name]
        if mine:
            lines += [*_table(federation, mine), ""]
            wins += _voting_wins(federation.name, mine)
    lines += ["Means in which the vote is ahead of our recommendation with 8 finalists: "
              f"{'; '.join(wins) if wins else 'none'}."]  # fmt: skip
    return lines


def _cells(rows: Sequence[Record], field: str, method: str) -> list[str]:
    shown = []
    for epsilon in EPSILONS:
        found = [r[field] for r in rows if (r["method"], r["asked_epsilon"]) == (method, epsilon)]
        if not found or found[0] is None:
            shown.append("-")
            continue
        mean, half = interval_of(found)
        shown.append(f"{mean:.2f} ± {half:.2f}" if len(found) > 1 else f"{mean:.2f}")
    return shown


def _table(federation: Federation, rows: Sequence[Record]) -> list[str]:
    seeds, head = len({r["seed"] for r in rows}), " | ".join(f"epsilon {e:g}" for e in EPSILONS)
    dimension = f"{federation.parties} parties, {seeds} seed{'' if seeds == 1 else 's'}"
    lines = [f"**{federation.title}**, {dimension}: loss", "",
             f"| method | evaluations of a party | {head} |",
             f"|---|---:|{'---:|' * len(EPSILONS)}"]  # fmt: skip
    for field, what in (("recommended", "one for all"), ("own", "each party's own pick")):
        for method, (_, evaluations, _) in METHODS.items():
            cells = _cells(rows, field, method)
            if set(cells) != {"-"}:
                lines.append(f"| {what}: {method} | {evaluations} | {' | '.join(cells)} |")
    return lines


def _voting_wins(case: str, rows: Sequence[Record]) -> list[str]:
    found = []
    for epsilon in EPSILONS:
        means = {}
        for method in (REFERENCE, "ours, 8 finalists"):
            mine = [r["recommended"] for r in rows
                    if (r["method"], r["asked_epsilon"]) == (method, epsilon)]  # fmt: skip
            means[method] = float(np.mean(mine)) if mine else np.nan
        vote, ours = means.values()
        if vote < ours:
            found.append(f"{case} at epsilon {epsilon:g} ({vote:.2f} against {ours:.2f})")
    return found


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite.one_for_all.surrogates")
    parser.add_argument("command", choices=["run", "page"])
    names = [f.name for f in FEDERATIONS]
    parser.add_argument("--federation", nargs="+", choices=names, default=names)
    parser.add_argument("--method", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--results", type=Path, help="folder of the results")
    parser.add_argument("--out", type=Path, default=PAGE, help="page to write")
    asked = parser.parse_args(given)
    if asked.command == "run":
        chosen = [f for name in asked.federation for f in FEDERATIONS if f.name == name]
        return run(chosen, asked.method, asked.epsilon, asked.seeds, asked.results)
    rows = Store(asked.results or RESULTS).read(NAME)
    if any(r["development"] for r in rows) and asked.out == PAGE:
        print("these are development runs: --out must name another page", file=sys.stderr)
        return 2
    if not asked.out.exists():
        asked.out.write_text(f"<!-- {MARK} -->\n<!-- end -->\n")
    asked.out.write_text(filled(asked.out.read_text(), MARK, content(rows)))
    print(json.dumps({"runs": len(rows), "page": str(asked.out)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
