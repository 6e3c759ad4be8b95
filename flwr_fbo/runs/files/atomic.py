"""Write a file whole or not at all, and read arrays without trusting the file."""

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
    """Write bytes in place of the file, whole or not at all."""
    _replace(path, lambda file: _write_all(file, data))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as an npz file, whole or not at all."""

    def write(file: BinaryIO) -> None:
        np.savez(file, **arrays)  # type: ignore[arg-type]

    _replace(path, write)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of an npz file that :func:`write_arrays` wrote.

    A file that claims more than it holds is refused before any memory is allocated for it.
    """
    with zipfile.ZipFile(path) as members:
        listed = members.infolist()
        stored = all(m.compress_type == zipfile.ZIP_STORED for m in listed)
        if not stored or sum(m.file_size for m in listed) > path.stat().st_size:
            raise ValueError("its members are not stored as they are")
        return {m.filename.removesuffix(".npy"): _read_array(members.read(m)) for m in listed}


def _read_array(data: bytes) -> np.ndarray:
    """Read an array in numpy's format, whose header is believed only if it fits the data."""
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array is not in numpy's format 1.0")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    start = stream.tell()
    if dtype.kind not in "biuf" or len(data) - start != dtype.itemsize * math.prod(shape):
        raise ValueError("an array's header does not fit its data")
    order: Literal["F", "C"] = "F" if fortran else "C"
    return np.frombuffer(data, dtype, offset=start).reshape(shape, order=order).copy()


def _write_all(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def _replace(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write beside the file and move it there, so that a crash leaves the old file or the new."""
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
