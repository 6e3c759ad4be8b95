"""Which data sets are on this machine, where, and whether they are the files they should be."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from flwr_fbo.core.settings import SettingsError, unknown_keys
from flwr_fbo.tasks.papers.data.download import sha256_of
from flwr_fbo.tasks.papers.data.sources import SOURCES, Source
from flwr_fbo.tasks.papers.data.store import cache_directory, find, places

#: Of a file that is there: as published, another, or nobody knows what it should be.
Verdict = Literal["right", "WRONG", "unknown"]


def sources_named(names: Iterable[str]) -> list[Source]:
    """Data sets by name, all that need a file if none is named."""
    wanted = list(names)
    try:
        unknown_keys(wanted, SOURCES)
    except SettingsError as error:
        raise SettingsError(str(error).replace("unknown setting", "unknown data set")) from None
    return [s for s in SOURCES.values() if s.name in wanted or (not wanted and s.accepted)]


def status(
    source: Source, data_dir: Path | str | None = None, verify: bool = False
) -> dict[str, Any]:
    """What is known of a data set on this machine, ready for JSON."""
    found = find(source, data_dir)
    return {
        "name": source.name,
        "title": source.title,
        "licence": source.licence,
        "homepage": source.homepage,
        "present": found is not None or not source.accepted,
        "path": None if found is None else str(found),
        "accepted": list(source.accepted),
        "looked_in": [str(place) for place in places(source, data_dir)],
        "cache": str(cache_directory() / "originals" / source.name),
        "urls": [remote.url for remote in source.remotes],
        "checksums": checksums(source, found) if verify and found is not None else None,
    }


def checksums(source: Source, found: Path) -> dict[str, Verdict]:
    """A verdict on every file of a data set that was found, by name."""
    known = {remote.filename: remote.sha256 for remote in source.remotes}
    files = [found.parent / name for name in known if found.name in known]
    verdicts: dict[str, Verdict] = {}
    for path in files or [found]:
        expected = known.get(path.name)
        if not path.is_file() or expected is None:
            verdicts[path.name] = "unknown"
        else:
            verdicts[path.name] = "right" if sha256_of(path) == expected else "WRONG"
    return verdicts
