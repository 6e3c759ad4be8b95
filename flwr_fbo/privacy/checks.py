"""Checks of the numbers that the privacy package is given, each with one error message."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


class PrivacyError(ValueError):
    """A privacy parameter breaks its rule; the message states the rule and the value."""


def positive(name: str, value: Any) -> float:
    """Return the value as a float; refuse a value that is not finite and > 0."""
    number = _number(name, value, "a finite number > 0")
    if not (math.isfinite(number) and number > 0):
        raise PrivacyError(f"`{name}` must be a finite number > 0, but got {value!r}")
    return number


def open_unit(name: str, value: Any) -> float:
    """Return the value as a float; refuse a value outside (0, 1), such as a delta of 1."""
    number = _number(name, value, "in (0, 1)")
    if not 0.0 < number < 1.0:
        raise PrivacyError(f"`{name}` must be in (0, 1), but got {value!r}")
    return number


def rate(name: str, value: Any) -> float:
    """Return the value, a sampling rate, as a float; refuse a value outside (0, 1]."""
    number = _number(name, value, "in (0, 1]")
    if not 0.0 < number <= 1.0:
        raise PrivacyError(f"`{name}` must be in (0, 1], but got {value!r}")
    return number


def count(name: str, value: Any, low: int = 1) -> int:
    """Return the value as an int; refuse a value below ``low`` or of another type."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
        raise PrivacyError(f"`{name}` must be an integer >= {low}, but got {value!r}")
    return int(value)


def _number(name: str, value: Any, rule: str) -> float:
    # A bool is an int in Python, and a text such as "1" would convert: both are mistakes here.
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise PrivacyError(f"`{name}` must be {rule}, but got {value!r}")
    return float(value)
