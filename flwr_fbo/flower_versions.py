"""Where Flower's versions differ: names that moved, and identities that messages need.

No other module imports what only some of the supported versions have. :data:`OLDEST` is the oldest
version with which a private deployment and the in-process grid work. CI runs the test of a
deployment on the oldest and on the newest version.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from flwr.app import Message

if TYPE_CHECKING:
    from flwr.app.user_config import UserConfig as UserConfig
    from flwr.supercore.run import Run as Run

#: The oldest version of Flower that works. `pyproject.toml` declares the same version.
OLDEST = "1.27.0"


def _first_of(name: str, *modules: str) -> Any:
    """Return the object of this name from the first of the modules that has it, or None."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


if not TYPE_CHECKING:
    Run = _first_of("Run", "flwr.supercore.run", "flwr.common.typing")
    UserConfig = _first_of("UserConfig", "flwr.app.user_config", "flwr.common.typing")

#: The process's run and node, without which newer versions make no message; None in older ones.
_identity: Any = _first_of("TaskIdentity", "flwr.supercore.task_identity")


def set_sender(run_id: int, node_id: int) -> None:
    """Tell Flower which run and node of this process the next messages come from."""
    if _identity is not None:
        _identity.task_id, _identity.run_id, _identity.node_id = 1, run_id, node_id


def set_identity(message: Message, number: str, run_id: int, node_id: int) -> None:
    """Give a message its number and, where Flower has not done so, its run and its sender."""
    metadata: dict[str, Any] = message.metadata.__dict__
    metadata["_message_id"] = number
    if _identity is None:
        metadata["_run_id"], metadata["_src_node_id"] = run_id, node_id


def require_accounting() -> None:
    """Raise ImportError unless this version of Flower has privacy accountants."""
    if _first_of("PrivacyConfig", "flwr.serverapp") is None:
        from importlib.metadata import version

        raise ImportError(
            "flwr_fbo.strategies.accountant needs a Flower with `flwr.serverapp.PrivacyConfig`, "
            f"which flwr {version('flwr')} does not have: install flwr>=1.41"
        )
