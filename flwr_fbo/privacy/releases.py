r"""What may be done with released vectors: anything. Post-processing is free.

Whatever is computed from released vectors alone, by anyone and as often as they like, costs no
privacy: averaging them over rounds, using an old one again, searching them for a maximum,
plotting them, stopping because of them. (It costs none *beyond the schedule that was planned*:
see :mod:`flwr_fbo.privacy.accountants` on stopping.) It stops being free where an agent mixes
its own data in and the result leaves the agent.

Notation

=====================================  ===============================  ==========
paper                                  here                             shape
=====================================  ===============================  ==========
``omega_t^joint``                      ``vector``                       (P, M)
noise sd ``z phi_max S / q``           ``deviation``                    scalar
=====================================  ===============================  ==========

:class:`Released` is an agent's memory of them. The paper's agent uses ``latest`` (Algorithm 2,
line 8). ``average`` weighs by the inverse variance of the noise, which is the best unbiased
estimate of a signal that stays; since the agents' vectors sharpen with time, a ``half_life``
lets old rounds fade.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.privacy import checks


class Released:
    """The vectors that were released so far, and what an agent may make of them."""

    def __init__(self, half_life: float = math.inf) -> None:
        if not half_life > 0:
            raise checks.PrivacyError(f"`half_life` must be > 0, but got {half_life!r}")
        self.half_life = half_life
        self._vectors: list[Array] = []
        self._deviations: list[float] = []
        self._rounds: list[int] = []

    def add(self, vector: Array, deviation: float, round: int) -> None:
        """Note a release: its vector, the noise in each coordinate, and its round."""
        new = np.array(vector, dtype=np.float64)
        if not np.all(np.isfinite(new)):
            raise checks.PrivacyError("`vector` must be finite, but holds NaN or infinity")
        if self._vectors and new.shape != self._vectors[0].shape:
            raise checks.PrivacyError(
                f"`vector` must have shape {self._vectors[0].shape} as before, but got {new.shape}"
            )
        if not (math.isfinite(deviation) and deviation >= 0):
            raise checks.PrivacyError(f"`deviation` must be finite and >= 0, but got {deviation!r}")
        if self._rounds and round <= self._rounds[-1]:
            raise checks.PrivacyError(
                f"`round` must be later than {self._rounds[-1]}, but got {round!r}"
            )
        self._vectors.append(new)
        self._deviations.append(float(deviation))
        self._rounds.append(checks.count("round", round, low=0))

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def latest(self) -> Array | None:
        """The last released vector, as often as wanted; None before the first."""
        return self._vectors[-1] if self._vectors else None

    def average(self, window: int | None = None) -> Array | None:
        """The mean of the last ``window`` releases (all by default), by inverse variance."""
        if not self._vectors:
            return None
        weights = self._weights(window)  # (r,)
        return np.asarray(np.tensordot(weights, np.stack(self._vectors[-len(weights) :]), axes=1))

    def deviation(self, window: int | None = None) -> float:
        """The noise left in each coordinate of :meth:`average`."""
        if not self._vectors:
            return math.nan
        weights = self._weights(window)
        return float(np.linalg.norm(weights * self._deviations[-len(weights) :]))

    def _weights(self, window: int | None) -> Array:
        count = len(self) if window is None else min(checks.count("window", window), len(self))
        deviations = np.array(self._deviations[-count:])
        age = self._rounds[-1] - np.array(self._rounds[-count:], dtype=np.float64)
        if np.any(deviations == 0):  # without noise there is nothing that averaging could remove
            precision = (deviations == 0).astype(np.float64)
        else:
            precision = (deviations.min() / deviations) ** 2
        weights = precision * 0.5 ** (age / self.half_life)
        return np.asarray(weights / weights.sum())

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it: an agent's state between rounds."""
        return {
            "half_life": None if self.half_life == math.inf else self.half_life,
            "vectors": [vector.tolist() for vector in self._vectors],
            "deviations": list(self._deviations),
            "rounds": list(self._rounds),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` wrote."""
        memory = cls(math.inf if data["half_life"] is None else data["half_life"])
        rows = zip(data["vectors"], data["deviations"], data["rounds"], strict=True)
        for vector, deviation, round in rows:
            memory.add(np.array(vector), deviation, round)
        return memory
