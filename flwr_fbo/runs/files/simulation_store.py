"""The journal of a simulation: the records of all agents that live in its process, in one file.

The file is a journal (:mod:`flwr_fbo.runs.files.journal`) with the same checksums, head and
promise. Each record names its agent first::

    {"kind":"journal","layout":5,"run":"...","agent":"all","check":"..."}
    {"agent":3,"kind":"evaluation","round":0,"score":0.5,...,"check":"..."}

The lock of the run keeps all other processes away. So the file is read and compared once, and
nobody needs a lock of its own. The records of evaluations, which the evaluators keep, are not kept
twice: of each line the store keeps the place in the file.

**Agents that answer together are recorded together.** Where evaluations cost next to nothing, two
records and three writes for each would take longer than the evaluations. So the agents of a group
are named in one line before the first of them evaluates, and their records are written at once when
the last of them has answered::

    {"kind":"group","round":4,"agents":[[0,255]],"check":"..."}
    {"agent":0,"kind":"evaluation",...}
    ...
    {"kind":"group-end","check":"..."}

Records are written earlier when their evaluations have taken .05 s
(:data:`~flwr_fbo.core.evaluation_groups.GROUP_SECONDS`), so the end of the process loses at most
that much work. If it were few evaluations that took so long, the group ends with them: from then
on, every evaluation has a record before it begins, as in any journal. No reply reaches the server
before its group is written. A group without its end is :attr:`SimulationStore.unfinished`: one of
its evaluations may have ended the process.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import os
from array import array
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr_fbo.core import evaluation_groups
from flwr_fbo.core.forks import ForkError, Process
from flwr_fbo.runs.files.checks import LAYOUT, length_of_line, text_of_line
from flwr_fbo.runs.files.journal import (
    ENCODER,
    RECOMPUTABLE,
    ROOM,
    WORTH_A_FLUSH,
    append_lines,
    open_to_append,
)
from flwr_fbo.runs.files.journal_check import (
    ADVICE,
    ALL_AGENTS,
    HEADER,
    Head,
    JournalError,
    JournalOwner,
    JournalReader,
    head_path,
    open_head,
)
from flwr_fbo.runs.locations import store_path

logger = logging.getLogger("flwr.fbo")

#: The kinds of the lines around the records of a group.
GROUP, GROUP_END = "group", "group-end"
#: More agents than the memory of a machine holds. A line that names a higher number is damaged.
MOST_AGENTS = 1 << 24
#: Bytes of the file that are read at a time.
BLOCK = 1 << 22
#: Fewer records than this that took GROUP_SECONDS end a group.
FEW = 8
_AGENT = b'{"agent":'


@dataclass(frozen=True)
class Group:
    """Agents that answer a request of one round together."""

    round: int
    agents: frozenset[int]

    def text(self) -> bytes:
        """Return the JSON object that names the group, with neighbours as one range."""
        ranges: list[list[int]] = []
        for agent in sorted(self.agents):
            if ranges and ranges[-1][1] == agent - 1:
                ranges[-1][1] = agent
            else:
                ranges.append([agent, agent])
        return ENCODER.encode({"kind": GROUP, "round": self.round, "agents": ranges}).encode()

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Group:
        """Return the group that a line names."""
        ranges = [(int(first), int(last)) for first, last in record["agents"]]
        ends = [0, *itertools.chain.from_iterable(ranges)]
        if ends != sorted(ends) or ends[-1] >= MOST_AGENTS:
            raise ValueError("the ranges of a group must be in order, and its agents few enough")
        return cls(
            int(record["round"]),
            frozenset(agent for first, last in ranges for agent in range(first, last + 1)),
        )


class StoreLines:
    """The lines of a simulation's journal, which are read on from where the last reading ended.

    Parameters
    ----------
    path
        The file.
    owner
        What the header must name; None accepts the journal of any run.
    """

    def __init__(self, path: Path, owner: JournalOwner | None) -> None:
        self.path, self.check = path, JournalReader(path, owner)
        #: Where in the file the next line begins.
        self.end = 0

    def read(self) -> Iterator[tuple[int, bytes]]:
        """Yield the place and the JSON text of each complete line that is new."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self.end)
            rest = b""
            while block := file.read(BLOCK):
                block = rest + block
                cut = block.rfind(b"\n") + 1
                complete, rest = block[:cut], block[cut:]
                place = self.end
                if not self.check.chain.lines:  # the header is no record
                    place += complete.find(b"\n") + 1
                texts = self.check.take(complete)
                self.end += cut
                for text in texts:
                    yield place, text
                    place += length_of_line(text)


