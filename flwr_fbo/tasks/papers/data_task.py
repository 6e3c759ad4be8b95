"""What the tasks on data sets share: real or generated data, parties, splits, cached scores."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Indices
from flwr_fbo.core.settings import Settings, SettingsError, setting
from flwr_fbo.tasks.papers.data.sources import Source
from flwr_fbo.tasks.papers.data.store import find, require
from flwr_fbo.tasks.task import Params, Partition, Task


@dataclass(frozen=True)
class DataSettings(Settings):
    """Where a task's data come from."""

    data_dir: str = setting(
        "", "where the original files are; unset: FLWR_FBO_DATA, then the cache directory"
    )
    generated: bool = setting(False, "generated data of the same shape instead of the real data")
    repeat_parties: bool = setting(
        False, "let agents beyond the data set's parties hold a party's data once more"
    )


class DataTask(Task):
    """A task on a data set: subclasses say how to load or generate a share, and score it."""

    settings: DataSettings
    settings_class: ClassVar[type[Settings]] = DataSettings
    #: Where the data come from; None where they need no file.
    source: ClassVar[Source | None] = None
    #: Whether the task can run on generated data.
    can_generate: ClassVar[bool] = True
    default_agents: ClassVar[int] = 30

    @property
    def name(self) -> str:
        """The name shown to people, which says so where the data are generated."""
        return super().name + (" (generated data)" if self.settings.generated else "")

    def prepare(self, partition: Partition) -> None:
        """Load or generate this agent's share, and forget any scores of another agent's."""
        self._scores: dict[tuple[tuple[str, object], ...], float] = {}
        party = self.party_of(partition)
        if self.settings.generated:
            self.generate_share(party, partition)
        else:
            self.load_share(party, partition)

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """The score, which depends on the agent and the parameters only, and is kept."""
        key = tuple(sorted(params.items()))
        if key not in self._scores:
            self._scores[key] = self.score(params)
        return self._scores[key]

    def party_of(self, partition: Partition) -> int:
        """The party whose data this agent holds."""
        if self.parties is None or partition.count <= self.parties:
            return partition.index
        if not self.settings.repeat_parties:
            raise SettingsError(
                f"the data of `{self.name}` belong to {self.parties} parties, so `agents` must be "
                f"at most {self.parties}, but got {partition.count}; `repeat-parties` would give "
                "some agents the same data, which no privacy guarantee then covers"
            )
        return partition.index % self.parties

    def data_directory(self, partition: Partition) -> str | None:
        """The node's own directory in a deployment, else the task's; None where not set."""
        return str(partition.config.get("data-dir", "")) or self.settings.data_dir or None

    def data_present(self) -> bool:
        """Whether the real data are on this machine."""
        return self.source is None or find(self.source, self.settings.data_dir or None) is not None

    def fetch(self) -> None:
        """Have the real data on this machine: call once before agents start side by side."""
        if self.source is not None and not self.settings.generated:
            require(self.source, self.settings.data_dir or None)

    @abstractmethod
    def load_share(self, party: int, partition: Partition) -> None:
        """Load a party's real data."""

    @abstractmethod
    def generate_share(self, party: int, partition: Partition) -> None:
        """Draw data for a party from ``partition.rng`` and ``partition.shared_rng``."""

    @abstractmethod
    def score(self, params: Params) -> float:
        """Train with these parameter values and score on the validation half."""


def stratified_halves(labels: NDArray[Any], rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Rows for training and for validation: halves of the data, and of every class.

    Within a class the rows are shuffled and dealt out in turn; the turn passes on from one
    class to the next, so that the halves' sizes differ by one row at most.
    """
    shuffled = rng.permutation(len(labels))
    dealt = shuffled[np.argsort(labels[shuffled], kind="stable")]
    return np.sort(dealt[0::2]), np.sort(dealt[1::2])


def random_halves(count: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Rows for training and for validation: two random halves."""
    shuffled = rng.permutation(count)
    return np.sort(shuffled[: (count + 1) // 2]), np.sort(shuffled[(count + 1) // 2 :])
