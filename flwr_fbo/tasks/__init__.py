"""What is tuned: built-in tasks by name, and the tools to write your own."""

from __future__ import annotations

import importlib

from flwr_fbo.core.settings import SettingsError, unknown_keys
from flwr_fbo.tasks.base import FunctionTask, Partition, Task, task

#: Built-in tasks: name -> "module:class". Imported only when asked for.
BUILT_IN: dict[str, str] = {
    "digits": "flwr_fbo.tasks.digits:DigitsTask",
    "landmine": "flwr_fbo.tasks.landmine:LandmineTask",
    "synthetic": "flwr_fbo.tasks.synthetic:SyntheticTask",
}


def find(name: str) -> Task | type[Task]:
    """A built-in task class by name, or your own task or class by ``module:attribute``."""
    if ":" not in name:
        try:
            unknown_keys([name], BUILT_IN)
        except SettingsError as error:
            raise SettingsError(str(error).replace("unknown setting", "unknown task")) from None
    module, _, attribute = (name if ":" in name else BUILT_IN[name]).partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"`task` {name!r} cannot be imported: {error}") from error
    if isinstance(found, Task) or (isinstance(found, type) and issubclass(found, Task)):
        return found
    raise SettingsError(
        f"`task` {name!r} must be a Task, a subclass of Task, or a function with @task, "
        f"but is {found!r}"
    )


__all__ = ["BUILT_IN", "FunctionTask", "Partition", "Task", "find", "task"]
