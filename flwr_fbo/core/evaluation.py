"""Evaluations: each is made once, and recorded before anything else happens.

An agent's records are an append-only list, and they are the agent's whole state: what the agent
does next is a function of its setup, its seed and its records. Storing the records therefore
stores the agent, and no evaluation is ever paid for twice.

**An evaluation that ends its process is a failed evaluation.** ``sys.exit`` in an objective is
caught as an exception is. ``os._exit``, a crash in C code or a kill for lack of memory cannot be
caught. So an evaluation is recorded as *begun*, with its parameters, before it starts. Whoever
opens the records next finds an evaluation that was begun and has no score. That evaluation is
closed as failed, in one of these cases:

- Something that started its process still runs (the same *session*): then only the process of the
  evaluation ended, and the evaluation is to blame.
- It was begun :data:`ATTEMPTS` times.
- The agent is asked for another round.

Otherwise, as after a power cut, the same parameters are evaluated again. An evaluation that Ctrl-C
interrupts says so in the records, and is as if it had never begun.

**Evaluations at once** (:meth:`Evaluator.at_once`) have a child process each. All of them are
recorded as begun before the first one starts, and as evaluations in the order of their numbers,
whichever ends first. One that ends before its turn is recorded as *ended* at once, so that it is
not paid for again either. The end of a child's process is seen by its parent, so an evaluation is
not to blame if the parent itself ends.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import Any, Protocol

import numpy as np

from flwr_fbo.core.arrays import Array, Indices
from flwr_fbo.core.children import can_fork, run_in_children, seed_libraries
from flwr_fbo.core.evaluation_groups import (
    GROUP_SECONDS,
    MOST_TOGETHER,
    GroupSize,
    begun_together,
    group_record,
    is_group,
    members,
)
from flwr_fbo.core.forks import ending_forked_processes
from flwr_fbo.core.reports import LARGEST_SCORE, Progress, checked_score, reporting_to
from flwr_fbo.core.settings import SettingsError
from flwr_fbo.core.space import Space, Value
from flwr_fbo.core.streams import generators
from flwr_fbo.core.text import error_text
from flwr_fbo.core.time_limit import OutOfTimeError, time_limit

#: How often an evaluation is begun before it is recorded as failed.
ATTEMPTS = 2
#: Seconds beyond its limit after which an evaluation in a child process is killed.
KILL_AFTER = 5.0
#: How the failure of an evaluation begins that ended the child process in which it was made.
ENDED_ITS_PROCESS = "the evaluation ended its process"
#: Packages that raise SystemExit in the handler of a signal that ends their process.
_SIGNAL_HANDLERS = ("flwr", "ray")

ScoreFunction = Callable[[Mapping[str, Value], np.random.Generator], float]


class Records(Protocol):
    """An append-only list of JSON-ready records, each of a named kind."""

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """Store one record durably: the record survives a crash after this call returns."""

    def read(self, kind: str) -> list[dict[str, Any]]:
        """Return all records of a kind, oldest first."""


class MemoryRecords:
    """Records in memory, which last as long as this object."""

    def __init__(self) -> None:
        self._records: dict[str, list[dict[str, Any]]] = {}

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """Store a copy of one record."""
        self._records.setdefault(kind, []).append(dict(record))

    def read(self, kind: str) -> list[dict[str, Any]]:
        """Return all records of a kind, oldest first."""
        return list(self._records.get(kind, []))


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of an agent's own objective, which never leaves the agent.

    ``unit`` is the point of the unit cube, ``failure`` the reason where there is no score, and
    ``source`` what proposed the point. ``regret`` is known only where the optimum is known.
    """

    round: int
    play: int
    params: dict[str, Value]
    unit: list[float]
    score: float | None
    failure: str = ""
    source: str = ""
    seconds: float = 0.0
    regret: float | None = None
    #: What was reported on the way: pairs of a step and a score.
    reports: list[list[float]] = field(default_factory=list)
    #: Whether the evaluation was stopped before its end. Its score is the last that it reported.
    pruned: bool = False

    @property
    def finished(self) -> bool:
        """Return whether the evaluation went to its end and has a score."""
        return self.score is not None and not self.pruned

    @property
    def steps(self) -> int:
        """Return the cost in steps: the last step that was reported; 0 without reports."""
        return int(self.reports[-1][0]) if self.reports else 0

    @property
    def failed(self) -> bool:
        """Return whether the evaluation has no score."""
        return self.score is None


