"""Run the papers' figures again.

    python -m benchmarks.reproduce --list [--json]
    python -m benchmarks.reproduce NAME ... [--quick | --size medium|full] [--seeds N] [--out DIR]
                                        [--charts DIR]
    python -m benchmarks.reproduce --why
    python -m benchmarks.reproduce --left
    python -m benchmarks.reproduce --tables
    python -m benchmarks.reproduce --table docs/evidence/reproduction.md

NAME is a figure of the list, a prefix of names (``fts-2``, ``ldp-bo``), or ``all``. Each run of
one curve and one seed is kept in DIR/KIND.jsonl; what is there is not computed again, so an
interrupted command goes on where it was when it is repeated. ``--why`` makes the measurements that
say why figures come out otherwise than the papers' (reasons.py). ``--left`` lists the checks that
more seeds would decide, the cheapest first. ``--tables`` computes the objectives of landmine and
activity on a lattice (lattice.py), which runs otherwise do when they need them; with ``--exact``
agents search the whole space, which takes six to ten times as long and is kept apart. Data are read
from FLWR_FBO_DATA.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import json
import logging
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr_fbo.tasks.papers.data.sources import DataError

from . import dp_fts_de, fed_pne, fts, ldp_bo, own
from .charts import drawn
from .drivers import make
from .figures import SIZES, Figure, SizeName
from .lattice_checks import LATTICE_CHECKS, compute_tables
from .reasons import REASONS, Reason, section
from .store import Store
from .table import IMAGES, charts, last, left, page

FIGURES: list[Figure] = [
    *dp_fts_de.FIGURES, *fts.FIGURES, *ldp_bo.FIGURES, *fed_pne.FIGURES,
    *own.FIGURES,
]  # fmt: skip
RESULTS = Path(__file__).parent / "results"
#: Seconds between two lines of progress where there is no terminal.
EVERY = 60.0


def chosen(names: list[str]) -> list[Figure]:
    """The figures that are meant; an unknown name is an error that lists what there is."""
    found = []
    for name in names:
        exact = [f for f in FIGURES if f.name == name]
        matching = exact or [f for f in FIGURES if name == "all" or f.name.startswith(name)]
        if not matching:
            close = difflib.get_close_matches(name, [f.name for f in FIGURES], n=3)
            hint = f"; did you mean {' or '.join(close)}?" if close else "; --list shows all names"
            print(f"no figure is called {name!r}{hint}", file=sys.stderr)
            sys.exit(2)
        found += matching
    return list({f.name: f for f in found}.values())


def whole(figure: Figure) -> Figure:
    """The figure with agents that search the whole space and train a model each time."""
    curves = {
        label: replace(run, settings={k: v for k, v in run.settings.items() if k != "lattice"})
        for label, run in figure.curves.items()
    }
    return replace(figure, curves=curves)


def missing(figure: Figure) -> list[str]:
    """What the figure needs and this environment has not."""
    return [name for name in figure.needs if importlib.util.find_spec(name) is None]


def reproduce(
    figure: Figure, size: SizeName, seeds: int | None, store: Store, folder: Path | None = None
) -> None:
    """Make every run of a figure that is not there yet, print its verdict, and draw it."""
    lacking = missing(figure)
    if lacking:
        print(f"{figure.name}: not run, needs {', '.join(lacking)}", flush=True)
        return
    started, runs, wanted = time.perf_counter(), figure.runs(size), figure.seeds(size, seeds)
    results: dict[str, list[dict[str, Any]]] = {label: [] for label in runs}
    try:
        with Progress(figure.name, len(runs) * len(wanted)) as progress:
            for label, run in runs.items():
                for seed in wanted:
                    progress(f"{label}, seed {seed}")
                    results[label].append(store.make(run, seed, make))
    except DataError as error:
        print(f"{figure.name}: not run, {error}", flush=True)
        return
    verdict, findings = figure.verdict(results)
    seconds = time.perf_counter() - started
    print(f"\n{figure.name} ({figure.figure}), {size}, {len(wanted)} seeds, {seconds:.0f} s")
    print(f"  claim: {figure.claim}")
    for label, found in results.items():
        numbers = [figure.number(r) for r in found]
        mean = sum(numbers) / len(numbers)
        epsilon = found[0].get("epsilon")
        told = "" if epsilon is None else f"  epsilon {epsilon:.2f}"
        print(f"  {label:<24} {mean:.4g}{told}")
    for finding in findings:
        print(f"  {finding.outcome}: {finding.says} ({finding.evidence})")
    print(f"  {verdict}{': ' * bool(figure.obstacle)}{figure.obstacle}", flush=True)
    chart = drawn(figure, runs, results)
    if folder is not None and chart is not None:
        save({figure.name: chart}, folder)
        print(f"  drawn in {folder / figure.name}.svg", flush=True)


class Progress:
    """Which run is being made, of how many: rewritten in a terminal, a line a minute elsewhere."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.count = name, total, 0
        self.terminal, self.told = sys.stderr.isatty(), time.monotonic()

    def __call__(self, what: str) -> None:
        self.count += 1
        text = f"{self.name}: run {self.count} of {self.total}, {what}"
        if self.terminal:
            print(f"\r{text[:79]:<79}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self.told >= EVERY:
            self.told = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        """Make way for the verdict, or for why there is none."""
        if self.terminal:
            print(f"\r{'':<79}\r", end="", file=sys.stderr, flush=True)


def save(found: dict[str, str], folder: Path) -> None:
    """Charts as files under their figures' names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in found.items():
        (folder / f"{name}.svg").write_text(text)


def explain(reason: Reason, store: Store) -> None:
    """Make every measurement of a reason that is not there yet, and print it."""
    try:
        for run in reason.rows.values():
            for seed in reason.seeds_of_runs:
                store.make(run, seed, make)
    except DataError as error:
        print(f"{reason.title}: not measured, {error}", flush=True)
        return
    print("\n".join(section(reason, store)), flush=True)


def listing(store: Store) -> list[dict[str, object]]:
    """Every figure with its claim and its last verdict."""
    entries: list[dict[str, object]] = []
    for figure in FIGURES:
        found = last(figure, store)
        entries.append(
            {
                "name": figure.name,
                "figure": figure.figure,
                "claim": figure.claim,
                "verdict": None if found is None else found.verdict,
                "size": None if found is None else found.size,
                "seeds": None if found is None else found.seeds,
            }
        )
    return entries


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true", help="every figure, claim and last verdict")
    parser.add_argument("--json", action="store_true", help="the list as JSON")
    parser.add_argument("--quick", action="store_true", help="the same as --size quick")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--seeds", type=int, help="how many; the size says otherwise")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where results are kept")
    parser.add_argument("--charts", type=Path, help="save a chart of each figure there, as SVG")
    parser.add_argument("--why", action="store_true", help="measure why figures differ, and end")
    parser.add_argument(
        "--left",
        action="store_true",
        help="which checks more seeds would decide, and what they cost",
    )
    parser.add_argument("--tables", action="store_true", help="compute objectives, and end")
    parser.add_argument("--exact", action="store_true", help="search the whole space, train always")
    parser.add_argument("--table", type=Path, help="write the page of all verdicts and end")
    given = parser.parse_args()
    wishes = (given.list, given.json, given.why, given.left, given.table, given.tables, given.names)
    if not any(wishes):
        parser.error("a NAME, --list, --why, --left, --tables or --table is needed")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    try:
        run(given, Store(given.out))
    except KeyboardInterrupt:
        print("\ninterrupted; what was made is kept, the same command goes on", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # whoever was reading has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(given: argparse.Namespace, store: Store) -> None:
    """What the command line asks for."""
    if given.json:
        print(json.dumps(listing(store), indent=2))
    elif given.list:
        for entry in listing(store):
            print(f"{entry['name']:<16} {entry['verdict'] or '-':<17} {entry['claim']}")
    elif given.why:
        for reason in REASONS:
            explain(reason, store)
    elif given.left:
        print("\n".join(left(FIGURES, store)))
    elif given.tables:
        compute_tables()
        for check in LATTICE_CHECKS:
            explain(check, store)
    elif given.table:
        given.table.write_text(page(FIGURES, store))
        save(charts(FIGURES, store), given.table.parent / IMAGES)
    else:
        size = "quick" if given.quick else given.size
        for figure in chosen(given.names):
            chosen_form = whole(figure) if given.exact else figure
            reproduce(chosen_form, size, given.seeds, store, given.charts)


if __name__ == "__main__":
    main()
