"""The owner of an agent, and the owner's limits on privacy and time.

The settings of a run come from the server. The limits come from the configuration of the owner's
node, and hold whatever a server asks:

========================  ================================================================
node-config key           meaning
========================  ================================================================
``epsilon-limit``         the largest epsilon of all that this agent ever sends, in all
                          runs; in DP-FTS-DE and FTS this key turns local privacy on, and in
                          voting it adds noise to the votes
``epsilon-limit-reward``  the largest epsilon about one evaluation (Fed-PNE)
``delta-limit``           the delta of both limits; 1e-5 where unset
``budget-file``           the file of the owner's ledger over all runs; where unset, a file
                          below ``FLWR_FBO_HOME`` (or ``~/.flwr-fbo``); needs
                          ``epsilon-limit``
``answer-within``         seconds after which the agent replies although its evaluation
                          still runs; ``"never"`` waits, whatever the run's setting is
``secure-key``            file of the private key that signs this node's keys in secure sums,
                          such as its SuperNode's
``secure-peers``          fingerprints of the keys of all parties whose sums this node joins,
                          joined by commas, or a file of fingerprints or public keys, one a
                          line; needs ``secure-key``
``secure-only``           true: nothing leaves this node but its part of secure sums; also
                          true where ``secure-peers`` is set
``evaluation-limit``      seconds after which an evaluation is ended and counts as failed;
                          needs ``answer-within``
``parallel-limit``        the most evaluations at the same time on this node, whatever the run's
                          setting ``parallel`` is; the others wait for their turn
========================  ================================================================
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr_fbo.core.settings import SettingsError
from flwr_fbo.privacy.local import LocalBudget

if TYPE_CHECKING:
    from flwr_fbo.privacy.secure.identity import Identity

DEFAULT_DELTA = 1e-5
#: The name in a ledger over all runs: a node may be another agent in another run.
OWNER = "owner"


@dataclass(frozen=True)
class Owner:
    """The party that an agent belongs to, with its limits and the place of its ledger.

    Parameters
    ----------
    name
        The name in ledgers, such as ``"agent 3"``.
    config
        The configuration of the owner's node; the module's table lists the keys.
    ledger
        The file of the agent's privacy budget in this run, for an owner without a limit.
    books
        The file of the owner's ledger over all runs, where ``budget-file`` is unset.
    stack
        The files that are closed when the message is answered.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    ledger: Path | None = None
    books: Path | None = None
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def epsilon_limit(self) -> float | None:
        """Return the largest epsilon of all that the agent ever sends; None is no limit."""
        return self._positive("epsilon-limit")

    @property
    def epsilon_limit_reward(self) -> float | None:
        """Return the largest epsilon about one evaluation; None is no limit."""
        return self._positive("epsilon-limit-reward")

    @property
    def delta_limit(self) -> float:
        """Return the delta of both limits."""
        return self._positive("delta-limit") or DEFAULT_DELTA

    @property
    def ledger_file(self) -> Path:
        """Return the file of the ledger: the owner's own where the owner sets a limit."""
        # A limit holds for all that the agent ever sends. So its ledger belongs to the owner and
        # not to a run, because the server's configuration names the directory of a run.
        self._check_budget_file()
        file = self.config.get("budget-file")
        if file is not None:
            return Path(str(file))
        ledger = self.ledger if self.epsilon_limit is None else self.books or self.ledger
        if ledger is None:
            raise SettingsError("an agent with a privacy budget must have a file for its ledger")
        return ledger

    def open_budget(self) -> LocalBudget | None:
        """Open the owner's budget over all runs until the message is answered.

        Returns None for an owner without a limit.
        """
        self._check_budget_file()
        limit = self.epsilon_limit
        if limit is None:
            return None
        budget = LocalBudget.open(self.ledger_file, OWNER, limit, self.delta_limit)
        return self.stack.enter_context(budget)

    def _check_budget_file(self) -> None:
        """Raise SettingsError for ``budget-file`` without ``epsilon-limit``."""
        if self.config.get("budget-file") is not None and self.epsilon_limit is None:
            raise SettingsError(
                "node-config `budget-file` needs `epsilon-limit`, the limit whose ledger it is"
            )

    @property
    def secure_only(self) -> bool:
        """Return whether the node sends nothing but its part of secure sums."""
        return self.config.get("secure-only") is True or "secure-peers" in self.config

    @property
    def identity(self) -> Identity | None:
        """Return the key that signs the node's keys in secure sums; None without one."""
        path = self.config.get("secure-key")
        if path is None:
            return None
        from flwr_fbo.privacy.secure.identity import Identity  # imports cryptography

        return Identity.load(Path(str(path)))

    @property
    def pinned(self) -> frozenset[str] | None:
        """Return the fingerprints of the parties whose sums the node joins; None is anybody's."""
        peers = self.config.get("secure-peers")
        if peers is None:
            return None
        if self.config.get("secure-key") is None:
            raise SettingsError("node-config `secure-peers` needs `secure-key`, the node's own key")
        from flwr_fbo.privacy.secure.identity import pinned_identities  # imports cryptography

        return pinned_identities(str(peers))

    def answer_within(self, default: float | None) -> float | None:
        """Return the seconds after which the agent replies without its evaluation.

        None waits for the evaluation. ``default`` is the setting of the run.
        """
        value = self.config.get("answer-within")
        if value is None:
            return default
        if value == "never":
            return None
        zero = value == 0 and not isinstance(value, bool)
        return 0.0 if zero else self._positive("answer-within")

    def evaluation_limit(self, answer_within: float | None) -> float | None:
        """Return the seconds after which an evaluation is ended; None is no limit."""
        limit = self._positive("evaluation-limit")
        if limit is not None and answer_within is None:
            raise SettingsError(
                "node-config `evaluation-limit` needs `answer-within`: only an evaluation in a "
                "process of its own can be ended"
            )
        return limit

    @property
    def parallel_limit(self) -> int | None:
        """Return the most evaluations at the same time; None is as many as the run asks for."""
        limit = self._positive("parallel-limit")
        if limit is not None and limit != int(limit):
            raise SettingsError(
                f"node-config `parallel-limit` must be a whole number, but got {limit!r}"
            )
        return None if limit is None else int(limit)

    def _positive(self, key: str) -> float | None:
        """Return the number > 0 of a key; None where the key is unset."""
        value = self.config.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise SettingsError(f"node-config `{key}` must be a number > 0, but got {value!r}")
        return float(value)
