"""Federations: the tuning problems of several parties, with a budget and a way to judge.

A federation is a :class:`~flwr_fbo.tasks.task.Task` whose ``evaluate`` is the score that a party
sees, and whose ``expected`` is the score that it is judged by, which no method sees.

The *loss* of a setting at a party is what all results hold. In a normalised federation the loss
is 1 for the median random setting and 0 for the best setting known. In any other it is 1 less the
judged score.
"""

from __future__ import annotations

import copy
import importlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.space import Space
from flwr_fbo.tasks.task import Partition, Task

REFERENCES = Path(__file__).parent / "references"
#: Other packages add federations by entry points in this group; each names a Federation.
ENTRY_POINTS = "flwr-fbo.federations"
#: Key of the generator of the random settings that losses are normalised by.
_REFERENCE = 2**31 + 7


class MissingDataError(RuntimeError):
    """A federation needs data or a package that are not there; the message says how to get it."""


@dataclass(frozen=True)
class Federation:
    """One federation of the suite.

    Parameters
    ----------
    name, title : str
        The name in commands and files, and a title for people.
    version : int
        Grows whenever task, budget, parties or judging change.
    task : callable
        Returns the task of a party, not prepared yet. Raises MissingDataError without its data.
    parties : int
        The number of parties.
    evaluations : int
        The evaluations of each party, initial points included.
    initial : int, optional
        Random points at the beginning of every method; by default each method's own number.
    shown : tuple of int
        The evaluations after which losses are stored.
    repetitions : int
        The number of reported seeds.
    normalised : bool
        Whether losses are normalised by random settings; the data must then not follow the seed.
    random_settings : int
        The number of random settings of each party for that.
    about : str
        One sentence: where the scores come from, and what is judged.
    """

    name: str
    title: str
    version: int
    task: Callable[[], Task]
    parties: int
    evaluations: int
    initial: int | None = None
    shown: tuple[int, ...] = (1, 3, 5, 8, 10, 15, 20, 30)
    repetitions: int = 5
    normalised: bool = True
    random_settings: int = 1000
    about: str = ""

    def __post_init__(self) -> None:
        kept = sorted({t for t in self.shown if t < self.evaluations} | {self.evaluations})
        object.__setattr__(self, "shown", tuple(kept))

    def parties_with(self, seed: int) -> Parties:
        """Return the federation's parties with their data, for one seed."""
        return Parties(self, seed)

    def scale(self) -> Array:
        """Return the median random score and the best known score of every party: (N, 2).

        Both are computed once for a version of the federation, and kept in a file.
        """
        path = REFERENCES / f"{self.name}-v{self.version}.json"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(np.round(self._measure(), 6).tolist()) + "\n")
        return np.array(json.loads(path.read_text()))

    def _measure(self) -> Array:
        rows, said = [], time.monotonic()
        for n, task in enumerate(prepared(self, 0)):
            rng = np.random.default_rng([_REFERENCE, self.version, n])
            units = task.space.sample(self.random_settings, rng)
            scores = expected_of(task, [task.space.from_unit(u) for u in units])
            rows.append((float(np.median(scores)), float(scores.max())))
            if time.monotonic() - said > 3:
                print(f"{self.name}: random settings of party {n + 1}/{self.parties}", flush=True)
                said = time.monotonic()
        return np.array(rows)


def expected_of(task: Task, settings: Sequence[Mapping[str, Any]]) -> Array:
    """Return the judged scores of many settings: (n,). A task may compute them at once."""
    at_once = getattr(task, "expected_of_all", None)
    if at_once is not None:
        return np.asarray(at_once(settings), dtype=np.float64)
    return np.array([task.expected(s) for s in settings], dtype=np.float64)


def prepared(federation: Federation, seed: int) -> list[Task]:
    """Return one task for each party, with its data."""
    whole = federation.task()
    tasks = [copy.copy(whole) for _ in range(federation.parties)]
    for n, task in enumerate(tasks):
        task.prepare(Partition(n, federation.parties, seed))
    return tasks


class Parties:
    """The parties of a federation in one run, and the losses of what they try.

    Parameters
    ----------
    federation : Federation
        The federation.
    seed : int
        The seed of the run, and of the data where these follow from the seed.
    """

    def __init__(self, federation: Federation, seed: int) -> None:
        self.federation, self.seed = federation, seed
        self.tasks = prepared(federation, seed)
        self.agents = federation.parties
        self.space: Space = self.tasks[0].space
        self.evaluating = 0.0  # CPU seconds of all evaluations
        self._losses: list[dict[tuple[float, ...], float]] = [{} for _ in self.tasks]

    @cached_property
    def _scale(self) -> Array | None:
        return self.federation.scale() if self.federation.normalised else None

    def evaluator(self, party: int, seed: int) -> Evaluator:
        """Return the evaluator of a party, which never shows the judged score."""
        task = self.tasks[party]

        def score(params: Mapping[str, Any], rng: np.random.Generator) -> float:
            began = time.process_time()
            try:
                return float(task.evaluate(params, rng=rng))
            finally:
                self.evaluating += time.process_time() - began

        return Evaluator(self.space, score, MemoryRecords(), (seed, party))

    def loss(self, party: int, unit: Array) -> float:
        """Return the loss of a point of the unit cube at a party."""
        key = tuple(float(u) for u in self.space.snap(np.asarray(unit)[None, :])[0])
        known = self._losses[party]
        if key not in known:
            began = time.process_time()
            judged = self.tasks[party].expected(self.space.from_unit(np.array(key)))
            known[key] = self._loss_of(party, judged)
            self.evaluating += time.process_time() - began
        return known[key]

    def _loss_of(self, party: int, judged: float | None) -> float:
        if judged is None:
            raise ValueError(f"{self.federation.name}: `expected` must return the judged score")
        if self._scale is None:
            return 1.0 - judged
        median, best = self._scale[party]
        # A party whose settings are all equally good cannot lose anything.
        return float((best - judged) / (best - median)) if best > median else 0.0


def federation_named(name: str) -> Federation:
    """Return a federation of the suite, of another package, or ``module:attribute``."""
    from benchmarks.suite.federations import FEDERATIONS

    if ":" in name:
        module, _, attribute = name.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        if not isinstance(found, Federation):
            raise SystemExit(f"{name} must be a Federation, but is {found!r}")
        return found
    known = {f.name: f for f in FEDERATIONS}
    known |= {p.name: p.load() for p in entry_points(group=ENTRY_POINTS)}
    if name not in known:
        raise SystemExit(f"unknown federation {name!r}; known are {', '.join(sorted(known))}")
    return known[name]
