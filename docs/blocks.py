"""The blocks of code in a page, and which of them are run."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Comments directly above a block, its language and its text.
BLOCK = re.compile(r"^((?:<!-- [^\n]* -->\n)*)```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: Languages of commands and code. Blocks of other languages are files, or what a command prints.
RUN = ("sh", "python")
#: Languages of blocks that nobody runs: other tests compare most of them with files.
SHOWN = ("text", "toml", "json", "diff")


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Parameters
    ----------
    line : int
        The line in the page on which the block begins.
    language, text : str
        What stands behind the three back quotes, and what the block holds.
    mark : str
        The comments above the block.
    start, end : int
        Where the block with its comments begins and ends in the page's text.
    """

    line: int
    language: str
    text: str
    mark: str
    start: int = 0
    end: int = 0

    @property
    def reason(self) -> str | None:
        """Why the block is not run in order with its page, in words; None if it is run."""
        if found := re.search(r"<!-- not run here: (.+) -->", self.mark):
            return found[1]
        if "<!-- door: " in self.mark:
            return "a part of a Flower app, which tests/flower/test_doors.py runs"
        if "<!-- test command -->" in self.mark:
            return "all tests, this one among them: .ci/run runs it"
        return None

    @property
    def runs(self) -> bool:
        """Whether the block is run in order with its page."""
        return self.language in RUN and self.reason is None

    @property
    def file(self) -> str | None:
        """The file that the block is written to, if its first line names one."""
        named = re.match(r"# ([\w/-]+\.py)\n", self.text)
        return named[1] if named else None


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the blocks of a page's text in order."""
    for found in BLOCK.finditer(text):
        line = text[: found.start(2)].count("\n") + 1
        yield Block(line, found[2], found[3], found[1], found.start(), found.end())


#: A port of this machine as commands of the pages write it, such as 127.0.0.1:8000.
PORT = re.compile(r"127\.0\.0\.1[:/]\d{4}")


@contextlib.contextmanager
def fixed_ports(text: str) -> Iterator[None]:
    """Run a page that names ports while no other page that names ports runs on this machine."""
    if PORT.search(text) is None:
        yield
        return
    import fcntl  # not on Windows, where no page runs

    lock = Path(tempfile.gettempdir()) / f"flwr-fbo-pages-with-ports-{os.getuid()}.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
