"""Every loader on files in the originals' layouts, whole and damaged."""

from __future__ import annotations

import importlib.util
import io
import json
import lzma
import sqlite3
import tarfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from flwr_fbo.tasks.papers.data import DataError, load_landmine
from flwr_fbo.tasks.papers.data.bandits import finite_problem, read_light, read_stocks
from flwr_fbo.tasks.papers.data.emnist import load_emnist, read_emnist
from flwr_fbo.tasks.papers.data.gleam import load_gleam, read_gleam, window_features
from flwr_fbo.tasks.papers.data.har import link_windows, load_har, read_har
from flwr_fbo.tasks.papers.data.mnist import load_mnist, read_mnist
from flwr_fbo.tasks.papers.data.seir import read_seir
from flwr_fbo.tasks.papers.data.tfexample import DecodeError, decode_example
from tests.tasks.data.originals import (
    SPLITS,
    cells,
    emnist_sqlite,
    example,
    gleam_members,
    har_members,
    landmine_mat,
    message_field,
    mnist_files,
    tar_gz,
    zip_bytes,
)

needs_h5py = pytest.mark.skipif(
    importlib.util.find_spec("h5py") is None, reason="h5py is not installed"
)


# --- landmine -------------------------------------------------------------------------------


def test_landmine_reads_mat_and_zip_alike(tmp_path: Path) -> None:
    mat = landmine_mat(tmp_path / "LandmineData.mat")
    archive = tmp_path / "LandmineData.zip"
    archive.write_bytes(zip_bytes({"Landmine/LandmineData.mat": mat.read_bytes()}))
    one, two = load_landmine(mat), load_landmine(archive)
    assert np.array_equal(one.X, two.X)
    assert one.count == 29
    assert np.bincount(one.party).tolist() == [20 + i for i in range(29)]
    assert one.of(3).y.tolist() == [1, 1] + [0] * 21


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"label": None}, "has no variable 'label'"),
        ({"feature": np.zeros((29, 9))}, "`feature` must be a cell array"),
        ({"feature": cells([np.zeros((3, 8))] * 29)}, r"field 0 must have features \(n, 9\)"),
        ({"label": cells([np.zeros((3, 1))] * 28)}, "29 cells in `feature`, 28 in `label`"),
        ({"label": cells([np.full((20 + i, 1), 2) for i in range(29)])}, "unknown label 2"),
        (
            {
                "feature": cells([np.zeros((3, 9))] * 5),
                "label": cells([np.zeros((3, 1))] * 5),
            },
            "parties must be 0 to 28",
        ),
        (
            {"feature": cells([np.full((20 + i, 9), np.nan) for i in range(29)])},
            "not a finite number",
        ),
    ],
)
def test_landmine_names_file_and_fault(
    changes: dict[str, object], fault: str, tmp_path: Path
) -> None:
    path = landmine_mat(tmp_path / "LandmineData.mat", **changes)
    with pytest.raises(DataError, match=rf"LandmineData\.mat.*{fault}"):
        load_landmine(path)


def test_landmine_truncated_or_incomplete(tmp_path: Path) -> None:
    mat = landmine_mat(tmp_path / "LandmineData.mat")
    whole = mat.read_bytes()
    archive = tmp_path / "LandmineData.zip"
    archive.write_bytes(zip_bytes({"readme.txt": b""}))
    with pytest.raises(DataError, match=r"LandmineData\.zip: has no member 'LandmineData\.mat'"):
        load_landmine(archive)
    mat.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"LandmineData\.mat"):
        load_landmine(mat)


# --- human activity ---------------------------------------------------------------------------


def test_har_reads_nested_zip_plain_zip_and_directory_alike(tmp_path: Path) -> None:
    members = har_members()
    plain, nested = tmp_path / "UCI HAR Dataset.zip", tmp_path / "outer.zip"
    plain.write_bytes(zip_bytes(members))
    nested.write_bytes(zip_bytes({"UCI HAR Dataset.zip": plain.read_bytes()}))
    for name, data in members.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    read = [read_har(path) for path in (plain, nested, tmp_path / "UCI HAR Dataset")]
    for arrays in read:
        assert arrays["X"].shape == (16, 561)
        assert arrays["y"].tolist() == [0] * 16
        assert arrays["subject"].tolist() == [1] * 16
        assert arrays["uci_test"].tolist() == [False] * 8 + [True] * 8
        # Chains of four windows; the two parts have none in common.
        assert np.bincount(arrays["chain"]).tolist() == [4, 4, 4, 4]
    assert np.array_equal(read[0]["X"], read[2]["X"])


