"""EMNIST digits by writer, in the layouts of TensorFlow Federated, read without TensorFlow.

* ``emnist_all.sqlite`` (or ``.lzma``): the table ``examples`` has one row for each image, with
  ``split_name`` (``digits_only_train`` or ``digits_only_test``), ``client_id`` and a serialised
  ``tf.train.Example`` with ``pixels`` (784 floats, 1.0 is background) and ``label``.
* ``fed_emnist_digitsonly.tar.bz2``, the older layout: two HDF5 files with a group
  ``examples/<client>`` each (needs h5py).
* ``emnist_export.npz``, which ``examples/tff_export`` writes in TensorFlow Federated's own
  environment.

Writers are numbered in the order of their sorted client ids, as in TensorFlow Federated.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import lzma
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.tasks.papers.data.archives import open_tree
from flwr_fbo.tasks.papers.data.cache import Arrays, load_npz, parse_once
from flwr_fbo.tasks.papers.data.sources import EMNIST, WRITERS, DataError
from flwr_fbo.tasks.papers.data.store import cache_directory, require
from flwr_fbo.tasks.papers.data.tables import Parties, check_parties
from flwr_fbo.tasks.papers.data.tfexample import DecodeError, decode_example

SPLITS = ("digits_only_train", "digits_only_test")
MAX_DATABASE = 8 * 2**30  # the original has 4.7e9 bytes
MAX_HDF5 = 3 * 2**30  # bytes
MAX_IMAGES = 1000  # of one writer and split
KEYS = ("pixels", "label", "client", "test", "client_ids")


def load_emnist(data_dir: str | Path | None = None, writers: int = 50) -> Parties:
    """Load the digits of the first writers: images (n, 28, 28) with 1.0 as background, labels 0-9.

    ``extra["test"]`` marks the images in TensorFlow Federated's test split.
    """
    path = require(EMNIST, data_dir)
    arrays = parse_once(path, f"emnist-{writers}", 1, lambda p: read_emnist(p, writers))
    return _table(arrays, str(path), writers)


def load_digits_by_writer(data_dir: str | Path | None = None) -> Parties:
    """Load MNIST training digits of 50 writers (not EMNIST), inverted to 1.0 as background.

    Of each writer's images, every tenth (in the order of writing) is a test image: EMNIST's test
    split holds a tenth as well.
    """
    path = require(WRITERS, data_dir)
    arrays = parse_once(path, "writers", 1, _read_writers)
    return _table(arrays, str(path), 50)


def _table(arrays: Arrays, label: str, writers: int | None) -> Parties:
    table = Parties(arrays["pixels"], arrays["label"], arrays["client"], {"test": arrays["test"]})
    if table.X.shape[1:] != (28, 28):
        raise DataError(f"{label}: images must have 28 x 28 pixels, but have {table.X.shape[1:]}")
    return check_parties(table, label, writers, None, classes=10)


def read_emnist(path: Path, writers: int) -> Arrays:
    """Return pixels, labels, writers (by number) and splits of the first ``writers`` clients."""
    if path.suffix == ".npz":
        return _first_writers(load_npz(path, KEYS), writers, path)
    if path.suffix in (".lzma", ".xz"):
        with _unpacked(path) as database:
            return _read_sqlite(database, path, writers)
    if path.suffix == ".sqlite":
        return _read_sqlite(path, path, writers)
    return _read_hdf5(path, writers)


def _first_writers(arrays: dict[str, NDArray[Any]], writers: int, path: Path) -> Arrays:
    ids = arrays["client_ids"][:writers]
    _check_count(len(ids), writers, path)
    rows = arrays["client"] < writers
    return {"client_ids": ids, **{key: arrays[key][rows] for key in KEYS[:4]}}


def _check_count(found: int, writers: int, path: Path) -> None:
    if found < writers:
        raise DataError(f"{path}: {writers} writers are needed, but it holds {found}")


@contextlib.contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """Unpack the database to a temporary file, because SQLite cannot read a stream."""
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=directory, suffix=".sqlite")
    try:
        with os.fdopen(handle, "wb") as target:
            _decompress(path, target)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _decompress(path: Path, target: Any) -> None:
    """Write the content of an lzma file, up to the limit of size."""
    size = 0
    try:
        with lzma.open(path) as source:
            while chunk := source.read(2**20):
                size += len(chunk)
                if size > MAX_DATABASE:
                    raise DataError(f"{path}: unpacks to more than {MAX_DATABASE} bytes")
                target.write(chunk)
    except (lzma.LZMAError, EOFError) as error:
        raise DataError(f"{path}: not a whole lzma file: {error}") from error


def _read_sqlite(database: Path, path: Path, writers: int) -> Arrays:
    """Return the arrays of ``database``; ``path`` is the file that errors name."""
    uri = f"{database.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            # A hostile database must neither run functions nor return enormous values.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2**20)
            _require_table(connection, path)
            ids = _clients(connection)[:writers]
            _check_count(len(ids), writers, path)
            return _stack(_sqlite_rows(connection, path, ids), ids)
    except sqlite3.Error as error:
        raise DataError(f"{path}: not a whole SQLite database: {error}") from error


def _require_table(connection: sqlite3.Connection, path: Path) -> None:
    """Raise DataError unless ``examples`` is a table; a view could run anything."""
    kind = connection.execute("SELECT type FROM sqlite_master WHERE name = 'examples'").fetchone()
    columns = {row[1] for row in connection.execute("PRAGMA table_info(examples)")}
    needed = {"split_name", "client_id", "serialized_example_proto"}
    if kind != ("table",) or not needed <= columns:
        raise DataError(f"{path}: has no table `examples` with the columns {sorted(needed)}")


def _clients(connection: sqlite3.Connection) -> list[str]:
    # TensorFlow Federated orders clients by id; the train split has all of them.
    query = "SELECT DISTINCT client_id FROM examples WHERE split_name = ? ORDER BY client_id"
    return [str(row[0]) for row in connection.execute(query, (SPLITS[0],))]


#: Pixels, digit, number of the writer, and whether the image is in the test split.
Row = tuple[NDArray[Any], int, int, bool]


def _sqlite_rows(connection: sqlite3.Connection, path: Path, ids: list[str]) -> Iterator[Row]:
    query = (
        "SELECT serialized_example_proto FROM examples "
        "WHERE split_name = ? AND client_id = ? ORDER BY rowid LIMIT ?"
    )
    for number, client in enumerate(ids):
        for split in SPLITS:
            for (blob,) in connection.execute(query, (split, client, MAX_IMAGES)):
                yield (
                    *_image(blob, f"{path}: an example of client {client!r}"),
                    number,
                    split == SPLITS[1],
                )


def _image(blob: object, label: str) -> tuple[NDArray[Any], int]:
    """Return the pixels (784,) and the digit of a serialised example."""
    if not isinstance(blob, bytes):
        raise DataError(f"{label} is no serialised tf.train.Example")
    try:
        features = decode_example(blob)
        pixels, digit = features["pixels"], features["label"]
    except (DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{label} is no serialised tf.train.Example: {error}") from error
    except KeyError as error:
        raise DataError(f"{label} has no feature {error}") from error
    if pixels.shape != (784,) or digit.shape != (1,):
        raise DataError(
            f"{label} must have 784 pixels and 1 label, but has {pixels.size} and {digit.size}"
        )
    return pixels, int(digit[0])


def _stack(rows: Iterator[Row], ids: list[str]) -> Arrays:
    pixels, labels, clients, tests = zip(*rows, strict=True)
    return {
        "pixels": np.stack(pixels).reshape(-1, 28, 28).astype(np.float32),
        "label": np.array(labels, dtype=np.int64),
        "client": np.array(clients, dtype=np.int64),
        "test": np.array(tests, dtype=bool),
        "client_ids": np.array(ids),
    }


def _read_hdf5(path: Path, writers: int) -> Arrays:
    """Return the arrays of the older layout."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise DataError(
            f"{path}: reading this older layout needs h5py: pip install 'flwr-fbo[hdf5]', "
            "or use emnist_all.sqlite.lzma"
        ) from error
    with open_tree(path) as tree, contextlib.ExitStack() as opened:
        files = []
        for part in ("train", "test"):
            name = tree.find(f"fed_emnist_digitsonly_{part}.h5")
            data = io.BytesIO(tree.read(name, MAX_HDF5))
            try:
                files.append(opened.enter_context(h5py.File(data, "r"))["examples"])
            except (OSError, KeyError) as error:
                raise DataError(f"{path}: member {name!r} is not whole HDF5: {error}") from error
        ids = sorted(files[0])[:writers]
        _check_count(len(ids), writers, path)
        return _stack(_hdf5_rows(files, path, ids), ids)


