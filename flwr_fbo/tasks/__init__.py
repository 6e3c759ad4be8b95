"""What is tuned: built-in tasks by name, and the tools to write your own."""

from __future__ import annotations

import importlib
from typing import Any

from flwr_fbo.core.settings import SettingsError, unknown_keys
from flwr_fbo.tasks.base import FunctionTask, Partition, Task, task

#: Built-in tasks: name -> "module:class". Imported only when asked for.
BUILT_IN: dict[str, str] = {
    "digits": "flwr_fbo.tasks.digits:DigitsTask",
    "landmine": "flwr_fbo.tasks.landmine:LandmineTask",
}


def load(name: str, settings: dict[str, Any] | None = None) -> Task:
    """A built-in task by name, or your own by ``module:attribute``."""
    if ":" not in name:
        try:
            unknown_keys([name], BUILT_IN)
        except SettingsError as error:
            raise SettingsError(str(error).replace("unknown setting", "unknown task")) from None
    module, _, attribute = (name if ":" in name else BUILT_IN[name]).partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if isinstance(found, Task):
        return found
    return found(found.settings_class.from_mapping(settings or {}))  # type: ignore[no-any-return]


__all__ = ["BUILT_IN", "FunctionTask", "Partition", "Task", "load", "task"]
