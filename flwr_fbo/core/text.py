"""Texts that come from outside, such as a task's errors: cut at a length, and made printable."""

from __future__ import annotations

import reprlib
from typing import Any

#: The most characters of a text that comes from a task, such as that of an exception.
MOST_TEXT = 1000
#: The most characters of a name that comes from a task, such as that of its metric.
MOST_NAME = 100


def printable(text: str, most: int = MOST_TEXT) -> str:
    """Return a text on one line, with at most ``most`` characters, that every stream can print.

    Line breaks become blanks. Other characters that cannot be printed, such as control characters
    and lone surrogates, become escapes. A text that is cut ends with the number of characters
    that were left out.

    Examples
    --------
    >>> printable("two\\nlines, and \\x1b[31mred")
    'two lines, and \\\\x1b[31mred'
    >>> printable("abcdefgh", most=3)
    'abc... (5 more characters)'
    """
    kept = text[:most]
    if not kept.isprintable():
        kept = "".join(map(_escaped, kept))[:most]
    left = len(text) - most
    return f"{kept}... ({left} more characters)" if left > 0 else kept


def _escaped(character: str) -> str:
    """Return a character as it is if it can be printed, and else as an escape."""
    if character.isprintable():
        return character
    if character in "\n\r\t":
        return " "
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def error_text(error: BaseException) -> str:
    """Return the class and the text of an error, cut and made printable.

    Examples
    --------
    >>> error_text(ValueError("no such kernel"))
    'ValueError: no such kernel'
    """
    try:
        text = str(error)
    except Exception:  # the error's own __str__ is a task's code
        text = "(its text cannot be read)"
    return printable(f"{type(error).__name__}: {text}")


def value_text(value: Any) -> str:
    """Return a value of a task as an error quotes it: shortened, cut and made printable."""
    try:
        return printable(reprlib.repr(value), MOST_NAME)
    except Exception:  # the value's own __repr__ is a task's code
        return f"a {type(value).__name__}"
