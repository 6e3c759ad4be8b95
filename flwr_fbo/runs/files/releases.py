"""The releases of a run, each in a file of its own, which everyone may have.

``round-0007.npz`` holds ``vector`` (P, M) and ``deviation``, the standard deviation of the noise in
each coordinate. ``features.npz`` holds the random features and the sub-regions that the vectors
refer to.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy.releases import Release
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.atomic import read_arrays, write_arrays


class ReleaseFiles:
    """The folder of a run's releases.

    Parameters
    ----------
    folder
        The folder, which the first release creates.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, vector: Array, deviation: float, round: int) -> None:
        """Write the release of a round in place of any file of that round."""
        self.folder.mkdir(parents=True, exist_ok=True)
        arrays = {"vector": vector, "deviation": np.array(float(deviation))}
        write_arrays(self._path(int(round)), arrays)

    def add_features(self, arrays: Mapping[str, Array]) -> None:
        """Write the random features and the sub-regions, unless the file exists."""
        path = self.folder / "features.npz"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_arrays(path, arrays)

    def at(self, round: int) -> Release:
        """Return the release of a round."""
        path = self._path(round)
        try:
            arrays = read_arrays(path)
            return Release(arrays["vector"], float(arrays["deviation"]), round)
        except Exception as error:  # zipfile raises many kinds of errors for damaged bytes
            raise RunDirectoryError(f"{path} is not a release: {error}") from None

    def count(self) -> int:
        """Return how many releases are stored."""
        return sum(1 for _ in self.folder.glob("round-*.npz"))

    def read(self) -> list[Release]:
        """Return all releases, oldest first."""
        return [self.at(t) for t in sorted(map(_round_of, self.folder.glob("round-*.npz")))]

    def _path(self, round: int) -> Path:
        """Return the file of the release of a round."""
        return self.folder / f"round-{round:04d}.npz"


def _round_of(path: Path) -> int:
    """Return the round of a release's file."""
    return int(path.stem.removeprefix("round-"))
