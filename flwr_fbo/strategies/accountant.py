"""Flower's ``PrivacyAccountant`` by privacy-loss distributions.

Flower's strategies with differential privacy take any accountant with the protocol
``flwr.serverapp.PrivacyAccountant``; Flower's own one uses Renyi divergences. The accountant here
gives a smaller epsilon for the same releases, rounded up. It has nothing to do with tuning: it
works with Flower's own strategies for training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from flwr_fbo.flower_versions import require_accounting
from flwr_fbo.privacy import checks, pld, renyi
from flwr_fbo.privacy.events import GaussianRelease
from flwr_fbo.privacy.flower_state import SCHEMA_VERSION

require_accounting()
from flwr.serverapp import (  # noqa: E402 - after the check, whose error says what is needed
    GaussianPrivacyEvent,
    PrivacyConfig,
    PrivacySpent,
    SamplingMethod,
)

#: The name of this accountant in states and reports.
BACKEND = "pld"
#: The accountants whose states can be loaded: a state holds releases, whoever counted them.
_READABLE = (BACKEND, "rdp")


class PldPrivacyAccountant:
    """An accountant for Flower's strategies, by privacy-loss distributions.

    Parameters
    ----------
    config : PrivacyConfig
        Flower's configuration, with Poisson sampling or without amplification. Samples without
        replacement have another neighbouring relation, which needs Flower's ``RdpAccountant``.

    Examples
    --------
    >>> from flwr.serverapp import NeighboringRelation
    >>> accountant = PldPrivacyAccountant(PrivacyConfig(
    ...     target_delta=1e-5,
    ...     population_size=100,
    ...     neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
    ...     sampling_method=SamplingMethod.POISSON,
    ...     max_epsilon=1.0,
    ... ))
    >>> accountant.compose(GaussianPrivacyEvent(2.0, sample_size=10, population_size=100), 20)
    >>> round(accountant.get_privacy_spent().epsilon, 2)
    1.08
    """

    def __init__(self, config: PrivacyConfig) -> None:
        if config.sampling_method is SamplingMethod.WITHOUT_REPLACEMENT:
            raise checks.PrivacyError(
                "`sampling_method` must be poisson or no-amplification for privacy-loss "
                "distributions, but got without-replacement; use flwr.serverapp.RdpAccountant"
            )
        if config.target_delta < pld.LEAST_DELTA:
            raise checks.PrivacyError(
                f"`target_delta` must be >= {pld.LEAST_DELTA:g} for privacy-loss distributions, "
                f"but got {config.target_delta!r}"
            )
        self._config = config
        self._compositions: list[tuple[GaussianPrivacyEvent, int]] = []

    @property
    def config(self) -> PrivacyConfig:
        """Return the privacy configuration."""
        return self._config

    @property
    def num_releases(self) -> int:
        """Return the number of composed releases."""
        return sum(count for _, count in self._compositions)

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Add one or more equal releases."""
        self._check(event, count)
        self._compositions.append((event, count))

    def get_epsilon(self, delta: float) -> float:
        """Return the epsilon of all releases at this delta, rounded up."""
        return pld.epsilon(self._counts(self._compositions), delta)

    def get_delta(self, epsilon: float) -> float:
        """Return the delta of all releases at this epsilon, rounded up."""
        if epsilon != 0.0:
            checks.positive("epsilon", epsilon)
        return float(pld.delta(self._counts(self._compositions), np.array([epsilon]))[0])

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """Return what all releases cost, at this delta or at the configuration's."""
        used = self._config.target_delta if delta is None else delta
        return PrivacySpent(self.get_epsilon(used), used, self.num_releases, BACKEND)

    def would_exceed(
        self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1
    ) -> bool:
        """Return whether these releases would bring epsilon over a limit; add nothing."""
        self._check(event, count)
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None:
            raise checks.PrivacyError(
                "`max_epsilon` must be given, here or in the configuration, but is not"
            )
        checks.positive("max_epsilon", limit)
        projected = self._counts([*self._compositions, (event, count)])
        return pld.epsilon(projected, self._config.target_delta) > limit

    def state_dict(self) -> dict[str, object]:
        """Return the releases and the configuration as JSON, in the form of Flower's own state."""
        return {
            "schema_version": SCHEMA_VERSION,
            "backend": BACKEND,
            "config": _config_json(self._config),
            "compositions": [
                {"event": asdict(event), "count": count} for event, count in self._compositions
            ],
        }

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Take in the releases of a state of this class, of Flower's accountant or of a ledger.

        The configuration of the state must be that of this accountant.
        :func:`flwr_fbo.privacy.flower_state.flower_state` makes states of ledgers.
        """
        _check_state(state, _config_json(self._config))
        loaded = _compositions_of(state.get("compositions"))
        for event, count in loaded:
            self._check(event, count)
        self._compositions = loaded

    def _check(self, event: GaussianPrivacyEvent, count: int) -> None:
        checks.count("count", count)
        if event.population_size != self._config.population_size:
            raise checks.PrivacyError(
                f"`population_size` must be {self._config.population_size}, as in the "
                f"configuration, but got {event.population_size}"
            )

    def _counts(self, compositions: list[tuple[GaussianPrivacyEvent, int]]) -> pld.EventCounts:
        """Return the releases by their cost, with their numbers."""
        poisson = self._config.sampling_method is SamplingMethod.POISSON
        counts: Counter[renyi.CostKey] = Counter()
        for event, count in compositions:
            rate = event.sample_size / event.population_size if poisson else 1.0
            counts[renyi.cost_key(GaussianRelease(event.noise_multiplier, rate))] += count
        return tuple(counts.items())


def _config_json(config: PrivacyConfig) -> dict[str, object]:
    return {
        **asdict(config),
        "neighboring_relation": config.neighboring_relation.value,
        "sampling_method": config.sampling_method.value,
    }


def _check_state(state: Mapping[str, object], config: dict[str, object]) -> None:
    """Raise PrivacyError for a state of another form or of another configuration."""
    if state.get("schema_version") != SCHEMA_VERSION:
        raise checks.PrivacyError(
            f"`schema_version` must be {SCHEMA_VERSION}, but got {state.get('schema_version')!r}"
        )
    if state.get("backend") not in _READABLE:
        raise checks.PrivacyError(
            f"`backend` must be one of {', '.join(_READABLE)}, but got {state.get('backend')!r}"
        )
    if state.get("config") != config:
        raise checks.PrivacyError(
            f"`config` must be {config}, that of this accountant, but got {state.get('config')!r}"
        )


def _compositions_of(value: Any) -> list[tuple[GaussianPrivacyEvent, int]]:
    """Return the releases of a state; refuse a list of another form."""
    try:
        return [(GaussianPrivacyEvent(**entry["event"]), entry["count"]) for entry in value]
    except (KeyError, TypeError, ValueError) as error:
        raise checks.PrivacyError(
            f"`compositions` must be a list of events with counts, but is not: {error}"
        ) from None