#: What an evaluation shows, and what it has before that.
_OUTCOME: dict[str, Any] = {
    "score": None, "failure": "", "seconds": 0.0, "reports": [], "pruned": False,
}  # fmt: skip


class Evaluator:
    """The evaluations of one agent: points are evaluated once, and looked up from then on.

    An evaluation is identified by its round and by its number within the round (``play``). The
    objective's random numbers come from a generator that depends on the seed and on this
    identity alone.

    Parameters
    ----------
    space
        The search space.
    function
        Returns the score of parameter values, given a random generator.
    records
        Where evaluations are recorded.
    seed
        The numbers that begin the seed of the objective's generators.
    regret
        Maps parameter values to the noise-free distance from the optimum, where that is known.
    session
        A name of what started this process and starts another one if this process ends. Empty
        where nothing does, or where it is not known.
    limit
        Seconds after which an evaluation is ended and counts as failed, as far as
        :func:`~flwr_fbo.core.time_limit.time_limit` can.
    in_children
        Whether every evaluation is made in a child process.
    most_at_once
        The most child processes at the same time, of any number of evaluations at once.
    """

    KIND = "evaluation"
    #: The kinds of the records of evaluations that begin, that a person interrupts, and that ended
    #: before it was their turn to be recorded.
    BEGUN, INTERRUPTED, ENDED = "begun", "interrupted", "ended"
    #: Who set the limit, for the failure of an evaluation that is ended.
    limit_is = "the `timeout` of a round"
    #: Returns whether an evaluation with these reports should stop; by default, none does.
    is_hopeless: Callable[[list[list[float]]], bool] = staticmethod(lambda reports: False)
    #: Returns what the party knows already: points (D,) of the unit cube, each with its score, or
    #: with None where it is to be evaluated first.
    warm_start: Callable[[], Sequence[tuple[list[float], float | None]]] = staticmethod(tuple)
    #: Part of the generators' keys. The number is far from those of an agent's own generators, so
    #: that an agent with the same seed draws other random numbers.
    STREAM = 2**31

    def __init__(
        self,
        space: Space,
        function: ScoreFunction,
        records: Records,
        seed: tuple[int, ...] = (0,),
        regret: Callable[[Mapping[str, Value]], float | None] | None = None,
        *,
        session: str = "",
        limit: float | None = None,
        in_children: bool = False,
        most_at_once: int | None = None,
    ) -> None:
        self.space = space
        self._function, self._records, self._seed = function, records, seed
        self._regret, self._session, self._limit = regret, session, limit
        self._in_children, self._most_at_once = in_children, most_at_once
        self.history = evaluations_of(records.read(self.KIND))
        self._known = {(e.round, e.play): e for e in self.history}
        self._unfinished = unfinished(records, set(self._known))
        # Of groups whose process ended, so that it shows which of them ended it.
        self._alone = begun_together(records, self.BEGUN, self.INTERRUPTED) - set(self._known)
        #: How many evaluations are made together next, where a request asks for many.
        self.group_size = GroupSize(1 if in_children else MOST_TOGETHER)
        self._begun = {
            (int(r["round"]), int(r["play"])): (np.array(r["unit"], np.float64), str(r["source"]))
            for r in reversed(records.read(self.BEGUN))
            if "unit" in r and (r["round"], r["play"]) not in self._known
        }
        #: What evaluations in child processes showed that wait for their turn.
        self._ended = {
            (int(r["round"]), int(r["play"])): {k: r[k] for k in _OUTCOME}
            for r in records.read(self.ENDED)
        }

    def recorded(self, round: int, play: int = 0) -> Evaluation | None:
        """Return the recorded evaluation of a round and play, or None."""
        return self._known.get((round, play))

    def begun(self, round: int, play: int = 0) -> tuple[Array, str] | None:
        """Return the point (D,) and the source of an evaluation that was begun and has no score.

        An evaluation that Ctrl-C interrupted is among them: it was to be made at this point.
        """
        return self._begun.get((round, play))

    def count_recorded(self, round: int, plays: int) -> int:
        """Return how many of the first plays of a round are recorded."""
        return sum(map(self._known.__contains__, zip(repeat(round), range(plays))))

    def first_known(self, round: int, plays: range) -> int:
        """Return the first of these plays that is recorded or must be alone; else their end."""
        known, rest = self._known, (self._unfinished, self._alone, self._ended)
        if any(rest):
            return next((p for p in plays if self.must_be_alone(round, p) or (round, p) in known),
                        plays.stop)  # fmt: skip
        return next((p for p in plays if (round, p) in known), plays.stop)

    def must_be_alone(self, round: int, play: int) -> bool:
        """Return whether an evaluation was begun before, alone or with others."""
        key = round, play
        return key in self._unfinished or key in self._alone or key in self._ended

    def together(
        self, units: Array, points: Indices, *, round: int, first: int, source: str
    ) -> list[Evaluation]:
        """Evaluate points as consecutive plays, one after another, and record them as one.

        Returns fewer evaluations than points if one of them reports on its way or runs out of time,
        or as soon as they have taken :data:`~flwr_fbo.core.evaluation_groups.GROUP_SECONDS`: what
        is recorded together is lost together if the process ends.
        """
        numbers = points.tolist()
        places = {n: self._evaluation(units[n], round, first, source) for n in set(numbers)}
        group = {"round": round, "play": first, "plays": len(numbers), "seconds": 0.0}
        self._records.append(self.BEGUN, {**group, "source": source, "session": self._session})
        made: list[Evaluation] = []
        start = time.perf_counter()
        try:
            self._make_together([places[n] for n in numbers], first, made)
        except BaseException:  # Ctrl-C, or a signal that ends this process
            self._record_group(made, numbers, time.perf_counter() - start)
            self._records.append(self.INTERRUPTED, group)
            raise
        self._record_group(made, numbers, time.perf_counter() - start)
        if len(made) < len(numbers):  # the rest never began
            self._records.append(self.INTERRUPTED, group)
        return made

    def _make_together(
        self, templates: Sequence[Evaluation], first: int, made: list[Evaluation]
    ) -> None:
        """Make evaluations one after another, and add each to ``made``."""
        limit = time_limit(self._limit, may_end_process=bool(self._session))
        late = self._out_of_time()["failure"] if self._limit is not None else None
        streams = generators([*self._seed, self.STREAM, templates[0].round], first, len(templates))
        progress = Progress(self.is_hopeless)  # of the first evaluation that reports: it ends this
        deadline = time.perf_counter() + GROUP_SECONDS
        with contextlib.suppress(OutOfTimeError), limit, reporting_to(progress):
            for play, (template, rng) in enumerate(zip(templates, streams, strict=True), first):
                score, failure = self._guarded(template.params.copy(), rng)
                evaluation = _filled(template, play, score, failure)
                if progress.reports or (failure and failure == late):
                    made.append(_with_reports(evaluation, progress))
                    return
                made.append(evaluation)
                if time.perf_counter() > deadline:  # they are slower than those before them
                    return

    def _record_group(self, made: list[Evaluation], points: list[int], seconds: float) -> None:
        """Record evaluations that were made together; one with reports has its own record."""
        if not made:
            return
        each = seconds / len(made)
        for e in made:  # nobody else has seen them yet
            e.__dict__["seconds"] = each
        plain = [e for e in made if not e.reports]
        if plain:
            self._records.append(self.KIND, group_record(plain, points[: len(plain)], seconds))
        self._keep_all(plain)
        for evaluation in made[len(plain) :]:
            self._record(evaluation)
        self.group_size.note(len(made), seconds)

    def close_unfinished(self, round: int) -> None:
        """Record evaluations as failed that ended their process, or whose round is over.

        Only a process that holds the lock of the records may call this method: an evaluation that
        is begun and has no score may otherwise still run.
        """
        self._alone = {key for key in self._alone if key[0] == round}
        for key, begun in sorted(self._unfinished.items()):
            if key[0] != round or (key not in self._ended and self._is_to_blame(begun)):
                unit = np.array(begun[0]["unit"], dtype=np.float64)
                evaluation = self._evaluation(unit, *key, str(begun[0]["source"]))
                self._record(self._lost(evaluation, len(begun)))

    def _lost(self, evaluation: Evaluation, attempts: int) -> Evaluation:
        """Return an evaluation as it ended before its turn, or as one that ended its process."""
        failure: dict[str, Any] = {"failure": _ended_its_process(attempts)}
        return replace(evaluation, **self._ended.get((evaluation.round, evaluation.play), failure))

    def _is_to_blame(self, begun: list[dict[str, Any]]) -> bool:
        """Return whether an unfinished evaluation has ended its process."""
        same = self._session and any(b["session"] == self._session for b in begun)
        return bool(same) or len(begun) >= ATTEMPTS

    def __call__(self, unit: Array, *, round: int, play: int = 0, source: str = "") -> Evaluation:
        """Evaluate a point of the unit cube, or return the recorded evaluation of this play."""
        if self._in_children:
            return self.at_once([(play, unit, source)], round=round)[0]
        known = self.recorded(round, play)
        if known is not None:
            return known
        evaluation = self._next(unit, round, play, source)
        if evaluation.score is not None or evaluation.failure:
            return self._record(evaluation)
        self._begin(evaluation)
        try:
            outcome = self._measure(evaluation)
        except BaseException:  # Ctrl-C, or a signal that ends this process
            self._interrupt(evaluation)
            raise
        # Failures are recorded as well, so that a failing point is not paid for twice either.
        evaluation.__dict__.update(outcome)  # nobody else has seen it; `replace` takes much longer
        return self._record(evaluation)

    def at_once(self, points: Sequence[tuple[int, Array, str]], *, round: int) -> list[Evaluation]:
        """Evaluate points of one round at the same time, each in a child process.

        Parameters
        ----------
        points
            The play of each evaluation, its point (D,) of the unit cube, and its source.
        round
            The round.

        Returns
        -------
        list of Evaluation
            The evaluations in the order of the points, the recorded ones among them.
        """
        if not can_fork():
            raise SettingsError(
                "`parallel` must be 1 where processes cannot fork, as on Windows: each evaluation "
                "at once is a process of its own"
            )
        new = [p for p in points if self.recorded(round, p[0]) is None]
        evaluations = [self._next(unit, round, play, source) for play, unit, source in new]
        queue = _Queue(evaluations, self._record)
        for place, e in enumerate(evaluations):
            if e.score is not None or e.failure:
                queue.end(place, {name: getattr(e, name) for name in _OUTCOME})
        self._make(queue)
        return [self._known[round, play] for play, _, _ in points]

    def _make(self, queue: _Queue) -> None:
        """Make the evaluations of a queue that have not ended, each in a child process."""
        places = queue.open()

        def end(number: int, outcome: Any, how: str) -> None:
            place = places[number]
            if outcome is None:
                outcome = self._out_of_time() if not how else _ended_in_child(how)
            e = queue.evaluations[place]
            if not queue.is_next(place):
                self._records.append(self.ENDED, {"round": e.round, "play": e.play, **outcome})
            queue.end(place, outcome)

        limit = None if self._limit is None else self._limit + KILL_AFTER
        try:
            for place in places:
                # No session: a parent that ends is not ended by its children.
                self._begin(queue.evaluations[place], "")
            calls = [partial(self._in_child, queue.evaluations[place]) for place in places]
            run_in_children(calls, end, limit, self._most_at_once)
        except BaseException:
            for place in queue.open():
                self._interrupt(queue.evaluations[place])
            raise

    def _in_child(self, evaluation: Evaluation) -> dict[str, Any]:
        """Return what an evaluation shows, within its child process."""
        self._session = ""  # the parent ends this process if its time limit does not
        key = [*self._seed, self.STREAM, evaluation.round, evaluation.play]
        seed_libraries(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1))
        return self._measure(evaluation)

    def _out_of_time(self) -> dict[str, Any]:
        """Return what an evaluation shows that was ended at its limit."""
        failure = f"ended after {self._limit:g} s, {self.limit_is}"
        return {**_OUTCOME, "failure": failure, "seconds": self._limit}

    def _next(self, unit: Array, round: int, play: int, source: str) -> Evaluation:
        """Return an evaluation before it is made, or as it ended before: then it has an outcome."""
        begun = self._unfinished.get((round, play), [])
        if begun:  # what was begun is evaluated again, whatever is proposed by now
            unit, source = np.array(begun[0]["unit"], dtype=np.float64), str(begun[0]["source"])
        evaluation = self._evaluation(unit, round, play, source)
        ended = (round, play) in self._ended or self._is_to_blame(begun)
        return self._lost(evaluation, len(begun)) if ended else evaluation

    def _measure(self, evaluation: Evaluation) -> dict[str, Any]:
        """Make an evaluation in this process, and return what it shows."""
        rng = np.random.default_rng([*self._seed, self.STREAM, evaluation.round, evaluation.play])
        progress, start = Progress(self.is_hopeless), time.perf_counter()
        with reporting_to(progress):
            score, failure = self._score(evaluation.params, rng)
        seconds, pruned = time.perf_counter() - start, progress.stopped and score is None
        if pruned:
            score, failure = progress.reports[-1][1], ""
        values = (score, failure, seconds, progress.reports, pruned)
        return dict(zip(_OUTCOME, values, strict=True))

    def _interrupt(self, evaluation: Evaluation) -> None:
        """Record that an evaluation is as if it had never begun."""
        e = evaluation
        self._records.append(self.INTERRUPTED, {"round": e.round, "play": e.play, "seconds": 0.0})

    def _evaluation(self, unit: Array, round: int, play: int, source: str) -> Evaluation:
        """Return the evaluation of a point before it has a score."""
        params = self.space.from_unit(unit)
        # The regret may raise an error, so it is computed before the evaluation is paid for.
        regret = None if self._regret is None else self._regret(params)
        if regret is not None and not abs(regret) <= LARGEST_SCORE:
            regret = None
        point = [float(u) for u in unit]
        return Evaluation(round, play, params, point, None, source=source, regret=regret)

    def _begin(self, evaluation: Evaluation, session: str | None = None) -> None:
        """Record that an evaluation begins."""
        e, session = evaluation, self._session if session is None else session
        begun = {"round": e.round, "play": e.play, "params": e.params, "unit": e.unit}
        # Not flushed to the disk (no time was spent yet): the record must outlive the process,
        # and after a power cut the evaluation is made again all the same.
        begun |= {"source": e.source, "session": session, "seconds": 0.0}
        self._records.append(self.BEGUN, begun)

    def _record(self, evaluation: Evaluation) -> Evaluation:
        """Record an evaluation that has ended, and return it."""
        self._records.append(self.KIND, vars(evaluation))
        return self._keep(evaluation)

    def _keep(self, evaluation: Evaluation) -> Evaluation:
        """Take in an evaluation that is recorded, and return it."""
        key = evaluation.round, evaluation.play
        self.history.append(evaluation)
        self._known[key] = evaluation
        self._unfinished.pop(key, None)
        self._alone.discard(key)
        return evaluation

    def _keep_all(self, evaluations: Sequence[Evaluation]) -> None:
        """Take in evaluations of one round that are recorded."""
        new = {(e.round, e.play): e for e in evaluations}
        self.history += evaluations
        self._known |= new
        self._alone -= new.keys()
        for key in self._unfinished.keys() & new.keys():
            del self._unfinished[key]

    def _score(
        self, params: Mapping[str, Value], rng: np.random.Generator
    ) -> tuple[float | None, str]:
        """Return the score and no failure, or no score and the reason."""
        try:
            with time_limit(self._limit, may_end_process=bool(self._session)):
                return self._guarded(params, rng)
        except OutOfTimeError:  # at the very end of the evaluation
            return None, str(self._out_of_time()["failure"])

    def _guarded(
        self, params: Mapping[str, Value], rng: np.random.Generator
    ) -> tuple[float | None, str]:
        """Return what :meth:`_score` returns, without a limit of its own."""
        # An error in the party's own code must not end the run; the record shows the error.
        try:
            with ending_forked_processes():
                score = self._function(params, rng)
        except OutOfTimeError:
            return None, str(self._out_of_time()["failure"])
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too, and a panic of a library in Rust
            if ends_the_process(error):
                raise
            return None, error_text(error)
        return checked_score(score)


