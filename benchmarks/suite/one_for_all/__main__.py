"""One setting for all, at one party's epsilon: test accuracy of FedAvg with the chosen setting.

    python -m benchmarks.suite.one_for_all list
    python -m benchmarks.suite.one_for_all run [--case WORDS ...] [--seeds 0 1] [--epsilon 1 3]
    python -m benchmarks.suite.one_for_all page [--results FILE] [--out FILE]

Every method chooses one setting for all parties, at delta 1e-5, from so many evaluations a party.
The parties then train one model by FedAvg with that setting, without any noise, and the accuracy
on test data is printed against the evaluations per party. Runs that were saved are not made
again; other seeds than the suite's reported ones are development, and reach no page.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.pages import filled
from benchmarks.suite import REPORTED, VERSION
from benchmarks.suite.contestants import play
from benchmarks.suite.federation import MissingDataError, Parties
from benchmarks.suite.one_for_all.cases import CASES, Case
from benchmarks.suite.page import DEVELOPMENT as WARNING
from benchmarks.suite.page import PAGE
from benchmarks.suite.ranking import interval_of
from benchmarks.suite.results import DEVELOPMENT, RESULTS, Record, Store, is_development

EPSILONS = (0.25, 0.5, 1.0, 3.0, 8.0)
NAME = "one-for-all"
MARK = "one-for-all"
SEEDS = REPORTED[:5]
#: What the others are compared with.
REFERENCE = ("voting", 100)
NOTHING = [
    "No reported run is saved yet: `python -m benchmarks.suite.one_for_all run`, and then `page`."
]


@dataclass(frozen=True)
class Chooser:
    """A method that chooses one setting for all, with the evaluations that each party makes."""

    name: str
    strategy: str
    evaluations: int
    settings: Mapping[str, Any]

    def for_epsilon(self, epsilon: float) -> dict[str, Any]:
        return {"epsilon": epsilon, "delta": 1e-5, **self.settings}


CHOOSERS: tuple[Chooser, ...] = (
    *(Chooser("ours", "dp-fts-de", t, {}) for t in (5, 10, 20)),
    Chooser("ours, 8 finalists", "dp-fts-de", 20, {"finalists": 8}),
    Chooser("ours, 8 of a list", "dp-fts-de", 20, {"finalists": 8, "finalists-from": "list"}),
    *(Chooser("voting", "voting", t, {}) for t in (20, 100)),
    Chooser("voting as published", "voting", 100, {"design": "grid", "neighbours": "replaced"}),
    *(Chooser("fed-pne", "fed-pne", t, {"most-means": 16}) for t in (20, 100)),
)


def choose(case: Case, chooser: Chooser, epsilon: float, seed: int) -> dict[str, Any] | None:
    """Return the setting that a method recommends to all; None where it recommends none."""
    parties = Parties(case.federation(chooser.evaluations), seed)
    return play(parties, chooser.strategy, seed, chooser.for_epsilon(epsilon))


def judged(case: Case, params: Mapping[str, Any], seed: int) -> float:
    """Return FedAvg's test accuracy with this setting."""
    task = Parties(case.federation(1), seed).tasks[0]
    found = task.expected(params)
    assert found is not None
    return found


def random_accuracy(case: Case, seed: int, draws: int = 20) -> float:
    """Return the mean accuracy of settings drawn at random: what no evaluation gives."""
    parties = Parties(case.federation(1), seed)
    rng = np.random.default_rng([seed, 23])
    units = parties.space.sample(draws, rng)
    return float(np.mean([judged(case, parties.space.from_unit(u), seed) for u in units]))


def record(case: Case, name: str, evaluations: int, epsilon: float | None, seed: int) -> Record:
    return {
        "suite": VERSION, "federation": NAME, "case": case.name, "method": name,
        "evaluations": evaluations, "asked_epsilon": epsilon, "seed": seed,
        "development": is_development(seed),
    }  # fmt: skip


def _key(row: Record) -> tuple[Any, ...]:
    return tuple(row[k] for k in ("case", "method", "evaluations", "asked_epsilon", "seed"))


def run(cases: Sequence[Case], epsilons: Sequence[float], seeds: Sequence[int],
        folder: Path | None) -> int:  # fmt: skip
    """Make the missing runs; return 1 if the data of a case are missing."""
    status = 0
    for case in cases:
        try:
            for seed in seeds:
                store = Store(folder or (DEVELOPMENT if is_development(seed) else RESULTS))
                _run_case(case, epsilons, seed, store)
        except MissingDataError as error:
            print(f"{case.name}: left out: {error}", file=sys.stderr)
            status = 1
    return status


def _run_case(case: Case, epsilons: Sequence[float], seed: int, store: Store) -> None:
    known = {_key(row) for row in store.read(NAME)}

    def add(row: Record, accuracy: float, params: Any, began: float) -> None:
        cpu = round(time.process_time() - began, 1)
        store.add({**row, "accuracy": accuracy, "params": params, "cpu_seconds": cpu})
        what = f"{row['method']}, {row['evaluations']} evaluations, epsilon {row['asked_epsilon']}"
        print(f"{case.name}  seed {seed}  {what}: {accuracy:.3f}, {cpu:.0f} s", flush=True)

    row = record(case, "random", 0, None, seed)
    if _key(row) not in known:
        began = time.process_time()
        add(row, random_accuracy(case, seed), None, began)
    for chooser in CHOOSERS:
        for epsilon in epsilons:
            row = record(case, chooser.name, chooser.evaluations, epsilon, seed)
            if _key(row) in known:
                continue
            began = time.process_time()
            params = choose(case, chooser, epsilon, seed)
            # A method that recommends nothing leaves the parties with a random setting.
            accuracy = random_accuracy(case, seed) if params is None else judged(case, params, seed)
            add(row, accuracy, params, began)


