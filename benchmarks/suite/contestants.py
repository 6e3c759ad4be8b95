"""Methods of the suite: what each does with the parties of a federation.

Three kinds of methods are known. A *pair* is a server and its agents, by the name of a registered
method of this package or of another one. A method *alone* tunes every party by itself. A method on
*raw scores* sees all points and scores of all parties before every evaluation.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.defaults import TRANSFER, Others, _history
from benchmarks.suite.federation import Parties
from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluator, MemoryRecords
from flwr_fbo.core.protocol import checked_reply
from flwr_fbo.core.space import Categorical, Float, Int, Space
from flwr_fbo.methods.comparators.rgpe import RGPEAgent
from flwr_fbo.methods.comparators.surrogates import GPSurrogates
from flwr_fbo.methods.comparators.taf import TAFAgent
from flwr_fbo.methods.method import MethodServer, RunParameters
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.thompson.settings import ThompsonSettings
from flwr_fbo.runs.spec import RunSpec

#: What a party would pick after each evaluation: party, number of evaluations, loss.
Picks = Callable[[int, int, float], None]


@dataclass
class Trace:
    """What a method did: the loss of each party's pick after each evaluation.

    Parameters
    ----------
    picks : array
        The loss of what a party picks after its t-th evaluation: (N, T).
    recommended : list of float, optional
        The loss of the one setting that the method recommends to all, at every party.
    epsilon, delta : float, optional
        The guarantee of the run.
    failures : int
        The number of failed evaluations.
    """

    picks: Array
    recommended: list[float] | None = None
    epsilon: float | None = None
    delta: float | None = None
    failures: int = 0


@dataclass(frozen=True)
class Contestant:
    """A method of the suite.

    Parameters
    ----------
    name, label : str
        The name in commands and files, and a label for people.
    run : callable
        From the parties and a seed to a :class:`Trace`.
    epsilon : float, optional
        The epsilon that the method is asked to keep; None shares nothing or has no guarantee.
    kind : str
        ``alone``, ``raw scores``, ``shared`` (without guarantee) or ``private``.
    settings : mapping
        What results record beside the name.
    """

    name: str
    label: str
    run: Callable[[Parties, int], Trace]
    epsilon: float | None = None
    kind: str = "alone"
    settings: Mapping[str, Any] = field(default_factory=dict)


class _Recorder:
    """Takes in what parties pick, and shows progress."""

    def __init__(self, parties: Parties, name: str) -> None:
        shape = (parties.agents, parties.federation.evaluations)
        self.parties, self.name = parties, name
        self.picks = np.full(shape, np.nan)
        self._said = time.monotonic()

    def pick(self, party: int, evaluator: Evaluator, chosen: Array | None = None) -> None:
        """Record what a party picks now: the chosen point, or its best score so far."""
        made = len(evaluator.history)
        if 0 < made <= self.picks.shape[1]:
            point = best_seen(evaluator) if chosen is None else chosen
            # A party without any success has nothing to use: a random setting, by the median.
            self.picks[party, made - 1] = 1.0 if point is None else self.parties.loss(party, point)

    def progress(self, text: str) -> None:
        if time.monotonic() - self._said > 4:
            print(f"  {self.name}: {text}", file=sys.stderr, flush=True)
            self._said = time.monotonic()

    def trace(self, evaluators: Sequence[Evaluator], **more: Any) -> Trace:
        """Return the trace; between two records of a party its last pick counts."""
        for row in self.picks:
            last = np.nan
            for t in range(len(row)):
                row[t] = last = last if np.isnan(row[t]) else row[t]
            row[np.isnan(row)] = 1.0  # before the first evaluation
        failures = sum(e.failed for evaluator in evaluators for e in evaluator.history)
        return Trace(self.picks, failures=failures, **more)


class _Unjudged(_Recorder):
    """Judges no pick, where judging costs more than the method."""

    def pick(self, party: int, evaluator: Evaluator, chosen: Array | None = None) -> None:
        """Record nothing."""


def best_seen(evaluator: Evaluator) -> Array | None:
    """Return the point with the best score that a party saw; None without any score."""
    scored = [(e.score, e.unit) for e in evaluator.history if e.score is not None]
    return np.array(max(scored, key=lambda s: s[0])[1]) if scored else None


# ------------------------------------------------------------------ a server and its agents


def pair(strategy: str, settings: Mapping[str, Any]) -> Callable[[Parties, int], Trace]:
    """Return the runs of a registered method with these settings."""

    def run(parties: Parties, seed: int) -> Trace:
        out = _Recorder(parties, strategy)
        server, evaluators = _played(parties, strategy, seed, settings, out)
        params, statement = _recommendation(server, evaluators), server.statement()
        return out.trace(
            evaluators,
            recommended=None if params is None else _everywhere(parties, params),
            epsilon=statement.epsilon,
            delta=statement.delta,
        )

    return run


def play(
    parties: Parties, strategy: str, seed: int, settings: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Run a registered method without judging picks; return what it recommends to all parties."""
    out = _Unjudged(parties, strategy)
    return _recommendation(*_played(parties, strategy, seed, settings, out))


