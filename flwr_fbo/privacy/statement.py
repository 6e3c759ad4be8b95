"""What a run guarantees, in one object that prints as one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class PrivacyStatement:
    """The privacy of a run as it is reported to people.

    Parameters
    ----------
    epsilon, delta
        What the run spends; None where nothing is private.
    local
        Whether the guarantee holds against the server too.
    notice
        What must be known before the numbers are trusted; empty where nothing is.
    """

    epsilon: float | None = None
    delta: float | None = None
    local: bool = False
    notice: str = ""

    @classmethod
    def of(cls, privacy: Mapping[str, Any] | None, notice: str) -> Self:
        """Return the statement of what a method's server reports."""
        found = privacy or {}
        return cls(
            found.get("epsilon"), found.get("delta"), bool(found.get("local", False)), notice
        )

    def __str__(self) -> str:
        """Return the statement in one line."""
        if self.epsilon is None or self.delta is None:
            return self.notice or "none: no noise is added to what agents send"
        text = f"epsilon {self.epsilon:.3f} at delta {self.delta:.2e}, per agent, whole run"
        text += ", against the server too" if self.local else ""
        return f"{self.notice} (otherwise {text})" if self.notice else text
