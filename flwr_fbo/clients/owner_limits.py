"""An agent owner's own limits on privacy and time, from the node's configuration.

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
``answer-within``         seconds after which the agent answers while its evaluation goes on;
                          ``"never"`` waits for it, whatever the run's setting is
``evaluation-limit``      seconds after which an evaluation that goes on is ended, and counts
                          as failed; needs ``answer-within``
========================  ================================================================
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr_fbo.core.settings import SettingsError

if TYPE_CHECKING:  # each is loaded by the clients that it is for
    from flwr_fbo.methods.fed_pne import PrivacyLimits
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


def answer_within(config: Mapping[str, Any], default: float | None) -> float | None:
    """How long the owner has the agent wait for its evaluation; None is as long as it takes."""
    value = config.get("answer-within")
    if value is None:
        return default
    if value == "never":
        return None
    return 0.0 if value == 0 and not isinstance(value, bool) else number(config, "answer-within")


def evaluation_limit(config: Mapping[str, Any], patience: float | None) -> float | None:
    """When the owner has an evaluation ended."""
    limit = number(config, "evaluation-limit")
    if limit is not None and patience is None:
        raise SettingsError(
            "node-config `evaluation-limit` needs `answer-within`: only an evaluation in a "
            "process of its own can be ended"
        )
    return limit


def pull_limits(config: Mapping[str, Any]) -> PrivacyLimits | None:
    """The owner's limits for Fed-PNE."""
    from flwr_fbo.methods.fed_pne import PrivacyLimits

    user, reward = number(config, "epsilon-limit"), number(config, "epsilon-limit-reward")
    if user is None and reward is None:
        return None
    delta = number(config, "delta-limit") or DEFAULT_DELTA
    return PrivacyLimits(one_reward=reward or math.inf, one_user=user or math.inf, delta=delta)


def reward_budget(
    config: Mapping[str, Any], owner: str, delta: float, stack: contextlib.ExitStack
) -> LocalBudget | None:
    """The owner's books for LDP-BO, open until the stack is closed."""
    from flwr_fbo.privacy.local import LocalBudget

    file, limit = config.get("budget-file"), number(config, "epsilon-limit")
    if file is None:
        return None
    if limit is None:
        raise SettingsError("node-config `budget-file` needs `epsilon-limit`: what it may spend")
    return stack.enter_context(LocalBudget.open(Path(str(file)), owner, limit, delta))
