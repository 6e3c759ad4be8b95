"""Results of the suite as files: one line of JSON for each run, one file for each federation.

Every line has these fields:

==================  ==============================================================================
suite               the version of the suite
federation          the name of the federation
version             the version of the federation
method, label       the name and the label of the method
kind, settings      what the method shares, and its settings
seed, development   the seed; whether it is a development seed, which is never reported
evaluations, shown  the evaluations of each party; those after which ``loss`` is given
loss                the loss of each party's pick after ``shown`` evaluations: (N, len(shown))
curve               the mean of that loss over parties after every evaluation: (T,)
recommended         the loss of the one setting recommended to all at every party, or null
epsilon, delta      the guarantee of the run, or null
asked_epsilon       the epsilon that the method was asked to keep, or null
failures            the number of failed evaluations
cpu_seconds         CPU seconds of the run without its evaluations
cpu_evaluations     CPU seconds of the evaluations and of judging
flwr_fbo            the version of the package
==================  ==============================================================================

A run whose line is there is not made again. A line that an interruption cut off is made again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import flwr_fbo
from benchmarks.suite import REPORTED, VERSION
from benchmarks.suite.contestants import Contestant
from benchmarks.suite.federation import Federation

RESULTS = Path(__file__).parent / "results"
DEVELOPMENT = Path(__file__).parent / "development"

Record = dict[str, Any]


def is_development(seed: int) -> bool:
    return seed not in REPORTED


def measure(federation: Federation, contestant: Contestant, seed: int) -> Record:
    """Make one run and return its record."""
    if federation.normalised:
        federation.scale()  # before the clock starts: made once for a version
    began = time.process_time()
    parties = federation.parties_with(seed)
    prepared = time.process_time()
    trace = contestant.run(parties, seed)
    cpu = time.process_time() - prepared
    if not np.isfinite(trace.picks).all() or trace.picks.shape != (
        federation.parties, federation.evaluations
    ):  # fmt: skip
        raise SystemExit(f"{contestant.name} must pick after every evaluation of every party")
    at = [t - 1 for t in federation.shown]
    return {
        "suite": VERSION,
        "federation": federation.name,
        "version": federation.version,
        "method": contestant.name,
        "label": contestant.label,
        "kind": contestant.kind,
        "settings": dict(contestant.settings),
        "seed": seed,
        "development": is_development(seed),
        "evaluations": federation.evaluations,
        "shown": list(federation.shown),
        "loss": np.round(trace.picks[:, at], 5).tolist(),
        "curve": np.round(trace.picks.mean(axis=0), 5).tolist(),
        "recommended": None if trace.recommended is None else _rounded(trace.recommended),
        "epsilon": trace.epsilon,
        "delta": trace.delta,
        "asked_epsilon": contestant.epsilon,
        "failures": trace.failures,
        "cpu_seconds": round(cpu - parties.evaluating, 2),
        "cpu_evaluations": round(parties.evaluating + prepared - began, 2),
        "flwr_fbo": flwr_fbo.__version__,
    }


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(float(v), 5) for v in values]


class Store:
    """The records in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, federation: str | None = None) -> list[Record]:
        """Return the records of one federation, or of all; those of other versions are left out."""
        names = [f"{federation}.jsonl"] if federation else None
        files = sorted(self.folder.glob("*.jsonl"))
        chosen = [f for f in files if names is None or f.name in names]
        found = [row for file in chosen for line in file.read_text().splitlines()
                 if (row := _parsed(line)) is not None]  # fmt: skip
        return [row for row in found if row["suite"] == VERSION]

    def holds(self, federation: Federation, method: str, seed: int) -> bool:
        """Return whether a run was made."""
        wanted = (federation.version, method, seed)
        rows = self.read(federation.name)
        return any((r["version"], r["method"], r["seed"]) == wanted for r in rows)

    def add(self, record: Record) -> None:
        """Append a record to the file of its federation."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{record['federation']}.jsonl"
        whole = not path.exists() or path.read_bytes()[-1:] in (b"\n", b"")
        with path.open("a") as file:
            # After a cut line, the new one must begin on a line of its own.
            file.write(("" if whole else "\n") + json.dumps(record, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _parsed(line: str) -> Record | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and "suite" in row else None
