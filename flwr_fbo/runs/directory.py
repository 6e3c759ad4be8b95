"""A run's directory: everything that outlives the run, in files that people can open.

=====================  ==================================================================
file                   what it holds
=====================  ==================================================================
``config.json``        every setting of the run, by its kebab-case key
``space.json``         the search space
``environment.json``   versions of Python and of the packages that matter
``ledger.jsonl``       privacy: one line a release, written before the release is drawn
``compare.json``       settings of those that it is compared with, where it is
``checkpoint.npz``     the server's state after the last closed round
``releases/``          what was made public: ``round-0000.npz`` and so on, see :class:`Releases`
``rounds.csv``         one line a round: replies, failures, epsilon, seconds
``result.json``        the outcome, written at the end
``agents/``            each agent's own journal; a server in a deployment has none of them
=====================  ==================================================================
"""

from __future__ import annotations

import contextlib
import csv
import importlib.metadata
import io
import json
import math
import os
import platform
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from flwr_fbo.core.space import Space
from flwr_fbo.methods.thompson.asynchronous import UNDER_WAY
from flwr_fbo.runs.locations import agents_of
from flwr_fbo.strategies.base import Callback, FBOStrategy, Release, RoundReport

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
        return agents_of(self.root)

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

    @property
    def releases(self) -> Releases:
        """What was made public."""
        return Releases(self.root / "releases")

    def create(self, config: Mapping[str, Any], space: Space | None = None) -> RunDirectory:
        """Make the directory of a new run; one that holds a run already is refused."""
        if (self.root / "config.json").exists():
            raise RunDirectoryError(f"{self.root} already holds a run; choose another directory")
        self.agents.mkdir(parents=True, exist_ok=True)
        self.write_json("config.json", config)
        self.write_json("environment.json", environment())
        if space is not None:
            self.write_json("space.json", space.to_dict())
        return self

    def write_json(self, name: str, content: Any) -> Path:
        """Write a file as JSON, whole or not at all."""
        path = self.root / name
        text = json.dumps(content, indent=2, allow_nan=False)
        _replace(path, lambda file: _write_all(file, text.encode() + b"\n"))
        return path

    def read_json(self, name: str) -> Any:
        """What a JSON file of the run holds."""
        if not (self.root / "config.json").exists():
            raise RunDirectoryError(f"{self.root} is not the directory of a run: no config.json")
        try:
            return json.loads((self.root / name).read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise RunDirectoryError(f"{self.root / name}: {error}") from None


class Checkpoint:
    """The state of a strategy in one npz file: arrays as they are, the rest as JSON."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, state: Mapping[str, Any]) -> None:
        """See :class:`flwr_fbo.strategies.base.Store`."""
        arrays: dict[str, np.ndarray] = {}
        text = json.dumps(_without_arrays(state, arrays), allow_nan=False)
        state_bytes = np.frombuffer(text.encode(), dtype=np.uint8)
        _write_arrays(self.path, {"state": state_bytes, **arrays})

    def load(self) -> dict[str, Any] | None:
        """See :class:`flwr_fbo.strategies.base.Store`."""
        if not self.path.exists():
            return None
        try:
            arrays = _read_members(self.path)
            state = json.loads(arrays.pop("state").tobytes())
            restored = _with_arrays(state, arrays)
            if not isinstance(restored, dict):
                raise ValueError("its state is not an object")
        except Exception as error:  # zipfile alone has a dozen ways to say that bytes are bad
            raise RunDirectoryError(f"{self.path} is not a checkpoint: {error}") from None
        return restored


class Releases(Callback):
    """A folder of released vectors, a file each; anyone may have it.

    ``round-0007.npz`` holds ``vector`` (P, M) and ``deviation``, the noise in each coordinate.
    ``features.npz`` holds what the vectors refer to: frequencies, phases, sub-regions.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_start(self, strategy: FBOStrategy) -> None:
        """What a crash kept from being written, its checkpoint has."""
        self._store(strategy)

    def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
        """See :class:`Callback`."""
        self._store(strategy)

    def _store(self, strategy: FBOStrategy) -> None:
        release = strategy.release()
        if release is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        features = self._folder / "features.npz"
        if not features.exists():
            _write_arrays(features, strategy.server.setup().arrays)
        path = self._folder / f"round-{release.round:04d}.npz"
        if not path.exists():
            deviation = np.array(release.deviation)
            _write_arrays(path, {"vector": release.vector, "deviation": deviation})

    def read(self) -> list[Release]:
        """All of them, oldest first."""
        found = []
        for path in sorted(self._folder.glob("round-*.npz"), key=_round_of):
            with np.load(path, allow_pickle=False) as arrays:
                found.append(Release(arrays["vector"], float(arrays["deviation"]), _round_of(path)))
        return found


def _round_of(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))


