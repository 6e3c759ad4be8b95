"""Find a data set's files: a given directory, the environment, the cache, or a download.

The order is ``--data-dir`` (a directory, or the file itself), the directory in the environment
variable ``FLWR_FBO_DATA``, the cache directory, and then a download into the cache directory,
unless ``FLWR_FBO_OFFLINE`` is set.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flwr_fbo.tasks.papers.data.download import download
from flwr_fbo.tasks.papers.data.errors import DataError
from flwr_fbo.tasks.papers.data.sources import Source


def cache_directory() -> Path:
    """The platform's place for files that can be made again; ``FLWR_FBO_CACHE`` overrides it."""
    if given := os.environ.get("FLWR_FBO_CACHE"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "flwr-fbo"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "flwr-fbo" / "Cache"
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "flwr-fbo"


def find(source: Source, data_dir: str | Path | None = None) -> Path | None:
    """The first file or directory of this data set that is on this machine, or None."""
    if data_dir and Path(data_dir).is_file():
        return Path(data_dir)
    for place in places(source, data_dir):
        for name in source.accepted:
            if (place / name).exists():
                return place / name
    return None


def places(source: Source, data_dir: str | Path | None = None) -> list[Path]:
    """The directories in which :func:`find` looks, in order."""
    roots = [Path(root) for root in (data_dir, os.environ.get("FLWR_FBO_DATA")) if root]
    found = [root / below for root in roots for below in ("", "raw", source.name)]
    return [*found, cache_directory() / "originals" / source.name]


def require(source: Source, data_dir: str | Path | None = None) -> Path:
    """The data set's file or directory, downloaded if need be."""
    if data_dir and not Path(data_dir).exists():
        raise DataError(f"{data_dir}: no such file or directory (it was given as `data-dir`)")
    found = find(source, data_dir)
    if found is not None:
        return found
    if source.remotes and not os.environ.get("FLWR_FBO_OFFLINE"):
        print(terms(source), file=sys.stderr)
    return fetch(source, data_dir)


def fetch(source: Source, data_dir: str | Path | None = None) -> Path:
    """Download a data set into the cache directory; see :func:`terms` before."""
    if not source.remotes or os.environ.get("FLWR_FBO_OFFLINE"):
        raise DataError(_instructions(source, data_dir))
    target = cache_directory() / "originals" / source.name
    try:
        for remote in source.remotes:
            download(remote, target)
    except OSError as error:
        raise DataError(f"{_instructions(source, data_dir)} (download failed: {error})") from error
    return find(source, target) or target / source.remotes[0].filename


def terms(source: Source) -> str:
    """What a data set is, under which licence, and where it comes from."""
    return f"{source.title}\nLicence: {source.licence}\nFrom: {source.homepage}"


def _instructions(source: Source, data_dir: str | Path | None) -> str:
    """What to fetch and where to put it, for a machine without network."""
    wanted = " and ".join(remote.url for remote in source.remotes) or source.homepage
    where = ", ".join(str(place) for place in places(source, data_dir))
    return (
        f"the data set `{source.name}` is not on this machine: get {wanted} and put it "
        f"(as one of {', '.join(source.accepted)}) in a directory named by --data-dir or "
        f"FLWR_FBO_DATA; looked in {where}; or set generated=true for generated data"
    )
