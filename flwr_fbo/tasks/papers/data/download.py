"""Download one file: resumable, checked, limited in size, and safe for several processes."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from flwr_fbo.tasks.papers.data.sources import DataError, Remote

CHUNK = 2**18
TIMEOUT = 30.0  # seconds without a byte
STALE = 120.0  # seconds without progress after which another process counts as dead


def sha256_of(path: Path) -> str:
    """Return the SHA-256 checksum of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def download(remote: Remote, directory: Path, attempts: int = 3) -> Path:
    """Download a file into a directory and return its path.

    An interrupted download continues where it stopped. The file gets its name only when it is
    complete and its checksum, where one is known, is right.

    Parameters
    ----------
    remote : Remote
        The file to download.
    directory : Path
        Where the file is put; made if it does not exist.
    attempts : int
        Number of attempts before the download is given up.

    Raises
    ------
    ConnectionError
        If every attempt fails, or the server refuses.
    DataError
        If the file is too large or has a wrong checksum.
    """
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / remote.filename
    partial = directory / (remote.filename + ".part")
    with _lock(directory / (remote.filename + ".lock"), partial):
        if target.exists():
            return target
        for attempt in range(attempts):
            try:
                _fetch(remote, partial)
                break
            except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
                if attempt + 1 == attempts or _is_refusal(error):
                    raise ConnectionError(f"{remote.url}: {error}") from error
                time.sleep(0.2 * 2**attempt)
        _verify(remote, partial)
        partial.replace(target)
    return target


def _is_refusal(error: Exception) -> bool:
    """Return whether the server refused the request, so that another attempt is pointless."""
    return isinstance(error, urllib.error.HTTPError) and error.code < 500


def _fetch(remote: Remote, partial: Path) -> None:
    """Request the bytes of a file that are still missing, and append them to the partial file."""
    have = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(remote.url, headers={"User-Agent": "flwr-fbo"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        # 416, range not satisfiable: the file is complete, or it is another file than before.
        if have and error.code == 416:
            if _range_total(error.headers.get("Content-Range")) == have:
                return
            partial.unlink()
            _fetch(remote, partial)
            return
        raise
    with response:
        # 206, partial content; a server without ranges sends the whole file again.
        _receive(response, remote, partial, have if response.status == 206 else 0)


def _receive(response: http.client.HTTPResponse, remote: Remote, partial: Path, have: int) -> None:
    """Append the body of a response to the first ``have`` bytes, which are already there."""
    length = response.headers.get("Content-Length")
    total = None if length is None else have + int(length)
    if total is not None and total > remote.max_bytes:
        raise DataError(
            f"{remote.url}: the file must not exceed {remote.max_bytes} bytes, but has {total}"
        )
    with partial.open("ab" if have else "wb") as stream, _Progress(remote.filename, total) as bar:
        while chunk := response.read(CHUNK):
            have += len(chunk)
            if have > remote.max_bytes:  # the header may be absent or wrong
                raise DataError(f"{remote.url}: the file exceeds {remote.max_bytes} bytes")
            stream.write(chunk)
            bar.show(have)
    if total is not None and have != total:
        raise http.client.IncompleteRead(b"", total - have)


def _range_total(header: str | None) -> int | None:
    """Return the size in a ``Content-Range: bytes */SIZE`` header."""
    size = (header or "").rpartition("/")[2]
    return int(size) if size.isdigit() else None


def _verify(remote: Remote, path: Path) -> None:
    """Delete a file with a wrong checksum, and raise DataError."""
    if remote.sha256 is None:
        return
    found = sha256_of(path)
    if found != remote.sha256:
        path.unlink()  # no part of the file can be trusted: the next attempt starts from nothing
        raise DataError(
            f"{remote.filename} from {remote.url}: wrong checksum, sha256 must be "
            f"{remote.sha256}, but is {found}"
        )


@contextlib.contextmanager
def _lock(path: Path, partial: Path) -> Iterator[None]:
    """Let one process at a time download a file; the others wait.

    A process that finds no progress takes over from the one that holds the lock.
    """
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            if time.time() - max(_changed(path), _changed(partial)) > STALE:
                path.unlink(missing_ok=True)
            time.sleep(0.2)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _changed(path: Path) -> float:
    """Return when a file was last written; 0 if the file does not exist."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


class _Progress:
    """A line on stderr that counts megabytes, if stderr is a terminal."""

    def __init__(self, name: str, total: int | None) -> None:
        self._name, self._total, self._last = name, total, 0.0
        self._on = sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._on:
            print(file=sys.stderr)

    def show(self, done: int) -> None:
        """Redraw the line, at most five times a second."""
        if not self._on or time.monotonic() - self._last < 0.2:
            return
        self._last = time.monotonic()
        of = f" of {self._total / 2**20:.1f}" if self._total else ""
        print(f"\r{self._name}: {done / 2**20:.1f}{of} MB", end="", file=sys.stderr, flush=True)
