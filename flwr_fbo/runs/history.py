"""The history of a run: the evaluations of all agents, and their means by round.

A simulation owns the journals of its agents and may read them. In a deployment the journals stay
with their owners, so there is no history. Progress, stopping rules, trackers, report and result
read the same :class:`RunHistory`, so that each journal is parsed once.

A mean is over the agents that have a score by the end of the round. The best score begins with the
initial points (round 0). A round without a successful evaluation does not change an agent's best.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluation, Evaluator, evaluations_of, unfinished
from flwr_fbo.core.evaluation_groups import begun_together
from flwr_fbo.runs.files.checks import Chain
from flwr_fbo.runs.files.journal import Journal, exclusive, journal_path
from flwr_fbo.runs.files.journal_check import (
    JournalBusyError,
    JournalError,
    JournalOwner,
    JournalReader,
)
from flwr_fbo.runs.files.sole_journal import SoleJournal


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
        self.agents = agents
        owners = (None if run is None else JournalOwner(run, agent) for agent in range(agents))
        self._files = [
            _GrowingJournal(journal_path(folder, agent), owner)
            for agent, owner in enumerate(owners)
        ]
        # What is known of each journal, by agent: (N,).
        self._made, self._failed = np.zeros((2, agents), dtype=np.int64)
        self._best = np.full(agents, -math.inf)
        self._lines, self._checks = np.zeros(agents, np.int64), np.zeros(agents, np.uint64)

    def refresh(self, agents: Iterable[int] | None = None) -> RunHistory:
        """Read what was appended to the journals since the last call, and return the history.

        ``agents`` are those whose journals may have grown; None stands for all.
        """
        for agent in range(self.agents) if agents is None else agents:
            self._files[agent].refresh()
            self._note(agent)
        return self

    def follow(self, agent: int, journal: SoleJournal, evaluations: Sequence[Evaluation]) -> None:
        """Take in what this process itself has appended to a journal, without reading the file."""
        self._files[agent].follow(journal, evaluations)
        self._note(agent)

    def _note(self, agent: int) -> None:
        """Note the numbers of one journal in the columns of all."""
        file, chain = self._files[agent], self._files[agent].reader.chain
        self._made[agent], self._failed[agent] = len(file.evaluations), file.failed
        self._best[agent] = file.best
        self._lines[agent], self._checks[agent] = chain.lines, int(chain.last or "0", 16)

    @property
    def evaluations(self) -> list[list[Evaluation]]:
        """Return each agent's evaluations, in the order in which they were made."""
        return [file.evaluations for file in self._files]

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
        """Return how far the journals have come, for a checkpoint: lines and checksums, (N,)."""
        return {"lines": self._lines.copy(), "checks": self._checks.copy()}

    def damages(self, state: Mapping[str, Any] | None) -> list[str]:
        """Return which journals lost lines at their ends, as their heads or a checkpoint say.

        Raise JournalError for a journal that is not the one that the checkpoint names.
        """
        named = self.state if state is None else state
        lines, checks = named["lines"], named["checks"]
        found = []
        for agent, file in enumerate(self._files):
            lost = file.lost_since(int(lines[agent]), int(checks[agent]))
            if lost:
                found.append(
                    f"{file.path.name} lost {lost} records at its end, which are not made again"
                )
        return found


class _GrowingJournal:
    """The evaluations in one journal, to which other processes append.

    Reading continues where the last reading ended, and takes in complete lines only. A journal
    that became shorter is read from the start.
    """

    def __init__(self, path: Path, owner: JournalOwner | None) -> None:
        self.path, self._owner = path, owner
        self._forget()

    def _forget(self) -> None:
        """Drop all evaluations, before the file is read from the start."""
        self._end = 0
        self.reader = JournalReader(self.path, self._owner)
        self._compared = False
        self.evaluations: list[Evaluation] = []
        self.best, self.failed = -math.inf, 0

    def refresh(self) -> None:
        """Read the lines that are new; raise JournalError for a line that is damaged."""
        complete = b""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self._end:
                    self._forget()
                file.seek(self._end)
                data = file.read()
            complete = data[: data.rfind(b"\n") + 1]
        except FileNotFoundError:
            if self._end:
                self._forget()
        # Parsing is slow, so lines of other kinds are skipped as text.
        marker = b'"kind":"' + Evaluator.KIND.encode() + b'"'
        for text in self.reader.take(complete):
            if marker in text:
                for evaluation in evaluations_in(text, self.path):
                    self._add(evaluation)
        self._end += len(complete)
        if not self._compared:
            self.reader.compare()
            self._compared = True

    def follow(self, journal: SoleJournal, evaluations: Sequence[Evaluation]) -> None:
        """Take in what this process has appended, and go on reading after it."""
        for evaluation in evaluations[len(self.evaluations) :]:
            self._add(evaluation)
        self.reader.chain, self._end = journal.chain, journal.size

    def lost_since(self, lines: int, check: int) -> int:
        """Return how many lines are missing at the end, of those that a checkpoint names."""
        chain = self.reader.chain
        if lines > chain.lines:
            return max(lines - max(chain.lines, 1), self.reader.lost)
        if lines and not self._holds(lines, check):
            raise JournalError(
                f"{self.path} is not the journal that the checkpoint names: another file was put "
                "in its place. Restore the journal and its .head from a backup"
            )
        return self.reader.lost

    def _holds(self, lines: int, check: int) -> bool:
        """Return whether the line of this number has this checksum."""
        chain = Chain()
        for _ in chain.read(self.path.read_bytes()):
            if chain.lines == lines:
                return int(chain.last, 16) == check
        return False

    def _add(self, evaluation: Evaluation) -> None:
        """Add an evaluation."""
        self.evaluations.append(evaluation)
        if evaluation.score is None:
            self.failed += 1
        elif evaluation.finished:
            self.best = max(self.best, evaluation.score)


def evaluations_in(text: bytes, path: Path) -> list[Evaluation]:
    """Return the evaluations of a line; none for a record of another kind."""
    try:
        record = json.loads(text)
        if record.pop("kind") != Evaluator.KIND:
            return []
        evaluations = evaluations_of([record])
        if not all(map(_is_whole, evaluations)):
            raise ValueError("a value is of a wrong type")
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise JournalError(f"{path} holds a line that is no evaluation: {error}") from None
    return evaluations


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
        and all(type(x) in (int, float) for x in [*numbers, *e.unit, e.seconds])
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
            raise JournalError(
                f"{journal_path(folder, agent)} holds {len(found[agent])} evaluations, but the "
                f"result of the run says that {count} were made. Restore the journal and its "
                ".head from a backup"
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


def ended_a_run(folder: Path) -> str:
    """Return which evaluation was under way when the last process of a simulation ended.

    The text is empty if no evaluation was begun that has no score. Journals whose lock a process
    holds are left out: their evaluations still run.
    """
    for path in sorted(folder.glob("agent-*[0-9].jsonl")):
        try:
            with exclusive(path):
                journal = Journal(path, reading=True)
        except JournalBusyError:
            continue
        made = {(e.round, e.play) for e in evaluations_of(journal.read(Evaluator.KIND))}
        agent = int(path.stem.removeprefix("agent-"))
        for (round, _), begun in unfinished(journal, made).items():
            return f"agent {agent}, round {round}, {begun[0]['params']}"
        together = begun_together(journal, Evaluator.BEGUN, Evaluator.INTERRUPTED) - made
        for round, play in sorted(together):
            return f"agent {agent}, round {round}, one of the evaluations from {play} on"
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