def evaluations_of(records: Iterable[Mapping[str, Any]]) -> list[Evaluation]:
    """Return the evaluations of some records, of which one may hold many."""
    found: list[Evaluation] = []
    for record in records:
        if is_group(record):
            found += [Evaluation(**member) for member in members(record)]
        else:
            found.append(Evaluation(**record))
    return found


def _filled(template: Evaluation, play: int, score: float | None, failure: str) -> Evaluation:
    """Return the evaluation of a play, with all else as in a template."""
    # As `replace` does, but in a tenth of the time: there may be thousands in a group.
    evaluation = object.__new__(Evaluation)
    values = evaluation.__dict__
    values.update(template.__dict__)
    values["play"], values["score"], values["failure"] = play, score, failure
    return evaluation


def _with_reports(evaluation: Evaluation, progress: Progress) -> Evaluation:
    """Return an evaluation with what it reported, and with its last score if it was stopped."""
    if not progress.reports:
        return evaluation
    pruned = progress.stopped and evaluation.score is None
    if pruned:
        evaluation = replace(evaluation, score=progress.reports[-1][1], failure="")
    return replace(evaluation, reports=progress.reports, pruned=pruned)


class _Queue:
    """Evaluations at once, which are recorded in their order whichever ends first."""

    def __init__(
        self, evaluations: Sequence[Evaluation], record: Callable[[Evaluation], Any]
    ) -> None:
        self.evaluations, self._record = evaluations, record
        self._outcomes: dict[int, Mapping[str, Any]] = {}
        self._recorded = 0

    def open(self) -> list[int]:
        """Return the places of the evaluations that have not ended."""
        return [n for n in range(len(self.evaluations)) if n not in self._outcomes]

    def is_next(self, place: int) -> bool:
        """Return whether the evaluation at a place is the next to be recorded."""
        return place == self._recorded

    def end(self, place: int, outcome: Mapping[str, Any]) -> None:
        """Take in what an evaluation showed, and record all whose turn has come."""
        self._outcomes[place] = outcome
        while self._recorded in self._outcomes:
            number = self._recorded
            self._recorded += 1
            self._record(replace(self.evaluations[number], **self._outcomes[number]))


