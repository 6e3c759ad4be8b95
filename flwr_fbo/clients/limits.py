"""An agent owner's own limits on privacy, from the node's configuration.

A server says how much noise its run has; these limits are the owner's, and hold whatever a
server asks:

========================  ================================================================
node-config key           meaning
========================  ================================================================
``epsilon-limit``         most epsilon of all that this agent ever sends (one user); in
                          DP-FTS-DE and FTS it turns local privacy on
``epsilon-limit-reward``  most epsilon about one evaluation (Fed-PNE)
``delta-limit``           the delta of both; 1e-5 where unset
``budget-file``           a file that keeps the books over all runs (LDP-BO); needs
                          ``epsilon-limit``
========================  ================================================================
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr_fbo.core.fed_pne import PrivacyLimits
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.privacy.local import LocalBudget

DEFAULT_DELTA = 1e-5


def number(config: Mapping[str, Any], key: str) -> float | None:
    """A positive number of the node's configuration; None where it is not set."""
    value = config.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise SettingsError(f"node-config `{key}` must be a number > 0, but got {value!r}")
    return float(value)


def pull_limits(config: Mapping[str, Any]) -> PrivacyLimits | None:
    """The owner's limits for Fed-PNE."""
    user, reward = number(config, "epsilon-limit"), number(config, "epsilon-limit-reward")
    if user is None and reward is None:
        return None
    delta = number(config, "delta-limit") or DEFAULT_DELTA
    return PrivacyLimits(one_reward=reward or math.inf, one_user=user or math.inf, delta=delta)


def reward_budget(
    config: Mapping[str, Any], owner: str, delta: float, stack: contextlib.ExitStack
) -> LocalBudget | None:
    """The owner's books for LDP-BO, open until the stack is closed."""
    file, limit = config.get("budget-file"), number(config, "epsilon-limit")
    if file is None:
        return None
    if limit is None:
        raise SettingsError("node-config `budget-file` needs `epsilon-limit`: what it may spend")
    return stack.enter_context(LocalBudget.open(Path(str(file)), owner, limit, delta))