def _played(
    parties: Parties, strategy: str, seed: int, settings: Mapping[str, Any], out: _Recorder
) -> tuple[MethodServer, list[Evaluator]]:
    """Run a registered method to its end, and return its server and the parties' evaluators."""
    server = _server(parties, strategy, seed, settings)
    setup, method = server.setup(), server_method(strategy, parties)
    evaluators = [parties.evaluator(n, seed) for n in range(parties.agents)]
    with contextlib.ExitStack() as stack:
        agents = [
            method.make_agent(
                setup, e, MemoryRecords(), (seed, 1, n), Owner(f"agent {n}", stack=stack)
            )
            for n, e in enumerate(evaluators)
        ]
        _rounds(server, agents, evaluators, out)
    return server, evaluators


def server_method(strategy: str, parties: Parties) -> Any:
    return RunSpec.from_mapping({"task": parties.tasks[0], "strategy": strategy}).method


def _server(
    parties: Parties, strategy: str, seed: int, settings: Mapping[str, Any]
) -> MethodServer:
    """Return the server of a run with the federation's number of evaluations an agent."""
    federation, given = parties.federation, dict(settings)
    keys = server_method(strategy, parties).settings_class.keys()
    if federation.initial is not None and "initial-points" in keys:
        given.setdefault("initial-points", federation.initial)
    if "budget" in keys:
        given.setdefault("budget", federation.evaluations)
    base = {"task": parties.tasks[0], "strategy": strategy, "agents": parties.agents, "seed": seed}
    spec = RunSpec.from_mapping({**base, **given})
    initial = int(getattr(spec.settings, "initial_points", 0))
    rounds = federation.evaluations - initial
    if rounds < 1:
        raise SystemExit(
            f"{strategy} begins with {initial} points, but {federation.name} has "
            f"{federation.evaluations} evaluations"
        )
    plan = RunParameters(parties.space, parties.agents, rounds, seed, task=spec.task)
    return spec.method.make_server(plan, spec.settings)


def _rounds(
    server: MethodServer, agents: Sequence[Any], evaluators: Sequence[Evaluator], out: _Recorder
) -> None:
    most = out.picks.shape[1]
    while not server.finished:
        requests = server.requests(range(len(agents)))
        replies = {}
        for n, request in requests.items():
            replies[n] = checked_reply(request, agents[n].answer(request))
            out.pick(n, evaluators[n], _given_out(agents[n]))
            out.progress(f"round {server.round}, party {n + 1}/{len(agents)}")
            if len(evaluators[n].history) > most:
                raise SystemExit(
                    f"{out.name} made more than the {most} evaluations of "
                    f"{out.parties.federation.name} at party {n}"
                )
        server.close(replies)


