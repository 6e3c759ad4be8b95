"""Writing files whole or not at all, and reading arrays from files that may be damaged."""

from __future__ import annotations

import contextlib
import io
import math
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from flwr_fbo.runs.files import RunDirectoryError


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes in place of a file, whole or not at all."""

    def write(file: BinaryIO) -> None:
        file.write(data)

    _replace(path, write)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays in place of an npz file, whole or not at all."""

    def write(file: BinaryIO) -> None:
        np.savez(file, **arrays)  # type: ignore[arg-type]

    _replace(path, write)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file that :func:`write_arrays` wrote.

    Raise ValueError for a file that claims to hold more than its size, before memory is allocated.
    """
    with zipfile.ZipFile(path) as members:
        listed = members.infolist()
        stored = all(m.compress_type == zipfile.ZIP_STORED for m in listed)
        if not stored or sum(m.file_size for m in listed) > path.stat().st_size:
            raise ValueError("its members are compressed, or larger than the file")
        return {m.filename.removesuffix(".npy"): _read_array(members.read(m)) for m in listed}


def _read_array(data: bytes) -> np.ndarray:
    """Return an array from bytes in numpy's format; raise ValueError for a wrong header."""
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array is not in numpy's format 1.0")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    start = stream.tell()
    if dtype.kind not in "biuf" or len(data) - start != dtype.itemsize * math.prod(shape):
        raise ValueError("an array's header does not fit its data")
    order: Literal["F", "C"] = "F" if fortran else "C"
    return np.frombuffer(data, dtype, offset=start).reshape(shape, order=order).copy()


def _replace(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file beside the path and move it there."""
    # A crash leaves the old file or the new one, as the move is a single step of the file system.
    temporary = path.with_suffix(".tmp")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())  # the move must not reach the disk before the content
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise RunDirectoryError(
            f"{path} could not be written: {error.strerror or error}; what was stored before is "
            "intact, and the run can be resumed"
        ) from error
