"""MNIST: four idx files (gzipped or not), or an npz with x_train, y_train, x_test, y_test."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.tasks.papers.data.cache import Arrays, load_npz, parse_once
from flwr_fbo.tasks.papers.data.sources import MNIST, DataError
from flwr_fbo.tasks.papers.data.store import require

KEYS = ("x_train", "y_train", "x_test", "y_test")
MAX_BYTES = 128 * 2**20  # of one file


def load_mnist(data_dir: str | Path | None = None) -> Arrays:
    """Load images (60000, 28, 28) and (10000, 28, 28) as bytes, and their labels 0-9."""
    path = require(MNIST, data_dir)
    return parse_once(path, "mnist", 1, read_mnist)


def read_mnist(path: Path) -> Arrays:
    """Return the four arrays of an npz file, or of the idx files beside the training images."""
    if path.suffix == ".npz":
        arrays = load_npz(path, KEYS)
    else:
        names = {
            "x_train": path.name,
            "y_train": _sibling(path.name, "train", "labels", 1),
            "x_test": _sibling(path.name, "t10k", "images", 3),
            "y_test": _sibling(path.name, "t10k", "labels", 1),
        }
        arrays = {key: read_idx(path.parent / name) for key, name in names.items()}
    for part in ("train", "test"):
        _check(arrays[f"x_{part}"], arrays[f"y_{part}"], f"{path}: {part}")
    return arrays


def _sibling(name: str, part: str, kind: str, dimensions: int) -> str:
    """Return the name of another file that is named like the training images."""
    return name.replace("train-images", f"{part}-{kind}", 1).replace("idx3", f"idx{dimensions}", 1)


def _check(images: NDArray[Any], labels: NDArray[Any], label: str) -> None:
    if images.ndim != 3 or images.shape[1:] != (28, 28) or labels.shape != (len(images),):
        raise DataError(
            f"{label}: images (n, 28, 28) and labels (n,) are needed, "
            f"but there are {images.shape} and {labels.shape}"
        )
    if labels.max(initial=0) > 9:
        raise DataError(f"{label}: unknown label {labels.max()}: labels must be 0 to 9")


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the bytes of an idx file, in the shape that its header states."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a whole gzip file: {error}") from error
    if len(data) > MAX_BYTES:
        raise DataError(f"{path}: exceeds {MAX_BYTES} bytes")
    # Header: two zero bytes, 8 for unsigned bytes, the number of dimensions, then their sizes.
    if len(data) < 4 or data[:3] != b"\0\0\x08" or not 1 <= data[3] <= 4:
        raise DataError(f"{path}: not an idx file of bytes: it starts with {data[:4]!r}")
    header = 4 + 4 * data[3]
    if len(data) < header:
        raise DataError(f"{path}: ends within its header")
    shape = struct.unpack(f">{data[3]}I", data[4:header])
    wanted = int(np.prod(shape, dtype=object))  # Python integers do not overflow
    if len(data) - header != wanted:
        raise DataError(
            f"{path}: {wanted} bytes must follow the header for the shape {shape}, "
            f"but {len(data) - header} do"
        )
    return np.frombuffer(data, dtype=np.uint8, offset=header).reshape(shape).copy()
