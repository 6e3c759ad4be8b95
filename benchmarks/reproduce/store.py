"""Results of runs, one JSON line each: whatever is there is not computed again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .figures import Run

#: Digits that are kept of a measurement.
DIGITS = 6
#: Points that are kept of a curve, beside its mean and its end: its shape.
POINTS = 9


def key_of(run: Run, seed: int) -> str:
    """A run's identity: what is run, with which settings and seed."""
    text = json.dumps([run.kind, dict(run.settings), seed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Store:
    """The results under a directory. A line that was cut off by a crash is left out."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "runs.jsonl"
        self._known: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:
                    continue
                self._known[entry["key"]] = entry

    def get(self, run: Run, seed: int) -> dict[str, Any] | None:
        """The result of a run, if it was made."""
        entry = self._known.get(key_of(run, seed))
        return None if entry is None else entry["result"]

    def make(
        self, run: Run, seed: int, work: Callable[[Run, int], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The result of a run, made now unless it is known."""
        known = self.get(run, seed)
        if known is not None:
            return known
        started = time.process_time()
        result = thinned(rounded(work(run, seed)))
        entry = {
            "key": key_of(run, seed), "kind": run.kind, "settings": dict(run.settings),
            "seed": seed, "cpu_seconds": round(time.process_time() - started, 2),
            "result": result,
        }  # fmt: skip
        self.path.parent.mkdir(parents=True, exist_ok=True)
        torn = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a") as file:
            file.write(
                "\n" * torn + json.dumps(entry, allow_nan=False, separators=(",", ":")) + "\n"
            )
        self._known[entry["key"]] = entry
        return result


def thinned(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result whose curve, where it is long, is a few of its points, its mean and its end."""
    curve = result.get("curve", ())
    if len(curve) <= POINTS:
        return dict(result)
    shape = [curve[round(i * (len(curve) - 1) / (POINTS - 1))] for i in range(POINTS)]
    return {**result, "curve": shape, "mean": float(np.mean(curve)), "end": curve[-1]}


def rounded(content: Any) -> Any:
    """Floats to six digits: files stay small and differences readable."""
    if isinstance(content, float):
        return float(f"{content:.{DIGITS}g}")
    if isinstance(content, Mapping):
        return {k: rounded(v) for k, v in content.items()}
    if isinstance(content, (list, tuple)):
        return [rounded(v) for v in content]
    return content.item() if hasattr(content, "item") else content
