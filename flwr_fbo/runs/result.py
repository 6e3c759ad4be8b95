"""The result of a run: the content of ``result.json``, and the function that writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.core.space import Value
from flwr_fbo.methods.method import MethodServer
from flwr_fbo.privacy.statement import PrivacyStatement
from flwr_fbo.runs.callbacks import RoundReport
from flwr_fbo.runs.comparison import Saving
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.checks import checksum
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.rounds import RoundTable
from flwr_fbo.runs.files.statement import write_statement
from flwr_fbo.runs.history import (
    RoundHistory,
    best_of_agent,
    by_round,
    cost_in_steps,
    read_evaluations,
)
from flwr_fbo.runs.stopping import Stopper

RESULT_SCHEMA = 3
#: The file of the result in a run directory.
NAME = "result.json"


class StaleResultError(RunDirectoryError):
    """An error for a result that does not belong to the checkpoint beside it."""


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run, with everything that ``result.json`` holds under the same names.

    Parameters
    ----------
    task, metric, strategy : str
        The names of the task, of its score, and of the method.
    agents, rounds, seed : int
        The number of agents, the number of rounds, and the seed.
    history : RoundHistory
        The agents' mean evaluations, best score and regret by round. The lists are empty in a
        deployment, where scores stay with the agents.
    agents_best : list of dict
        Each agent's own best score with its parameters; empty in a deployment.
    privacy : PrivacyStatement
        The guarantee of the run, as ``privacy.json`` holds it.
    failures : int
        The number of failed evaluations, of missing replies and of replies that did not count.
    complete : bool
        Whether the run did all that its settings ask for.
    seconds : float
        The duration of the run.
    run_dir : str
        The directory with the files of the run.
    recommended : dict, optional
        One setting for all agents, computed from the releases; None without releases.
    recommendation : dict, optional
        The recommended setting with the method's measures of how certain it is.
    answered : float, optional
        The share of the expected replies that came; None in results of older versions.
    missed : list of dict
        Which rounds each party missed that missed any: ``{"party": 3, "rounds": [[4, 15]]}``. A
        party misses a round if it is away, in a pause after silence, or sends no reply in time.
    stopped_early : str
        Why the run ended before its rounds were over; empty if all rounds were made.
    findings : dict
        Results that only some methods have, such as ``tree`` or ``cumulative_regret``.
    compared : dict of Result
        The results of the baselines, by the names of their strategies.
    savings : dict of Saving
        What the run saved, by baseline: after how many evaluations of ours and of theirs both
        had the same mean best score, and the difference at the end.
    failed_evaluations : int
        The number of failed evaluations alone; 0 in a deployment, where it is not known.
    damages : list of str
        What was found damaged in the run's files when the run continued, one sentence each.
    schema : int
        The version of this layout.

    Examples
    --------
    >>> import tempfile
    >>> from flwr_fbo import Float, Result, simulate, task
    >>> @task(space={"x": Float(0.0, 1.0)})
    ... def hill(params):
    ...     return 1.0 - (params["x"] - 0.3) ** 2
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> made = simulate(hill, agents=2, strategy="random", rounds=3, run_dir=folder)
    >>> result = Result.read(folder)
    >>> result == made
    True
    >>> len(result.agents_best), result.complete, result.private
    (2, True, False)
    """

    task: str
    metric: str
    strategy: str
    agents: int
    rounds: int
    seed: int
    history: RoundHistory
    agents_best: list[dict[str, Any]]
    privacy: PrivacyStatement
    failures: int
    complete: bool
    seconds: float
    run_dir: str
    recommended: dict[str, Value] | None = None
    recommendation: Mapping[str, Any] | None = None
    answered: float | None = None
    missed: list[dict[str, Any]] = field(default_factory=list)
    stopped_early: str = ""
    findings: Mapping[str, Any] = field(default_factory=dict)
    compared: Mapping[str, Result] = field(default_factory=dict)
    savings: Mapping[str, Saving] = field(default_factory=dict)
    failed_evaluations: int = 0
    damages: Sequence[str] = ()
    schema: int = RESULT_SCHEMA

    @property
    def best_score(self) -> float | None:
        """Return the mean of the agents' best scores; None where no score is known."""
        return self.history.best_score

    @property
    def evaluations(self) -> float:
        """Return the mean number of evaluations that an agent made; 0 where it is not known."""
        return self.history.evaluations[-1] if self.history.evaluations else 0

    @property
    def epsilon(self) -> float | None:
        """Return the epsilon of the whole planned schedule; None where nothing is private."""
        return self.privacy.epsilon

    @property
    def delta(self) -> float | None:
        """Return the delta of :attr:`epsilon`."""
        return self.privacy.delta

    @property
    def private(self) -> bool:
        """Return whether the run is private."""
        return self.privacy.private

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, as ``result.json`` holds them."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["history"] = vars(self.history)
        plain["privacy"] = self.privacy.to_dict()
        plain |= {"epsilon": self.epsilon, "delta": self.delta, "private": self.private}
        plain["best_score"] = self.best_score
        plain["findings"] = dict(self.findings)
        plain["damages"] = list(self.damages)
        plain["compared"] = {name: other.to_dict() for name, other in self.compared.items()}
        plain["savings"] = {name: saving.to_dict() for name, saving in self.savings.items()}
        return plain

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return the result that :meth:`to_dict` wrote."""
        if content.get("schema") != RESULT_SCHEMA:
            raise ValueError(
                f"a result must have schema {RESULT_SCHEMA}, but has {content.get('schema')!r}: "
                "it was written by another version of flwr-fbo"
            )
        # Results of before these fields were there do not have them.
        content = {"failed_evaluations": 0, "answered": None, "missed": [], **content}
        plain = {f.name: content[f.name] for f in fields(cls)}
        plain["history"] = RoundHistory(**content["history"])
        plain["damages"] = tuple(content["damages"])
        plain["privacy"] = PrivacyStatement.from_dict(content["privacy"])
        plain["compared"] = {n: Result.from_dict(r) for n, r in content["compared"].items()}
        plain["savings"] = {n: Saving.from_dict(s) for n, s in content["savings"].items()}
        return cls(**plain)

    @classmethod
    def read(cls, run_dir: Path | str) -> Self:
        """Return the result in the directory of a run.

        Parameters
        ----------
        run_dir : Path or str
            The directory, which may have been moved since the run.
        """
        directory = RunDirectory(run_dir)
        path = directory.root / NAME
        content = directory.read_json(NAME)
        try:
            result = cls.from_dict({**content, "run_dir": str(run_dir)})
            if not directory.is_current(NAME):
                raise StaleResultError(
                    f"{path} does not belong to {directory.store.path.name}: the run has gone on "
                    "since, or one of the two is an old copy. Resume the run, which writes the "
                    "result anew"
                )
        except (KeyError, TypeError, AttributeError, ValueError, OSError) as error:
            raise RunDirectoryError(f"{path} holds no result: {error}") from None
        return result

    def __str__(self) -> str:
        """Return the summary that ``flwr-fbo run`` prints, with hints for Python."""
        from flwr_fbo.runs.summary import IN_PYTHON, summary  # the summary is made from results

        return summary(self, comparing=IN_PYTHON)

    def __repr__(self) -> str:
        """Return one line, as a notebook shows; ``print(result)`` shows the summary."""
        best = "" if self.best_score is None else f", mean best {self.metric} {self.best_score:.4f}"
        return f"<Result of {self.strategy} on {self.task}: {self.agents} agents{best}>"

    def to_json(self) -> str:
        """Return the result as JSON text."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def read_evaluations(self) -> list[list[Evaluation]]:
        """Return each agent's evaluations, from the journals that the result was made of."""
        directory = RunDirectory(self.run_dir)
        least = {found["agent"]: found["evaluations"] for found in self.agents_best}
        run = directory.identity if directory.holds_a_run else None
        return read_evaluations(directory.agents, self.agents, run, least)

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat row per evaluation, from the agents' journals, for a data frame."""
        histories = self.read_evaluations()
        columns = (
            "round", "play", "source", "score", "failure", "seconds", "regret", "pruned", "steps",
        )  # fmt: skip
        return [
            {
                "agent": agent,
                **{name: getattr(e, name) for name in columns},
                **{f"params_{name}": value for name, value in e.params.items()},
            }
            for agent, history in enumerate(histories)
            for e in history
        ]


