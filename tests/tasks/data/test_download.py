"""The downloader against a server on this machine: whole, interrupted, wrong, too large."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flwr_fbo.tasks.papers.data import SOURCES, DataError
from flwr_fbo.tasks.papers.data import download as module
from flwr_fbo.tasks.papers.data.download import download, sha256_of
from flwr_fbo.tasks.papers.data.sources import Remote, Source
from flwr_fbo.tasks.papers.data.store import require

BODY = bytes(range(256)) * 400  # 102,400 bytes


@dataclass
class Site:
    """What the server offers, and what it was asked."""

    body: bytes = BODY
    ranges: bool = True
    #: How many bytes each of the first answers holds before the connection breaks.
    breaks: list[int] = field(default_factory=list)
    status: int = 200
    asked: list[str | None] = field(default_factory=list)
    url: str = ""


class Handler(BaseHTTPRequestHandler):
    def __init__(self, site: Site, *args: object) -> None:
        self.site = site
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        site, wanted = self.site, self.headers.get("Range")
        site.asked.append(wanted)
        if site.status != 200:
            self.send_error(site.status)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and site.ranges else 0
        if start >= len(site.body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(site.body)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(site.body) - start))
        self.end_headers()
        end = start + site.breaks.pop(0) if site.breaks else len(site.body)
        self.wfile.write(site.body[start:end])

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    served = Site()
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, served)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        served.url = f"http://127.0.0.1:{server.server_port}/file.bin"
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


def remote(site: Site, sha256: str | None = None, max_bytes: int = 10**6) -> Remote:
    return Remote(site.url, "file.bin", sha256 or hashlib.sha256(BODY).hexdigest(), max_bytes)


def test_a_file_is_fetched_once(site: Site, tmp_path: Path) -> None:
    path = download(remote(site), tmp_path)
    assert path.read_bytes() == BODY
    assert download(remote(site), tmp_path) == path
    assert site.asked == [None]
    assert [p.name for p in tmp_path.iterdir()] == ["file.bin"]


def test_a_broken_connection_goes_on_where_it_stopped(site: Site, tmp_path: Path) -> None:
    site.breaks = [1000, 500]
    assert download(remote(site), tmp_path).read_bytes() == BODY
    assert site.asked == [None, "bytes=1000-", "bytes=1500-"]


def test_a_partial_file_of_an_earlier_run_is_resumed(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(BODY[:70_000])
    assert download(remote(site), tmp_path).read_bytes() == BODY
    assert site.asked == ["bytes=70000-"]


def test_a_server_without_ranges_starts_afresh(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    (tmp_path / "file.bin.part").write_bytes(b"old" * 10)
    assert download(remote(site), tmp_path).read_bytes() == BODY


def test_a_whole_partial_file_needs_only_its_name(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(BODY)
    assert download(remote(site), tmp_path).read_bytes() == BODY


def test_a_partial_file_longer_than_the_original_is_dropped(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(BODY + b"more")
    assert download(remote(site), tmp_path).read_bytes() == BODY


def test_a_wrong_checksum_names_file_and_both_sums(site: Site, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"file\.bin.*wrong checksum.*must be 0{64}, but is [0-9a-f]"
    ):
        download(remote(site, sha256="0" * 64), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_stays_truncated_fails_and_keeps_what_it_has(
    site: Site, tmp_path: Path
) -> None:
    site.breaks = [100, 100, 100]
    with pytest.raises(ConnectionError, match=r"file\.bin"):
        download(remote(site), tmp_path)
    assert (tmp_path / "file.bin.part").read_bytes() == BODY[:300]
    assert not (tmp_path / "file.bin").exists()


def test_a_file_that_is_too_large_is_not_fetched(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must not exceed 1000 bytes, but has 102400"):
        download(remote(site, max_bytes=1000), tmp_path)


def test_a_refusal_is_not_asked_again(site: Site, tmp_path: Path) -> None:
    site.status = 404
    with pytest.raises(ConnectionError, match="404"):
        download(remote(site), tmp_path)
    assert len(site.asked) == 1


def test_processes_wait_for_one_another(site: Site, tmp_path: Path) -> None:
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(download(remote(site), tmp_path).read_bytes()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [BODY] * 4
    assert site.asked == [None]


def test_an_abandoned_lock_is_taken_over(site: Site, tmp_path: Path) -> None:
    lock = tmp_path / "file.bin.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    assert download(remote(site), tmp_path).read_bytes() == BODY


def source(site: Site) -> Source:
    return Source("thing", "A thing", "CC0", "http://example.org", ("file.bin",), (remote(site),))


def test_require_downloads_into_the_cache_and_shows_the_licence(
    site: Site, empty: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FLWR_FBO_OFFLINE")
    monkeypatch.setenv("FLWR_FBO_CACHE", str(empty))
    path = require(source(site))
    assert path == empty / "originals" / "thing" / "file.bin"
    assert sha256_of(path) == hashlib.sha256(BODY).hexdigest()
    assert "Licence: CC0" in capsys.readouterr().err


def test_without_network_the_error_says_what_to_get_and_where_to_put_it(
    site: Site, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLWR_FBO_OFFLINE")
    site.status = 404
    with pytest.raises(DataError, match=r"get http://127.*file\.bin.*--data-dir or FLWR_FBO_DATA"):
        require(source(site))


def test_checksums_have_the_form_of_sha256() -> None:
    sums = [r.sha256 for s in SOURCES.values() for r in s.remotes if r.sha256]
    assert len(sums) >= 8
    assert all(len(s) == 64 and set(s) <= set("0123456789abcdef") for s in sums)
