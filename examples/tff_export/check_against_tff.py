"""Compare this project's reader of EMNIST with TensorFlow Federated's, on a small database.

    python check_against_tff.py [emnist_all_mini.sqlite.lzma]

Without an argument a small database of random images is written first. The script unpacks it,
lets ``export_emnist.py`` read it with the real TensorFlow Federated in an environment that uv
makes (2.3 GB at the first time), reads it with ``flwr_fbo.tasks.papers.data.emnist``, and compares
client ids, splits, labels and every pixel. It exits 0 only if all are identical.
"""

from __future__ import annotations

import lzma
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from flwr_fbo.tasks.papers.data.emnist import KEYS, SPLITS, read_emnist

HERE = Path(__file__).resolve().parent


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        database = work / "emnist_all.sqlite"
        if len(sys.argv) > 1:
            database.write_bytes(lzma.decompress(Path(sys.argv[1]).read_bytes()))
        else:
            write_database(database, np.random.default_rng(0))
        writers = count_writers(database)
        exported = work / "export.npz"
        run_exporter(work, exported, writers)
        theirs = read_emnist(exported, writers)
        ours = read_emnist(database, writers)
    report(theirs, ours)


def run_exporter(work: Path, exported: Path, writers: int) -> None:
    """Run the exporter by ``uv run``, or by the interpreter that TFF_PYTHON names."""
    script = str(HERE / "export_emnist.py")
    if given := os.environ.get("TFF_PYTHON"):
        command = [given, script]
    elif uv := shutil.which("uv"):
        command = [uv, "run", "--script", script]
    else:
        sys.exit("uv is needed: pip install uv")
    options = ["--cache-dir", str(work), "--output", str(exported), "--writers", str(writers)]
    subprocess.run([*command, *options], check=True)


def report(theirs: dict[str, np.ndarray], ours: dict[str, np.ndarray]) -> None:
    """Say what was compared, and exit with an error where anything differs."""
    different = [key for key in KEYS if not np.array_equal(theirs[key], ours[key])]
    images, clients = len(ours["label"]), len(ours["client_ids"])
    print(f"{clients} clients, {images} images of {ours['pixels'][0].size} pixels")
    print(f"labels {np.bincount(ours['label'], minlength=10).tolist()}")
    if different:
        sys.exit(f"NOT identical: {', '.join(different)}")
    print(f"identical: {', '.join(KEYS)}")


def count_writers(database: Path) -> int:
    with sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True) as connection:
        query = "SELECT COUNT(DISTINCT client_id) FROM client_metadata WHERE split_name = ?"
        return int(connection.execute(query, (SPLITS[0],)).fetchone()[0])


def write_database(path: Path, rng: np.random.Generator) -> None:
    """Three clients with random images, in the layout of the original."""
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL, "
            "serialized_example_proto BLOB NOT NULL)"
        )
        connection.execute(
            "CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT NOT NULL, "
            "num_examples INTEGER NOT NULL)"
        )
        for client in ("f0002_07", "f0000_14", "f0001_41"):
            for split, count in zip(SPLITS, (9, 2), strict=True):
                rows = [
                    (split, client, example(rng.random(784), int(rng.integers(10))))
                    for _ in range(count)
                ]
                connection.executemany("INSERT INTO examples VALUES (?, ?, ?)", rows)
                connection.execute(
                    "INSERT INTO client_metadata VALUES (?, ?, ?)", (client, split, count)
                )


def example(pixels: np.ndarray, label: int) -> bytes:
    """A serialised tf.train.Example."""
    floats = field(1, pixels.astype("<f4").tobytes())
    integers = field(1, struct.pack("B", label))
    entries = [("pixels", field(2, floats)), ("label", field(3, integers))]
    features = [field(1, name.encode()) + field(2, value) for name, value in entries]
    return field(1, b"".join(field(1, feature) for feature in features))


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field."""
    size, digits = len(payload), []
    while True:
        digits.append(size & 0x7F | (0x80 if size > 0x7F else 0))
        size >>= 7
        if not size:
            return bytes([number << 3 | 2, *digits]) + payload


if __name__ == "__main__":
    main()
