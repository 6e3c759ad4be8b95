"""Where every data set comes from, under which licence, and how its files are called.

A checksum stands here only where one is known for certain; a download without one is checked
by its archive's own checksums and by the loader, which rejects anything of another shape.
"""

from __future__ import annotations

from dataclasses import dataclass

MEGABYTE = 2**20


@dataclass(frozen=True)
class Remote:
    """One file as its authors or a mirror offer it."""

    url: str
    filename: str
    sha256: str | None = None
    max_bytes: int = 64 * MEGABYTE


@dataclass(frozen=True)
class Source:
    """A data set: what it is, its terms, the names its files go by, and where they are offered."""

    name: str
    title: str
    licence: str
    homepage: str
    #: File or directory names a loader takes, the originals first.
    accepted: tuple[str, ...]
    #: The files to download; none where the authors ask people to fetch them by hand.
    remotes: tuple[Remote, ...] = ()


LANDMINE = Source(
    name="landmine",
    title="Landmine detection, 29 fields (Xue, Liao, Carin and Krishnapuram, 2007)",
    licence="none stated by its authors",
    homepage="http://www.ee.duke.edu/~lcarin/LandmineData.zip",
    accepted=("LandmineData.mat", "LandmineData.zip", "landmine.npz"),
    remotes=(
        Remote(
            "https://raw.githubusercontent.com/daizhongxiang/"
            "Federated_Bayesian_Optimization/"
            "9f46a1dfbbcfd5823e026ad9418a4cb881676ae9/LandmineData.mat",
            "LandmineData.mat",
            sha256="2163ab20a80e33a8b65593c48cf283c540599dcb291105e63fa4af2ce24c2bea",
        ),
    ),
)

SOURCES: dict[str, Source] = {source.name: source for source in (LANDMINE,)}
