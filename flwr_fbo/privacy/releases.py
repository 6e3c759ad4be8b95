r"""Released vectors, remembered and averaged by an agent.

Everything that is computed from released vectors alone is post-processing. It costs no privacy, no
matter who computes it, and how often: averaging the vectors over rounds, using an old one
again, searching one for a maximum, plotting it, stopping because of it. (Stopping costs nothing
beyond the planned schedule: :mod:`flwr_fbo.privacy.accountants` states the condition.)
Post-processing ends where an agent mixes its own data in and sends the result: sending that
result is a new release.

Notation

=====================================  ===============================  ==========
paper                                  here                             shape
=====================================  ===============================  ==========
``omega_t^joint``                      ``vector``                       (P, M)
noise sd ``z phi_max S / q``           ``deviation``                    scalar
=====================================  ===============================  ==========

The paper's agent uses the ``latest`` vector (Algorithm 2, line 8). ``average`` weights every
vector by the inverse variance of its noise. For a signal that does not change, that average is
the unbiased estimate of least variance. The agents' mean function does change as they learn, so
a ``half_life`` lets the weight of old rounds decay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.privacy import checks


@dataclass(frozen=True, eq=False)
class Release:
    """A released vector, which everybody may see.

    Parameters
    ----------
    vector : Array
        The weighted mean of the agents' vectors with noise, (P, M).
    deviation : float
        The standard deviation of the noise in each coordinate.
    round : int
        The round that released the vector.
    """

    vector: Array
    deviation: float
    round: int


class ReleaseMemory:
    """The releases so far, oldest first, and their average.

    Parameters
    ----------
    half_life : float
        Rounds after which the weight of a release in the average is halved.

    Examples
    --------
    >>> memory = ReleaseMemory()
    >>> memory.add(np.array([1.0, 0.0]), deviation=1.0, round=0)
    >>> memory.add(np.array([4.0, 3.0]), deviation=2.0, round=2)
    >>> memory.average()  # weights 4/5 and 1/5
    array([1.6, 0.6])
    """

    def __init__(self, half_life: float = math.inf) -> None:
        if not half_life > 0:
            raise checks.PrivacyError(f"`half_life` must be > 0, but got {half_life!r}")
        self.half_life = half_life
        self._releases: list[Release] = []

    def add(self, vector: Array, deviation: float, round: int) -> None:
        """Add a release; its round must be later than that of every release before."""
        new = np.array(vector, dtype=np.float64)  # a copy: the caller may overwrite the original
        if not np.all(np.isfinite(new)):
            raise checks.PrivacyError("`vector` must be finite, but holds NaN or infinity")
        if not (math.isfinite(deviation) and deviation >= 0):
            raise checks.PrivacyError(f"`deviation` must be finite and >= 0, but got {deviation!r}")
        if self._releases:
            self._check_follows(self._releases[-1], new, round)
        number = checks.count("round", round, low=0)
        self._releases.append(Release(new, float(deviation), number))

    @staticmethod
    def _check_follows(last: Release, vector: Array, round: int) -> None:
        if vector.shape != last.vector.shape:
            raise checks.PrivacyError(
                f"`vector` must have shape {last.vector.shape} as before, but got {vector.shape}"
            )
        if round <= last.round:
            raise checks.PrivacyError(f"`round` must be later than {last.round}, but got {round!r}")

    def __len__(self) -> int:
        return len(self._releases)

    @property
    def releases(self) -> tuple[Release, ...]:
        """Return the releases, oldest first."""
        return tuple(self._releases)

    @property
    def latest(self) -> Array | None:
        """Return the vector of the last release; None before the first."""
        return self._releases[-1].vector if self._releases else None

    def average(self, window: int | None = None) -> Array | None:
        """Return the mean of the last ``window`` vectors (default: all) by inverse variance."""
        if not self._releases:
            return None
        weights = self._weights(window)  # (r,)
        vectors = np.stack([release.vector for release in self._releases[-len(weights) :]])
        return np.asarray(np.tensordot(weights, vectors, axes=1))

    def deviation(self, window: int | None = None) -> float:
        """Return the standard deviation of the noise in each coordinate of :meth:`average`."""
        if not self._releases:
            return math.nan
        weights = self._weights(window)
        return float(np.linalg.norm(weights * self._deviations[-len(weights) :]))

    @property
    def _deviations(self) -> Array:
        return np.array([release.deviation for release in self._releases], dtype=np.float64)

    @property
    def _rounds(self) -> Indices:
        return np.array([release.round for release in self._releases], dtype=np.int64)

    def _weights(self, window: int | None) -> Array:
        """Return the weights of the last ``window`` releases, which add up to 1: (r,)."""
        count = len(self) if window is None else min(checks.count("window", window), len(self))
        deviations = self._deviations[-count:]
        age = self._rounds[-1] - self._rounds[-count:]
        if np.any(deviations == 0):  # averaging cannot improve on a release without noise
            precision = (deviations == 0).astype(np.float64)
        else:
            precision = (deviations.min() / deviations) ** 2
        weights = precision * 0.5 ** (age / self.half_life)
        return np.asarray(weights / weights.sum())

    def to_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: vectors (r, P, M), deviations (r,), rounds (r,)."""
        vectors = [release.vector for release in self._releases]
        return {
            "half_life": None if self.half_life == math.inf else self.half_life,  # JSON has no inf
            "vectors": np.stack(vectors) if vectors else np.empty(0),
            "deviations": self._deviations,
            "rounds": self._rounds,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the memory that :meth:`to_dict` wrote."""
        memory = cls(math.inf if data["half_life"] is None else data["half_life"])
        rows = zip(data["vectors"], data["deviations"], data["rounds"], strict=True)
        for vector, deviation, round in rows:
            memory.add(vector, deviation, round)
        return memory