def test_chains_are_found_whatever_the_order() -> None:
    rng = np.random.default_rng(3)
    signals = rng.normal(0, 1, (5, 3, 64 * 8))
    windows_, truth = [], []
    for c, signal in enumerate(signals):
        for w in range(c + 2):
            windows_.append(signal[:, 64 * w : 64 * w + 128])
            truth.append(c)
    order = rng.permutation(len(truth))
    chain = link_windows(np.stack(windows_)[order], np.zeros(len(truth), dtype=np.int64))
    same = chain[:, None] == chain[None]
    expected = np.array(truth)[order][:, None] == np.array(truth)[order][None]
    assert np.array_equal(same, expected)


def test_constant_windows_do_not_loop_for_ever() -> None:
    assert len(link_windows(np.zeros((4, 3, 128)), np.zeros(4, dtype=np.int64))) == 4


def test_without_raw_windows_rows_of_one_activity_are_one_chain(tmp_path: Path) -> None:
    members = {k: v for k, v in har_members().items() if "Inertial" not in k}
    members["UCI HAR Dataset/train/y_train.txt"] = b"1 1 1 2 2 1 1 1"
    path = tmp_path / "har.zip"
    path.write_bytes(zip_bytes(members))
    assert read_har(path)["chain"][:8].tolist() == [0, 0, 0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("member", "content", "fault"),
    [
        ("train/X_train.txt", None, r"has no member 'train/X_train\.txt'"),
        ("train/X_train.txt", b"1 2 3", r"rows of 561 numbers, but has 3"),
        ("train/X_train.txt", b"1 two 3", "is not all numbers"),
        ("test/y_test.txt", b"1 1", "there are 8, 2 and 8"),
        ("test/subject_test.txt", b"31 1 1 1 1 1 1 1", "subjects must be 1 to 30, but one is 31"),
        (
            "train/Inertial Signals/total_acc_x_train.txt",
            b"0 " * 128,
            "must have 8 windows, but has 1",
        ),
    ],
)
def test_har_names_file_and_fault(
    member: str, content: bytes | None, fault: str, tmp_path: Path
) -> None:
    members = har_members()
    if content is None:
        del members[f"UCI HAR Dataset/{member}"]
    else:
        members[f"UCI HAR Dataset/{member}"] = content
    path = tmp_path / "har.zip"
    path.write_bytes(zip_bytes(members))
    with pytest.raises(DataError, match=rf"har\.zip.*({fault})"):
        read_har(path)


def test_har_refuses_unknown_activities_and_missing_subjects(tmp_path: Path) -> None:
    path = tmp_path / "har.zip"
    path.write_bytes(zip_bytes(har_members(activity=7)))
    with pytest.raises(DataError, match="unknown label 6: labels must be 0 to 5"):
        load_har(path)
    path.write_bytes(zip_bytes(har_members(rows=12)))
    with pytest.raises(DataError, match=r"parties must be 0 to 29, but are \[0\]"):
        load_har(path)


# --- EMNIST -----------------------------------------------------------------------------------


def rows(clients: int = 3) -> list[tuple[str, str, bytes]]:
    rng = np.random.default_rng(0)
    names = [f"f{i:04d}_{i:02d}" for i in range(clients)]
    return [
        (split, name, example(rng.random(784), int(rng.integers(10))))
        for name in reversed(names)
        for split, count in zip(SPLITS, (5, 2), strict=True)
        for _ in range(count)
    ]


