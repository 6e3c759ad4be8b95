"""What every number of the privacy module must satisfy, said in one voice."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


class PrivacyError(ValueError):
    """A privacy parameter breaks its rule; the message names rule and value."""


def positive(name: str, value: Any) -> float:
    """The value as a float, which must be finite and > 0."""
    number = _number(name, value, "a finite number > 0")
    if not (math.isfinite(number) and number > 0):
        raise PrivacyError(f"`{name}` must be a finite number > 0, but got {value!r}")
    return number


def open_unit(name: str, value: Any) -> float:
    """The value as a float in (0, 1), as every delta must be."""
    number = _number(name, value, "in (0, 1)")
    if not 0.0 < number < 1.0:
        raise PrivacyError(f"`{name}` must be in (0, 1), but got {value!r}")
    return number


def rate(name: str, value: Any) -> float:
    """The value as a float in (0, 1], as every sampling rate must be."""
    number = _number(name, value, "in (0, 1]")
    if not 0.0 < number <= 1.0:
        raise PrivacyError(f"`{name}` must be in (0, 1], but got {value!r}")
    return number


def count(name: str, value: Any, low: int = 1) -> int:
    """The value as an int that is not below ``low``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
        raise PrivacyError(f"`{name}` must be an integer >= {low}, but got {value!r}")
    return int(value)


def _number(name: str, value: Any, rule: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise PrivacyError(f"`{name}` must be {rule}, but got {value!r}")
    return float(value)
