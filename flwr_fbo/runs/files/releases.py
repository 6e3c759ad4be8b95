"""The releases of a run, each in a file of its own, which everyone may have.

``round-0007.npz`` holds ``vector`` (P, M) and ``deviation``, the standard deviation of the noise in
each coordinate; ``run`` and ``round`` say what the release belongs to. ``features.npz`` holds the
random features and the sub-regions that the vectors refer to.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy.releases import Release
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.atomic import read_arrays, write_arrays
from flwr_fbo.runs.files.checks import checksum

#: The array that holds the identity of the run, as bytes.
_RUN = "run"


class ReleaseFiles:
    """The folder of a run's releases.

    Parameters
    ----------
    folder
        The folder, which the first release creates.
    run
        The identity of the run; without one, files of any run are read.
    """

    def __init__(self, folder: Path, run: str = "") -> None:
        self.folder, self.run = folder, run

    def write(self, vector: Array, deviation: float, round: int) -> None:
        """Write the release of a round in place of any file of that round."""
        self.folder.mkdir(parents=True, exist_ok=True)
        arrays = {"vector": vector, "deviation": np.array(float(deviation))}
        number = {"round": np.array(int(round), dtype=np.int64)}
        write_arrays(self.path(int(round)), {**arrays, **number, **self._mark()})

    def add_features(self, arrays: Mapping[str, Array]) -> bool:
        """Write the random features and the sub-regions, unless the file holds them.

        Return whether a damaged file was replaced.
        """
        path = self.features_path
        existed = path.exists()
        if existed:
            try:
                found = self.features()
                if found.keys() == arrays.keys() and all(
                    np.array_equal(found[name], arrays[name]) for name in arrays
                ):
                    return False
            except RunDirectoryError:
                pass  # they follow from the setup, so they can be written anew
        self.folder.mkdir(parents=True, exist_ok=True)
        write_arrays(path, {**arrays, **self._mark()})
        return existed

    @property
    def features_path(self) -> Path:
        """Return the file of the random features."""
        return self.folder / "features.npz"

    def features(self) -> dict[str, Array]:
        """Return the random features and the sub-regions."""
        return self._read(self.features_path, "the random features of this run")

    def at(self, round: int, digest: str | None = None) -> Release:
        """Return the release of a round; raise RunDirectoryError unless it has this digest."""
        path = self.path(round)
        arrays = self._read(path, "a release of this run")
        try:
            release = Release(arrays["vector"], float(arrays["deviation"]), round)
            number = int(arrays["round"])
            whole = release.vector.ndim == 2 and bool(np.all(np.isfinite(release.vector)))
        except (KeyError, TypeError, ValueError) as error:
            raise RunDirectoryError(f"{path} is not a release: {error}") from None
        if not whole or number != round:
            raise RunDirectoryError(f"{path} is not a release of round {round}. {_ADVICE}")
        if digest is not None and digest != digest_of(release):
            raise RunDirectoryError(
                f"{path} is not the release that the checkpoint names: an old copy, or one that "
                f"was never sent. {_ADVICE}"
            )
        return release

    def count(self) -> int:
        """Return how many releases are stored."""
        return sum(1 for _ in self.folder.glob("round-*.npz"))

    def read(self) -> list[Release]:
        """Return all releases, oldest first; raise RunDirectoryError for a damaged one."""
        return [self.at(t) for t in self.rounds()]

    def rounds(self) -> list[int]:
        """Return the rounds of all stored releases, in order."""
        names = (path.stem.removeprefix("round-") for path in self.folder.glob("round-*.npz"))
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def path(self, round: int) -> Path:
        """Return the file of the release of a round."""
        return self.folder / f"round-{round:04d}.npz"

    def _mark(self) -> dict[str, np.ndarray]:
        """Return the array that names the run."""
        return {_RUN: np.frombuffer(self.run.encode(), dtype=np.uint8)}

    def _read(self, path: Path, what: str) -> dict[str, np.ndarray]:
        """Return the arrays of a file, after a check that it belongs to this run."""
        try:
            arrays = read_arrays(path)
            run = arrays.pop(_RUN).tobytes().decode("ascii", errors="replace")
        except KeyError:
            raise RunDirectoryError(
                f"{path} names no run: it is of another version of flwr-fbo. {_ADVICE}"
            ) from None
        except Exception as error:  # zipfile raises many kinds of errors for damaged bytes
            raise RunDirectoryError(f"{path} does not hold {what}: {error}. {_ADVICE}") from None
        if self.run and run != self.run:
            raise RunDirectoryError(
                f"{path} must be of run {self.run}, as config.json is, but is of run {run}. "
                f"{_ADVICE}"
            )
        return arrays


def digest_of(release: Release) -> str:
    """Return the checksum of the content of a release, which a checkpoint names."""
    vector = np.ascontiguousarray(release.vector, dtype="<f8")
    numbers = f"{release.round} {float(release.deviation)!r} {vector.shape}"
    return checksum(numbers, vector.tobytes())


#: What to do about a damaged file of releases.
_ADVICE = "Restore the file from a backup; releases are public, so everybody may have a copy"
