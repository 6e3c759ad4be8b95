"""The check of a journal: its header, the checksums of its lines, and the head beside it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from flwr_fbo.runs.files.checks import DIGITS, LAYOUT, Chain, ChecksumError, checksum

#: Kind of the first line of a journal.
HEADER = "journal"
#: The member of the header of a journal that was written anew from others
#: (:mod:`flwr_fbo.runs.files.arrangement`). Its random word is the same in all journals of a move.
MOVED = "moved"
#: What the header of the journal of a whole simulation names in place of an agent's number.
ALL_AGENTS = "all"
_WRITING = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)


class JournalError(RuntimeError):
    """An error for a journal that cannot be written, or that no crash can have damaged so."""


#: What to do about a damaged journal.
ADVICE = (
    "Restore the journal and its .head from one backup; or move both away, and the agents whose "
    "records it holds begin anew, without their evaluations"
)


class JournalBusyError(JournalError):
    """An error for a journal whose lock another process holds."""


@dataclass(frozen=True)
class JournalOwner:
    """The run and the agent whose records a journal holds.

    Parameters
    ----------
    run
        The identity of the run; None in a journal that belongs to no run.
    agent
        The number of the agent; a text for journals beside the agent's own, and
        :data:`ALL_AGENTS` for the journal of a whole simulation.
    """

    run: str | None
    agent: int | str | None

    def __str__(self) -> str:
        """Return whose records these are, for people."""
        whose = "all agents" if self.agent == ALL_AGENTS else f"agent {self.agent}"
        return f"{whose} in run {self.run or '(none)'}"


def head_path(journal: Path) -> Path:
    """Return the file that names the last line of a journal."""
    return journal.with_name(journal.name + ".head")


@dataclass(frozen=True)
class Head:
    """How far a journal had come: its last line, and the last line that is surely on the disk."""

    lines: int = 0
    last: str = ""
    flushed_lines: int = 0
    flushed: str = ""

    @classmethod
    def read(cls, journal: Path) -> Head:
        """Return the head of a journal; one that names no line where it is missing or damaged."""
        try:
            lines, last, flushed_lines, flushed, check = head_path(journal).read_text().split()
            parts = (lines, last, flushed_lines, flushed)
            if check != checksum(*parts):
                return cls()
            return cls(int(lines), last.strip("-"), int(flushed_lines), flushed.strip("-"))
        except (OSError, ValueError):
            return cls()

    def text(self) -> bytes:
        """Return the head as it is stored, always of the same length."""
        numbers = ((self.lines, self.last), (self.flushed_lines, self.flushed))
        parts = [text for n, check in numbers for text in (f"{n:012d}", check or "-" * DIGITS)]
        return (" ".join([*parts, checksum(*parts)]) + "\n").encode()

    def write(self, journal: Path) -> None:
        """Write the head in one piece."""
        descriptor = open_head(journal)
        try:
            os.write(descriptor, self.text())
        finally:
            os.close(descriptor)


def open_head(journal: Path) -> int:
    """Open the head of a journal, and return the descriptor."""
    return os.open(head_path(journal), _WRITING, 0o600)


class JournalReader:
    """The check of a journal's lines while they are read, from the first line on.

    Parameters
    ----------
    path
        The file.
    owner
        The run and the agent that the header must name; None accepts any journal.
    """

    def __init__(self, path: Path, owner: JournalOwner | None = None) -> None:
        self._path, self._owner = path, owner
        self.chain = Chain()
        # Read before the journal: a line that is appended meanwhile is not in this head yet.
        self.head = Head.read(path)
        self._marked = dict.fromkeys((self.head.lines, self.head.flushed_lines), "")
        #: How many lines are missing at the end that were never flushed, as after a power cut.
        self.lost = 0
        #: The word of the move that wrote the journal anew; empty where it was never moved.
        self.moved = ""

    def take(self, complete: bytes) -> list[bytes]:
        """Return the JSON texts of further complete lines, without the header."""
        if complete and not self.chain.lines:
            self._check_layout(complete[: complete.find(b"\n")])
        texts = []
        try:
            for text in self.chain.read(complete):
                if self.chain.lines == 1:
                    self._check_header(text)
                else:
                    texts.append(text)
                if self.chain.lines in self._marked:
                    self._marked[self.chain.lines] = self.chain.last
        except ChecksumError as error:
            raise JournalError(f"{self._path}: {error}. {ADVICE}") from None
        return texts

    def _check_layout(self, line: bytes) -> None:
        """Raise JournalError for the first line of a journal of another version."""
        try:
            first = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(first, dict):
            return
        old, layout = "kind" in first and "check" not in first, first.get("layout", LAYOUT)
        if old or (type(layout) is int and layout != LAYOUT):
            raise JournalError(
                f"{self._path} is of another version of flwr-fbo: a journal must have layout "
                f"{LAYOUT}, but has {'lines without checksums' if old else f'layout {layout}'}; "
                "finish the run with the version that began it, or start a new run"
            )

    def _check_header(self, text: bytes) -> None:
        """Raise JournalError unless the header is that of a journal of this run and agent."""
        try:
            header = json.loads(text)
            kind, layout = header.get("kind"), header.get("layout")
        except (ValueError, AttributeError, RecursionError):
            kind = layout = None
        if kind != HEADER or layout != LAYOUT:
            raise JournalError(f"{self._path}: line 1 must be a journal's header. {ADVICE}")
        self.moved = str(header.get(MOVED, ""))
        found, wanted = JournalOwner(header.get("run"), header.get("agent")), self._owner
        if wanted is not None and found != wanted:
            raise JournalError(
                f"{self._path} must hold the records of {wanted}, which its setup or config.json "
                f"names, but holds those of {found}. Put the right file back; "
                "if a new run has the name of "
                "an old one, give the new run another `run-name`, or move the old files away"
            )

    def compare(self) -> None:
        """Compare the lines with the head; raise JournalError where flushed lines are missing."""
        head, lines = self.head, self.chain.lines
        flushed = self._marked.get(head.flushed_lines, "")
        if head.flushed_lines and flushed != head.flushed:
            raise JournalError(
                f"{self._path} holds {max(lines - 1, 0)} records, but the "
                f"{head.flushed_lines - 1} that {head_path(self._path).name} names are not all "
                f"among them: records are missing or replaced. {ADVICE}"
            )
        if head.lines > lines:
            self.lost = head.lines - max(lines, 1)
        elif head.lines and self._marked[head.lines] != head.last:
            raise JournalError(
                f"{self._path} holds other records than {head_path(self._path).name} names. "
                f"{ADVICE}"
            )
