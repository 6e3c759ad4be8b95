"""Results of runs, as lines of JSON: whatever is there is not computed again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .figures import Run

#: Digits that are kept of a measurement.
DIGITS = 6
#: Points that are kept of a curve, beside its mean and its end: its shape.
POINTS = 9


def identity(run: Run) -> str:
    """What stands for a run in the lines of its seeds: what is run, and with which settings."""
    text = json.dumps([run.kind, dict(run.settings)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Store:
    """The results under a directory, a file a kind of run.

    A line a run says what it is, a line each the results of its seeds. A line that was cut off by a
    crash is left out.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._described: set[str] = set()
        self._results: dict[tuple[str, int], dict[str, Any]] = {}
        self._seconds: dict[str, float] = {}
        files = sorted(directory.glob("*.jsonl"))
        for line in (line for file in files for line in file.read_text().splitlines()):
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue
            if "seed" in entry:
                self._results[entry["run"], entry["seed"]] = entry["result"]
                self._seconds[entry["run"]] = entry["cpu_seconds"]
            else:
                self._described.add(entry["run"])

    def get(self, run: Run, seed: int) -> dict[str, Any] | None:
        """The result of a run, if it was made."""
        return self._results.get((identity(run), seed))

    def seconds(self, run: Run) -> float | None:
        """CPU seconds that the last seed of a run took; None if it was never made."""
        return self._seconds.get(identity(run))

    def make(
        self, run: Run, seed: int, work: Callable[[Run, int], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The result of a run, made now unless it is known."""
        known = self.get(run, seed)
        if known is not None:
            return known
        started = time.process_time()
        result = thinned(rounded(work(run, seed)))
        took = round(time.process_time() - started, 2)
        name = identity(run)
        if name not in self._described:
            self._append(run, {"run": name, "kind": run.kind, "settings": dict(run.settings)})
            self._described.add(name)
        self._append(run, {"run": name, "seed": seed, "cpu_seconds": took, "result": result})
        self._results[name, seed], self._seconds[name] = result, took
        return result

    def _append(self, run: Run, entry: Mapping[str, Any]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"{run.kind}.jsonl"
        torn = path.exists() and not path.read_bytes().endswith(b"\n")
        with path.open("a") as file:
            file.write(
                "\n" * torn + json.dumps(entry, allow_nan=False, separators=(",", ":")) + "\n"
            )


def shape_of(curve: Sequence[float]) -> list[float]:
    """Return the points that are kept of a long curve: its ends and points evenly between."""
    return [curve[round(i * (len(curve) - 1) / (POINTS - 1))] for i in range(POINTS)]


def thinned(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result whose curve, where it is long, is a few of its points, its mean and its end."""
    curve = result.get("curve", ())
    if len(curve) <= POINTS:
        return dict(result)
    return {**result, "curve": shape_of(curve), "mean": float(np.mean(curve)), "end": curve[-1]}


def rounded(content: Any) -> Any:
    """Floats to six digits: files stay small and differences readable."""
    if isinstance(content, float):
        return float(f"{content:.{DIGITS}g}")
    if isinstance(content, Mapping):
        return {k: rounded(v) for k, v in content.items()}
    if isinstance(content, (list, tuple)):
        return [rounded(v) for v in content]
    return content.item() if hasattr(content, "item") else content
