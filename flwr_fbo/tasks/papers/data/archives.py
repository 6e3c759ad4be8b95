"""Read files from archives of unknown origin.

Nothing is extracted: members are read into memory by name, within a limit of size. The whole
archive is refused if it lists a path outside of its directory, a link, too many members or too
many bytes.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from flwr_fbo.tasks.papers.data.sources import DataError

MAX_MEMBERS = 100_000
MAX_TOTAL = 4 * 2**30  # bytes
MAX_MEMBER = 2**30  # bytes
#: What the standard library raises for damaged archives.
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    EOFError,
    lzma.LZMAError,
    zlib.error,
    OSError,
    RuntimeError,  # an encrypted member; an unknown compression method
)


class Tree:
    """The files of a zip, a tar or a directory, by their paths within it.

    Parameters
    ----------
    label : str
        Name of the archive, for error messages.
    sizes : dict
        Path of every member -> its size in bytes.
    opener : callable
        Opens a member by its path.
    """

    def __init__(self, label: str, sizes: dict[str, int], opener: Callable[[str], IO[bytes]]):
        self.label = label
        self._sizes, self._open = sizes, opener
        # Before anything is read, the listing as a whole must be harmless.
        _check_names(label, sizes)
        if len(sizes) > MAX_MEMBERS or sum(sizes.values()) > MAX_TOTAL:
            raise DataError(
                f"{label}: at most {MAX_MEMBERS} members of {MAX_TOTAL} bytes in all are read, "
                f"but it lists {len(sizes)} of {sum(sizes.values())}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Return the paths, in the order of the archive."""
        return tuple(self._sizes)

    def find(self, ending: str) -> str:
        """Return the one path that ends with these components."""
        parts = PurePosixPath(ending).parts
        found = [n for n in self.names if PurePosixPath(n).parts[-len(parts) :] == parts]
        if len(found) != 1:
            problem = "has no member" if not found else f"has {len(found)} members"
            raise DataError(f"{self.label}: {problem} {ending!r}")
        return found[0]

    def read(self, name: str, limit: int = MAX_MEMBER) -> bytes:
        """Return the bytes of a member, checked against its checksum where the format has one."""
        if name not in self._sizes:
            raise DataError(f"{self.label}: has no member {name!r}")
        try:
            with self._open(name) as stream:
                data = stream.read(limit + 1)  # a header may lie about the size
        except _DAMAGE as error:
            raise DataError(f"{self.label}: member {name!r} is damaged: {error}") from error
        if len(data) > limit:
            raise DataError(f"{self.label}: member {name!r} exceeds {limit} bytes")
        # Not every format has a checksum, but every listing has sizes.
        if len(data) != self._sizes[name]:
            raise DataError(
                f"{self.label}: member {name!r} must have {self._sizes[name]} bytes, "
                f"but has {len(data)}"
            )
        return data

    def nested(self, name: str) -> contextlib.AbstractContextManager[Tree]:
        """Open a zip that is a member of this archive."""
        return _open_zip(io.BytesIO(self.read(name)), f"{self.label}/{name}")


@contextlib.contextmanager
def open_tree(path: Path) -> Iterator[Tree]:
    """Open a directory, a zip, or a tar (compressed or not), by its content and not its name."""
    if path.is_dir():
        yield _open_directory(path)
        return
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    with _open_zip(path, str(path)) if _starts_with(path, b"PK") else _open_tar(path) as tree:
        yield tree


@contextlib.contextmanager
def _open_zip(file: Path | IO[bytes], label: str) -> Iterator[Tree]:
    try:
        archive = zipfile.ZipFile(file)
    except _DAMAGE as error:
        raise DataError(f"{label}: not a whole zip archive: {error}") from error
    with archive:
        members = {m.filename: m.file_size for m in archive.infolist() if not m.is_dir()}
        yield Tree(label, members, archive.open)


@contextlib.contextmanager
def _open_tar(path: Path) -> Iterator[Tree]:
    try:
        archive = tarfile.open(path, "r:*")  # noqa: SIM115 - entered below
    except _DAMAGE as error:
        raise DataError(f"{path}: not a whole tar archive: {error}") from error
    with archive:
        yield Tree(str(path), _tar_sizes(archive, path), lambda name: _tar_member(archive, name))


def _tar_sizes(archive: tarfile.TarFile, path: Path) -> dict[str, int]:
    """Return the listed sizes; stop at the limits, before the whole archive is unpacked."""
    sizes: dict[str, int] = {}
    total = 0
    try:
        for member in archive:
            if member.isdir():
                continue
            if not member.isfile():
                raise DataError(f"{path}: member {member.name!r} is a link or a device: refused")
            sizes[member.name] = member.size
            total += member.size
            if len(sizes) > MAX_MEMBERS or total > MAX_TOTAL:
                break
    except _DAMAGE as error:
        raise DataError(f"{path}: not a whole tar archive: {error}") from error
    return sizes


def _tar_member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    stream = archive.extractfile(name)
    if stream is None:
        raise tarfile.TarError("not a regular file")
    return stream


def _open_directory(path: Path) -> Tree:
    # Links are left out: a link may lead anywhere.
    files = [f for f in sorted(path.rglob("*")) if f.is_file() and not f.is_symlink()]
    sizes = {f.relative_to(path).as_posix(): f.stat().st_size for f in files}
    return Tree(str(path), sizes, lambda name: (path / name).open("rb"))


def _check_names(label: str, names: dict[str, int]) -> None:
    """Raise DataError for a path that is absolute or leaves the archive, also on Windows."""
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if not parts or parts[0] == "/" or ".." in parts or ":" in parts[0] or "\0" in name:
            raise DataError(f"{label}: member {name!r} points outside of the archive: refused")


def _starts_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(magic)) == magic