def test_emnist_reads_the_first_writers_of_plain_and_compressed_databases(tmp_path: Path) -> None:
    plain = emnist_sqlite(tmp_path / "emnist_all.sqlite", rows())
    packed = tmp_path / "emnist_all.sqlite.lzma"
    packed.write_bytes(lzma.compress(plain.read_bytes(), lzma.FORMAT_ALONE))
    for path in (plain, packed):
        arrays = read_emnist(path, 2)
        assert arrays["client_ids"].tolist() == ["f0000_00", "f0001_01"]
        assert arrays["pixels"].shape == (14, 28, 28)
        assert arrays["pixels"].dtype == np.float32
        assert arrays["client"].tolist() == [0] * 7 + [1] * 7
        assert arrays["test"].tolist() == ([False] * 5 + [True] * 2) * 2


@given(
    st.lists(st.floats(width=32, allow_nan=False), max_size=30),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
)
def test_examples_are_decoded_packed_or_not(pixels: list[float], label: int, packed: bool) -> None:
    values = np.array(pixels, dtype=np.float32)
    features = decode_example(example(values, label, packed))
    assert np.array_equal(features["pixels"], values)
    assert features["label"].tolist() == [label]


@given(st.binary(max_size=200))
def test_any_other_bytes_raise_nothing_worse_than_an_error(data: bytes) -> None:
    try:
        decode_example(data)
    except (DecodeError, UnicodeDecodeError):
        return


@pytest.mark.parametrize(
    ("blob", "fault"),
    [
        (b"\x0a\xff", "ends within a number|is no serialised"),
        ("text", "is no serialised"),
        (example(np.zeros(3), 1), "784 pixels and 1 label, but has 3 and 1"),
        (message_field(1, b""), "has no feature 'pixels'"),
    ],
)
def test_emnist_names_client_and_fault(blob: object, fault: str, tmp_path: Path) -> None:
    path = emnist_sqlite(tmp_path / "emnist_all.sqlite", [(SPLITS[0], "f0", blob)])
    with pytest.raises(DataError, match=rf"emnist_all\.sqlite.*'f0'.*({fault})"):
        read_emnist(path, 1)


