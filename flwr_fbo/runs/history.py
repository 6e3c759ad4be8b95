"""The history of a run: the evaluations of all agents, and their means by round.

A simulation owns the journals of its agents and may read them. In a deployment the journals stay
with their owners, so there is no history. Progress, stopping rules, trackers, report and result
read the same :class:`RunHistory`, so that each journal is parsed once.

A mean is over the agents that have a score by the end of the round. The best score begins with the
initial points (round 0). A round without a successful evaluation does not change an agent's best.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation, Evaluator, Records, evaluations_of, unfinished
from flwr_fbo.core.evaluation_groups import begun_together
from flwr_fbo.runs.files.checks import DIGITS, check_of_line
from flwr_fbo.runs.files.journal import Journal, exclusive, journal_path
from flwr_fbo.runs.files.journal_check import (
    ADVICE,
    ALL_AGENTS,
    JournalBusyError,
    JournalError,
    JournalOwner,
    JournalReader,
)
from flwr_fbo.runs.files.simulation_store import SimulationStore, StoreLines, agent_of
from flwr_fbo.runs.locations import (
    agent_of_file,
    agents_with_files,
    has_store,
    journals_in,
    store_path,
)


@dataclass(frozen=True)
class RoundHistory:
    """The means over the agents at the end of each of the rounds 0, 1, ...

    Parameters
    ----------
    evaluations
        The mean number of evaluations that an agent has made.
    best
        The mean of the agents' best scores; None before any agent has a score.
    regret
        The mean of the agents' lowest regrets; None where the optimum is not known.
    """

    evaluations: list[float]
    best: list[float | None]
    regret: list[float | None] | None = None

    @property
    def best_score(self) -> float | None:
        """Return the mean of the agents' best scores after the last round; None without scores."""
        return self.best[-1] if self.best else None