@dataclass(frozen=True)
class FinishedRun:
    """The input of :func:`write_result`: a run that has ended, as its strategy knows it.

    Parameters
    ----------
    task, metric, method
        The names of the task, of its score, and of the method.
    agents, rounds, seed
        The number of agents, the number of planned rounds, and the seed.
    server
        The method's server in its last state.
    reports
        The rounds that this process closed. Earlier rounds are in the table of rounds.
    seconds
        The time that this process took.
    stopper
        The rules that may have ended the run.
    stopped
        Why the strategy ended the run; empty if the strategy did not.
    may_leave_rounds_out
        Whether agents reply early, and so make fewer evaluations than there are rounds.
    answered, missed
        The share of the expected replies that came, and the rounds that each party missed.
    table
        The table of rounds, with the rounds that earlier processes made.
    damages
        What was found damaged in the run's files.
    """

    task: str
    metric: str
    method: str
    agents: int
    rounds: int
    seed: int
    server: MethodServer
    reports: Sequence[RoundReport]
    seconds: float
    stopper: Stopper
    stopped: str = ""
    may_leave_rounds_out: bool = False
    answered: float | None = None
    missed: Mapping[int, Sequence[Sequence[int]]] = field(default_factory=dict)
    table: RoundTable | None = None
    damages: Sequence[str] = ()


