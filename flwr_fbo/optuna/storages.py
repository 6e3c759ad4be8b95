"""The opening of Optuna's storages, for processes that write to one storage at the same time."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.storages import BaseStorage, RDBStorage

#: Seconds for which a process waits while another one writes to the same SQLite file. Python's
#: default of 5 s is short where many processes share few processors, and then a trial would fail.
WAIT = 120.0


def opened(storage: str | BaseStorage) -> BaseStorage:
    """Return Optuna's storage of an address, whose writers wait for one another."""
    if isinstance(storage, str) and storage.startswith("sqlite"):
        patient: dict[str, Any] = {"connect_args": {"timeout": WAIT}}
        storage = RDBStorage(storage, engine_kwargs=patient)
    return optuna.storages.get_storage(storage)
