"""Events: a frozen record of every release, apart from what the release costs.

Accountants (:mod:`flwr_fbo.privacy.accountants`) compute the cost of events. Ledgers
(:mod:`flwr_fbo.privacy.ledger`) store events. A round without a release has no event.
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

    Neighbouring relation: in one of two runs, the message of one agent is zero. (A message that
    is absent counts as zero.) An agent's own release of one vector is the same event at
    sampling rate 1; its neighbouring relation is the mechanism's.

    Parameters
    ----------
    noise_multiplier : float
        The standard deviation of the noise over the sensitivity: the largest distance between
        the sums of two neighbours.
    sampling_rate : float
        The probability with which each agent takes part.
    round : int
        The round of the release.
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

    Neighbouring relation: the message of one agent is *another* one in the second run. Replacing
    a message can move the sum twice as far as removing the message. The multiplier is nevertheless
    relative to one contribution, as in :class:`GaussianRelease`; the accountant accounts for the
    factor of 2.

    Parameters
    ----------
    noise_multiplier : float
        The standard deviation of the noise over the norm of the largest contribution.
    population : int
        The number of agents that the sample is drawn from.
    sample_size : int
        The number of agents in the sample.
    round : int
        The round of the release.
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
    """A bounded number that an agent sends, with Laplace noise of scale (range / epsilon).

    Neighbouring relation: any two values of the number.
    """

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
    """Return the event as a JSON object."""
    kind = next(name for name, cls in _KINDS.items() if type(event) is cls)
    return {"kind": kind, **dataclasses.asdict(event)}


def from_dict(data: Mapping[str, Any]) -> Event:
    """Return the event of a JSON object that :func:`to_dict` wrote."""
    if not isinstance(data, Mapping) or data.get("kind") not in _KINDS:
        raise checks.PrivacyError(f"`kind` must be one of {', '.join(_KINDS)}, but got {data!r}")
    cls = _KINDS[data["kind"]]
    given = {key: value for key, value in data.items() if key != "kind"}
    known = {field.name for field in dataclasses.fields(cls)}
    if given.keys() != known:
        raise checks.PrivacyError(f"an event needs {sorted(known)}, but got {sorted(given)}")
    return cls(**given)