class RunHistory:
    """The evaluations of all agents of a simulated run.

    They are read from the journal of the simulation, or from one journal for each agent where
    agents lived in processes of their own.

    Parameters
    ----------
    folder
        The folder of the agents' journals.
    agents
        How many agents there are.
    run
        The identity of the run, which the journals must hold; None accepts any journals.
    """

    def __init__(self, folder: Path, agents: int, run: str | None = None) -> None:
        self.agents, self._folder, self._run = agents, folder, run
        self._forget()

    def _forget(self) -> None:
        """Begin without evaluations, before the files are read from the start."""
        self._store: _GrowingStore | None = None
        self._files: dict[int, _GrowingJournal] = {}
        # What is known of each agent: (N,).
        self._evaluations: list[list[Evaluation]] = [[] for _ in range(self.agents)]
        self._made, self._failed = np.zeros((2, self.agents), dtype=np.int64)
        self._best = np.full(self.agents, -math.inf)
        self._followed = np.zeros(self.agents, dtype=bool)  # whose list is the evaluator's own
        # How far the agents' own journals have come, where they have any.
        self._lines = np.zeros(self.agents, np.int64)
        self._checks = np.zeros(self.agents, np.uint64)

    def refresh(self) -> RunHistory:
        """Read what was appended to the journals since the last call, and return the history."""
        if has_store(self._folder) != (self._store is not None):
            self._forget()  # the records have moved from one layout to the other
            if has_store(self._folder):
                self._store = _GrowingStore(store_path(self._folder), self._run)
        if self._store is None:
            self._refresh_journals()
            return self
        for agent, evaluation in self._store.refresh(self._forget_evaluations):
            if agent >= self.agents:
                raise JournalError(
                    f"{self._store.path} must hold the records of {self.agents} agents, but holds "
                    f"one of agent {agent}. {ADVICE}"
                )
            self._add(agent, evaluation)
        return self

    def _refresh_journals(self) -> None:
        """Read what was appended to the agents' own journals."""
        for agent in sorted({*agents_with_files(self._folder), *self._files}):
            if agent >= self.agents:
                continue  # of another number of agents in the same folder
            if agent not in self._files:
                owner = None if self._run is None else JournalOwner(self._run, agent)
                self._files[agent] = _GrowingJournal(journal_path(self._folder, agent), owner)
            file = self._files[agent]
            for evaluation in file.refresh(partial(self._forget_evaluations, agent)):
                self._add(agent, evaluation)
            chain = file.reader.chain
            self._lines[agent], self._checks[agent] = chain.lines, int(chain.last or "0", 16)

    def _forget_evaluations(self, agent: int | None = None) -> None:
        """Drop the evaluations of an agent, or of all, before a file is read from the start."""
        for n in range(self.agents) if agent is None else (agent,):
            self._evaluations[n] = []
            self._made[n] = self._failed[n] = 0
            self._best[n], self._followed[n] = -math.inf, False

    def _add(self, agent: int, evaluation: Evaluation) -> None:
        """Add an evaluation that was read from a file."""
        if self._followed[agent]:
            self._evaluations[agent] = list(self._evaluations[agent])
            self._followed[agent] = False
        self._evaluations[agent].append(evaluation)
        self._note(agent, (evaluation,))

    def _note(self, agent: int, new: Iterable[Evaluation]) -> None:
        """Note the numbers of an agent's new evaluations."""
        for evaluation in new:
            self._made[agent] += 1
            if evaluation.score is None:
                self._failed[agent] += 1
            elif evaluation.finished and evaluation.score > self._best[agent]:
                self._best[agent] = evaluation.score

    def follow(self, store: SimulationStore, evaluations: Mapping[int, list[Evaluation]]) -> None:
        """Take in what this process itself has appended to the journal of its simulation.

        Parameters
        ----------
        store
            The journal, which is read on from its end.
        evaluations
            All evaluations of each agent that has new ones. The lists are used as they are: a
            copy for each of many agents would be as large as all that is known of them.
        """
        if self._store is None:
            self._store = _GrowingStore(store.path, self._run)
        for agent, made in evaluations.items():
            self._note(agent, made[int(self._made[agent]) :])
            self._evaluations[agent], self._followed[agent] = made, True
        self._store.follow(store)

    @property
    def evaluations(self) -> list[list[Evaluation]]:
        """Return each agent's evaluations, in the order in which they were made."""
        return self._evaluations

    @property
    def made(self) -> int:
        """Return the number of evaluations that all agents together have made."""
        return int(self._made.sum())

    @property
    def failed(self) -> int:
        """Return the number of evaluations that failed."""
        return int(self._failed.sum())

    @property
    def best_scores(self) -> list[float]:
        """Return the best score of each agent that has a score."""
        return [float(best) for best in self._best[self._best > -math.inf]]

    @property
    def best_score(self) -> float | None:
        """Return the mean of the agents' best scores; None without any score."""
        known = self._best[self._best > -math.inf]
        return float(np.mean(known)) if len(known) else None

    def by_round(self, rounds: int) -> RoundHistory:
        """Return the means over the agents at the end of each of the rounds 0 .. ``rounds``."""
        return by_round(self.evaluations, rounds)

    @property
    def state(self) -> dict[str, Any]:
        """Return how far the journals have come, for a checkpoint.

        That is how many evaluations each agent has made (N,), and the last line of the journal of
        the simulation, or of each agent's own journal: its number and its checksum (N,).
        """
        state = {"made": self._made.copy(), "moved": self._moved}
        if self._store is None:
            return {**state, "lines": self._lines.copy(), "checks": self._checks.copy()}
        chain = self._store.lines.check.chain
        return {**state, "line": chain.lines, "check": chain.last}

    @property
    def _moved(self) -> str:
        """Return the word of the last move from one arrangement to the other; empty before one."""
        if self._store is not None:
            return self._store.lines.check.moved
        return next((file.reader.moved for file in self._files.values() if file.reader.moved), "")

    def damages(self, state: Mapping[str, Any] | None) -> list[str]:
        """Return which journals lost lines at their ends, as their heads or a checkpoint say.

        Raise JournalError for a journal that is not the one that the checkpoint names.
        """
        named = self.state if state is None else state
        if ("line" in named) != (self._store is not None) or named["moved"] != self._moved:
            # The records have moved to other journals since the checkpoint was written.
            missing = int(np.maximum(named["made"] - self._made, 0).sum())
            files = store_path(self._folder).name if "line" in named else "agent-*.jsonl"
            said = f"{files} lost {missing} evaluations, which are not made again"
            return [said] if missing else []
        if self._store is not None:
            lost = self._store.lost_since(int(named["line"]), str(named["check"]))
            return [f"{self._store.path.name} lost {_LOST.format(lost)}"] if lost else []
        lines, checks = named["lines"], named["checks"]
        found = []
        for agent in sorted({*np.flatnonzero(lines).tolist(), *self._files}):
            file = self._files.get(agent)
            if file is None:
                file = _GrowingJournal(journal_path(self._folder, agent), None)
            lost = file.lost_since(int(lines[agent]), f"{int(checks[agent]):0{DIGITS}x}")
            if lost:
                found.append(f"{file.path.name} lost {_LOST.format(lost)}")
        return found


