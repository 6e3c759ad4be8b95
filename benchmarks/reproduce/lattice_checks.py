"""What the lattices of landmine and activity change, measured.

``python -m benchmarks.reproduce --tables`` computes all tables, and these measurements where they
are not saved yet. The page shows them below the exceptions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.tasks.task import Task

from .dp_fts_de import ACTIVITY, LANDMINE, NO_CLIP, Settings, de, dp, ts
from .drivers import driver, on_lattice, prepared
from .figures import Run
from .lattice import interpolated, lattice_of, values_of
from .reasons import Reason


def parties(settings: Mapping[str, Any]) -> Iterator[Task]:
    """Yield the tasks of a federation on data."""
    given = {k: v for k, v in settings.items() if k not in ("task-seed", "rounds", "draws")}
    spec = RunSpec.from_mapping({"preset": "paper", "strategy": "local-ts", **given, "rounds": 1})
    agents = spec.run.agents or 0
    for n in range(agents):
        yield prepared(spec.task, spec.run.task, n, agents, int(settings["task-seed"]))


@driver
def lattice_federation(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """A federation on its lattice, also where the saved run of the figure is exact."""
    found = on_lattice(settings, seed)
    if found is None:
        raise ValueError(f"there is no lattice for {settings}")
    return found


@driver
def interpolation(settings: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """The error that a table would have between its points, against exact scores, at random points.

    ``nearest`` is the error where the score of the nearest point is taken.
    """
    rng, errors, nearest, scores = np.random.default_rng(seed), [], [], []
    for task in parties(settings):
        lattice = lattice_of(task)
        assert lattice is not None
        units = task.space.sample(int(settings["draws"]), rng)
        exact = np.array([task.evaluate(task.space.from_unit(u), rng=rng) for u in units])
        errors.append(interpolated(task, lattice, units) - exact)
        nearest.append(values_of(task, lattice)[lattice.nearest(units)] - exact)
        scores.append(exact)
    return {
        "rms": float(np.sqrt(np.mean(np.square(errors)))),
        "mean": float(np.mean(errors)),
        "largest": float(np.abs(errors).max()),
        "nearest": float(np.sqrt(np.mean(np.square(nearest)))),
        "spread": float(np.std(scores)),
    }


def _beside(of: Settings, name: str) -> dict[str, Run]:
    """Three methods in the whole space and on the lattice."""
    methods = {"TS": ts(of), "FTS-DE": de(of, clip=NO_CLIP),
               "DP-FTS-DE q=.35 z=1": dp(of, 0.35, 1.0)}  # fmt: skip
    rows: dict[str, Run] = {}
    for label, run in methods.items():
        rows[f"{name}, {label}, whole space"] = run
        rows[f"{name}, {label}, lattice"] = Run("lattice_federation", run.settings)
    return rows


#: Written like the reasons; of no figure in particular.
LATTICE_CHECKS = (
    Reason(
        "Values between the points of a lattice are not interpolated",
        ("landmine", "activity"),
        "A table has the scores of each party at 49 x 49 points (landmine) or 17 x 33 x 33 points "
        "(activity), and agents choose among these, so that every score is the task's own. A table "
        "that is interpolated would be good enough for landmine, and useless for activity: with "
        "large steps its training is chaotic, and the accuracy changes from point to point. Errors "
        "at twenty random points of each party against exact training:",
        {
            "landmine": Run("interpolation", {**LANDMINE, "draws": 20}),
            "activity": Run("interpolation", {**ACTIVITY, "draws": 20}),
        },
        {"interpolated, root mean square": "rms", "mean": "mean", "largest": "largest",
         "nearest point, root mean square": "nearest", "spread of scores": "spread"},
        1,
    ),
    Reason(
        "Agents on a lattice end where agents in the whole space end",
        ("landmine", "activity"),
        "The same federations with both, on the same seeds; errors as in Figs. 3a and 3b.",
        {**_beside(LANDMINE, "landmine"), **_beside(ACTIVITY, "activity")},
        {"error at the end": "end", "mean of the curve": "mean"},
        5,
    ),
)  # fmt: skip


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
