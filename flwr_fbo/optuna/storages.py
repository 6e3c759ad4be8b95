"""The opening of Optuna's storages, for processes that write to one storage at the same time."""

from __future__ import annotations

import re
from typing import Any

import optuna
from optuna.storages import BaseStorage, RDBStorage

#: Seconds for which a process waits while another one writes to the same SQLite file. Python's
#: default of 5 s is short where many processes share few processors, and then a trial would fail.
WAIT = 120.0
#: What an address says after these words is a secret.
_PASSWORD = re.compile(r"(://[^/?#:@]*:).*@|([?&](?:[a-z]*password|passwd|token)=)[^&\s]*", re.I)


def without_password(text: str) -> str:
    """Return an address of a storage, or a text that quotes it, with stars for the password.

    Examples
    --------
    >>> without_password("mysql://ada:secret@db.example/runs")
    'mysql://ada:***@db.example/runs'
    """
    return _PASSWORD.sub(lambda m: f"{m[1]}***@" if m[1] else f"{m[2]}***", text)


def opened(storage: str | BaseStorage) -> BaseStorage:
    """Return Optuna's storage of an address, whose writers wait for one another."""
    if isinstance(storage, str) and storage.startswith("sqlite"):
        patient: dict[str, Any] = {"connect_args": {"timeout": WAIT}}
        storage = RDBStorage(storage, engine_kwargs=patient)
    return optuna.storages.get_storage(storage)