def _given_out(agent: Any) -> Array | None:
    """Return what an agent itself gives out, where it says so: the papers' agents do."""
    inner = getattr(agent, "_agent", agent)  # an agent with local privacy is around another one
    best = getattr(getattr(inner, "sampler", None), "best", None)
    found = None if best is None else best()
    return None if found is None else np.asarray(found[0])


def _recommendation(server: MethodServer, evaluators: Sequence[Evaluator]) -> dict[str, Any] | None:
    """Return the setting that a method recommends to all; None without one."""
    found = server.findings([e.history for e in evaluators]).get("recommended")
    if found is None:
        memory, last = getattr(server, "released", None), server.release()
        released = getattr(memory, "releases", () if last is None else (last,))
        found = server.recommend(released)
    return None if found is None else dict(found["params"])


def _everywhere(parties: Parties, params: Mapping[str, Any]) -> list[float]:
    """Return the loss of one setting at every party."""
    unit = parties.space.to_unit(params)
    return [parties.loss(n, unit) for n in range(parties.agents)]


# ------------------------------------------------------------------ every party by itself


def optuna_alone(sampler: str) -> Callable[[Parties, int], Trace]:
    """Return the runs of an optimiser of Optuna's: ``tpe``, ``multivariate`` or ``gp``."""

    def run(parties: Parties, seed: int) -> Trace:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        out, evaluators = _Recorder(parties, f"optuna {sampler}"), []
        for n in range(parties.agents):
            evaluator = parties.evaluator(n, seed)
            key = int(np.random.default_rng([seed, n, 3]).integers(2**31))
            with quiet():
                study = optuna.create_study(
                    direction="maximize",
                    sampler=_sampler(optuna, sampler, key, parties.federation.initial),
                )
                for t in range(parties.federation.evaluations):
                    trial = study.ask()
                    unit = parties.space.to_unit(suggested(trial, parties.space))
                    done = evaluator(unit, round=t)
                    if done.score is None:
                        study.tell(trial, state=optuna.trial.TrialState.FAIL)
                    else:
                        study.tell(trial, done.score)
                    out.pick(n, evaluator)
                    out.progress(f"party {n + 1}/{parties.agents}")
            evaluators.append(evaluator)
        return out.trace(evaluators)

    return run


def _sampler(optuna: Any, name: str, seed: int, initial: int | None) -> Any:
    startup = {} if initial is None else {"n_startup_trials": initial}
    if name == "gp":
        return optuna.samplers.GPSampler(seed=seed, **startup)
    return optuna.samplers.TPESampler(seed=seed, multivariate=name == "multivariate", **startup)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Leave out Optuna's warnings that a feature is experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def suggested(trial: Any, space: Space) -> dict[str, Any]:
    """Return what a trial suggests, on the scales that the space declares."""
    if space.points is not None:
        row = trial.suggest_int("row", 0, len(space.points) - 1)
        return space.from_unit(space.points[row])
    values: dict[str, Any] = {}
    for name, p in space.parameters.items():
        if isinstance(p, Float):
            values[name] = trial.suggest_float(name, p.low, p.high, log=p.log)
        elif isinstance(p, Int) and p.log and p.step != 1:  # Optuna has no such scale
            values[name] = p.from_unit(trial.suggest_float(name, 0.0, 1.0))
        elif isinstance(p, Int):
            values[name] = trial.suggest_int(name, p.low, p.high, step=p.step, log=p.log)
        elif isinstance(p, Categorical):
            values[name] = trial.suggest_categorical(name, list(p.choices))
    return values


# ------------------------------------------------------------------ everybody's raw scores