# ------------------------------------------------------------------ the page


def content(rows: Sequence[Record]) -> list[str]:
    """Return the generated part of the page: a table a case, and where voting wins."""
    if not rows:
        return list(NOTHING)
    lines = [WARNING, ""] if any(r["development"] for r in rows) else []
    wins: list[str] = []
    tables: list[str] = []
    by_case = {c.name: [r for r in rows if r["case"] == c.name] for c in CASES}
    by_case = {case: mine for case, mine in by_case.items() if mine}
    for case, mine in by_case.items():
        tables += [*_table(case, mine), ""]
        wins += _voting_wins(case, mine)
    lines += [*_over_cases(by_case), "", *tables]
    lines += ["Where the vote of 100 is ahead of a recommendation of ours from 20, by more than "
              f"both intervals: {'; '.join(wins) if wins else 'nowhere'}."]  # fmt: skip
    return lines


def _over_cases(by_case: Mapping[str, Sequence[Record]]) -> list[str]:
    """Return the table of means over the cases in which everything was run."""
    means = {case: {k: v[0] for k, v in _means(rows).items()} for case, rows in by_case.items()}
    keys = list(dict.fromkeys(k for found in means.values() for k in found))
    whole = [found for found in means.values() if len(found) == len(keys)]
    epsilons = sorted({e for _, _, e in keys if e is not None})
    lines = [
        f"**Mean over {len(whole)} cases**: accuracy of FedAvg, and in brackets in how many cases "
        "a method is ahead of the vote of 100",
        "",
        f"| method | evaluations of a party | {' | '.join(f'epsilon {e:g}' for e in epsilons)} |",
        f"|---|---:|{'---:|' * len(epsilons)}",
    ]
    for method, evaluations in _in_order(keys):
        cells = []
        for e in epsilons:
            key = (method, evaluations, e)
            key = key if key in keys else (method, evaluations, None)
            shown = f"{np.mean([found[key] for found in whole]):.3f}" if whole else "-"
            if (*REFERENCE, e) in keys and (method, evaluations) != REFERENCE:
                shown += f" ({sum(found[key] > found[*REFERENCE, e] for found in whole)})"
            cells.append(shown)
        lines.append(f"| {method} | {evaluations} | {' | '.join(cells)} |")
    return lines


def _in_order(keys: Iterable[tuple[str, int, float | None]]) -> list[tuple[str, int]]:
    """Return methods with their evaluations, random settings first, then as listed above."""
    known = [("random", 0), *((c.name, c.evaluations) for c in CHOOSERS)]
    found = dict.fromkeys((m, t) for m, t, _ in keys)
    return sorted(found, key=lambda k: known.index(k) if k in known else len(known))


def _means(rows: Sequence[Record]) -> dict[tuple[str, int, float | None], tuple[float, float]]:
    grouped: dict[tuple[str, int, float | None], list[float]] = {}
    for r in rows:
        key = (r["method"], r["evaluations"], r["asked_epsilon"])
        grouped.setdefault(key, []).append(r["accuracy"])
    return {key: interval_of(values) for key, values in grouped.items()}


def _table(case: str, rows: Sequence[Record]) -> list[str]:
    means = _means(rows)
    epsilons = sorted({r["asked_epsilon"] for r in rows if r["asked_epsilon"] is not None})
    seeds = len({r["seed"] for r in rows})
    head = " | ".join(f"epsilon {e:g}" for e in epsilons)
    lines = [
        f"**{case}**, {seeds} seed{'' if seeds == 1 else 's'}: accuracy of FedAvg", "",
        f"| method | evaluations of a party | {head} |", f"|---|---:|{'---:|' * len(epsilons)}",
    ]  # fmt: skip
    for method, evaluations in _in_order(means):
        cells = [means.get((method, evaluations, None)) or means.get((method, evaluations, e))
                 for e in epsilons]  # fmt: skip
        # One seed has no interval.
        spread = [f" ± {c[1]:.3f}" if c and seeds > 1 else "" for c in cells]
        shown = " | ".join(
            "-" if c is None else f"{c[0]:.3f}{half}" for c, half in zip(cells, spread, strict=True)
        )
        lines.append(f"| {method} | {evaluations} | {shown} |")
    return lines


def _voting_wins(case: str, rows: Sequence[Record]) -> list[str]:
    means, found = _means(rows), []
    if len({r["seed"] for r in rows}) < 2:  # which have no interval
        return found
    for epsilon in sorted({r["asked_epsilon"] for r in rows if r["asked_epsilon"] is not None}):
        vote = means.get(("voting", 100, epsilon))
        for name in ("ours", "ours, 8 finalists", "ours, 8 of a list"):
            ours = means.get((name, 20, epsilon))
            if vote and ours and vote[0] - vote[1] > ours[0] + ours[1]:
                against = f"{vote[0]:.3f} against {ours[0]:.3f}"
                found.append(f"{case} at epsilon {epsilon:g}, `{name}` ({against})")
    return found


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite.one_for_all")
    parser.add_argument("command", choices=["list", "run", "page"])
    parser.add_argument("--case", nargs="+", help="words that a case's name must hold")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--epsilon", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--results", type=Path, help="folder of the results")
    parser.add_argument("--out", type=Path, default=PAGE, help="page to write")
    asked = parser.parse_args(given)
    cases = [c for c in CASES if all(word in c.name for word in asked.case or ())]
    if asked.command == "list":
        print("\n".join(c.name for c in cases))
        return 0
    if asked.command == "run":
        return run(cases, asked.epsilon, asked.seeds, asked.results)
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