def _hdf5_rows(files: list[Any], path: Path, ids: list[str]) -> Iterator[Row]:
    for number, client in enumerate(ids):
        for examples, is_test in zip(files, (False, True), strict=True):
            if client not in examples:
                continue  # a writer may have no test image
            try:
                pixels, labels = examples[client]["pixels"][()], examples[client]["label"][()]
            except (KeyError, OSError) as error:
                raise DataError(f"{path}: client {client!r} is damaged: {error}") from error
            if pixels.shape != (len(labels), 28, 28):
                raise DataError(
                    f"{path}: client {client!r} must have images (n, 28, 28), but has "
                    f"{pixels.shape} for {len(labels)} labels"
                )
            for image, label in zip(pixels, labels, strict=True):
                yield image.reshape(784), int(label), number, is_test


def _read_writers(path: Path) -> Arrays:
    stored = load_npz(path, ("X", "y", "writer", "index"))
    # MNIST has ink 255 on 0; EMNIST as TensorFlow Federated ships it has 1.0 as background.
    return {
        "pixels": (1.0 - stored["X"] / np.float32(255.0)).astype(np.float32),
        "label": stored["y"].astype(np.int64),
        "client": stored["writer"].astype(np.int64),
        "test": _every_tenth(stored["writer"], stored["index"]),
    }


def _every_tenth(writer: NDArray[Any], order: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of every tenth image of each writer, by the order of writing."""
    by_order = np.lexsort((order, writer))
    # Position within the writer: position in the sorted table, less where the writer begins.
    position = np.arange(len(writer)) - np.searchsorted(writer[by_order], writer[by_order])
    test = np.empty(len(writer), dtype=bool)
    test[by_order] = position % 10 == 9
    return test
