"""What is tuned: the built-in tasks by name, and the classes to write your own."""

from flwr_fbo.tasks.registry import BUILT_IN, check_importable, find, load, name_of
from flwr_fbo.tasks.task import FunctionTask, Partition, Task, task

__all__ = [
    "BUILT_IN",
    "FunctionTask",
    "Partition",
    "Task",
    "check_importable",
    "find",
    "load",
    "name_of",
    "task",
]
