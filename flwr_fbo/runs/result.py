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
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.rounds import RoundTable
from flwr_fbo.runs.history import (
    RoundHistory,
    best_of_agent,
    by_round,
    read_evaluations,
)
from flwr_fbo.runs.stopping import Stopper

RESULT_SCHEMA = 2


@dataclass(frozen=True)
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
    stopped_early : str
        Why the run ended before its rounds were over; empty if all rounds were made.
    findings : dict
        Results that only some methods have, such as ``tree`` or ``cumulative_regret``.
    compared : dict of Result
        The results of the baselines, by the names of their strategies.
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
    stopped_early: str = ""
    findings: Mapping[str, Any] = field(default_factory=dict)
    compared: Mapping[str, Result] = field(default_factory=dict)
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
        plain["compared"] = {name: other.to_dict() for name, other in self.compared.items()}
        return plain

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return the result that :meth:`to_dict` wrote."""
        if content.get("schema") != RESULT_SCHEMA:
            raise ValueError(
                f"a result must have schema {RESULT_SCHEMA}, but has {content.get('schema')!r}: "
                "it was written by another version of flwr-fbo"
            )
        plain = {f.name: content[f.name] for f in fields(cls)}
        plain["history"] = RoundHistory(**content["history"])
        plain["privacy"] = PrivacyStatement.from_dict(content["privacy"])
        plain["compared"] = {n: Result.from_dict(r) for n, r in content["compared"].items()}
        return cls(**plain)

    @classmethod
    def read(cls, run_dir: Path | str) -> Self:
        """Return the result in the directory of a run.

        Parameters
        ----------
        run_dir : Path or str
            The directory, which may have been moved since the run.
        """
        content = json.loads((Path(run_dir) / "result.json").read_text())
        return cls.from_dict({**content, "run_dir": str(run_dir)})

    def to_json(self) -> str:
        """Return the result as JSON text."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat row per evaluation, from the agents' journals, for a data frame."""
        histories = read_evaluations(Path(self.run_dir) / "agents", self.agents)
        columns = ("round", "play", "source", "score", "failure", "seconds", "regret")
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
    findings = server.findings(histories)
    # Methods with a common optimum recommend a setting themselves; others do so from the releases.
    recommendation = findings.pop("recommended", None) or server.recommend(
        directory.releases.read()
    )
    if not scored:  # where all evaluations failed, the releases hold no information
        recommendation = None
    statement = _with_stop(server.statement(), stopper)
    rounds = RoundTable.read(directory.rounds)  # with the rounds before the run was resumed
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
        failures=sum(e.failed for h in histories for e in h) + _lost(rounds),
        complete=_all_done(run, histories) and scored,
        seconds=run.seconds + _seconds_before(rounds, run.reports),
        run_dir=str(directory.root),
        recommended=None if recommendation is None else recommendation["params"],
        recommendation=recommendation,
        stopped_early=run.stopped or stopper.reason,
        findings=findings,
    )
    for name, text in server.files().items():
        (directory.root / name).write_text(text)
    directory.write_json("privacy.json", statement.to_dict())
    directory.write_json("result.json", result.to_dict())
    return result


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
