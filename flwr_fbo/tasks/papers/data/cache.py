"""Parse a data set once: arrays stay in memory for this process, and in npz files for the next.

The name of an npz file contains the checksum of the original, the loader and its version. After
the original or the loader changes, no old result is read.
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
from flwr_fbo.tasks.papers.data.sources import DataError
from flwr_fbo.tasks.papers.data.store import cache_directory

Arrays: TypeAlias = Mapping[str, NDArray[Any]]
MAX_NPZ = 4 * 2**30

_memory: dict[tuple[object, ...], Arrays] = {}


def parse_once(path: Path, loader: str, version: int, parse: Callable[[Path], Arrays]) -> Arrays:
    """Return the arrays of ``parse(path)``, read-only and parsed at most once.

    Parameters
    ----------
    path : Path
        The original file or directory.
    loader : str
        Name of the loader.
    version : int
        Version of the loader; a higher one makes results of the loader before it void.
    parse : callable
        Reads the original.
    """
    # Size and time of change stand for the content: a checksum takes seconds on a large file.
    stat = path.stat()
    key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns, loader, version)
    if key not in _memory:
        # A directory has no checksum to name a file by.
        arrays = parse(path) if path.is_dir() else _through_disk(path, loader, version, parse)
        for array in arrays.values():
            array.setflags(write=False)
        _memory[key] = arrays
    return _memory[key]


def _through_disk(path: Path, loader: str, version: int, parse: Callable[[Path], Arrays]) -> Arrays:
    """Return the arrays from the cache directory, or parse the original and store them there."""
    if path.suffix == ".npz":  # as quick to read as a cached file would be
        return parse(path)
    stored = cache_directory() / "parsed" / f"{loader}-v{version}-{sha256_of(path)[:32]}.npz"
    if stored.exists():
        with contextlib.suppress(DataError):  # a damaged file is made again
            return load_npz(stored)
    arrays = parse(path)
    with contextlib.suppress(OSError):  # a run does not need the cache
        _save(stored, arrays)
    return arrays


def _save(path: Path, arrays: Arrays) -> None:
    """Write an npz file under another name first, so that no other process reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def load_npz(path: Path, keys: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """Return the arrays of an npz file; nothing is unpickled, and the size is bounded.

    Parameters
    ----------
    path : Path
        The npz file.
    keys : tuple of str
        Names of the arrays to read, which must all be there; all arrays if empty.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MAX_NPZ:
            raise DataError(f"{path}: at most {MAX_NPZ} bytes are read, but it holds {size}")
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in keys or stored.files if name in stored}
    except DataError:
        raise
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, OSError) as error:
        raise DataError(f"{path}: not a whole npz file: {error}") from error
    for name in keys:
        if name not in arrays:
            raise DataError(f"{path}: has no array {name!r}")
    return arrays
