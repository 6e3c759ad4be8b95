"""Handwritten digits, the first thing to try: scikit-learn ships the images, so it needs no file.

Every agent tunes C and gamma of an SVM on its own few dozen of the 1,797 images. Agents differ
in three ways: in which digits they hold (each class is divided by a draw from a Dirichlet), in
how their scanner tilts, and in its contrast and noise. Contrast moves the best gamma, so the
agents' optima lie near one another but not at the same place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.settings import Settings, SettingsError, above, setting
from flwr_fbo.core.space import Float, Space
from flwr_fbo.tasks.papers.data.sources import DIGITS, Source
from flwr_fbo.tasks.papers.data_task import DataSettings, DataTask, stratified_halves
from flwr_fbo.tasks.papers.svm import Halves, svm_accuracy
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
        1.0, "Dirichlet parameter of the division by class: small is unequal", above(0)
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
        """Wide ranges on a log scale, of which a tenth or so is good."""
        return Space({"C": Float(1e-3, 1e3, log=True), "gamma": Float(1e-6, 10.0, log=True)})

    def data_present(self) -> bool:
        """scikit-learn ships the images."""
        return True

    def fetch(self) -> None:
        """There is nothing to fetch."""

    def load_share(self, party: int, partition: Partition) -> None:
        """See :class:`DataTask`."""
        images, labels = _bundled()
        rows = divide_by_class(
            labels, partition.count, self.settings.class_mix, partition.shared_rng(0)
        )[party]
        X, y = scanned(images[rows], partition.rng(1)), labels[rows]
        train, valid = stratified_halves(y, partition.rng(0))
        self.data = Halves(X[train], y[train], X[valid], y[valid])

    def generate_share(self, party: int, partition: Partition) -> None:
        """There is no need of generated data: the real ones come with scikit-learn."""
        raise SettingsError("`generated` must be false for `digits`: scikit-learn ships the images")

    def score(self, params: Params) -> float:
        """See :class:`DataTask`."""
        return svm_accuracy(self.data, params)


def divide_by_class(
    labels: NDArray[Any], count: int, concentration: float, rng: np.random.Generator
) -> list[Indices]:
    """The rows of every agent: each class is cut by a Dirichlet draw, each row used once.

    Draws in which somebody's share would be too small to train and to validate are repeated.
    """
    for _ in range(ATTEMPTS):
        owner = np.empty(len(labels), dtype=np.int64)
        for label in np.unique(labels):
            rows = rng.permutation(np.flatnonzero(labels == label))
            cuts = np.cumsum(rng.dirichlet(np.full(count, concentration)))[:-1] * len(rows)
            owner[rows] = np.searchsorted(cuts, np.arange(len(rows)), side="right")
        shares = [np.flatnonzero(owner == agent) for agent in range(count)]
        if all(_is_usable(labels[rows]) for rows in shares):
            return shares
    raise SettingsError(
        f"{len(labels)} images cannot be divided among {count} agents with class-mix "
        f"{concentration} so that each has {SMALLEST_SHARE} images or more, of two digits at "
        "least: take fewer agents or a larger class-mix"
    )


def _is_usable(labels: NDArray[Any]) -> bool:
    """Whether both halves of a stratified split will hold two classes."""
    return len(labels) >= SMALLEST_SHARE and int((np.bincount(labels) >= 2).sum()) >= 2


def scanned(images: Array, rng: np.random.Generator) -> Array:
    """The images (n, 8, 8) as this agent's scanner sees them, one a row: (n, 64)."""
    tilt = rng.uniform(-MAX_TILT, MAX_TILT)
    contrast = np.exp(rng.uniform(*np.log(CONTRAST)))
    noise = rng.uniform(*NOISE)
    tilted = ndimage.rotate(images, tilt, axes=(2, 1), reshape=False, order=1)
    noisy = tilted + rng.normal(0.0, noise, images.shape)
    return np.asarray(contrast * noisy.reshape(len(images), -1))


def _bundled() -> tuple[Array, NDArray[np.int64]]:
    """Images with values in [0, 1], and the digits they show."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.asarray(digits.images / 16.0), np.asarray(digits.target, dtype=np.int64)
