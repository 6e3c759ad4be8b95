"""Where files are looked for, and that each is parsed once."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from flwr_fbo.tasks.papers.data import DataError, cache_directory, find_data, require
from flwr_fbo.tasks.papers.data.cache import Arrays, load_npz, parse_once
from flwr_fbo.tasks.papers.data.sources import Source

SOURCE = Source("thing", "A thing", "CC0", "http://example.org", ("original.mat", "other.npz"))


def test_the_given_directory_comes_before_the_environment_and_originals_come_first(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, environment = empty / "given", empty / "environment"
    for directory in (given / "raw", environment):
        directory.mkdir(parents=True)
    assert find_data(SOURCE) is None
    monkeypatch.setenv("FLWR_FBO_DATA", str(environment))
    (environment / "other.npz").touch()
    assert find_data(SOURCE, given) == environment / "other.npz"
    (given / "raw" / "original.mat").touch()
    assert find_data(SOURCE, given) == given / "raw" / "original.mat"
    assert require(SOURCE, given / "raw" / "original.mat") == given / "raw" / "original.mat"


def test_a_data_directory_that_does_not_exist_is_an_error(empty: Path) -> None:
    with pytest.raises(DataError, match=r"absent: no such file or directory.*data-dir"):
        require(SOURCE, empty / "absent")


def test_the_cache_is_where_the_platform_keeps_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLWR_FBO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setattr("flwr_fbo.tasks.papers.data.store.sys.platform", "linux")
    assert cache_directory() == Path("/somewhere/flwr-fbo")
    monkeypatch.setattr("flwr_fbo.tasks.papers.data.store.sys.platform", "darwin")
    assert cache_directory() == Path.home() / "Library/Caches/flwr-fbo"
    monkeypatch.setattr("flwr_fbo.tasks.papers.data.store.sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert cache_directory() == Path("/local/flwr-fbo/Cache")


class Parser:
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, path: Path) -> Arrays:
        self.calls += 1
        return {"text": np.frombuffer(path.read_bytes(), dtype=np.uint8).copy()}


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another process."""
    monkeypatch.setattr("flwr_fbo.tasks.papers.data.cache._memory", {})


def test_an_original_is_parsed_once_for_all_processes(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, parse = empty / "original.mat", Parser()
    path.write_bytes(b"abc")
    first = parse_once(path, "thing", 1, parse)
    assert parse_once(path, "thing", 1, parse) is first
    with pytest.raises(ValueError, match="read-only"):
        first["text"][0] = 0
    forget(monkeypatch)
    assert bytes(parse_once(path, "thing", 1, parse)["text"]) == b"abc"
    assert parse.calls == 1


def test_a_changed_original_or_loader_is_parsed_again(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, parse = empty / "original.mat", Parser()
    path.write_bytes(b"abc")
    parse_once(path, "thing", 1, parse)
    path.write_bytes(b"abd")
    os.utime(path, ns=(0, 0))
    assert bytes(parse_once(path, "thing", 1, parse)["text"]) == b"abd"
    parse_once(path, "thing", 2, parse)
    assert parse.calls == 3


def test_a_damaged_cache_is_made_again(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, parse = empty / "original.mat", Parser()
    path.write_bytes(b"abc")
    parse_once(path, "thing", 1, parse)
    (stored,) = (cache_directory() / "parsed").glob("*.npz")
    stored.write_bytes(stored.read_bytes()[:40])
    forget(monkeypatch)
    assert bytes(parse_once(path, "thing", 1, parse)["text"]) == b"abc"
    assert parse.calls == 2


def test_a_cache_that_cannot_be_written_is_done_without(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty / "file").touch()
    monkeypatch.setenv("FLWR_FBO_CACHE", str(empty / "file"))
    (empty / "original.mat").write_bytes(b"abc")
    assert bytes(parse_once(empty / "original.mat", "thing", 1, Parser())["text"]) == b"abc"


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.mkdir, ("sprung",))


def test_pickles_in_npz_files_are_never_run(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(empty)
    np.savez("trap.npz", allow_pickle=True, x=np.array([Trap()], dtype=object))
    assert pickle.dumps(Trap())  # the trap is armed
    with pytest.raises(DataError, match=r"trap\.npz: not a whole npz file.*allow_pickle"):
        load_npz(Path("trap.npz"))
    assert not Path("sprung").exists()


def test_an_npz_without_an_array_or_of_another_kind_is_named(empty: Path) -> None:
    np.savez(empty / "a.npz", x=np.zeros(3))
    with pytest.raises(DataError, match=r"a\.npz: has no array 'y'"):
        load_npz(empty / "a.npz", ("x", "y"))
    (empty / "b.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"b\.npz: not a whole npz file"):
        load_npz(empty / "b.npz")
