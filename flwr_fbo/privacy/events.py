"""What happened, apart from what it costs: one frozen event for everything that was released.

Accountants (:mod:`flwr_fbo.privacy.accountants`) say what events cost; ledgers keep them.
A round without a release has no event.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from flwr_fbo.privacy import checks


@dataclass(frozen=True)
class GaussianRelease:
    """A sum over a Poisson sample of the agents, with Gaussian noise.

    ``noise_multiplier`` is the noise's standard deviation over the most one agent can
    contribute. Neighbours: one agent's message is zero (or, the same in cost, absent).
    """

    noise_multiplier: float
    sampling_rate: float = 1.0
    round: int = 0

    def __post_init__(self) -> None:
        checks.positive("noise_multiplier", self.noise_multiplier)
        checks.rate("sampling_rate", self.sampling_rate)
        checks.count("round", self.round, low=0)


@dataclass(frozen=True)
class FixedSizeRelease:
    """A sum over exactly ``sample_size`` of ``population`` agents, with Gaussian noise (B.2.4).

    ``noise_multiplier`` is the noise's standard deviation over the most one agent can
    contribute, as above. Neighbours: one agent's message is *another*, which can move the sum
    twice as far; the accountant allows for that.
    """

    noise_multiplier: float
    population: int
    sample_size: int
    round: int = 0

    def __post_init__(self) -> None:
        checks.positive("noise_multiplier", self.noise_multiplier)
        checks.count("population", self.population)
        checks.count("round", self.round, low=0)
        if not 1 <= checks.count("sample_size", self.sample_size) <= self.population:
            raise checks.PrivacyError(
                "`1 <= sample_size <= population` must hold, but got "
                f"(sample_size={self.sample_size}, population={self.population})"
            )


@dataclass(frozen=True)
class LaplaceRelease:
    """One bounded number with Laplace noise of scale (its range / epsilon), sent by an agent."""

    epsilon: float
    round: int = 0

    def __post_init__(self) -> None:
        checks.positive("epsilon", self.epsilon)
        checks.count("round", self.round, low=0)


Event: TypeAlias = GaussianRelease | FixedSizeRelease | LaplaceRelease
_KINDS: dict[str, type[Event]] = {
    "gaussian": GaussianRelease,
    "fixed-size": FixedSizeRelease,
    "laplace": LaplaceRelease,
}


def to_dict(event: Event) -> dict[str, Any]:
    """The event as JSON can hold it."""
    kind = next(name for name, cls in _KINDS.items() if type(event) is cls)
    return {"kind": kind, **dataclasses.asdict(event)}


def from_dict(data: Mapping[str, Any]) -> Event:
    """The event that :func:`to_dict` wrote."""
    if not isinstance(data, Mapping) or data.get("kind") not in _KINDS:
        raise checks.PrivacyError(f"`kind` must be one of {', '.join(_KINDS)}, but got {data!r}")
    cls = _KINDS[data["kind"]]
    given = {key: value for key, value in data.items() if key != "kind"}
    known = {field.name for field in dataclasses.fields(cls)}
    if given.keys() != known:
        raise checks.PrivacyError(f"an event needs {sorted(known)}, but got {sorted(given)}")
    return cls(**given)
