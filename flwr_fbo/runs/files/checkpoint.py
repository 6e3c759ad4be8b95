"""The checkpoint of a run: the state after the last closed round, in one npz file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.forks import Process
from flwr_fbo.privacy.releases import Release
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.atomic import read_arrays, write_arrays
from flwr_fbo.runs.files.checks import LAYOUT
from flwr_fbo.runs.files.releases import ReleaseFiles, digest_of

#: The key that marks the place of an array in the JSON part of a state.
_ARRAY = "\u0000array"


class Checkpoint:
    """A state in one npz file: arrays in numpy's format, everything else as JSON."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, state: Mapping[str, Any]) -> None:
        """Store a state in place of the last one, whole or not at all."""
        arrays: dict[str, np.ndarray] = {}

        def mark(value: Any) -> Any:
            """Return a mark in place of an array, which is moved to ``arrays``."""
            if isinstance(value, Mapping):
                return dict(value)
            if not isinstance(value, np.ndarray):
                raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")
            name = f"array{len(arrays)}"
            arrays[name] = value
            return {_ARRAY: name}

        text = json.dumps(dict(state), allow_nan=False, default=mark)
        state_bytes = np.frombuffer(text.encode(), dtype=np.uint8)
        write_arrays(self.path, {"state": state_bytes, **arrays})

    def load(self) -> dict[str, Any] | None:
        """Return the last stored state; None before the first state."""
        if not self.path.exists():
            return None
        try:
            arrays = read_arrays(self.path)
            text = arrays.pop("state").tobytes()
            restored = json.loads(
                text, object_hook=lambda v: arrays[v[_ARRAY]] if set(v) == {_ARRAY} else v
            )
            if not isinstance(restored, dict):
                raise ValueError("its state is not an object")
        except Exception as error:  # zipfile raises many kinds of errors for damaged bytes
            raise RunDirectoryError(
                f"{self.path} is not a checkpoint: {error}. {_ADVICE}"
            ) from None
        return restored


class RunStore:
    """The store of a run's state, in which each release is a file of its own.

    A release is public and never changes, so it is written once. The checkpoint names the rounds
    and the digests of all releases, and holds no copy of them. A release whose file is damaged is
    left out of what is loaded, and :attr:`damages` says so.

    Parameters
    ----------
    checkpoint
        The file of the state.
    releases
        The folder of the releases, which knows the identity of the run.
    """

    def __init__(self, checkpoint: Checkpoint, releases: ReleaseFiles) -> None:
        self._checkpoint, self._releases = checkpoint, releases
        self._process = Process()
        self._digests: dict[int, str] = {}
        #: What was wrong with the files of releases, one sentence per file.
        self.damages: dict[int, str] = {}

    @property
    def path(self) -> Path:
        """Return the file of the checkpoint."""
        return self._checkpoint.path

    @property
    def named(self) -> frozenset[int]:
        """Return the rounds of the releases in the state that was stored or loaded last."""
        return frozenset(self._digests)

    def save(self, state: Mapping[str, Any]) -> None:
        """Store a state; the releases come first, because the checkpoint refers to their files."""
        self._process.check(self.path)
        server = dict(state["server"])
        released = server.get("released")
        if released is not None:
            for vector, deviation, round in zip(
                released["vectors"], released["deviations"], released["rounds"], strict=True
            ):
                # A file that this process neither wrote nor read may be left from a crash
                # before its checkpoint: that release was never sent, and is written over.
                release = Release(vector, float(deviation), int(round))
                if self._digests.get(release.round) != digest_of(release):
                    self._releases.write(vector, deviation, round)
                    self._digests[release.round] = digest_of(release)
            server["released"] = {
                "half_life": released["half_life"],
                "rounds": [int(t) for t in released["rounds"]],
            }
        self._checkpoint.save(
            {
                **state,
                "server": server,
                "releases": {str(t): digest for t, digest in self._digests.items()},
                "run": self._releases.run,
                "format": LAYOUT,
            }
        )

    def load(self) -> dict[str, Any] | None:
        """Return the last stored state with its releases; None before the first state."""
        state = self._checkpoint.load()
        if state is None:
            return None
        layout, run = state.pop("format", 1), state.pop("run", "")
        if layout != LAYOUT:
            raise RunDirectoryError(
                f"{self.path} is of another version of flwr-fbo: its format must be "
                f"{LAYOUT}, but is {layout!r}; finish the run with the version that "
                "environment.json names, or start a new run"
            )
        if run != self._releases.run:
            raise RunDirectoryError(
                f"{self.path} must be of run {self._releases.run}, as config.json is, but is of "
                f"run {run}. {_ADVICE}"
            )
        try:
            self._digests = {int(t): str(digest) for t, digest in state.pop("releases").items()}
            released = state["server"].get("released")
            if released is not None:
                self._load_releases(released)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunDirectoryError(
                f"{self.path} is not a checkpoint: {type(error).__name__}: {error}. {_ADVICE}"
            ) from None
        return state

    def intact_releases(self) -> list[Release]:
        """Return the releases of the state that was stored or loaded last, oldest first."""
        found = (self._intact(t) for t in sorted(self._digests))
        return [release for release in found if release is not None]

    def _load_releases(self, released: dict[str, Any]) -> None:
        """Put the releases into the state of a server that names their rounds."""
        found = [self._intact(int(t)) for t in released["rounds"]]
        releases = [release for release in found if release is not None]
        vectors = [release.vector for release in releases]
        released["vectors"] = np.stack(vectors) if vectors else np.empty(0)
        released["deviations"] = np.array([release.deviation for release in releases])
        released["rounds"] = np.array([release.round for release in releases], dtype=np.int64)

    def _intact(self, round: int) -> Release | None:
        """Return the release of a round; None where its file is damaged, which is noted."""
        try:
            return self._releases.at(round, self._digests[round])
        except RunDirectoryError as error:
            self.damages[round] = (
                f"{error}. The run goes on without this release, which stays charged"
            )
            return None


#: What to do about a damaged checkpoint.
_ADVICE = (
    "Restore the file from a backup; or delete it, and all rounds are made again from the agents' "
    "journals, where a private run charges again for its releases"
)
