"""Optuna's TPE for each party by itself: what a party would use without a federation.

The agents send nothing. Each agent keeps a study of its own and tells the study every evaluation.
The study is made anew for every request from the agent's records, so an agent that was restarted
goes on as it was. Optuna's sampler keeps no state between trials but its random numbers, which
come from the seed and the round here.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from flwr_fbo.core.arrays import Array
from flwr_fbo.core.children import MOST_PARALLEL
from flwr_fbo.core.evaluation import Evaluation, Evaluator, Records
from flwr_fbo.core.protocol import Agent, Reply, Request, Setup
from flwr_fbo.core.settings import Settings, SettingsError, at_least, setting, within
from flwr_fbo.core.space import Space
from flwr_fbo.methods.comparators.optuna_space import (
    distributions_of,
    import_optuna,
    params_of,
    unit_of,
)
from flwr_fbo.methods.method import MethodServer, RunParameters
from flwr_fbo.methods.owner import Owner

KIND = "tpe"


@dataclass(frozen=True)
class TPESettings(Settings):
    """Settings of Optuna's TPE sampler; the defaults are those of Optuna."""

    initial_points: int = setting(
        2, "number of points that each agent evaluates before round 1", at_least(1)
    )
    parallel: int = setting(
        1,
        "number of evaluations that each agent makes at once, in each round and for its initial "
        "points; each evaluation has a process of its own",
        within(1, MOST_PARALLEL),
    )
    startup_trials: int = setting(
        10, "number of random trials before the sampler models anything", at_least(0)
    )
    multivariate: bool | None = setting(
        None, "model all parameters together; where unset, as the installed Optuna does"
    )

    def settings_for_more_rounds(self, planned: int, agents: int) -> dict[str, Any]:
        """Return settings to fix when a run gets more rounds than planned: none."""
        return {}


class TPEServer(MethodServer):
    """The server of rounds 0 to T: it asks for evaluations and receives nothing.

    Parameters
    ----------
    space : Space
        The search space.
    agents : int
        The number of agents.
    settings : TPESettings
        The settings of every agent's sampler.
    rounds : int
        T, the number of rounds after the initial points.
    """

    counts_rounds: ClassVar[bool] = True
    repeats_silent_rounds: ClassVar[bool] = True

    def __init__(self, space: Space, agents: int, settings: TPESettings, rounds: int) -> None:
        if agents < 1:
            raise SettingsError(f"`agents` must be >= 1, but got {agents!r}")
        import_optuna()  # here, so that a run without Optuna fails before its first round
        self.space, self.agents, self.settings = space, agents, settings
        self.round, self.last_round = 0, rounds
        self.rounds: int | None = rounds + 1

    @classmethod
    def for_run(cls, run: RunParameters, settings: Any, **options: Any) -> Self:
        """Return the server of one run."""
        return cls(run.space, run.agents, settings, run.rounds)

    @property
    def finished(self) -> bool:
        """Return whether all rounds are closed."""
        return self.round > self.last_round

    @property
    def exploring(self) -> bool:
        """Return whether the agents still evaluate their initial points."""
        return self.round == 0

    def setup(self) -> Setup:
        """Return the settings of the sampler, which every agent needs."""
        return Setup(KIND, self.space, self.settings.to_mapping())

    def requests(self, present: Sequence[int]) -> dict[int, Request]:
        """Return the request for the next evaluations, for each agent that is present."""
        s = self.settings
        count = s.initial_points if self.round == 0 else s.parallel
        return {n: Request("evaluate", self.round, {"count": count}) for n in present}

    def close(self, replies: Mapping[int, Reply]) -> None:
        """Go on to the next round; the replies hold nothing."""
        self.round += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the number of the next round."""
        return {"round": self.round}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state that :meth:`state_dict` returned."""
        self.round = int(state["round"])

    def evaluations_per_agent(self) -> int | None:
        """Return the initial points and ``parallel`` evaluations for each further round."""
        return self.settings.initial_points + self.settings.parallel * self.last_round


class TPEAgent:
    """The agent of one party, with a study of its own.

    Parameters
    ----------
    setup : Setup
        The settings of the sampler, and the search space.
    evaluator : Evaluator
        The party's own objective, with the evaluations made so far.
    seed : tuple of int
        The seed of the sampler.
    """

    def __init__(self, setup: Setup, evaluator: Evaluator, seed: tuple[int, ...]) -> None:
        self._space, self._settings = setup.space, setup.read(TPESettings)
        self._evaluator, self._seed = evaluator, seed

    def answer(self, request: Request) -> Reply:
        """Make the evaluations that are not recorded yet, and return an empty reply."""
        k, plays = self._settings.parallel, range(int(request.values["count"]))
        for batch in (plays[first : first + k] for first in range(0, len(plays), k)):
            points = self._points(request.round, batch)
            if k > 1:
                self._evaluator.at_once(points, round=request.round)
                continue
            for play, unit, source in points:
                self._evaluator(unit, round=request.round, play=play, source=source)
        return Reply()

    def _points(self, round: int, plays: Sequence[int]) -> list[tuple[int, Array, str]]:
        """Return the play, the point and the source of each evaluation that is not recorded."""
        points: list[tuple[int, Array, str]] = []
        new = [p for p in plays if self._evaluator.recorded(round, p) is None]
        begun = {p: found for p in new if (found := self._evaluator.begun(round, p)) is not None}
        for play in new:
            under_way = [u for _, u, _ in points] + [u for p, (u, _) in begun.items() if p > play]
            unit, source = begun.get(play) or (self.ask(round, play, under_way), "own")
            points.append((play, unit, source))
        return points

    def ask(self, round: int, play: int, pending: Sequence[Array] = ()) -> Array:
        """Return the point that the sampler suggests next: (D,).

        ``pending`` are points (D,) that are being evaluated: the sampler takes their scores to be
        bad, as Optuna does for several workers (its `constant_liar`).
        """
        optuna = import_optuna()
        seed = np.random.default_rng([*self._seed, round, play]).integers(2**32)
        with warnings.catch_warnings():  # `multivariate` is marked as experimental
            warnings.simplefilter("ignore")
            sampler = optuna.samplers.TPESampler(
                seed=int(seed),
                n_startup_trials=self._settings.startup_trials,
                multivariate=self._settings.multivariate,
                constant_liar=bool(pending),
            )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        distributions = distributions_of(self._space)
        study.add_trials([self._trial(optuna, e, distributions) for e in self._evaluator.history])
        running = optuna.trial.TrialState.RUNNING
        study.add_trials([
            optuna.trial.create_trial(
                params=params_of(self._space, unit), distributions=distributions, state=running
            )
            for unit in pending
        ])  # fmt: skip
        return unit_of(self._space, study.ask(distributions).params)

    def _trial(self, optuna: Any, e: Evaluation, distributions: Mapping[str, Any]) -> Any:
        """Return a recorded evaluation as a finished trial; a failed evaluation has no value."""
        states = optuna.trial.TrialState
        return optuna.trial.create_trial(
            params=params_of(self._space, np.array(e.unit)),
            distributions=dict(distributions),
            value=e.score,
            state=states.FAIL if e.failed else states.COMPLETE,
        )


def make_agent(
    setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...], owner: Owner
) -> Agent:
    """Return the agent of one party; it sends nothing, so an owner's limit has nothing to limit."""
    return TPEAgent(setup, evaluator, seed)
