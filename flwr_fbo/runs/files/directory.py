"""The directory of a run, whose files people can open.

=====================  ==================================================================
file                   what it holds
=====================  ==================================================================
``config.json``        every setting of the run by its kebab-case key
``space.json``         the search space
``environment.json``   versions of Python and of the packages that matter
``privacy.json``       what the run guarantees, as a statement (:mod:`flwr_fbo.privacy.statement`)
``ledger.jsonl``       the privacy ledger: one line per release, written before the noise is drawn
``compare.json``       the settings of the baselines, where there are any
``checkpoint.npz``     the server's state after the last closed round
``releases/``          the releases: ``round-0000.npz`` and so on, and ``features.npz``
``rounds.csv``         one line per round: replies, failures, epsilon, seconds
``result.json``        the result, written at the end
``agents/``            the journals of the agents in a simulation; empty in a deployment
=====================  ==================================================================
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr_fbo.core.space import Space
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.atomic import write_bytes
from flwr_fbo.runs.files.checkpoint import Checkpoint, RunStore
from flwr_fbo.runs.files.releases import ReleaseFiles
from flwr_fbo.runs.locations import agents_of

#: The packages whose versions ``environment.json`` holds.
PACKAGES = ("flwr-fbo", "flwr", "ray", "numpy", "scipy", "scikit-learn", "dp-accounting")


class RunDirectory:
    """The paths of a run's files, and the reading and writing of the small ones.

    Parameters
    ----------
    root
        The directory of the run.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    @property
    def agents(self) -> Path:
        """Return the folder of the agents' journals."""
        return agents_of(self.root)

    @property
    def ledger(self) -> Path:
        """Return the file of the privacy ledger."""
        return self.root / "ledger.jsonl"

    @property
    def rounds(self) -> Path:
        """Return the file of the table of rounds."""
        return self.root / "rounds.csv"

    @property
    def store(self) -> RunStore:
        """Return the store of the server's state: the checkpoint and the releases."""
        return RunStore(Checkpoint(self.root / "checkpoint.npz"), self.releases)

    @property
    def releases(self) -> ReleaseFiles:
        """Return the folder of the releases."""
        return ReleaseFiles(self.root / "releases")

    @property
    def holds_a_run(self) -> bool:
        """Return whether a run was started in this directory."""
        return (self.root / "config.json").exists()

    def create(self, config: Mapping[str, Any], space: Space | None = None) -> RunDirectory:
        """Make the directory of a new run; raise RunDirectoryError if it holds a run already."""
        if self.holds_a_run:
            raise RunDirectoryError(f"{self.root} already holds a run; choose another directory")
        self.agents.mkdir(parents=True, exist_ok=True)
        self.write_json("config.json", config)
        self.write_json("environment.json", environment())
        if space is not None:
            self.write_json("space.json", space.to_dict())
        return self

    def write_json(self, name: str, content: Any) -> Path:
        """Write a JSON file of the run, whole or not at all, and return its path."""
        path = self.root / name
        text = json.dumps(content, indent=2, allow_nan=False)
        write_bytes(path, text.encode() + b"\n")
        return path

    def read_json(self, name: str) -> Any:
        """Return the content of a JSON file of the run."""
        if not self.holds_a_run:
            raise RunDirectoryError(f"{self.root} is not the directory of a run: no config.json")
        try:
            return json.loads((self.root / name).read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise RunDirectoryError(f"{self.root / name} cannot be read as JSON: {error}") from None


def environment() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute a run."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
