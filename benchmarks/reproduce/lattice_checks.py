"""What the tables of landmine and activity change, measured.

``python -m benchmarks.reproduce --tables`` computes all tables, and these measurements where they
are not saved yet. The page shows them below the exceptions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.tasks.task import Task

from .checks import interval
from .dp_fts_de import ACTIVITY, LANDMINE, NO_CLIP, TABLES, Settings, de, dp, ts
from .drivers import driver, prepared
from .figures import Run
from .lattice import lattice_of, values_of
from .reasons import Reason
from .store import Store


def parties(settings: Mapping[str, Any]) -> Iterator[Task]:
    """Yield the tasks of a federation on data."""
    given = {k: v for k, v in settings.items() if k not in ("task-seed", "rounds", "draws")}
    spec = RunSpec.from_mapping({"preset": "paper", "strategy": "local-ts", **given, "rounds": 1})
    agents = spec.run.agents or 0
    for n in range(agents):
        yield prepared(spec.task, spec.run.task, n, agents, int(settings["task-seed"]))


@driver
def interpolation(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """The error of a table at random points: interpolated, and of the nearest point."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[Any]] = {"rms": [], "nearest": [], "spread": []}
    for task in parties(settings):
        lattice = lattice_of(task)
        assert lattice is not None
        units, table = task.space.sample(int(settings["draws"]), rng), values_of(task, lattice)
        exact = np.array([task.evaluate(task.space.from_unit(u), rng=rng) for u in units])
        for name, interpolates in (("rms", True), ("nearest", False)):
            made = replace(lattice, interpolates=interpolates)
            found[name].append(made.scores(table[None], units[None])[0] - exact)
        found["spread"].append(exact)
    errors = np.array(found["rms"])
    return {
        "rms": float(np.sqrt(np.mean(np.square(errors)))),
        "mean": float(np.mean(errors)),
        "largest": float(np.abs(errors).max()),
        "nearest": float(np.sqrt(np.mean(np.square(found["nearest"])))),
        "spread": float(np.std(found["spread"])),
    }


def _beside(of: Settings, name: str) -> dict[str, Run]:
    """Three methods with exact scores and from tables."""
    methods = {"TS": ts(of), "FTS-DE": de(of, clip=NO_CLIP),
               "DP-FTS-DE q=.35 z=1": dp(of, 0.35, 1.0)}  # fmt: skip
    rows: dict[str, Run] = {}
    for label, run in methods.items():
        rows[f"{name}, {label}, exact"] = run
        rows[f"{name}, {label}, from tables"] = run.with_(**TABLES[of["task"]])
    return rows


#: Written like the reasons; of no figure in particular.
LATTICE_CHECKS = (
    Reason(
        "Landmine is interpolated, activity is not",
        ("landmine", "activity"),
        "A table has the scores of each party at 49 x 49 points (landmine) or 17 x 33 x 33 points "
        "(activity). Between these the AUC of landmine is interpolated. The accuracy of activity "
        "is not, as training with large steps is chaotic: its agents choose among the points of "
        "the table, where every score is the task's own. Errors of both at twenty random points of "
        "each party, against exact training:",
        {
            "landmine": Run("interpolation", {**LANDMINE, "draws": 20}),
            "activity": Run("interpolation", {**ACTIVITY, "draws": 20}),
        },
        {"interpolated, root mean square": "rms", "mean": "mean", "largest": "largest",
         "nearest point, root mean square": "nearest", "spread of scores": "spread"},
        1,
    ),
    Reason(
        "Tables raise all errors on landmine alike",
        ("landmine", "activity"),
        "The same federations with both, on the same seeds; errors as in Figs. 3a and 3b. On "
        "landmine errors at the end are .006 to .010 higher with a table, whatever the method: an "
        "exact AUC is rough where its table is smooth, so that the best of seventy exact scores is "
        "better by chance. All curves of a figure are from tables. Its checks compare methods, and "
        "the differences between methods agree within their intervals, below.",
        {**_beside(LANDMINE, "landmine"), **_beside(ACTIVITY, "activity")},
        {"error at the end": "end", "mean of the curve": "mean"},
        5,
    ),
)  # fmt: skip


def compared_with_ts(store: Store) -> list[str]:
    """Return a table of methods less TS with exact scores and from tables: mean, interval."""
    lines = ["| error at the end, less that of TS | exact | from tables |", "|---|---|---|"]
    for of in (LANDMINE, ACTIVITY):
        rows = _beside(of, of["task"])
        places = {place: [label for label in rows if label.endswith(place)]
                  for place in ("exact", "from tables")}  # fmt: skip
        found = {label: [store.get(rows[label], seed) for seed in LATTICE_CHECKS[1].seeds_of_runs]
                 for label in rows}  # fmt: skip
        if any(None in made for made in found.values()):
            return []
        ends = {label: np.array([r["end"] for r in made if r]) for label, made in found.items()}
        for whole, on_lattice in list(zip(*places.values(), strict=True))[1:]:
            cells = []
            for label, reference in ((whole, places["exact"][0]),
                                     (on_lattice, places["from tables"][0])):  # fmt: skip
                mean, low, high = interval(ends[label] - ends[reference])
                cells.append(f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]")
            lines.append(f"| {whole.removesuffix(', exact')} | {' | '.join(cells)} |")
    return [*lines, ""]


def compute_tables() -> None:
    """Compute the tables of all parties that are not kept yet, and print how long each took."""
    for of in (LANDMINE, ACTIVITY):
        for n, task in enumerate(parties(of)):
            lattice, started = lattice_of(task), time.process_time()
            assert lattice is not None
            values = values_of(task, lattice)
            took = time.process_time() - started
            print(f"{of['task']}, party {n}: {len(values):,} values, best {values.max():.4f}, "
                  f"{took:.1f} s", flush=True)  # fmt: skip
