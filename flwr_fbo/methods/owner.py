"""An owner's own limits on privacy and time, from the configuration of the owner's node.

A server says how much noise its run has. These limits are the owner's, and they hold whatever
a server asks:

========================  ================================================================
node-config key           meaning
========================  ================================================================
``epsilon-limit``         most epsilon of all that this agent ever sends (one user); in
                          DP-FTS-DE and FTS it turns local privacy on
``epsilon-limit-reward``  most epsilon about one evaluation (Fed-PNE)
``delta-limit``           the delta of both; 1e-5 where unset
``budget-file``           the owner's one ledger over all runs; where unset, a file below
                          ``FLWR_FBO_HOME`` (or ``~/.flwr-fbo``); needs ``epsilon-limit``
``answer-within``         seconds after which the agent answers while its evaluation goes on;
                          ``"never"`` waits for the evaluation, whatever the run's setting is
``evaluation-limit``      seconds after which an evaluation is ended and counts as failed;
                          needs ``answer-within``
========================  ================================================================
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.privacy.local import LocalBudget

DEFAULT_DELTA = 1e-5


@dataclass(frozen=True)
class Owner:
    """The party behind an agent: its name in ledgers, its limits, and where its ledger is.

    Parameters
    ----------
    name
        The name that ledgers carry, such as ``"agent 3"``.
    config
        The configuration of the owner's node; the module lists the keys that count.
    ledger
        The file of the agent's own privacy budget in this run, where the owner sets no limit.
    books
        The owner's ledger over all runs, where ``budget-file`` names none.
    stack
        Closes what the agent keeps open (``budget-file``) when the message is answered.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    ledger: Path | None = None
    books: Path | None = None
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def epsilon_limit(self) -> float | None:
        """Return the most epsilon of all that the agent ever sends; None is no limit."""
        return self._positive("epsilon-limit")

    @property
    def epsilon_limit_reward(self) -> float | None:
        """Return the most epsilon about one evaluation; None is no limit."""
        return self._positive("epsilon-limit-reward")

    @property
    def delta_limit(self) -> float:
        """Return the delta of the limits."""
        return self._positive("delta-limit") or DEFAULT_DELTA

    @property
    def ledger_file(self) -> Path:
        """Return the file of the budget: the owner's one ledger where the owner sets a limit.

        A limit is a promise about all that the agent ever sends. So its ledger belongs to the
        owner, and not to a run, whose directory the server's configuration names.
        """
        file = self.config.get("budget-file")
        if file is not None and self.epsilon_limit is None:
            raise SettingsError(
                "node-config `budget-file` needs `epsilon-limit`: the limit that the file keeps"
            )
        if file is not None:
            return Path(str(file))
        found = self.ledger if self.epsilon_limit is None else self.books or self.ledger
        if found is None:
            raise SettingsError("an agent with a privacy budget needs a file to keep it in")
        return found

    def open_budget(self) -> LocalBudget | None:
        """Open the owner's budget over all runs until the message is answered; None without."""
        limit = self.epsilon_limit
        if limit is None:
            self._no_file_without_a_limit()
            return None
        budget = LocalBudget.open(self.ledger_file, self.name, limit, self.delta_limit)
        return self.stack.enter_context(budget)

    def _no_file_without_a_limit(self) -> None:
        if self.config.get("budget-file") is not None:
            _ = self.ledger_file  # raises with the rule

    def answer_within(self, default: float | None) -> float | None:
        """Return after how many seconds the agent answers without its evaluation.

        None waits for the evaluation. ``default`` is what the run asks for.
        """
        value = self.config.get("answer-within")
        if value is None:
            return default
        if value == "never":
            return None
        zero = value == 0 and not isinstance(value, bool)
        return 0.0 if zero else self._positive("answer-within")

    def evaluation_limit(self, patience: float | None) -> float | None:
        """Return after how many seconds an evaluation is ended; None is never."""
        limit = self._positive("evaluation-limit")
        if limit is not None and patience is None:
            raise SettingsError(
                "node-config `evaluation-limit` needs `answer-within`: only an evaluation in a "
                "process of its own can be ended"
            )
        return limit

    def _positive(self, key: str) -> float | None:
        value = self.config.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise SettingsError(f"node-config `{key}` must be a number > 0, but got {value!r}")
        return float(value)
