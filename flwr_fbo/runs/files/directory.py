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
``run.lock``           who runs or changes the run now (:mod:`flwr_fbo.runs.files.lock`)
``agents/``            in a simulation the journals of the agents: ``agents.jsonl`` of all who live
                       in its process, else one for each; empty in a deployment
=====================  ==================================================================
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import secrets
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from flwr_fbo.core.forks import Process
from flwr_fbo.core.space import Space
from flwr_fbo.privacy.releases import Release
from flwr_fbo.runs.files import RunDirectoryError, WrongRunDirectoryError
from flwr_fbo.runs.files.atomic import write_bytes
from flwr_fbo.runs.files.checkpoint import Checkpoint, RunStore
from flwr_fbo.runs.files.checks import ChecksumError, checksum, open_object, seal_object
from flwr_fbo.runs.files.lock import RunLock
from flwr_fbo.runs.files.releases import ReleaseFiles
from flwr_fbo.runs.locations import agents_of

#: The packages whose versions ``environment.json`` holds.
PACKAGES = ("flwr-fbo", "flwr", "ray", "numpy", "scipy", "scikit-learn", "dp-accounting")


class RunDirectory:
    """The paths of a run's files, and the reading and writing of the small ones.

    Every file holds the *identity* of the run, a random word that is made with the directory, so
    that a file of another run is noticed. Each JSON file has a last member ``file`` with the
    identity and with the checksum of all other members.

    Parameters
    ----------
    root
        The directory of the run.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        #: The lock of the directory. Who writes files of a run holds the lock meanwhile.
        self.lock = RunLock(self.root)
        self._process = Process()

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

    @cached_property
    def store(self) -> RunStore:
        """Return the store of the server's state: the checkpoint and the releases."""
        return RunStore(Checkpoint(self.root / "checkpoint.npz"), self.releases)

    @property
    def releases(self) -> ReleaseFiles:
        """Return the folder of the releases."""
        return ReleaseFiles(self.root / "releases", self.identity if self.holds_a_run else "")

    def intact_releases(self) -> tuple[list[Release], list[str]]:
        """Return the releases whose files are whole, and what is wrong with the others."""
        store, damages = self.store, list[str]()
        # The checkpoint says which releases there are; a copy of the public files has none.
        if store.path.exists():
            try:
                store.load()
                releases = store.intact_releases()
                return releases, [*store.damages.values(), *self._unnamed_releases()]
            except RunDirectoryError as error:
                damages.append(str(error))
        found = []
        for round in self.releases.rounds():
            try:
                found.append(self.releases.at(round))
            except RunDirectoryError as error:
                damages.append(str(error))
        return found, damages

    def _unnamed_releases(self) -> list[str]:
        """Return which releases the checkpoint does not name."""
        return [
            f"{self.releases.path(t)} is not named by {self.store.path.name}, which is an old "
            "copy, or the run was killed at this release; resume the run"
            for t in self.releases.rounds()
            if t not in self.store.named
        ]

    def set_unnamed_releases_aside(self) -> list[str]:
        """Rename the releases that the checkpoint does not name; return which they were.

        They were never sent, or the rounds that made them are made again.
        """
        found = [self.releases.path(t) for t in self.releases.rounds()]
        unnamed = [path for path in found if _round_of(path) not in self.store.named]
        for path in unnamed:
            path.replace(path.with_name(path.name + ".unsent"))
        return [path.name for path in unnamed]

    @property
    def holds_a_run(self) -> bool:
        """Return whether a run was started in this directory."""
        return (self.root / "config.json").exists()

    @cached_property
    def identity(self) -> str:
        """Return the identity of the run."""
        return self._read("config.json")[1]

    def create(self, config: Mapping[str, Any], space: Space | None = None) -> RunDirectory:
        """Make the directory of a new run; raise RunDirectoryError if it holds a run already."""
        if self.holds_a_run:
            raise WrongRunDirectoryError(
                f"{self.root} already holds a run; choose another directory, or continue the run "
                f"with `flwr-fbo resume {self.root}`"
            )
        left = [name for name in _OF_A_RUN if (self.root / name).exists()]
        if left:
            raise RunDirectoryError(
                f"{self.root} holds {left[0]} of a run, but no config.json: restore config.json "
                "from a backup, or choose another directory"
            )
        self.agents.mkdir(parents=True, exist_ok=True)
        self.__dict__["identity"] = secrets.token_hex(8)
        # config.json comes last, as it says that the directory holds a run.
        others = {"environment.json": environment()}
        if space is not None:
            others["space.json"] = space.to_dict()
        for name, content in others.items():
            self.write_json(name, content)
        self.write_json("config.json", config, {"with": list(others)})
        return self

    def write_json(
        self, name: str, content: Mapping[str, Any], names: Mapping[str, Any] | None = None
    ) -> Path:
        """Write a JSON file of the run, whole or not at all, and return its path.

        ``names`` says how far other files had come, for :meth:`read_names`; where it is not given,
        the file goes on to name what it named before.
        """
        path = self.root / name
        self._process.check(path)
        if names is None and path.exists():
            names = self.read_names(name)
        sealed = seal_object(content, self.identity, name, names)
        text = json.dumps(sealed, indent=2, allow_nan=False)
        write_bytes(path, text.encode() + b"\n")
        return path

    def read_json(self, name: str) -> Any:
        """Return the content of a JSON file of the run."""
        if not self.holds_a_run:
            raise WrongRunDirectoryError(
                f"{self.root} is not the directory of a run: no config.json"
            )
        content, run, _ = self._read(name)
        if run != self.identity:
            raise RunDirectoryError(
                f"{self.root / name} must be of run {self.identity}, as config.json is, but is of "
                f"run {run}. {_ADVICE}"
            )
        return content

    def read_optional(self, name: str) -> Any:
        """Return the content of a JSON file that not all runs have; None where it was not made."""
        if not (self.root / name).exists() and name not in self.read_names("config.json")["with"]:
            return None
        return self.read_json(name)

    def read_names(self, name: str) -> dict[str, Any]:
        """Return how far other files had come when a JSON file was written."""
        return self._read(name)[2]

    def is_current(self, name: str) -> bool:
        """Return whether a JSON file names the checkpoint as it is; true without a checkpoint."""
        checkpoint = self.store.path
        if not checkpoint.exists():
            return True
        return checksum(checkpoint.read_bytes()) == self.read_names(name).get("checkpoint")

    def _read(self, name: str) -> tuple[dict[str, Any], str, dict[str, Any]]:
        """Return the content of a JSON file, the identity of its run, and what it names."""
        path = self.root / name
        try:
            return open_object(json.loads(path.read_bytes()), name)
        except ChecksumError as error:
            raise RunDirectoryError(f"{path}: {error}. {_ADVICE}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise RunDirectoryError(f"{path} cannot be read as JSON: {error}. {_ADVICE}") from None


def _round_of(path: Path) -> int:
    """Return the round of a release's file."""
    return int(path.stem.removeprefix("round-"))


#: Files of which a directory without ``config.json`` can only be what is left of a run.
_OF_A_RUN = ("checkpoint.npz", "ledger.jsonl", "rounds.csv", "result.json")
#: What to do about a damaged JSON file.
_ADVICE = (
    "Restore the file from a backup; to change a setting of a run, use `flwr-fbo resume RUN --set`"
)


def environment() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute a run."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
