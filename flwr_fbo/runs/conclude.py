"""The end of a run: its result, put together and written to the run directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flwr_fbo.core.evaluation import Evaluation
from flwr_fbo.runs.directory import RoundTable, RunDirectory
from flwr_fbo.runs.result import Outcome, Result, outcome
from flwr_fbo.runs.spec import RunSpec
from flwr_fbo.runs.stopping import Stopper
from flwr_fbo.strategies.base import RoundReport


def conclude(
    spec: RunSpec,
    directory: RunDirectory,
    agents: int,
    histories: Sequence[Sequence[Evaluation]],
    seconds: float,
    stopper: Stopper,
) -> Result:
    """Write ``result.json`` and the strategy's own files.

    ``histories`` are the agents' evaluations in a simulation. A server has none: its result is
    about rounds, privacy and what is recommended, and has no scores.
    """
    strategy = spec.strategy
    found = _achieved(histories, max(0, strategy.server.round - 1))
    asynchronous = spec.run.answer_within is not None  # agents leave rounds out
    expected = None if asynchronous else strategy.evaluations_per_agent()
    whole = expected is None or all(a["evaluations"] == expected for a in found.agents)
    scored = not histories or any(best is not None for best in found.best)
    done = strategy.completed and whole
    if stopper.reason:  # by a rule that was asked for, or by a person who changed their mind
        done = not stopper.interrupted
    findings = strategy.findings(histories)
    recommended = strategy.recommend(directory.releases.read())
    if recommended is not None and scored:  # of nothing but failures nothing follows
        findings["recommended"] = recommended
    privacy = strategy.privacy() or {}
    rounds = RoundTable.read(directory.rounds)  # those of earlier processes too
    result = Result(
        task=spec.task.name,
        metric=spec.task.metric,
        strategy=spec.run.strategy,
        agents=agents,
        rounds=findings.pop("rounds", spec.run.rounds),
        seed=spec.run.seed,
        evaluations=found.evaluations,
        best=found.best,
        regret=found.regret,
        epsilon=privacy.get("epsilon"),
        delta=privacy.get("delta"),
        private=privacy.get("private", False),
        local=privacy.get("local", False),
        notice=strategy.notice() or _notice(stopper, bool(privacy)),
        stopped_early=stopper.reason,
        failures=found.failed_evaluations + _lost(rounds),
        complete=done and scored,
        seconds=seconds + _seconds_before(rounds, strategy.reports),
        run_dir=str(directory.root),
        agents_best=found.agents,
        findings=findings,
    )
    for name, text in strategy.files().items():
        (directory.root / name).write_text(text)
    directory.write_json("result.json", result.to_dict())
    return result


def _lost(rounds: Sequence[Mapping[str, str]]) -> int:
    """Replies that never came, or were none; an agent that is still at it has not failed."""
    return sum(int(row[name]) for row in rounds for name in ("missing", "refused", "declined"))


def _seconds_before(rounds: Sequence[Mapping[str, str]], reports: Sequence[RoundReport]) -> float:
    """What the rounds took that another process made before a run was resumed."""
    mine = {str(report.round) for report in reports}
    return sum(float(row["seconds"]) for row in rounds if row["round"] not in mine)


def _achieved(histories: Sequence[Sequence[Evaluation]], rounds: int) -> Outcome:
    return outcome(histories, rounds) if histories else Outcome([], [], None, 0, [])


def _notice(stopper: Stopper, private: bool) -> str:
    if private and stopper.looks_at_scores and stopper.reason:
        return "when the run stopped depends on scores, which epsilon does not count"
    return ""
