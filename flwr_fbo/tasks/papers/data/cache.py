"""Parse a data set once: arrays in memory for this process, and as npz on disk for the next.

The file on disk is keyed by the original's checksum, the loader and its version, so that
neither a replaced original nor a changed loader meets an old result.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.tasks.papers.data.download import sha256_of
from flwr_fbo.tasks.papers.data.errors import DataError
from flwr_fbo.tasks.papers.data.store import cache_directory

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
MAX_NPZ = 4 * 2**30

_memory: dict[tuple[object, ...], Arrays] = {}


def parsed(path: Path, loader: str, version: int, parse: Callable[[Path], Arrays]) -> Arrays:
    """What ``parse(path)`` returns, parsed at most once; the arrays are read-only."""
    stat = path.stat()
    key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns, loader, version)
    if key not in _memory:
        arrays = parse(path) if path.is_dir() else _through_disk(path, loader, version, parse)
        for array in arrays.values():
            array.setflags(write=False)
        _memory[key] = arrays
    return _memory[key]


def _through_disk(path: Path, loader: str, version: int, parse: Callable[[Path], Arrays]) -> Arrays:
    if path.suffix == ".npz":  # as quick to read as a cached file would be
        return parse(path)
    stored = cache_directory() / "parsed" / f"{loader}-v{version}-{sha256_of(path)[:32]}.npz"
    if stored.exists():
        with contextlib.suppress(DataError):  # a damaged cache is made again
            return load_npz(stored)
    arrays = parse(path)
    with contextlib.suppress(OSError):  # a cache that cannot be written is no reason to stop
        _save(stored, arrays)
    return arrays


def _save(path: Path, arrays: Arrays) -> None:
    """Write under another name first, so that no other process sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def load_npz(path: Path, keys: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file: bounded, never unpickled, and all of ``keys`` among them."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MAX_NPZ:
            raise DataError(f"{path}: at most {MAX_NPZ} bytes are read, but it holds {size}")
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in keys or stored.files if name in stored}
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: not a whole npz file: {error}") from error
    for name in keys:
        if name not in arrays:
            raise DataError(f"{path}: has no array {name!r}")
    return arrays