def test_emnist_names_damaged_and_foreign_databases(tmp_path: Path) -> None:
    plain = emnist_sqlite(tmp_path / "emnist_all.sqlite", rows())
    with pytest.raises(DataError, match=r"50 writers are needed, but it holds 3"):
        read_emnist(plain, 50)
    packed = tmp_path / "cut.sqlite.lzma"
    packed.write_bytes(lzma.compress(plain.read_bytes())[:200])
    with pytest.raises(DataError, match=r"cut\.sqlite\.lzma: not a whole lzma file"):
        read_emnist(packed, 1)
    (tmp_path / "noise.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(DataError, match=r"noise\.sqlite: not a whole SQLite database"):
        read_emnist(tmp_path / "noise.sqlite", 1)
    with sqlite3.connect(tmp_path / "view.sqlite") as connection:
        connection.execute("CREATE TABLE t(split_name, client_id, serialized_example_proto)")
        connection.execute("CREATE VIEW examples AS SELECT * FROM t")
    connection.close()
    with pytest.raises(DataError, match=r"view\.sqlite: has no table `examples`"):
        read_emnist(tmp_path / "view.sqlite", 1)


def test_emnist_reads_what_the_exporter_writes(tmp_path: Path) -> None:
    whole = read_emnist(emnist_sqlite(tmp_path / "emnist_all.sqlite", rows()), 3)
    np.savez_compressed(tmp_path / "emnist_export.npz", allow_pickle=False, **whole)
    part = load_emnist(tmp_path / "emnist_export.npz", writers=2)
    assert part.count == 2
    assert part.extra["test"].sum() == 4
    assert np.array_equal(part.X, whole["pixels"][:14])
    with pytest.raises(DataError, match="4 writers are needed, but it holds 3"):
        read_emnist(tmp_path / "emnist_export.npz", 4)


def test_nothing_is_left_of_an_unpacked_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_FBO_CACHE", str(tmp_path / "cache"))
    packed = tmp_path / "emnist_all.sqlite.lzma"
    packed.write_bytes(lzma.compress(emnist_sqlite(tmp_path / "e.sqlite", rows()).read_bytes()))
    read_emnist(packed, 3)
    assert list((tmp_path / "cache").iterdir()) == []


def hdf5_tar(path: Path, members: tuple[str, ...] = ("train", "test")) -> Path:
    import h5py

    rng = np.random.default_rng(0)
    with tarfile.open(path, "w:bz2") as archive:
        for part in members:
            stream = io.BytesIO()
            with h5py.File(stream, "w") as file:
                for client in ("f1", "f0"):
                    group = file.create_group(f"examples/{client}")
                    group["pixels"] = rng.random((4, 28, 28)).astype(np.float32)
                    group["label"] = np.arange(4)
            info = tarfile.TarInfo(f"fed_emnist_digitsonly_{part}.h5")
            info.size = len(stream.getvalue())
            archive.addfile(info, io.BytesIO(stream.getvalue()))
    return path


@needs_h5py
def test_emnist_reads_the_older_layout(tmp_path: Path) -> None:
    arrays = read_emnist(hdf5_tar(tmp_path / "fed_emnist_digitsonly.tar.bz2"), 2)
    assert arrays["client_ids"].tolist() == ["f0", "f1"]
    assert arrays["label"].tolist() == [0, 1, 2, 3] * 4
    cut = hdf5_tar(tmp_path / "cut.tar.bz2", ("train",))
    with pytest.raises(DataError, match=r"cut\.tar\.bz2: has no member 'fed_emnist.*test\.h5'"):
        read_emnist(cut, 2)


@pytest.mark.skipif(importlib.util.find_spec("h5py") is not None, reason="h5py is installed")
def test_the_older_layout_without_h5py_names_the_extra(tmp_path: Path) -> None:
    path = tmp_path / "fed_emnist_digitsonly.tar.bz2"
    path.touch()
    with pytest.raises(DataError, match=r"pip install 'flwr-fbo\[hdf5\]'"):
        read_emnist(path, 1)


# --- MNIST ------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [True, False])
def test_mnist_reads_four_idx_files(zipped: bool, tmp_path: Path) -> None:
    arrays = load_mnist(mnist_files(tmp_path, zipped))
    assert arrays["x_train"].shape == (30, 28, 28)
    assert arrays["y_test"].tolist() == [i % 10 for i in range(20)]


def test_mnist_names_file_and_fault(tmp_path: Path) -> None:
    path = mnist_files(tmp_path, zipped=True)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz: no such file"):
        read_mnist(path)
    mnist_files(tmp_path, zipped=True)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"train-images.*: not a whole gzip file"):
        read_mnist(path)
    plain = mnist_files(tmp_path, zipped=False)
    plain.write_bytes(plain.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"23520 bytes must follow .* but 23519 do"):
        read_mnist(plain)
    plain.write_bytes(b"hello world")
    with pytest.raises(DataError, match="not an idx file of bytes"):
        read_mnist(plain)


def test_mnist_refuses_other_shapes_and_labels(tmp_path: Path) -> None:
    good = {
        "x_train": np.zeros((2, 28, 28)),
        "y_train": np.zeros(2),
        "x_test": np.zeros((1, 28, 28)),
    }
    np.savez(tmp_path / "mnist.npz", **good, y_test=np.array([10]))
    with pytest.raises(DataError, match="unknown label 10"):
        read_mnist(tmp_path / "mnist.npz")
    np.savez(tmp_path / "mnist.npz", **good, y_test=np.zeros(3))
    with pytest.raises(DataError, match=r"but there are \(1, 28, 28\) and \(3,\)"):
        read_mnist(tmp_path / "mnist.npz")


# --- GLEAM ------------------------------------------------------------------------------------


def test_gleam_reads_archive_and_directory_alike(tmp_path: Path) -> None:
    members = gleam_members(38)
    archive = tar_gz(tmp_path / "GLEAM.tar.gz", members)
    table = load_gleam(archive)
    assert table.count == 38
    assert table.X.shape == (380, 57)  # 10 windows of 4 s in 40 s
    # Windows 2 to 4 have their middles (10, 14 and 18 s) in the meal from 10 to 20 s.
    assert table.of(0).y.tolist() == [0, 0, 1, 1, 1, 0, 0, 0, 0, 0]
    for name, data in members.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert np.array_equal(read_gleam(tmp_path / "GLEAM")["X"], table.X)


