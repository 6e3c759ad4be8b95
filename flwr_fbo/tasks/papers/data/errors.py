"""The one error that a data set can raise."""

from __future__ import annotations


class DataError(ValueError):
    """A data file is absent, damaged or not what it should be; the message names file and fault."""
