"""The licences of everything that an installation of flwr-fbo brings, from installed metadata.

    python benchmarks/licences.py [EXTRA ...]

Prints one line a distribution and exits with 1 if one has a licence that is not in the list of
those that allow use next to Apache-2.0 code, or none that can be told. Reads metadata only, and
no network; known vulnerabilities are the business of audit_dependencies.py.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata

from packaging.requirements import Requirement

#: Words of licences that forbid use next to Apache-2.0 code, or restrict who may use it.
FORBIDDEN = (
    "gpl", "agpl", "lgpl", "gnu", "sspl", "server side public", "busl", "business source",
    "commons clause", "non-commercial", "noncommercial", "proprietary", "elastic", "eupl",
    "cc-by-nc",
)  # fmt: skip
#: Parts of a licence's name that are fine; the weak copyleft ones are used unchanged as libraries.
FINE = (
    "apache", "mit", "bsd", "isc", "psf", "python software", "python-2", "mpl", "mozilla",
    "unlicense", "zlib", "hpnd", "cc0", "0bsd", "zpl", "blueoak",
)  # fmt: skip


def needed(root: str, extras: set[str]) -> dict[str, metadata.Distribution]:
    """A distribution and all that it needs here, by normalised name."""
    found: dict[str, metadata.Distribution] = {}
    todo = [(root, extras)]
    while todo:
        name, wanted = todo.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found and not wanted:
            continue
        try:
            found[key] = distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for another platform, or an extra that is not installed
        for text in distribution.requires or []:
            need = Requirement(text)
            given = [{"extra": extra} for extra in (wanted or {""})]
            if need.marker is None or any(need.marker.evaluate(e) for e in given):
                other = re.sub(r"[-_.]+", "-", need.name).lower()
                if other not in found or need.extras:
                    todo.append((need.name, set(need.extras) if other not in found else set()))
    return found


def licence(distribution: metadata.Distribution) -> str:
    """What a distribution says of its licence, in one line."""
    about = distribution.metadata
    classifiers = [
        c.rsplit("::", 1)[-1].strip()
        for c in about.get_all("Classifier") or []
        if c.startswith("License ::")
    ]
    said = about.get("License-Expression") or "; ".join(classifiers) or about.get("License") or ""
    first = said.strip().splitlines()[0] if said.strip() else ""
    return first[:80] or "unknown"


def verdict(words: str) -> str:
    """``fine``, ``forbidden`` or ``unknown``; a choice of licences is fine if one of them is."""
    options = [part.strip() for part in re.split(r"\bor\b", words.lower())]
    fine, forbidden = [], []
    for option in options:
        forbidden.append(any(re.search(rf"\b{re.escape(part)}", option) for part in FORBIDDEN))
        known = any(re.search(rf"\b{re.escape(part)}", option) for part in FINE)
        fine.append(known and not forbidden[-1])
    if any(fine):
        return "fine"
    return "forbidden" if any(forbidden) else "unknown"


def main() -> None:
    found = needed("flwr-fbo", set(sys.argv[1:]))
    bad = []
    for name, distribution in sorted(found.items()):
        words = licence(distribution)
        judged = verdict(words)
        print(f"{judged:<11}{name:<32}{distribution.version:<16}{words}")
        if judged != "fine":
            bad.append(f"{name} ({judged})")
    print(f"{len(found)} distributions; {len(bad)} to look at{': ' if bad else ''}{', '.join(bad)}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