def raw_scores(method: Any) -> Callable[[Parties, int], Trace]:
    """Return the runs of a transfer method that sees all points and scores, as they come."""

    def run(parties: Parties, seed: int) -> Trace:
        own, space = ThompsonSettings(), parties.space
        initial = parties.federation.initial or 2
        out, everyone_of = _Recorder(parties, method.__name__), range(parties.agents)
        evaluators = [parties.evaluator(n, seed) for n in everyone_of]
        nobody = GPSurrogates.of(space, [], own)
        settings = TRANSFER[method](initial_points=initial)
        agents: list[Any] = [method(space, nobody, settings, own, (seed, n)) for n in everyone_of]
        for t in range(parties.federation.evaluations):
            if t >= initial:
                everyone = GPSurrogates.of(space, [_history(e) for e in evaluators], own)
            for n, (agent, evaluator) in enumerate(zip(agents, evaluators, strict=True)):
                if t >= initial:
                    agent.surrogates = Others(everyone, n)
                unit = agent.explore()[t] if t < initial else agent.ask(t)
                agent.tell(unit, evaluator(unit, round=t).score)
                out.pick(n, evaluator)
                out.progress(f"evaluation {t + 1}, party {n + 1}/{parties.agents}")
        return out.trace(evaluators)

    return run


# ------------------------------------------------------------------ the list


#: The papers' settings, with their noise and sampling on real data (DP-FTS-DE Section 5.2).
_PAPER = {"preset": "paper", "sampling-rate": 0.35, "noise-multiplier": 1.0}
EPSILONS = (8.0, 2.0, 1.0)


def of_pair(
    name: str, label: str, strategy: str, kind: str, epsilon: float | None = None, **settings: Any
) -> Contestant:
    """Return a contestant that is a server and its agents."""
    given = {key.replace("_", "-"): value for key, value in settings.items()}
    if epsilon is not None:
        given["epsilon"] = epsilon
    return Contestant(
        name, label, pair(strategy, given), epsilon, kind, {"strategy": strategy, **given}
    )


CONTESTANTS: tuple[Contestant, ...] = (
    Contestant("tpe", "Optuna TPE, alone", optuna_alone("tpe")),
    Contestant("tpe-mv", "Optuna multivariate TPE, alone", optuna_alone("multivariate")),
    Contestant("gp", "Optuna GP, alone", optuna_alone("gp")),
    of_pair("random", "random search, alone", "random", "alone"),
    of_pair("alone", "our agent, alone", "alone", "alone"),
    Contestant("taf", "TAF, all raw scores", raw_scores(TAFAgent), kind="raw scores"),
    Contestant("rgpe", "RGPE, all raw scores", raw_scores(RGPEAgent), kind="raw scores"),
    of_pair("ours", "ours, no privacy", "dp-fts-de", "shared"),
    *(
        of_pair(f"ours-{e:g}", f"ours, epsilon {e:g}", "dp-fts-de", "private", e)
        for e in EPSILONS
    ),
    of_pair("voting", "voting, no privacy", "voting", "shared"),
    *(of_pair(f"voting-{e:g}", f"voting, epsilon {e:g}", "voting", "private", e) for e in EPSILONS),
    of_pair("fts-paper", "FTS, paper", "fts", "shared", preset="paper"),
    of_pair("dp-fts-de-paper", "DP-FTS-DE, paper (q .35, z 1)", "dp-fts-de", "paper",
            **{k.replace("-", "_"): v for k, v in _PAPER.items()}),
)  # fmt: skip


def contestant_named(text: str) -> Contestant:
    """Return a method of the list, or a registered one with settings: ``NAME key=value ...``.

    The name of such a method in files is the text itself.
    """
    for known in CONTESTANTS:
        if known.name == text:
            return known
    strategy, *stated = text.split()
    pairs = [part.partition("=") for part in stated]
    if not all(sign for _, sign, _ in pairs):
        raise SystemExit(f"a method must be NAME key=value ..., but got {text!r}")
    settings = {key: value for key, _, value in pairs}
    asked = settings.get("epsilon")
    epsilon = None if asked is None else float(asked)
    kind = "shared" if epsilon is None else "private"
    recorded = {"strategy": strategy, **settings}
    return Contestant(text, text, pair(strategy, settings), epsilon, kind, recorded)