#: What a sentence about lost records says.
_LOST = "{} records at its end, which are not made again"


def lost_since(path: Path, check: JournalReader, lines: int, last: str) -> int:
    """Return how many lines a file lost at its end, of those that a checkpoint names.

    Raise JournalError for a file that is not the one that the checkpoint names.

    Parameters
    ----------
    path
        The file.
    check
        The check of the file, which has read all of it.
    lines, last
        The number and the checksum of the last line when the checkpoint was made.
    """
    chain = check.chain
    if lines > chain.lines:
        return max(lines - max(chain.lines, 1), check.lost)
    if lines and not _holds(path, lines, last):
        raise JournalError(
            f"{path} is not the journal that the checkpoint names: another file was put in its "
            "place. Restore the journal and its .head from a backup"
        )
    return check.lost


def _holds(path: Path, number: int, check: str) -> bool:
    """Return whether the line of this number has this checksum."""
    with path.open("rb") as file:
        line = next(itertools.islice(file, number - 1, None), b"")
    return check_of_line(line) == check


class _GrowingJournal:
    """The journal of one agent, to which other processes append.

    Reading continues where the last reading ended, and takes in complete lines only. A journal
    that became shorter is read from the start.
    """

    def __init__(self, path: Path, owner: JournalOwner | None) -> None:
        self.path, self._owner = path, owner
        self._begin()

    def _begin(self) -> None:
        """Begin to read the file from the start."""
        self._end, self._compared = 0, False
        self.reader = JournalReader(self.path, self._owner)

    def refresh(self, forget: Callable[[], None]) -> Iterator[Evaluation]:
        """Yield the evaluations that are new; raise JournalError for a line that is damaged.

        ``forget`` is called before the file is read from the start again.
        """
        complete = b""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self._end:
                    self._begin()
                    forget()
                file.seek(self._end)
                data = file.read()
            complete = data[: data.rfind(b"\n") + 1]
        except FileNotFoundError:
            if self._end:
                self._begin()
                forget()
        # Parsing is slow, so lines of other kinds are skipped as text.
        for text in self.reader.take(complete):
            if _MARKER in text:
                yield from evaluations_in(text, self.path)
        self._end += len(complete)
        if not self._compared:
            self.reader.compare()
            self._compared = True

    def lost_since(self, lines: int, check: str) -> int:
        """Return how many lines are missing at the end, of those that a checkpoint names."""
        return lost_since(self.path, self.reader, lines, check)


class _GrowingStore:
    """The journal of a simulation, which is read on from where the last reading ended."""

    def __init__(self, path: Path, run: str | None) -> None:
        self.path, self._owner = path, None if run is None else JournalOwner(run, ALL_AGENTS)
        self._begin()

    def _begin(self) -> None:
        """Begin to read the file from the start."""
        self.lines, self._compared = StoreLines(self.path, self._owner), False

    def refresh(self, forget: Callable[[], None]) -> Iterator[tuple[int, Evaluation]]:
        """Yield the evaluations that are new, with their agents.

        ``forget`` is called before the file is read from the start again.
        """
        if (self.path.stat().st_size if self.path.exists() else 0) < self.lines.end:
            self._begin()
            forget()
        for _, text in self.lines.read():
            agent = agent_of(text, self.path)
            if agent is not None and _MARKER in text:
                for evaluation in evaluations_in(text, self.path):
                    yield agent, evaluation
        if not self._compared:
            self.lines.check.compare()
            self._compared = True

    def follow(self, store: SimulationStore) -> None:
        """Continue to read after what this process has appended."""
        self.lines.check.chain, self.lines.end = store.chain.copy(), store.size
        self._compared = True

    def lost_since(self, lines: int, check: str) -> int:
        """Return how many lines are missing at the end, of those that a checkpoint names."""
        return lost_since(self.path, self.lines.check, lines, check)


#: The part of the text of a line that makes it a record of an evaluation.
_MARKER = b'"kind":"' + Evaluator.KIND.encode() + b'"'


#: What Python raises for a record of other content than expected.
_OF_CONTENT = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip


