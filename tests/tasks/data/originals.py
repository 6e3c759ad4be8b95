"""Small made-up files in the layouts of the originals."""

from __future__ import annotations

import gzip
import io
import sqlite3
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

SPLITS = ("digits_only_train", "digits_only_test")


def cells(arrays: list[np.ndarray]) -> np.ndarray:
    """A MATLAB cell array."""
    found = np.empty((1, len(arrays)), dtype=object)
    for i, array in enumerate(arrays):
        found[0, i] = array
    return found


def landmine_mat(path: Path, **changes: Any) -> Path:
    """29 fields of 20 + i locations; the first two of each hold a mine."""
    rng = np.random.default_rng(0)
    content: dict[str, Any] = {
        "feature": cells([rng.normal(0, 1, (20 + i, 9)) for i in range(29)]),
        "label": cells([(np.arange(20 + i) < 2).astype(np.uint8)[:, None] for i in range(29)]),
    }
    content.update(changes)
    scipy.io.savemat(path, {k: v for k, v in content.items() if v is not None})
    return path


def har_members(rows: int = 8, subject: int = 1, activity: int = 1) -> dict[str, bytes]:
    """Both parts of a HAR archive: `rows` windows each, in chains of four."""
    rng = np.random.default_rng(0)
    members = {}
    for part in ("train", "test"):
        signal = rng.normal(0, 1, (3, rows // 4, 64 * 5)).astype(np.float32)
        starts = [(c, 64 * w) for c in range(rows // 4) for w in range(4)]
        members[f"{part}/X_{part}.txt"] = text(rng.uniform(-1, 1, (rows, 561)))
        members[f"{part}/y_{part}.txt"] = text(np.full((rows, 1), activity))
        members[f"{part}/subject_{part}.txt"] = text(np.full((rows, 1), subject))
        for axis, name in enumerate("xyz"):
            windows = np.stack([signal[axis, c, s : s + 128] for c, s in starts])
            members[f"{part}/Inertial Signals/total_acc_{name}_{part}.txt"] = text(windows)
    return {f"UCI HAR Dataset/{name}": data for name, data in members.items()}


def text(array: np.ndarray) -> bytes:
    return "\n".join(" ".join(f"{v:.7e}" for v in row) for row in array).encode()


def zip_bytes(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def varint(value: int) -> bytes:
    digits = []
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def message_field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def example(pixels: np.ndarray, label: int, packed: bool = True) -> bytes:
    """A serialised tf.train.Example, its numbers packed or one field each."""
    if packed:
        floats = message_field(1, pixels.astype("<f4").tobytes())
        integers = message_field(1, varint(label & 0xFFFFFFFFFFFFFFFF))
    else:
        floats = b"".join(varint(1 << 3 | 5) + struct.pack("<f", p) for p in pixels)
        integers = varint(1 << 3 | 0) + varint(label & 0xFFFFFFFFFFFFFFFF)
    entries = {"pixels": message_field(2, floats), "label": message_field(3, integers)}
    features = [message_field(1, n.encode()) + message_field(2, v) for n, v in entries.items()]
    return message_field(1, b"".join(message_field(1, f) for f in features))


def emnist_sqlite(path: Path, rows: list[tuple[str, str, Any]]) -> Path:
    """The table `examples` of (split, client, example)."""
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TABLE examples(split_name TEXT, client_id TEXT, serialized_example_proto BLOB)"
    )
    connection.executemany("INSERT INTO examples VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path


def idx(array: np.ndarray) -> bytes:
    header = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def mnist_files(directory: Path, zipped: bool, train: int = 30, test: int = 20) -> Path:
    """The four files; returns the training images'."""
    rng = np.random.default_rng(0)
    for part, n in (("train", train), ("t10k", test)):
        images, labels = rng.integers(0, 256, (n, 28, 28)), np.arange(n) % 10
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            data = idx(array)
            file = directory / f"{part}-{name}-ubyte{'.gz' if zipped else ''}"
            file.write_bytes(gzip.compress(data) if zipped else data)
    return directory / f"train-images-idx3-ubyte{'.gz' if zipped else ''}"


SENSORS = (
    "MPL Gyroscope",
    "MPL Accelerometer",
    "MPL Magnetic Field",
    "MPL Rotation Vector",
    "MPL Linear Acceleration",
    "MPL Gravity",
)


def gleam_members(participants: int, seconds: float = 40.0) -> dict[str, bytes]:
    """Directories of participants who eat from second 10 to second 20."""
    rng = np.random.default_rng(0)
    members = {"GLEAM/README_GLEAM.pdf": b"%PDF"}
    start = 1_400_000_000_000
    for i in range(participants):
        who = str(1101 + i)
        rows = ["Unix Time,Sensor,Value1,Value2,Value3"]
        for tick in range(int(seconds * 4)):
            time = start + 250 * tick
            for name in SENSORS:
                x, y, z = rng.normal(0, 1, 3)
                rows.append(f"{time},{name},{x:.5f},{y:.5f},{z:.5f}")
            if tick % 30 == 0:
                rows.append(f"{time},LTR-506ALS Light sensor,{100 + tick},,")
        notes = ["unix time,Activity,Status"]
        notes += [f"{start + 10_000},eat,start", f"{start + 20_000},eat,stop"]
        notes += [f"{start + 22_000},w,start"]  # as in the original: a slip that does no harm
        members[f"GLEAM/{who}/{who}_sensorData.csv"] = "\n".join(rows).encode()
        members[f"GLEAM/{who}/{who}_annotate.csv"] = "\n".join(notes).encode()
        members[f"GLEAM/{who}/._{who}_annotate.csv"] = b"\0\1rubbish"
    return members


def tar_gz(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path
