"""A ledger in the form in which Flower's accountants store their state.

Flower's ``PrivacyAccountant`` has a ``state_dict`` method. Its result is plain JSON: a
configuration, and the list of releases. :func:`flower_state` writes the events of a ledger in that
form, so that Flower's ``RdpAccountant`` can load and check a run of ours. Nothing here imports
Flower.

Flower's form says less than our events:

- A sampling rate is a ratio of two whole numbers of clients. A rate that is no such ratio is
  rounded up, so the exported state never costs less than the ledger.
- All releases of one state have the same kind of sampling.
- There are no Laplace releases.
- The noise multiplier of a sample of fixed size is relative to a *replacement*, which moves the
  sum twice as far as our events assume. The multiplier is therefore halved.

An agent's own ledger must not be exported: its releases have another neighbouring relation (any
two values), for which Flower's form has no word.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from flwr_fbo.privacy import checks, renyi
from flwr_fbo.privacy.events import Event, FixedSizeRelease, GaussianRelease

#: The version of Flower's form that is written here.
SCHEMA_VERSION = 1


def flower_state(
    events: Sequence[Event],
    agents: int,
    delta: float,
    epsilon: float | None = None,
    backend: str = "rdp",
) -> dict[str, Any]:
    """Return the releases of a ledger as the state of a Flower accountant.

    Parameters
    ----------
    events : sequence of Event
        The events of a server's ledger, in order.
    agents : int
        N, the number of agents that samples are drawn from.
    delta : float
        The delta of the run's epsilon.
    epsilon : float, optional
        The budget of the run; without one the state has no limit.
    backend : str
        The accountant that shall load the state: ``rdp`` is Flower's, ``pld`` is
        :class:`flwr_fbo.strategies.accountant.PldPrivacyAccountant`.

    Examples
    --------
    >>> state = flower_state([GaussianRelease(2.0, 1.0, round=0)], agents=30, delta=1e-5)
    >>> state["compositions"]
    [{'event': {'noise_multiplier': 2.0, 'sample_size': 30, 'population_size': 30}, 'count': 1}]
    """
    checks.count("agents", agents)
    relation, sampling = _model(events)
    state: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "backend": backend,
        "config": {
            "target_delta": checks.open_unit("delta", delta),
            "population_size": agents,
            "neighboring_relation": relation,
            "sampling_method": sampling,
            "max_epsilon": None if epsilon is None else checks.positive("epsilon", epsilon),
        },
        "compositions": [
            {
                "event": {
                    "noise_multiplier": noise,
                    "sample_size": size,
                    "population_size": agents,
                },
                "count": count,
            }
            for noise, size, count in _compositions(events, agents)
        ],
    }
    if backend == "rdp":
        state["orders"] = renyi.INTEGER_ORDERS.tolist()
    return state


def _model(events: Sequence[Event]) -> tuple[str, str]:
    """Return Flower's names of the neighbouring relation and of the sampling."""
    if not all(isinstance(event, (GaussianRelease, FixedSizeRelease)) for event in events):
        raise checks.PrivacyError("Flower's form has Gaussian releases only, but got Laplace ones")
    fixed = {isinstance(event, FixedSizeRelease) for event in events}
    if len(fixed) > 1:
        raise checks.PrivacyError(
            "Poisson samples and samples of fixed size have different neighbouring relations, and "
            "cannot be in one state"
        )
    if True in fixed:
        return "replace-one", "without-replacement"
    everybody = all(getattr(event, "sampling_rate", 1.0) == 1.0 for event in events)
    return "add-or-remove-one", "no-amplification" if everybody else "poisson"


def _compositions(events: Sequence[Event], agents: int) -> Iterator[tuple[float, int, int]]:
    """Yield noise, sample size and count of each group of equal releases in a row."""
    for release, group in itertools.groupby(_release(event, agents) for event in events):
        yield *release, len(list(group))


def _release(event: Event, agents: int) -> tuple[float, int]:
    """Return the noise multiplier and the sample size of one release."""
    if isinstance(event, FixedSizeRelease):
        if event.population != agents:
            raise checks.PrivacyError(
                f"`agents` must be the population of the releases, which is {event.population}, "
                f"but got {agents}"
            )
        return event.noise_multiplier / 2.0, event.sample_size
    assert isinstance(event, GaussianRelease)
    size = round(event.sampling_rate * agents)
    # Flower divides the two numbers again; the quotient must not be below the rate.
    return event.noise_multiplier, size if size / agents >= event.sampling_rate else size + 1
