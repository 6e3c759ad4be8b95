"""A run's directory: everything that outlives the run, in files that people can open.

=====================  ==================================================================
file                   what it holds
=====================  ==================================================================
``config.json``        every setting of the run, by its kebab-case key
``environment.json``   versions of Python and of the packages that matter
``ledger.jsonl``       privacy: one line a release, written before the release is drawn
``checkpoint.npz``     the server's state after the last closed round
``rounds.csv``         one line a round: replies, failures, epsilon, seconds
``result.json``        the outcome, written at the end
``agents/``            each agent's own journal; a server in a deployment has none of them
=====================  ==================================================================
"""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from flwr_fbo.strategies.base import Callback, FBOStrategy, RoundReport

PACKAGES = ("flwr-fbo", "flwr", "ray", "numpy", "scipy", "scikit-learn", "dp-accounting")
_ARRAY = "\u0000array"


class RunDirectoryError(RuntimeError):
    """A run directory cannot be used; the message names the file and the fault."""


class RunDirectory:
    """Paths of a run, and how its small files are written."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    @property
    def agents(self) -> Path:
        """The folder of the agents' journals."""
        return self.root / "agents"

    @property
    def ledger(self) -> Path:
        """The privacy ledger."""
        return self.root / "ledger.jsonl"

    @property
    def rounds(self) -> Path:
        """The table of rounds."""
        return self.root / "rounds.csv"

    @property
    def checkpoint(self) -> Checkpoint:
        """The store of the server's state."""
        return Checkpoint(self.root / "checkpoint.npz")

    def create(self, config: Mapping[str, Any]) -> RunDirectory:
        """Make the directory of a new run; one that holds a run already is refused."""
        if (self.root / "config.json").exists():
            raise RunDirectoryError(f"{self.root} already holds a run; choose another directory")
        self.agents.mkdir(parents=True, exist_ok=True)
        self.write_json("config.json", config)
        self.write_json("environment.json", environment())
        return self

    def write_json(self, name: str, content: Any) -> Path:
        """Write a file as JSON, whole or not at all."""
        path = self.root / name
        text = json.dumps(content, indent=2, allow_nan=False)
        _replace(path, text.encode() + b"\n")
        return path

    def read_json(self, name: str) -> Any:
        """What a JSON file of the run holds."""
        try:
            return json.loads((self.root / name).read_text())
        except (OSError, ValueError) as error:
            raise RunDirectoryError(f"{self.root / name}: {error}") from None


class Checkpoint:
    """The state of a strategy in one npz file: arrays as they are, the rest as JSON."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, state: Mapping[str, Any]) -> None:
        """See :class:`flwr_fbo.strategies.base.Store`."""
        arrays: dict[str, np.ndarray] = {}
        text = json.dumps(_without_arrays(state, arrays), allow_nan=False)
        temporary = self.path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            np.savez(file, state=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)

    def load(self) -> dict[str, Any] | None:
        """See :class:`flwr_fbo.strategies.base.Store`."""
        if not self.path.exists():
            return None
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as members:
                arrays = {name: members[name] for name in members.files}
            state = json.loads(arrays.pop("state").tobytes())
            restored = _with_arrays(state, arrays)
        except (OSError, EOFError, ValueError, KeyError, AttributeError, BadZipFile) as error:
            raise RunDirectoryError(f"{self.path} is not a checkpoint: {error}") from None
        assert isinstance(restored, dict)
        return restored


class RoundTable(Callback):
    """Appends one line a round to ``rounds.csv``."""

    COLUMNS = ("round", "asked", "replied", "declined", "missing", "refused", "epsilon", "seconds")

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
        """See :class:`Callback`."""
        fresh = not self._path.exists()
        with self._path.open("a", newline="") as file:
            table = csv.writer(file)
            if fresh:
                table.writerow(self.COLUMNS)
            epsilon = "" if report.privacy is None else f"{report.privacy['epsilon']:.6g}"
            declined = sum(report.declined.values())
            counts = (report.asked, report.replied, declined, report.missing, report.refused)
            table.writerow([report.round, *counts, epsilon, f"{report.seconds:.3f}"])


def environment() -> dict[str, str]:
    """Versions of what computed a run."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _without_arrays(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        name = f"array{len(arrays)}"
        arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, Mapping):
        return {key: _without_arrays(item, arrays) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_arrays(item, arrays) for item in value]
    return value


def _with_arrays(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, dict):
        if set(value) == {_ARRAY}:
            return arrays[value[_ARRAY]]
        return {key: _with_arrays(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_arrays(item, arrays) for item in value]
    return value