def unfinished(
    records: Records, known: Collection[tuple[int, int]]
) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Return the records of begun evaluations without a score, by round and play.

    ``known`` are the rounds and plays with an evaluation. An interrupted evaluation is as if it
    had never begun.
    """
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for begun in records.read(Evaluator.BEGUN):
        key = (int(begun["round"]), int(begun["play"]))
        if key not in known and "unit" in begun:  # a group of evaluations has no point
            found.setdefault(key, []).append(begun)
    for interrupted in records.read(Evaluator.INTERRUPTED):
        if "plays" in interrupted:
            continue  # of a group
        key = (int(interrupted["round"]), int(interrupted["play"]))
        attempts = found.pop(key, [])[:-1]
        if attempts:
            found[key] = attempts
    return found


def ends_the_process(error: BaseException) -> bool:
    """Return whether an error asks for the end of this process, and not a task's own code.

    Flower and Ray raise SystemExit in the handler of a signal such as SIGTERM. Such an error
    interrupts an evaluation that is not to blame.
    """
    if isinstance(error, KeyboardInterrupt):
        return True
    trace = error.__traceback__ if isinstance(error, SystemExit) else None
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in _SIGNAL_HANDLERS:
            return True
        trace = trace.tb_next
    return False


def _ended_in_child(how: str) -> dict[str, Any]:
    """Return what an evaluation shows whose child process ended without it."""
    return {**_OUTCOME, "failure": f"{ENDED_ITS_PROCESS} {how}"}


def _ended_its_process(attempts: int) -> str:
    """Return why an evaluation has no score that was begun this often and never ended."""
    processes = "the process" if attempts == 1 else f"{attempts} processes"
    return f"{processes} ended in the middle of the evaluation"
