"""Texts for people that summaries, logs and reports share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def params_text(params: Mapping[str, Any]) -> str:
    """Return the parameter values in one line.

    Examples
    --------
    >>> params_text({"C": 142.53219, "kernel": "rbf"})
    'C = 142.5, kernel = rbf'
    """
    return ", ".join(
        f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in params.items()
    )


def failing_text(failed: int, made: int) -> str:
    """Return a sentence for evaluations most of which failed; empty if fewer failed.

    Examples
    --------
    >>> failing_text(44, 66)
    'most evaluations fail: 44 of 66'
    >>> failing_text(3, 66)
    ''
    """
    return f"most evaluations fail: {failed} of {made}" if 2 * failed > made else ""


def listed(words: Sequence[str]) -> str:
    """Return the words as a list in a sentence.

    Examples
    --------
    >>> listed(["alone"]), listed(["alone", "tpe", "random"])
    ('alone', 'alone, tpe and random')
    """
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
