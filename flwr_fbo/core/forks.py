"""Processes that a task forks: they write nothing, and end where they would return to the run.

A process that is forked in the middle of an evaluation has copies of the run's open files and of
everything in memory. If it went on where its parent goes on, each record and each round would be
made twice.
"""

from __future__ import annotations

import os
import sys

#: The exit code of a forked process that returned from a task's function.
EXIT_FORKED = 70


class ForkError(RuntimeError):
    """An error for a process that would write to the files of the process it was forked from."""


class Process:
    """The process that made an object."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def check(self, what: object) -> None:
        """Raise ForkError in any other process, which must not write to ``what``."""
        if os.getpid() != self._pid:
            raise ForkError(
                f"{what}: process {os.getpid()} was forked from process {self._pid}, which writes "
                "this file; a process that a task forks must end without returning to flwr-fbo "
                "(os._exit)"
            )


class ending_forked_processes:  # noqa: N801 - it is used as a function
    """End any process that was forked in this block where it would leave the block."""

    __slots__ = ("_mine",)

    def __enter__(self) -> None:
        self._mine = os.getpid()

    def __exit__(self, *error: object) -> None:
        if os.getpid() != self._mine:
            _end()


def _end() -> None:
    """End this process at once, without the clean-up that belongs to its parent."""
    error = sys.exc_info()[1]
    # A process that ends by sys.exit does what is usual; only a return is worth a word.
    if isinstance(error, SystemExit):
        os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
    os.write(
        2,
        f"flwr-fbo: process {os.getpid()}, which a task forked, returned from the task's function "
        "and is ended; only the process that called the function goes on\n".encode(),
    )
    os._exit(EXIT_FORKED)
