"""Run the suite, and write its page.

    python -m benchmarks.suite list
    python -m benchmarks.suite run [--federation NAME ...] [--method NAME ...] [--seeds 0 1]
    python -m benchmarks.suite page [--results DIR] [--out FILE]
    python -m benchmarks.suite cost [--federation NAME ...] [--method NAME ...]

``run`` makes what is missing of the chosen runs: all federations, all methods and the reported
seeds unless told otherwise. A federation is a name of the list, an entry point of the group
``flwr-fbo.federations``, or ``module:attribute``. A method is a name of the list, or any
registered method with settings, such as ``"dp-fts-de epsilon=4 delta=1e-6"``. Runs of other seeds
are development: they are kept apart in ``benchmarks/suite/development``, and never on the page.
``cost`` measures what a run costs on the first parties of a federation, and saves that; ``page``
writes the saved costs as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.pages import filled
from benchmarks.suite import REPORTED
from benchmarks.suite.contestants import CONTESTANTS, Contestant, contestant_named
from benchmarks.suite.federation import Federation, MissingDataError, federation_named
from benchmarks.suite.federations import FEDERATIONS
from benchmarks.suite.page import IMAGES, PAGE, content, missing, write
from benchmarks.suite.results import DEVELOPMENT, RESULTS, Store, is_development, measure

COSTS = Path(__file__).parent / "costs.json"
#: Costs are measured on so many parties.
MEASURED = 3


def listing() -> str:
    """Return the federations and the methods as text."""
    lines = ["federations"]
    for f in FEDERATIONS:
        lines.append(f"  {f.name:<12} {f.parties:>4} parties x {f.evaluations:>3}  {f.title}")
    lines.append("methods")
    lines += [f"  {c.name:<16} {c.kind:<11} {c.label}" for c in CONTESTANTS]
    return "\n".join(lines)


def run(
    federations: Sequence[Federation],
    contestants: Sequence[Contestant],
    seeds: Sequence[int] | None,
    folder: Path | None,
) -> int:
    """Make the missing runs; return 1 if a federation's data are missing."""
    status = 0
    for f in federations:
        for seed in seeds if seeds is not None else REPORTED[: f.repetitions]:
            store = Store(folder or (DEVELOPMENT if is_development(seed) else RESULTS))
            for c in contestants:
                if store.holds(f, c.name, seed):
                    continue
                began = time.monotonic()
                try:
                    record = measure(f, c, seed)
                except MissingDataError as error:
                    print(f"{f.name}: left out: {error}", file=sys.stderr)
                    status = 1
                    break
                store.add(record)
                print(
                    f"{f.name}  seed {seed}  {c.name}: last loss {record['curve'][-1]:.3f}, "
                    f"{time.monotonic() - began:.0f} s",
                    flush=True,
                )
    return status


def costs(
    federations: Sequence[Federation], contestants: Sequence[Contestant], measuring: bool = False
) -> list[str]:
    """Return CPU minutes of one run of each method as a table; measure missing ones if asked."""
    for f in federations if measuring else ():
        for c in contestants:
            if c.name not in _known_costs().get(f.name, {}):
                try:
                    minutes = round(cpu_minutes(f, c), 2)
                except MissingDataError as error:
                    print(f"{f.name}: left out: {error}", file=sys.stderr)
                    break
                known = _known_costs()  # read again: another command may have added to the file
                known.setdefault(f.name, {})[c.name] = minutes
                COSTS.write_text(json.dumps(known, indent=1) + "\n")
                print(f"{f.name}  {c.name}: {minutes:.2f} CPU minutes", flush=True)
    known = _known_costs()
    head = f"| CPU minutes of a run | {' | '.join(f.name for f in federations)} |"
    rows = []
    for c in contestants:
        cells = [_minutes(known.get(f.name, {}).get(c.name)) for f in federations]
        rows.append(f"| {c.name} | {' | '.join(cells)} |")
    seeds = " | ".join(str(f.repetitions) for f in federations)
    whole = [f.repetitions * sum(known.get(f.name, {}).values()) for f in federations]
    last = f"| **all of these, all seeds** | {' | '.join(f'{m:.0f}' for m in whole)} |"
    return [
        head,
        f"|---|{'---:|' * len(federations)}",
        *rows,
        f"| reported seeds | {seeds} |",
        last,
    ]


def _known_costs() -> dict[str, dict[str, float]]:
    """Return the saved CPU minutes, by federation and method."""
    return dict(json.loads(COSTS.read_text())) if COSTS.exists() else {}


def _minutes(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def cpu_minutes(federation: Federation, contestant: Contestant) -> float:
    """Return about how many CPU minutes a run takes, from a run of the first parties alone."""
    cut = replace(federation, parties=min(MEASURED, federation.parties), normalised=False)
    record, factor = measure(cut, contestant, 0), federation.parties / cut.parties
    # With everybody's raw scores, each of N parties asks the models of N - 1 others.
    grows = 2 if contestant.kind == "raw scores" else 1
    seconds = record["cpu_seconds"] * factor**grows + record["cpu_evaluations"] * factor
    return float(seconds / 60.0)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite")
    parser.add_argument("command", choices=["list", "run", "page", "cost"])
    parser.add_argument("--federation", nargs="+", help="names; all unless told otherwise")
    parser.add_argument("--method", nargs="+", help="names; all unless told otherwise")
    parser.add_argument("--seeds", nargs="+", type=int, help="the reported ones unless told")
    parser.add_argument("--results", type=Path, help="folder of the results")
    parser.add_argument("--out", type=Path, help="page to write; it must have the suite's marks")
    return parser


def main(given: Sequence[str] | None = None) -> int:
    asked = arguments().parse_args(given)
    sys.path.insert(0, str(Path.cwd()))  # for module:attribute
    federations = (
        [federation_named(name) for name in asked.federation]
        if asked.federation
        else list(FEDERATIONS)
    )
    contestants = [contestant_named(m) for m in asked.method] if asked.method else CONTESTANTS
    if asked.command == "list":
        print(listing())
        return 0
    if asked.command == "run":
        return run(federations, contestants, asked.seeds, asked.results)
    if asked.command == "cost":
        print("\n".join(costs(federations, contestants, measuring=True)))
        return 0
    store = Store(asked.results or RESULTS)
    records = store.read()
    if any(r["development"] for r in records) and (asked.out is None or asked.out == PAGE):
        print("these are development runs: --out must name another page", file=sys.stderr)
        return 2
    for line in missing(records, federations, [c.name for c in contestants]):
        print(f"incomplete: {line}", file=sys.stderr)
    out = asked.out or PAGE
    if out == PAGE:
        out.write_text(filled(out.read_text(), "costs", costs(FEDERATIONS, CONTESTANTS)))
    if not out.exists():
        out.write_text("<!-- suite -->\n<!-- end -->\n")
    write(records, federations, out, IMAGES if out == PAGE else out.parent / "images" / "suite")
    print(f"{out}: {len(content(records, federations))} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
