"""What the tasks on data sets have in common.

A :class:`DataTask` runs on real data or on generated data, divides the data among agents by
party, and remembers scores. The functions at the end split the examples of one party into a
training part and a validation part.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Indices
from flwr_fbo.core.settings import Settings, SettingsError, setting
from flwr_fbo.tasks.papers.data.sources import Source
from flwr_fbo.tasks.papers.data.store import find_data, require
from flwr_fbo.tasks.task import Params, Partition, Task


@dataclass(frozen=True)
class DataSettings(Settings):
    """Settings that say where the data of a task come from."""

    data_dir: str = setting(
        "",
        "directory of the original files, or the original file; unset: the directory in "
        "FLWR_FBO_DATA, then the cache directory",
    )
    generated: bool = setting(
        False, "use generated data of the same shape instead of the real data"
    )
    repeat_parties: bool = setting(
        False, "let several agents hold the data of the same party if agents outnumber parties"
    )


@dataclass(frozen=True, eq=False)
class Split:
    """The examples of one party, split into a training part and a validation part."""

    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_valid: NDArray[Any]
    y_valid: NDArray[Any]


class DataTask(Task):
    """A task on a data set; subclasses load or generate the data of one agent, and score them."""

    settings: DataSettings
    settings_class: ClassVar[type[Settings]] = DataSettings
    #: The data set; None where the task needs no file.
    source: ClassVar[Source | None] = None
    #: Other data sets that a setting selects: "key=value" of the setting -> data set.
    other_sources: ClassVar[Mapping[str, Source]] = {}
    #: Whether the task can run on generated data.
    can_generate: ClassVar[bool] = True
    default_agents: ClassVar[int] = 30

    @property
    def name(self) -> str:
        """Return the name of the task for people, marked if the data are generated."""
        return super().name + (" (generated data)" if self.settings.generated else "")

    def prepare(self, partition: Partition) -> None:
        """Load or generate the data of one agent, and forget the scores of any other agent."""
        # The framework copies a task for every agent, so scores begin empty here, not in __init__.
        self._scores: dict[tuple[tuple[str, object], ...], float] = {}
        self._partition = partition
        party = self.party_of(partition)
        if self.settings.generated:
            self.generate_share(party, partition)
        else:
            self.load_share(party, partition)

    def evaluate(self, params: Params, *, rng: np.random.Generator) -> float:
        """Return the score of parameter values, computed once per agent and parameter values.

        ``rng`` is not used: two evaluations of the same values by one agent score alike.
        """
        # An agent may come back to a point: training again would give the same score.
        key = tuple(sorted(params.items()))
        if key not in self._scores:
            self._scores[key] = self.score(params)
        return self._scores[key]

    def check_agents(self, count: int, seed: int = 0) -> None:
        """Raise SettingsError if agents outnumber the parties and no party may be repeated."""
        if self.parties is None or count <= self.parties or self.settings.repeat_parties:
            return
        raise SettingsError(
            f"the data of `{self.name}` belong to {self.parties} parties, so `agents` must be "
            f"at most {self.parties}, but got {count}; with `repeat-parties` several agents hold "
            "the same data, and the privacy guarantee then no longer holds for a party"
        )

    def party_of(self, partition: Partition) -> int:
        """Return the number of the party whose data an agent holds."""
        if self.parties is None:
            return partition.index
        self.check_agents(partition.count, partition.seed)
        return partition.index % self.parties

    def training_rng(self) -> np.random.Generator:
        """Return the generator of this agent's training, in the same state at every call."""
        return self._partition.rng(2)

    def data_directory(self, partition: Partition) -> str | None:
        """Return the directory of the data files, or None where no directory is set.

        In a deployment, the ``data-dir`` of the node takes precedence over the task's setting.
        """
        return str(partition.config.get("data-dir", "")) or self.settings.data_dir or None

    def data_present(self) -> bool:
        """Return whether the real data are on this machine."""
        return (
            self.source is None
            or find_data(self.source, self.settings.data_dir or None) is not None
        )

    def fetch(self) -> None:
        """Download the real data if the task needs them and they are not on this machine."""
        if self.source is not None and not self.settings.generated:
            require(self.source, self.settings.data_dir or None)

    @abstractmethod
    def load_share(self, party: int, partition: Partition) -> None:
        """Load the real data of a party."""

    def generate_share(self, party: int, partition: Partition) -> None:
        """Generate the data of a party from ``partition.rng`` and ``partition.shared_rng``.

        A subclass without this method sets :attr:`can_generate` to False and refuses the
        setting ``generated``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no generated data")

    @abstractmethod
    def score(self, params: Params) -> float:
        """Return the validation score of a model that is trained with these parameter values."""


def stratified_halves(labels: NDArray[Any], rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Return the rows for training and for validation: half of the data, and of every class.

    The sizes of the two halves differ by one row at most.
    """
    shuffled = rng.permutation(len(labels))
    # Sorted by class, the rows are dealt in turn. The turn continues from one class to the next:
    # if every class began with the training half, that half could be larger by a row per class.
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    return np.sort(by_class[0::2]), np.sort(by_class[1::2])


def random_halves(count: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Return the rows for training and for validation: two random halves."""
    shuffled = rng.permutation(count)
    return np.sort(shuffled[: (count + 1) // 2]), np.sort(shuffled[(count + 1) // 2 :])