class RoundTable(Callback):
    """Appends one line a round to ``rounds.csv``."""

    COLUMNS = (
        "round", "asked", "replied", "under-way", "declined", "missing", "refused", "epsilon",
        "seconds",
    )  # fmt: skip

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_round(self, strategy: FBOStrategy, report: RoundReport) -> None:
        """See :class:`Callback`."""
        epsilon = "" if report.privacy is None else f"{report.privacy['epsilon']:.6g}"
        busy = report.declined.get(UNDER_WAY, 0)  # still at it: not a failure
        declined = sum(report.declined.values()) - busy
        counts = (report.asked, report.replied, busy, declined, report.missing, report.refused)
        row = [report.round, *counts, epsilon, f"{report.seconds:.3f}"]
        try:
            self._append(row)
        except OSError as error:
            raise RunDirectoryError(
                f"{self._path} could not be written: {error.strerror}; the round is stored, and "
                "the run can be resumed"
            ) from error

    @staticmethod
    def read(path: Path) -> list[dict[str, str]]:
        """The rows of a table, one a round; of a round that a crash had repeated, the last."""
        if not path.exists():
            return []
        with path.open(newline="") as file:
            rows = {row["round"]: row for row in csv.DictReader(file) if None not in row.values()}
        return list(rows.values())

    def _append(self, row: list[Any]) -> None:
        with self._path.open("a+", newline="") as file:
            end = file.seek(0, os.SEEK_END)
            table = csv.writer(file)
            if end == 0:
                table.writerow(self.COLUMNS)
            elif _last_byte(self._path) != b"\n":
                file.write("\n")  # a crash in the middle of a row
            table.writerow(row)


def _read_members(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file that we wrote: never more memory than the file is long."""
    with zipfile.ZipFile(path) as members:
        listed = members.infolist()
        stored = all(m.compress_type == zipfile.ZIP_STORED for m in listed)
        if not stored or sum(m.file_size for m in listed) > path.stat().st_size:
            raise ValueError("its members are not stored as they are")
        return {m.filename.removesuffix(".npy"): _read_array(members.read(m)) for m in listed}


def _read_array(data: bytes) -> np.ndarray:
    """An array in numpy's format, whose header is believed only if it fits the data."""
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array is not in numpy's format 1.0")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    start = stream.tell()
    if dtype.kind not in "biuf" or len(data) - start != dtype.itemsize * math.prod(shape):
        raise ValueError("an array's header does not fit its data")
    order: Literal["F", "C"] = "F" if fortran else "C"
    return np.frombuffer(data, dtype, offset=start).reshape(shape, order=order).copy()


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def environment() -> dict[str, str]:
    """Versions of what computed a run."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _write_all(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def _replace(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file whole, or leave the one that is there as it is and say so."""
    temporary = path.with_suffix(".tmp")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise RunDirectoryError(
            f"{path} could not be written: {error.strerror or error}; what was stored before is "
            "intact, and the run can be resumed"
        ) from error


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    def write(file: BinaryIO) -> None:
        np.savez(file, **arrays)  # type: ignore[arg-type]

    _replace(path, write)


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