def test_gleam_features_are_mean_variance_and_kurtosis() -> None:
    rng = np.random.default_rng(0)
    time = np.repeat(np.arange(0.0, 8.0, 0.25), 7)
    kind = np.tile(np.arange(7), 32)
    values = rng.normal(5, 2, (len(time), 3))
    keep = (kind != 6) | (time < 2.0)  # the light sensor falls silent
    X, y = window_features(time[keep], kind[keep], values[keep], np.array([]), np.array([]))
    assert X.shape == (2, 57)
    assert y.tolist() == [0, 0]
    gyro = values[(kind == 0) & (time >= 4.0)][:, 0]
    assert X[1, :3] == pytest.approx([gyro.mean(), gyro.var(), scipy.stats.kurtosis(gyro)])
    light = values[(kind == 6) & (time < 2.0)][:, 0]
    assert X[:, 54] == pytest.approx(light.mean())
    assert X[1, 55:].tolist() == [0.0, 0.0]


def test_gleam_leaves_out_windows_with_gaps() -> None:
    time = np.repeat(np.arange(0.0, 12.0, 0.25), 7)
    kind = np.tile(np.arange(7), 48)
    values = np.random.default_rng(0).normal(0, 1, (len(time), 3))
    keep = (kind != 2) | (time < 4.0) | (time > 7.5)  # one report only in the second window
    X, _ = window_features(time[keep], kind[keep], values[keep], np.array([]), np.array([]))
    assert len(X) == 2


@pytest.mark.parametrize(
    ("member", "content", "fault"),
    [
        ("1101_annotate.csv", None, "participant 1101 has no '_annotate.csv'"),
        ("1101_sensorData.csv", b"t,s\n1,Barometer,3,,", "unknown sensor 'Barometer'"),
        ("1101_sensorData.csv", b"t,s\nsoon,MPL Gravity,3,,", "could not convert"),
        ("1101_sensorData.csv", b"t,s\n", "holds no readings"),
        ("1101_annotate.csv", b"t,a\n5,eat\n", "must alternate in time, but there are 1"),
    ],
)
def test_gleam_names_file_and_fault(
    member: str, content: bytes | None, fault: str, tmp_path: Path
) -> None:
    members = gleam_members(1)
    name = f"GLEAM/1101/{member}"
    if content is None:
        del members[name]
    else:
        members[name] = content
    with pytest.raises(DataError, match=rf"GLEAM\.tar\.gz.*{fault}"):
        read_gleam(tar_gz(tmp_path / "GLEAM.tar.gz", members))


def test_gleam_must_be_whole(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="parties must be 0 to 37"):
        load_gleam(tar_gz(tmp_path / "GLEAM.tar.gz", gleam_members(3)))
    with pytest.raises(DataError, match=r"has no member ending in '_sensorData\.csv'"):
        load_gleam(tar_gz(tmp_path / "other.tar.gz", {"readme": b""}))


# --- light, stocks, SEIR ------------------------------------------------------------------------


def light_mat(path: Path, train: tuple[int, int] = (601, 41), coords: int = 41) -> Path:
    rng = np.random.default_rng(0)
    data = {
        "train": {"sensordata": rng.integers(0, 900, train).astype(np.uint16)},
        "test": {"sensordata": rng.integers(0, 900, (192, 41)).astype(np.uint16)},
        "coords": rng.random((coords, 2)),
    }
    scipy.io.savemat(path, {"data": data})
    return path


def test_light_reads_the_structure_and_names_faults(tmp_path: Path) -> None:
    arrays = read_light(light_mat(tmp_path / "iw.mat"))
    assert arrays["train"].shape == (601, 41)
    with pytest.raises(DataError, match=r"iw\.mat: train must be numbers of shape \(601, 41\)"):
        read_light(light_mat(tmp_path / "iw.mat", train=(601, 40)))
    with pytest.raises(DataError, match=r"coords must be numbers of shape \(41, 2\)"):
        read_light(light_mat(tmp_path / "iw.mat", coords=40))
    scipy.io.savemat(tmp_path / "iw.mat", {"other": 1})
    with pytest.raises(DataError, match="has no variable 'data'"):
        read_light(tmp_path / "iw.mat")
    scipy.io.savemat(tmp_path / "iw.mat", {"data": {"train": 1}})
    with pytest.raises(DataError, match=r"`data` must have train\.sensordata"):
        read_light(tmp_path / "iw.mat")


