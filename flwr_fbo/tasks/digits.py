"""Handwritten digits: the task to try first, on images that scikit-learn ships.

Every agent tunes C and gamma of an SVM on its own few dozen of the 1,797 images. Agents differ
in three ways: in the digits that they hold (a draw from a Dirichlet distribution divides each
class among the agents), in the tilt of their scanner, and in its contrast and noise. Contrast
moves the best gamma, so the optima of the agents lie near one another but not at the same place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.settings import Settings, SettingsError, above, setting
from flwr_fbo.core.space import Float, Space
from flwr_fbo.tasks.data_task import DataSettings, DataTask, Split, stratified_halves
from flwr_fbo.tasks.papers.data.sources import DIGITS, Source
from flwr_fbo.tasks.papers.svm import svm_accuracy
from flwr_fbo.tasks.task import Params, Partition

SMALLEST_SHARE = 10  # images
ATTEMPTS = 200
MAX_TILT = 20.0  # degrees
CONTRAST = (0.5, 2.0)
NOISE = (0.0, 0.15)


@dataclass(frozen=True)
class DigitsSettings(DataSettings):
    """Settings of the digits task."""

    class_mix: float = setting(
        1.0,
        "Dirichlet parameter of the division of each class; a small one divides unequally",
        above(0),
    )

    def check(self) -> None:
        """Raise SettingsError for generated data, which this task does not need."""
        if self.generated:
            raise SettingsError(
                "`generated` must be false for `digits`: scikit-learn ships the images"
            )


class DigitsTask(DataTask):
    """C and gamma of an SVM on one agent's share of scikit-learn's digits."""

    metric = "accuracy"
    score_range = (0.0, 1.0)
    can_generate = False
    source: ClassVar[Source | None] = DIGITS
    settings: DigitsSettings
    settings_class: ClassVar[type[Settings]] = DigitsSettings

    @property
    def space(self) -> Space:
        """Return wide ranges on a log scale, of which about a tenth is good."""
        return Space({"C": Float(1e-3, 1e3, log=True), "gamma": Float(1e-6, 10.0, log=True)})

    def data_present(self) -> bool:
        """Return True: scikit-learn ships the images."""
        return True

    def fetch(self) -> None:
        """Do nothing: scikit-learn ships the images."""

    def check_agents(self, count: int, seed: int = 0) -> None:
        """Raise SettingsError unless the images can be divided among this number of agents.

        The division of a run depends on ``seed``, so this method makes that very division.
        """
        _division(count, self.settings.class_mix, seed)

    def load_share(self, party: int, partition: Partition) -> None:
        """Load the images of one agent, as its scanner renders them."""
        images, labels = _bundled()
        rows = _division(partition.count, self.settings.class_mix, partition.seed)[party]
        X, y = scan(images[rows], partition.rng(1)), labels[rows]
        train, valid = stratified_halves(y, partition.rng(0))
        self.data = Split(X[train], y[train], X[valid], y[valid])

    def score(self, params: Params) -> float:
        """Return the validation accuracy of the SVM."""
        return svm_accuracy(self.data, params)


@lru_cache(maxsize=4)  # all agents of a run in this process share one division
def _division(count: int, class_mix: float, seed: int) -> list[Indices]:
    """Return the rows of every agent of a run."""
    rng = Partition(0, count, seed).shared_rng(0)
    return divide_by_class(_bundled()[1], count, class_mix, rng)


def divide_by_class(
    labels: NDArray[Any], count: int, concentration: float, rng: np.random.Generator
) -> list[Indices]:
    """Return the rows of every agent; each row belongs to one agent.

    A Dirichlet draw divides each class. Draws in which the share of an agent is too small for
    training and validation are repeated.

    Raises
    ------
    SettingsError
        If no draw gives every agent a share that is large enough.
    """
    impossible = f"{len(labels)} images cannot be divided among {count} agents"
    # Without this check, hopeless numbers of agents would cost all the attempts below.
    if count * SMALLEST_SHARE > len(labels):
        raise SettingsError(
            f"{impossible}: an agent needs {SMALLEST_SHARE} images, so `agents` must be at most "
            f"{len(labels) // SMALLEST_SHARE}"
        )
    for _ in range(ATTEMPTS):
        owner = _draw_owners(labels, count, concentration, rng)
        if _all_usable(owner, labels, count):
            return [np.flatnonzero(owner == agent) for agent in range(count)]
    raise SettingsError(
        f"{impossible} with class-mix {concentration:g}: in each of {ATTEMPTS} divisions an agent "
        f"had fewer than {SMALLEST_SHARE} images, or not two images of each of two digits; "
        "take fewer agents or a larger class-mix"
    )


def _draw_owners(
    labels: NDArray[Any], count: int, concentration: float, rng: np.random.Generator
) -> Indices:
    """Return the agent that holds each row, in one random division."""
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.cumsum(rng.dirichlet(np.full(count, concentration)))[:-1] * len(rows)
        owner[rows] = np.searchsorted(cuts, np.arange(len(rows)), side="right")
    return owner


def _all_usable(owner: Indices, labels: NDArray[Any], count: int) -> bool:
    """Return whether both halves of every agent's share will hold two classes."""
    classes = int(labels.max()) + 1
    counts = np.bincount(owner * classes + labels, minlength=count * classes)
    images = counts.reshape(count, classes)  # (agents, classes)
    # A stratified split puts an image of a class on either side if there are two of the class.
    two_classes = (images >= 2).sum(axis=1) >= 2
    return bool(np.all((images.sum(axis=1) >= SMALLEST_SHARE) & two_classes))


def scan(images: Array, rng: np.random.Generator) -> Array:
    """Return images (n, 8, 8) as one agent's scanner renders them, one image a row: (n, 64)."""
    from scipy import ndimage  # slow to import, and only an evaluation needs it

    tilt = rng.uniform(-MAX_TILT, MAX_TILT)
    contrast = np.exp(rng.uniform(*np.log(CONTRAST)))
    noise = rng.uniform(*NOISE)
    tilted = ndimage.rotate(images, tilt, axes=(2, 1), reshape=False, order=1)
    noisy = tilted + rng.normal(0.0, noise, images.shape)
    return np.asarray(contrast * noisy.reshape(len(images), -1))


@lru_cache(maxsize=1)
def _bundled() -> tuple[Array, NDArray[np.int64]]:
    """Return the images with values in [0, 1], and the digits that the images show."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.asarray(digits.images / 16.0), np.asarray(digits.target, dtype=np.int64)
