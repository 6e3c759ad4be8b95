"""Archives: read by name within bounds; hostile, truncated and incomplete ones are refused."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from flwr_fbo.tasks.papers.data import DataError, archives
from flwr_fbo.tasks.papers.data.archives import open_tree


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return path


def tarred(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def listed(path: Path) -> tuple[str, ...]:
    with open_tree(path) as tree:
        return tree.names


MEMBERS = {"top/one.txt": b"first", "top/deep/two.txt": b"second" * 1000}


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.bz2", "tar", "directory"])
def test_every_kind_of_tree_reads_alike(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    if kind == "zip":
        zipped(path, MEMBERS)
    elif kind == "directory":
        for name, data in MEMBERS.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
    else:
        tarred(path, MEMBERS, "w:" + kind.partition("tar")[2].lstrip("."))
    with open_tree(path) as tree:
        assert sorted(tree.names) == sorted(MEMBERS)
        assert tree.read(tree.find("deep/two.txt")) == MEMBERS["top/deep/two.txt"]
        with pytest.raises(DataError, match=r"has no member 'three.txt'"):
            tree.find("three.txt")
        with pytest.raises(DataError, match=r"exceeds 5 bytes"):
            tree.read("top/deep/two.txt", limit=5)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "..\\evil", "C:evil"])
def test_hostile_paths_are_refused_in_zip_and_tar(name: str, tmp_path: Path) -> None:
    for path in (
        zipped(tmp_path / "a.zip", {"fine": b"", name: b"x"}),
        tarred(tmp_path / "a.tar.gz", {"fine": b"", name: b"x"}),
    ):
        with pytest.raises(DataError, match=rf"{path.name}: member .*evil' points outside"):
            listed(path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(kind: bytes, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(DataError, match="'link' is a link or a device"):
        listed(tmp_path / "a.tar")


def test_links_in_a_directory_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "secret")
    assert listed(tmp_path / "tree") == ()


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_truncated_archives_are_named(share: float, tmp_path: Path) -> None:
    data = {"one": bytes(range(256)) * 100, "two": b"y" * 5000}
    for path in (zipped(tmp_path / "a.zip", data), tarred(tmp_path / "a.tar.gz", data)):
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(DataError, match=rf"{path.name}: not a whole (zip|tar) archive"):
            listed(path)


def test_a_flipped_byte_in_a_zip_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("one", b"A" * 1000)
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    expected = pytest.raises(DataError, match=r"a\.zip: member 'one' is damaged.*CRC")
    with open_tree(path) as tree, expected:
        tree.read("one")


def test_too_many_members_or_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = zipped(tmp_path / "a.zip", {str(i): b"x" * 10 for i in range(20)})
    other = tarred(tmp_path / "a.tar", {str(i): b"x" * 10 for i in range(20)}, "w")
    monkeypatch.setattr(archives, "MAX_TOTAL", 150)
    for bomb in (path, other):
        with pytest.raises(DataError, match="of 150 bytes in all are read"):
            listed(bomb)
    monkeypatch.setattr(archives, "MAX_TOTAL", 10**6)
    monkeypatch.setattr(archives, "MAX_MEMBERS", 10)
    for bomb in (path, other):
        with pytest.raises(DataError, match="at most 10 members"):
            listed(bomb)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.zip: no such file"):
        listed(tmp_path / "nothing.zip")


def test_a_zip_within_a_zip(tmp_path: Path) -> None:
    inner = zipped(tmp_path / "inner.zip", MEMBERS).read_bytes()
    outer = zipped(tmp_path / "outer.zip", {"inner.zip": inner, "bad.zip": b"PKnot"})
    with open_tree(outer) as tree:
        with tree.nested("inner.zip") as nested:
            assert nested.read("top/one.txt") == b"first"
        with pytest.raises(DataError, match=r"outer\.zip/bad\.zip: not a whole zip"):
            tree.nested("bad.zip").__enter__()
