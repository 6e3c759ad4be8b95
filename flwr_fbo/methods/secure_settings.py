"""The settings that every method with secure sums has.

This module imports no cryptography, because the settings of all methods are read by every command.
"""

from __future__ import annotations

from typing import Any

from flwr_fbo.core.settings import at_least, setting, within


def threshold_setting() -> Any:
    """Return the field ``secure_threshold`` of a settings class."""
    return setting(
        2.0 / 3.0,
        "least share of the agents that must answer; with fewer, a secure sum is abandoned",
        within(0.5, 1, open_low=True),
    )


def colluding_setting() -> Any:
    """Return the field ``secure_colluding`` of a settings class."""
    return setting(
        1, "number of agents that may collude with the server in a secure sum", at_least(0)
    )