@contextlib.contextmanager
def _records_of(path: Path) -> Iterator[None]:
    """Raise JournalError where a record of a journal has other content than it must have."""
    try:
        yield
    except _OF_CONTENT as error:
        raise JournalError(f"{path} holds a line that is no record: {error!r}") from None


def evaluations_in(text: bytes, path: Path) -> list[Evaluation]:
    """Return the evaluations of a line; none for a record of another kind."""
    try:
        record = json.loads(text)
        if record.pop("kind") != Evaluator.KIND:
            return []
        record.pop("agent", None)  # in the journal of a simulation
        evaluations = evaluations_of([record])
        if not all(map(_is_whole, evaluations)):
            raise ValueError("a value is of a wrong type")
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise JournalError(f"{path} holds a line that is no evaluation: {error}") from None
    return evaluations


def _is_number(value: object) -> bool:
    """Return whether a value of JSON is a number that a float can hold."""
    return type(value) is float or (type(value) is int and abs(value) <= sys.float_info.max)


def _is_whole(e: Evaluation) -> bool:
    """Return whether the values of an evaluation have the types that readers rely on."""
    numbers = [x for x in (e.score, e.regret) if x is not None]
    return (
        type(e.round) is int
        and type(e.play) is int
        and e.round >= 0
        and isinstance(e.params, dict)
        and isinstance(e.unit, list)
        and isinstance(e.failure, str)
        and isinstance(e.source, str)
        and all(map(_is_number, [*numbers, *e.unit, e.seconds]))
    )


def read_evaluations(
    folder: Path,
    agents: int,
    run: str | None = None,
    least: Mapping[int, int] | None = None,
) -> list[list[Evaluation]]:
    """Return each agent's evaluations from its journal; raise JournalError for a damaged one.

    Parameters
    ----------
    folder
        The folder of the journals.
    agents
        How many agents there are.
    run
        The identity of the run, which the journals must hold; None accepts any journals.
    least
        How many evaluations a journal must hold at the least, by agent.
    """
    found = RunHistory(folder, agents, run).refresh().evaluations
    for agent, count in (least or {}).items():
        if len(found[agent]) < count:
            path, of = journal_path(folder, agent), ""
            if has_store(folder):
                path, of = store_path(folder), f" of agent {agent}"
            raise JournalError(
                f"{path} holds {len(found[agent])} evaluations{of}, but the result of the run says "
                f"that {count} were made. Restore the journal and its .head from a backup"
            )
    return found


def by_round(histories: Sequence[Sequence[Evaluation]], rounds: int) -> RoundHistory:
    """Return the means over the agents at the end of each of the rounds 0 .. ``rounds``."""
    # One row per agent and one column per round: first the evaluations made in the round, and
    # the best of the round, then sums and maxima along the rows.
    shape = (len(histories), rounds + 1)
    count, score, regret = np.zeros(shape), np.full(shape, -math.inf), np.full(shape, math.inf)
    rows = [
        (agent, e.round, e.score if e.finished else None, e.regret)
        for agent, history in enumerate(histories)
        for e in history
        if e.round <= rounds
    ]
    if rows:
        agent, place = (np.array(column) for column in list(zip(*rows, strict=True))[:2])
        scored = np.array([r[2] is not None for r in rows])
        scores = np.array([-math.inf if r[2] is None else r[2] for r in rows])
        known = np.array([math.inf if r[3] is None else r[3] for r in rows])
        np.add.at(count, (agent, place), 1.0)
        np.maximum.at(score, (agent, place), scores)
        np.minimum.at(regret, (agent, place), np.where(scored, known, math.inf))
    has_regret = bool(np.isfinite(regret).any())
    return RoundHistory(
        evaluations=[_plain(v) for v in count.cumsum(axis=1).mean(axis=0)] if len(count) else [],
        best=_means(np.maximum.accumulate(score, axis=1)),
        regret=_means(np.minimum.accumulate(regret, axis=1)) if has_regret else None,
    )


def histories_in(folder: Path) -> dict[str, list[Evaluation]]:
    """Return the evaluations of all agents that have a journal in a folder, by ``agent-0000``, ...

    A party has the journal of its own agent; a simulation has those of all.
    """
    if has_store(folder):
        store = SimulationStore(folder, None, reading=True)
        return {
            journal_path(folder, n).stem: _evaluations_of(store.records(n), store.path)
            for n in store.agents
        }
    return {
        path.stem: _evaluations_of(Journal(path, reading=True), path)
        for path in journals_in(folder)
    }


