"""Where the files of a data set are on this machine, and whether they are the published ones.

Files are looked for in this order: the directory (or file) given by ``--data-dir``, the directory
in the environment variable ``FLWR_FBO_DATA``, and the cache directory. A data set that is in none
of them is downloaded into the cache directory, unless ``FLWR_FBO_OFFLINE`` is set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from flwr_fbo.core.settings import unknown_keys
from flwr_fbo.tasks.papers.data.download import download, sha256_of
from flwr_fbo.tasks.papers.data.sources import SOURCES, DataError, Source

#: Verdict on a file: as published, another file, or a file whose checksum is not known.
Verdict = Literal["right", "WRONG", "unknown"]


def cache_directory() -> Path:
    """Return the directory for files that can be made again.

    The environment variable ``FLWR_FBO_CACHE`` overrides the platform's cache directory.
    """
    if given := os.environ.get("FLWR_FBO_CACHE"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "flwr-fbo"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "flwr-fbo" / "Cache"
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "flwr-fbo"


def find_data(source: Source, data_dir: str | Path | None = None) -> Path | None:
    """Return the first file or directory of a data set on this machine, or None."""
    if data_dir and Path(data_dir).is_file():
        return Path(data_dir)
    for directory in search_directories(source, data_dir):
        for name in source.accepted:
            if (directory / name).exists():
                return directory / name
    return None


def search_directories(source: Source, data_dir: str | Path | None = None) -> list[Path]:
    """Return the directories in which :func:`find` looks, in order."""
    # An empty `data-dir` or FLWR_FBO_DATA means that none is set.
    roots = [Path(root) for root in (data_dir, os.environ.get("FLWR_FBO_DATA")) if root]
    directories = [root / below for root in roots for below in ("", "raw", source.name)]
    return [*directories, _download_directory(source)]


def require(source: Source, data_dir: str | Path | None = None) -> Path:
    """Return the file or directory of a data set, after a download if it is not there.

    Raises
    ------
    DataError
        If the data set is not on this machine and cannot be downloaded.
    """
    if data_dir and not Path(data_dir).exists():
        raise DataError(f"{data_dir}: no such file or directory (it was given as `data-dir`)")
    found = find_data(source, data_dir)
    if found is not None:
        return found
    # A run downloads without asking, so it shows the terms.
    if source.remotes and not os.environ.get("FLWR_FBO_OFFLINE"):
        print(terms(source), file=sys.stderr)
    return fetch(source, data_dir)


def fetch(source: Source, data_dir: str | Path | None = None) -> Path:
    """Download a data set into the cache directory; callers show its :func:`terms` first."""
    if not source.remotes or os.environ.get("FLWR_FBO_OFFLINE"):
        raise DataError(_instructions(source, data_dir))
    target = _download_directory(source)
    try:
        for remote in source.remotes:
            download(remote, target)
    except OSError as error:
        raise DataError(f"{_instructions(source, data_dir)} (download failed: {error})") from error
    return find_data(source, target) or target / source.remotes[0].filename


def terms(source: Source) -> str:
    """Return the title, the licence and the homepage of a data set, a line each."""
    return f"{source.title}\nLicence: {source.licence}\nFrom: {source.homepage}"


def sources_named(names: Iterable[str]) -> list[Source]:
    """Return data sets by name; without names, all data sets that need a file."""
    wanted = list(names)
    unknown_keys(wanted, SOURCES, "data set")
    return [s for s in SOURCES.values() if s.name in wanted or (not wanted and s.accepted)]


def status(
    source: Source, data_dir: Path | str | None = None, verify: bool = False
) -> dict[str, Any]:
    """Return what is known of a data set on this machine, ready for JSON.

    Parameters
    ----------
    source : Source
        The data set.
    data_dir : path, optional
        A directory to look in before all others.
    verify : bool
        Whether to compare the files with their checksums, which reads the files.
    """
    found = find_data(source, data_dir)
    return {
        "name": source.name,
        "title": source.title,
        "licence": source.licence,
        "homepage": source.homepage,
        "present": found is not None or not source.accepted,
        "path": None if found is None else str(found),
        "accepted": list(source.accepted),
        "looked_in": [str(directory) for directory in search_directories(source, data_dir)],
        "cache": str(_download_directory(source)),
        "urls": [remote.url for remote in source.remotes],
        "checksums": checksums(source, found) if verify and found is not None else None,
    }


def checksums(source: Source, found: Path) -> dict[str, Verdict]:
    """Return a verdict on every file of a data set that was found, by file name."""
    known = {remote.filename: remote.sha256 for remote in source.remotes}
    # A data set of several files is found by its first one; the others lie beside it.
    files = [found.parent / name for name in known if found.name in known]
    verdicts: dict[str, Verdict] = {}
    for path in files or [found]:
        expected = known.get(path.name)
        if not path.is_file() or expected is None:
            verdicts[path.name] = "unknown"
        else:
            verdicts[path.name] = "right" if sha256_of(path) == expected else "WRONG"
    return verdicts


def _download_directory(source: Source) -> Path:
    return cache_directory() / "originals" / source.name


def _instructions(source: Source, data_dir: str | Path | None) -> str:
    """Return what to download and where to put it, for a machine without network."""
    wanted = " and ".join(remote.url for remote in source.remotes) or source.homepage
    where = ", ".join(str(directory) for directory in search_directories(source, data_dir))
    return (
        f"the data set `{source.name}` is not on this machine: get {wanted} and put it "
        f"(as one of {', '.join(source.accepted)}) in a directory named by --data-dir or "
        f"FLWR_FBO_DATA; looked in {where}; or set generated=true for generated data"
    )
