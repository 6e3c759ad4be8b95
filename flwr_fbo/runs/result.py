"""What a run came to: the content of ``result.json``, and how it is put together."""

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
    """What a run came to. Everything of ``result.json`` is here, under the same names.

    Parameters
    ----------
    task, metric, strategy
        What was tuned, what its scores are, and by which method.
    agents, rounds, seed
        How many agents and rounds there were, and the seed.
    history
        The agents' mean best score, evaluations and regret by round; empty lists in a
        deployment, where scores stay with the agents.
    agents_best
        Each agent's own best score with its parameters; empty in a deployment.
    recommended
        One setting for all agents, computed from what was released; None without any.
    recommendation
        How sure that setting is, as the method says it; None without any.
    privacy
        What the run guarantees, as ``privacy.json`` holds it.
    failures
        Evaluations that failed and replies that never came or were no answer.
    complete
        Whether all was done that the settings ask for.
    stopped_early
        Why the run ended before its rounds were over; empty where it did not.
    seconds, run_dir
        How long the run took, and where its files are.
    findings
        What only some methods find, such as ``tree`` or ``cumulative_regret``.
    compared
        The results of the baselines, by their names.
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
        """Return how many evaluations an agent made, on average; 0 where that is not known."""
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
        """Say whether the run is private."""
        return self.privacy.private

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, as ``result.json`` holds them."""
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
        """Read the result of a finished run, wherever its directory is now."""
        content = json.loads((Path(run_dir) / "result.json").read_text())
        return cls.from_dict({**content, "run_dir": str(run_dir)})

    def to_json(self) -> str:
        """Return :meth:`to_dict` as text."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_records(self) -> list[dict[str, Any]]:
        """Return one flat row an evaluation, from the agents' journals, for a data frame."""
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
class Finished:
    """A run that has ended, as its strategy knows it; :func:`conclude` makes the result of it.

    Parameters
    ----------
    task, metric, method
        Their names.
    agents, rounds, seed
        What the run was started with.
    server
        The method's server in its last state.
    reports
        The rounds that this process closed; earlier rounds are in the table of rounds.
    seconds
        How long this process took.
    stopper
        The rules that may have ended the run, and whether a person did.
    stopped
        Why the strategy itself gave up; empty where it did not.
    may_leave_rounds_out
        Whether agents that answer early make fewer evaluations than there are rounds.
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


def conclude(
    run: Finished, directory: RunDirectory, histories: Sequence[Sequence[Evaluation]]
) -> Result:
    """Write ``result.json`` and the method's own files, and return the result.

    ``histories`` are the agents' evaluations in a simulation. A server in a deployment has
    none: its result is about rounds, privacy and the recommended setting.
    """
    server, stopper = run.server, run.stopper
    history = by_round(histories, max(0, server.round - 1)) if histories else RoundHistory([], [])
    scored = not histories or history.best_score is not None
    findings = server.findings(histories)
    recommendation = findings.pop("recommended", None) or server.recommend(
        directory.releases.read()
    )
    if not scored:  # of nothing but failures nothing follows
        recommendation = None
    statement = _with_stop(server.statement(), stopper)
    rounds = RoundTable.read(directory.rounds)  # those of earlier processes too
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


def _all_done(run: Finished, histories: Sequence[Sequence[Evaluation]]) -> bool:
    """Say whether the run did all that its settings ask for, or ended by a rule they name."""
    if run.stopped:
        return False
    if run.stopper.reason:  # by a rule that was asked for, or by a person who changed their mind
        return not run.stopper.interrupted
    expected = None if run.may_leave_rounds_out else run.server.evaluations_per_agent()
    whole = expected is None or all(len(h) == expected for h in histories)
    return run.server.completed and whole


def _lost(rounds: Sequence[Mapping[str, str]]) -> int:
    """Return the replies that never came or were none; a running evaluation has not failed."""
    return sum(int(row[name]) for row in rounds for name in ("missing", "refused", "declined"))


def _seconds_before(rounds: Sequence[Mapping[str, str]], reports: Sequence[RoundReport]) -> float:
    """Return what the rounds took that another process made before the run was resumed."""
    mine = {str(report.round) for report in reports}
    return sum(float(row["seconds"]) for row in rounds if row["round"] not in mine)


def _with_stop(statement: PrivacyStatement, stopper: Stopper) -> PrivacyStatement:
    """Return the statement, which says so where the end of the run depended on scores."""
    if statement.epsilon is None or not (stopper.looks_at_scores and stopper.reason):
        return statement
    said = "when the run stopped, which depended on scores"
    return replace(statement, not_covered=(*statement.not_covered, said))