def stock_csv(path: Path, columns: int = 29, last: str = "7.5") -> Path:
    lines = ["Date," + ",".join(f"S{i}" for i in range(columns))]
    for day in range(3):
        lines.append(f"2016-01-0{day + 4}," + ",".join([*["10.25"] * (columns - 1), last]))
    path.write_text("\n".join(lines))
    return path


def test_stocks_reads_the_table_and_names_faults(tmp_path: Path) -> None:
    arrays = read_stocks(stock_csv(tmp_path / "fin.csv"))
    assert arrays["price"].shape == (3, 29)
    assert str(arrays["date"][0]) == "2016-01-04"
    with pytest.raises(DataError, match=r"29 stocks .* but 28 of 28"):
        read_stocks(stock_csv(tmp_path / "fin.csv", columns=28))
    with pytest.raises(DataError, match="28 of 29 are without gaps"):
        read_stocks(stock_csv(tmp_path / "fin.csv", last=""))
    with pytest.raises(DataError, match=r"fin\.csv: not a table"):
        read_stocks(stock_csv(tmp_path / "fin.csv", last="dear"))
    (tmp_path / "fin.csv").write_text("Date,A\n")
    with pytest.raises(DataError, match="there must be two rows"):
        read_stocks(tmp_path / "fin.csv")


def test_finite_problem_by_hand() -> None:
    rewards = np.array([[1.0, 4.0], [3.0, 8.0]])
    problem = finite_problem(rewards, rewards)
    assert problem.mean.tolist() == [2.0, 6.0]
    assert problem.noise.tolist() == [[-1.0, -2.0], [1.0, 2.0]]
    assert (problem.bound, problem.noise_bound) == (6.0, 2.0)
    assert problem.second_moment == pytest.approx((1 + 16 + 9 + 64) / 4)
    assert problem.noise_moment == pytest.approx((1 + 4 + 1 + 4) / 4)
    assert problem.covariance == pytest.approx(np.ones((2, 2)))  # the columns rise together
    scaled = problem.normalised()
    assert (scaled.bound, scaled.noise_bound, scaled.scale) == (1.0, pytest.approx(1 / 3), 6.0)


def seir_json(path: Path, **changes: object) -> Path:
    content: dict[str, object] = {
        "disease_params": {
            "beta_init": 0.4,
            "beta_schedule": [[0, 0.4], [25, 0.2]],
            "gamma": 0.1,
            "sigma": 0.5,
        },
        "sim": {"sim_length": 200, "initial_exposed": 1},
        "countries": [
            {"name": "Small", "population": 10},
            {"name": "Large", "population": 1000},
        ],
    }
    content.update(changes)
    path.write_text(json.dumps(content))
    return path


def test_seir_reads_json_and_directory_and_names_faults(tmp_path: Path) -> None:
    data = read_seir(seir_json(tmp_path / "seir_params.json"))
    assert [c.name for c in data.countries] == ["Large", "Small"]
    assert data.disease.gamma == 0.1
    assert data.disease.lockdown == ((25.0, 0.2),)
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "a.json").write_text('{"name": "A", "population": 5, "ISO": {}}')
    assert read_seir(tmp_path / "tables").countries[0].population == 5.0
    with pytest.raises(DataError, match=r"seir_params\.json: .*beta_init"):
        read_seir(seir_json(tmp_path / "seir_params.json", disease_params={}))
    with pytest.raises(DataError, match="a country lacks name or population"):
        read_seir(seir_json(tmp_path / "seir_params.json", countries=[{"name": "A"}]))
    with pytest.raises(DataError, match="holds no country"):
        read_seir(seir_json(tmp_path / "seir_params.json", countries=[]))
    (tmp_path / "seir_params.json").write_text("{")
    with pytest.raises(DataError, match=r"seir_params\.json: not whole JSON"):
        read_seir(tmp_path / "seir_params.json")
