"""The checkpoint of a run: the state after the last closed round, in one npz file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.atomic import read_arrays, write_arrays
from flwr_fbo.runs.files.releases import ReleaseFiles

#: The key that marks the place of an array in the JSON part of a state.
_ARRAY = "\u0000array"
#: The layout of a run's checkpoint. Checkpoints of version 0.1 have no number and are refused.
FORMAT = 2


class Checkpoint:
    """A state in one npz file: arrays in numpy's format, everything else as JSON."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, state: Mapping[str, Any]) -> None:
        """Store a state in place of the last one, whole or not at all."""
        arrays: dict[str, np.ndarray] = {}
        text = json.dumps(_without_arrays(state, arrays), allow_nan=False)
        state_bytes = np.frombuffer(text.encode(), dtype=np.uint8)
        write_arrays(self.path, {"state": state_bytes, **arrays})

    def load(self) -> dict[str, Any] | None:
        """Return the last stored state; None before the first state."""
        if not self.path.exists():
            return None
        try:
            arrays = read_arrays(self.path)
            state = json.loads(arrays.pop("state").tobytes())
            restored = _with_arrays(state, arrays)
            if not isinstance(restored, dict):
                raise ValueError("its state is not an object")
        except Exception as error:  # zipfile raises many kinds of errors for damaged bytes
            raise RunDirectoryError(f"{self.path} is not a checkpoint: {error}") from None
        return restored


class RunStore:
    """The store of a run's state, in which each release is a file of its own.

    A release is public and never changes, so it is written once. The checkpoint names the rounds of
    the releases that the server remembers, and holds no copy of them.
    """

    def __init__(self, checkpoint: Checkpoint, releases: ReleaseFiles) -> None:
        self._checkpoint, self._releases = checkpoint, releases
        self._stored: set[int] = set()

    def save(self, state: Mapping[str, Any]) -> None:
        """Store a state; the releases come first, because the checkpoint refers to their files."""
        server = dict(state["server"])
        released = server.get("released")
        if released is not None:
            for vector, deviation, round in zip(
                released["vectors"], released["deviations"], released["rounds"], strict=True
            ):
                # A file that this process neither wrote nor read may be left from a crash
                # before its checkpoint: that release was never sent, and is written over.
                if int(round) not in self._stored:
                    self._releases.write(vector, deviation, round)
                    self._stored.add(int(round))
            server["released"] = {
                "half_life": released["half_life"],
                "rounds": [int(t) for t in released["rounds"]],
            }
        self._checkpoint.save({**state, "server": server, "format": FORMAT})

    def load(self) -> dict[str, Any] | None:
        """Return the last stored state with its releases; None before the first state."""
        state = self._checkpoint.load()
        if state is None:
            return None
        layout = state.pop("format", 1)
        if layout != FORMAT:
            raise RunDirectoryError(
                f"{self._checkpoint.path} is of another version of flwr-fbo: its format must be "
                f"{FORMAT}, but is {layout!r}; finish the run with the version that "
                "environment.json names, or start a new run"
            )
        released = state["server"].get("released")
        if released is not None:
            releases = [self._releases.at(t) for t in released["rounds"]]
            self._stored.update(released["rounds"])
            vectors = [release.vector for release in releases]
            released["vectors"] = np.stack(vectors) if vectors else np.empty(0)
            released["deviations"] = np.array([release.deviation for release in releases])
            released["rounds"] = np.array(released["rounds"], dtype=np.int64)
        return state


def _without_arrays(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return a value with marks in place of its arrays, which are moved to ``arrays``."""
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
    """Return a value with its arrays in place of the marks."""
    if isinstance(value, dict):
        if set(value) == {_ARRAY}:
            return arrays[value[_ARRAY]]
        return {key: _with_arrays(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_arrays(item, arrays) for item in value]
    return value