def _evaluations_of(records: Records, path: Path) -> list[Evaluation]:
    """Return the evaluations of an agent's records, which a file holds."""
    with _records_of(path):
        return evaluations_of(records.read(Evaluator.KIND))


def read_journal(path: Path) -> tuple[list[Evaluation], int]:
    """Return the evaluations of one agent's journal, and how many records its end has lost.

    The journal of an agent of a simulation, such as ``agents/agent-0003.jsonl``, may be a part of
    the journal of all agents in the same folder. Raise FileNotFoundError where it is neither.
    """
    agent = agent_of_file(path.name)
    if agent is not None and not path.exists() and has_store(path.parent):
        store = SimulationStore(path.parent, None, reading=True)
        return _evaluations_of(store.records(agent), store.path), store.lost
    if path == store_path(path.parent) and path.exists():
        raise JournalError(
            f"{path} holds the records of all agents of a simulation: name one of them, such as "
            f"{journal_path(path.parent, 0)}"
        )
    if not path.is_file():
        raise FileNotFoundError(path)
    journal = Journal(path, reading=True)
    return _evaluations_of(journal, path), journal.lost


def ended_a_run(folder: Path) -> str:
    """Return which evaluation was under way when the last process of a simulation ended.

    The text is empty if no evaluation was begun that has no score. Journals whose lock a process
    holds are left out: their evaluations still run.
    """
    if has_store(folder):
        return _ended_in(SimulationStore(folder, None, Evaluator.BEGUN, reading=True))
    for path in journals_in(folder):
        try:
            with exclusive(path):
                journal = Journal(path, reading=True)
        except JournalBusyError:
            continue
        if found := _under_way(journal, path):
            return f"agent {int(path.stem.removeprefix('agent-'))}, {found}"
    return ""


def _ended_in(store: SimulationStore) -> str:
    """Return which evaluation in the journal of a simulation was under way."""
    if found := begun_in(store):
        return found
    group = store.unfinished
    if group is None:
        return ""
    return (
        f"round {group.round}, one of the evaluations of {len(group.agents)} agents from "
        f"{min(group.agents)} on"
    )


def begun_in(store: SimulationStore) -> str:
    """Return which evaluation that was recorded before it began has no score."""
    for agent in sorted(store.with_begun):
        if found := _under_way(store.records(agent), store.path):
            return f"agent {agent}, {found}"
    return ""


def _under_way(records: Records, path: Path) -> str:
    """Return which evaluation of an agent was begun and has no score."""
    with _records_of(path):
        made = {(e.round, e.play) for e in evaluations_of(records.read(Evaluator.KIND))}
        for (round, _), begun in unfinished(records, made).items():
            return f"round {round}, {begun[0]['params']}"
        together = begun_together(records, Evaluator.BEGUN, Evaluator.INTERRUPTED) - made
        for round, play in sorted(together):
            return f"round {round}, one of the evaluations from {play} on"
    return ""


def cost_in_steps(histories: Sequence[Sequence[Evaluation]]) -> dict[str, float]:
    """Return the mean steps of an agent, and how many evaluations were pruned.

    Empty where no evaluation reported a step.
    """
    if not any(e.reports for history in histories for e in history):
        return {}
    steps = float(np.mean([sum(e.steps for e in history) for history in histories]))
    pruned = sum(e.pruned for history in histories for e in history)
    return {"steps": _plain(steps), "pruned": pruned}


def best_of_agent(agent: int, history: Sequence[Evaluation]) -> dict[str, Any]:
    """Return an agent's number, its number of evaluations, and its best score with parameters."""
    best = max(
        (e for e in history if e.finished),
        key=lambda e: -math.inf if e.score is None else e.score,
        default=None,
    )
    return {
        "agent": agent,
        "evaluations": len(history),
        "best": None if best is None else best.score,
        "params": None if best is None else best.params,
    }


def _means(values: Array) -> list[float | None]:
    """Return the mean of the finite values in each column; None where a column has none."""
    if not len(values):
        return []
    return [
        float(np.mean(column[np.isfinite(column)])) if np.isfinite(column).any() else None
        for column in values.T
    ]


def _plain(value: float) -> float:
    """Return a whole number as an int, so that files and summaries show ``5`` and not ``5.0``."""
    return int(value) if float(value).is_integer() else float(value)