def agent_of(text: bytes, path: Path) -> int | None:
    """Return the agent whose record a line holds; None for a line about a group."""
    if not text.startswith(_AGENT):
        return None
    try:
        agent = int(text[len(_AGENT) : text.index(b",")])
        if not 0 <= agent < MOST_AGENTS:
            raise ValueError("no agent has this number")
        return agent
    except ValueError:
        raise JournalError(f"{path}: a line is not a record. {ADVICE}") from None


def tagged(text: bytes, agent: int) -> bytes:
    """Return the JSON object of an agent's record as it is in the journal of all agents."""
    return b'{"agent":%d,%b' % (agent, text[1:])


def untagged(text: bytes) -> bytes:
    """Return the JSON object of a record as it is in the agent's own journal."""
    return b"{" + text[text.index(b",") + 1 :]


class SimulationStore:
    """The records of all agents of a simulation in one journal that only this process writes.

    Parameters
    ----------
    folder
        The folder of the agents' journals.
    run
        The identity of the run; None accepts the journal of any run.
    begun
        The kind of the records of evaluations that begin.
    reading
        Whether the journal is only read, and left as it is.
    """

    def __init__(
        self,
        folder: Path,
        run: str | None,
        begun: str = "begun",
        *,
        reading: bool = False,
    ) -> None:
        self.path = store_path(folder)
        self._owner = None if run is None else JournalOwner(run, ALL_AGENTS)
        self._begun, self._reading, self._process = begun, reading, Process()
        #: The last group, if its end is missing.
        self.unfinished: Group | None = None
        #: The seconds that all recorded evaluations of this process have taken.
        self.seconds = 0.0
        #: Agents of whom an evaluation has a record that it begins.
        self.with_begun: set[int] = set()
        self._places: dict[int, array[int]] = {}  # offset and length of each line, by agent
        self._read()
        self._next = self.chain.copy()  # with the lines that are not written yet
        self._lines = bytearray()  # the lines that are not written yet
        self._of: list[int] = []  # the agents of these lines
        self._work = 0.0  # seconds of the evaluations whose records are not written yet
        self._grouped = False  # whether a group is open
        self._failure: JournalError | None = None  # the last one to write, since a group began
        self._file: int | None = None
        self._head_file: int | None = None

    # -- reading -------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read which lines the file holds, and compare them with the head."""
        lines = StoreLines(self.path, self._owner)
        for place, text in lines.read():
            agent = agent_of(text, self.path)
            if agent is None:
                self._note_group(text)
                continue
            self._add_place(agent, place, length_of_line(text))
            if self._begins(text):
                self.with_begun.add(agent)
        lines.check.compare()
        #: How far the file has come, and how many of its bytes count.
        self.chain, self.size = lines.check.chain, lines.end
        #: How many lines are missing at the end that were never flushed, as after a power cut.
        self.lost, self._head = lines.check.lost, lines.check.head
        if not self._reading:
            self._mend()

    def _begins(self, text: bytes) -> bool:
        """Return whether a line is the record of an evaluation that begins."""
        return text.startswith(b'"kind":"%b"' % self._begun.encode(), text.index(b",") + 1)

    def _note_group(self, text: bytes) -> None:
        """Take in a line about a group."""
        try:
            record = json.loads(text)
            self.unfinished = Group.of(record) if record["kind"] == GROUP else None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise JournalError(f"{self.path}: a line is not a record. {ADVICE}") from None

    def _mend(self) -> None:
        """Cut a torn last line off, so that the next record begins on a line of its own."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and self.path.stat().st_size > self.size:
            os.truncate(self.path, self.size)
        if self.lost:
            logger.warning(
                "%s lost its last %s records, which were not flushed to the disk (a power cut, or "
                "damage); the agents go on without them", self.path, self.lost,
            )  # fmt: skip

    def _add_place(self, agent: int, place: int, length: int) -> None:
        """Note where a line of an agent is."""
        places = self._places.get(agent)
        if places is None:
            places = self._places[agent] = array("Q")
        places.append(place)
        places.append(length)

    @property
    def agents(self) -> list[int]:
        """Return the agents that have records."""
        return sorted(self._places)

    def texts(self, agent: int) -> list[bytes]:
        """Return the JSON texts of an agent's written records, oldest first."""
        places = self._places.get(agent, ())
        if not len(places):
            return []
        with self.path.open("rb") as file:
            lines = [
                os.pread(file.fileno(), length, place)
                for place, length in zip(places[::2], places[1::2], strict=True)
            ]
        return [text_of_line(line) for line in lines]

    def records(self, agent: int) -> AgentRecords:
        """Return an agent's records."""
        found: dict[str, list[dict[str, Any]]] = {}
        try:
            for text in self.texts(agent):
                record = json.loads(text)
                if record.pop("agent") != agent:
                    raise ValueError("a line of another agent")
                found.setdefault(record.pop("kind"), []).append(record)
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise JournalError(f"{self.path}: a line is not a record. {ADVICE}") from None
        return AgentRecords(self, agent, found)

    # -- writing -------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the files, which the next record opens again."""
        for descriptor in (self._file, self._head_file):
            if descriptor is not None:
                os.close(descriptor)
        self._file = self._head_file = None

    def end_unfinished(self) -> None:
        """Note that no agent of the unfinished group is under suspicion any more."""
        if self.unfinished is not None:
            self._grouped = True
            self._end_group(flush=False)

    def reserve(self) -> None:
        """Raise JournalError unless the disk has room for more records."""
        if not self._grouped:  # else there was room for the group
            check_room(self.path.parent)

    @contextlib.contextmanager
    def group(self, round: int, agents: Collection[int]) -> Iterator[None]:
        """Write the records of agents who answer together when the last one has answered.

        Raise JournalError where they cannot be written; then none of them counts that was not
        written before.
        """
        if len(agents) < 2:
            yield
            return
        self.reserve()
        self._add(Group(round, frozenset(agents)).text())
        self._write(flush=False)
        self._grouped, self._failure = True, None
        try:
            yield
        except BaseException:
            with contextlib.suppress(JournalError):  # the first error says more
                self._end_group(flush=False)
            raise
        self._end_group(flush=False)
        if self._failure is not None:  # in the middle: records of agents before are lost too
            raise self._failure

    def _end_group(self, flush: bool) -> None:
        """Write what the open group has recorded, and its end."""
        if not self._grouped:
            return
        self._grouped = False
        self._add(ENCODER.encode({"kind": GROUP_END}).encode())
        self._write(flush)
        self.unfinished = None

    def append(self, agent: int, kind: str, record: Mapping[str, Any]) -> bytes:
        """Store a record and return its text; one that cannot be stored leaves nothing.

        The text is empty where the line of a group stands for the record.
        """
        begins = kind == self._begun
        if begins and self._grouped:
            return b""  # the group's line says that its agents begin
        text = tagged(ENCODER.encode({"kind": kind, **record}).encode(), agent)
        seconds = record.get("seconds", math.inf)
        flush = kind not in RECOMPUTABLE and seconds > WORTH_A_FLUSH
        self._add(text, agent)
        if seconds < math.inf:
            self._work += seconds
            self.seconds += seconds
        if not self._grouped:
            self._write(flush, head=not begins)
        elif self._work <= evaluation_groups.GROUP_SECONDS:
            if flush:
                self._write(flush)
        elif len(self._of) < FEW:
            self._end_group(flush)
        else:
            self._write(flush)
        return text

    def _add(self, text: bytes, agent: int = -1) -> None:
        """Add a line to those that are written next."""
        if not self._next.lines:
            owner = vars(self._owner or JournalOwner(None, ALL_AGENTS))
            header = ENCODER.encode({"kind": HEADER, "layout": LAYOUT, **owner})
            self._lines += self._next.add(header.encode())
        line = self._next.add(text)
        if agent >= 0:
            self._add_place(agent, self.size + len(self._lines), len(line))
            self._of.append(agent)
        self._lines += line

    def _write(self, flush: bool, head: bool = True) -> None:
        """Write the lines that are not written yet; drop them after an error."""
        try:
            self._check_process()
            if self._file is None:
                self._file = open_to_append(self.path)
            append_lines(self._file, bytes(self._lines), flush)
        except OSError as error:
            self._drop()
            self._failure = JournalError(f"{self.path} cannot be written: {error.strerror}")
            raise self._failure from error
        except BaseException:
            self._drop()
            raise
        self._work = 0.0
        self.size += len(self._lines)
        self.chain = self._next.copy()
        self._lines.clear()
        self._of.clear()
        if head:
            self._write_head(flush)

    def _drop(self) -> None:
        """Forget the lines that could not be written."""
        for agent in self._of:
            del self._places[agent][-2:]
        self._of.clear()
        self._lines.clear()
        self._next, self._grouped = self.chain.copy(), False

    def _write_head(self, flushed: bool) -> None:
        """Name the last line in the head."""
        now, before = (self.chain.lines, self.chain.last), self._head
        self._head = Head(*now, *(now if flushed else (before.flushed_lines, before.flushed)))
        try:
            if self._head_file is None:
                self._head_file = open_head(self.path)
            os.pwrite(self._head_file, self._head.text(), 0)
        except OSError as error:
            # The records are stored. An older head names fewer lines, which is no fault.
            logger.warning("%s cannot be written: %s", head_path(self.path), error.strerror)

    def _check_process(self) -> None:
        """Raise JournalError in any process but the one that opened the journal to write it."""
        if self._reading:
            raise JournalError(f"{self.path} was opened for reading only")
        try:
            self._process.check(self.path)
        except ForkError as error:
            raise JournalError(str(error)) from None