def write_result(
    run: FinishedRun, directory: RunDirectory, histories: Sequence[Sequence[Evaluation]]
) -> Result:
    """Write ``result.json``, ``privacy.json`` and the method's own files, and return the result.

    ``histories`` are the agents' evaluations in a simulation. A server in a deployment has no
    histories: its result holds the rounds, the privacy and the recommended setting.
    """
    server, stopper = run.server, run.stopper
    history = by_round(histories, max(0, server.round - 1)) if histories else RoundHistory([], [])
    scored = not histories or history.best_score is not None
    findings = server.findings(histories) | cost_in_steps(histories)
    # Methods with a common optimum recommend a setting themselves; others do so from the releases.
    recommendation = findings.pop("recommended", None) or server.recommend(
        directory.store.intact_releases()
    )
    if not scored:  # where all evaluations failed, the releases hold no information
        recommendation = None
    statement = _with_stop(server.statement(), stopper)
    rounds = [] if run.table is None else run.table.by_round()
    failed = sum(e.failed for h in histories for e in h)
    result = Result(
        task=run.task,
        metric=run.metric,
        strategy=run.method,
        agents=run.agents,
        rounds=findings.pop("rounds", run.rounds),
        seed=run.seed,
        history=history,
        agents_best=[best_of_agent(n, h) for n, h in enumerate(histories)],
        privacy=statement,
        failures=failed + _lost(rounds),
        failed_evaluations=failed,
        complete=_all_done(run, histories) and scored,
        seconds=run.seconds + _seconds_before(rounds, run.reports),
        run_dir=str(directory.root),
        recommended=None if recommendation is None else recommendation["params"],
        recommendation=recommendation,
        answered=run.answered,
        missed=[{"party": n, "rounds": list(spans)} for n, spans in sorted(run.missed.items())],
        stopped_early=run.stopped or stopper.reason,
        findings=findings,
        damages=tuple(dict.fromkeys([*run.damages, *directory.store.damages.values()])),
    )
    for name, text in server.files().items():
        (directory.root / name).write_text(text)
    write_statement(directory, statement, server.charges)
    names = {
        "checkpoint": checksum(directory.store.path.read_bytes()),
        "rounds": None if run.table is None else run.table.state,
        "planned": run.rounds if server.counts_rounds else None,
    }
    directory.write_json(NAME, result.to_dict(), names)
    return result


def replace_result(directory: RunDirectory, result: Result) -> None:
    """Write a result in place of the run's result, such as one with comparisons."""
    directory.write_json(NAME, result.to_dict())


def _all_done(run: FinishedRun, histories: Sequence[Sequence[Evaluation]]) -> bool:
    """Return whether the run did all that its settings ask for, or was ended by one of them."""
    if run.stopped:
        return False
    if run.stopper.reason:  # a stopping rule of the settings, or Ctrl-C
        return not run.stopper.interrupted
    expected = None if run.may_leave_rounds_out else run.server.evaluations_per_agent()
    whole = expected is None or all(len(h) == expected for h in histories)
    return run.server.completed and whole


def _lost(rounds: Sequence[Mapping[str, str]]) -> int:
    """Return the number of replies that are missing or did not count."""
    # An agent whose evaluation still runs has its own column: it has not failed.
    return sum(int(row[name]) for row in rounds for name in ("missing", "refused", "declined"))


def _seconds_before(rounds: Sequence[Mapping[str, str]], reports: Sequence[RoundReport]) -> float:
    """Return the seconds of the rounds that earlier processes made before the run was resumed."""
    mine = {str(report.round) for report in reports}
    return sum(float(row["seconds"]) for row in rounds if row["round"] not in mine)


def _with_stop(statement: PrivacyStatement, stopper: Stopper) -> PrivacyStatement:
    """Return the statement, with a notice if a rule that looks at scores ended the run."""
    if statement.epsilon is None or not (stopper.looks_at_scores and stopper.reason):
        return statement
    notice = "when the run stopped, which depended on scores"
    return replace(statement, not_covered=(*statement.not_covered, notice))