class AgentRecords:
    """The :class:`~flwr_fbo.core.evaluation.Records` of one agent in the journal of a simulation.

    Parameters
    ----------
    store
        The journal.
    agent
        The number of the agent.
    records
        The records that the journal holds, by kind.
    """

    __slots__ = ("_agent", "_records", "_store", "_unkept")

    def __init__(
        self, store: SimulationStore, agent: int, records: dict[str, list[dict[str, Any]]]
    ) -> None:
        self._store, self._agent, self._records = store, agent, records
        self._unkept: Collection[str] = ()

    def forget(self, kinds: Collection[str]) -> None:
        """Drop the records of these kinds, which others keep, now and from now on."""
        self._unkept = kinds
        for kind in kinds:
            self._records.pop(kind, None)

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """Store a record."""
        text = self._store.append(self._agent, kind, record)
        if kind not in self._unkept and text:
            # Read back from its line, so that a later process reads the same values.
            stored = json.loads(text)
            del stored["agent"], stored["kind"]
            self._records.setdefault(kind, []).append(stored)

    def read(self, kind: str) -> list[dict[str, Any]]:
        """Return all records of a kind, oldest first."""
        return list(self._records.get(kind, []))


def check_room(folder: Path) -> None:
    """Raise JournalError unless the disk of a folder has room for records of an evaluation."""
    try:
        disk = os.statvfs(folder)
    except OSError as error:
        raise JournalError(f"{folder} cannot be used: {error.strerror}") from error
    if disk.f_bavail * disk.f_frsize < ROOM:
        raise JournalError(f"{folder} cannot be written: no space is left on the device")
