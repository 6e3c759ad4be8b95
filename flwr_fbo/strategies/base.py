"""What all strategies share: opening a run, registration, the round loop, checkpoints, the end."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol, Self

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from flwr_fbo.core.settings import Settings, SettingsError, kebab
from flwr_fbo.core.space import Space
from flwr_fbo.methods.method import Method, MethodServer, RunParameters
from flwr_fbo.methods.registry import find_method
from flwr_fbo.report.tree import tree_svg
from flwr_fbo.runs.callbacks import Callback, RoundReport
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.rounds import RoundTable
from flwr_fbo.runs.history import RunHistory
from flwr_fbo.runs.locations import name_of_run, run_directory
from flwr_fbo.runs.result import Finished, conclude
from flwr_fbo.runs.resume import check_changes, lengthened
from flwr_fbo.runs.spec import RunSettings, RunSpec, settings_to_store
from flwr_fbo.runs.stopping import Stopper
from flwr_fbo.strategies.explicit import StrategyOptions
from flwr_fbo.strategies.result import TuningResult
from flwr_fbo.strategies.roster import Roster
from flwr_fbo.strategies.rounds import Rounds, count_nodes
from flwr_fbo.tasks import Task

logger = logging.getLogger("flwr.fbo")


class Store(Protocol):
    """Where a run's state survives its process."""

    def save(self, state: Mapping[str, Any]) -> None:
        """Store the state in place of the last one, atomically."""

    def load(self) -> dict[str, Any] | None:
        """Return the last stored state, if any."""


class FBOStrategy(Strategy):
    """A Flower strategy around the server of a method.

    Subclasses such as :class:`~flwr_fbo.DPFTSDE` write out the arguments of their method. For a
    method without a class of its own, use :meth:`of`.

    There are three ways to run it. :meth:`start` runs it from beginning to end and returns the
    result. Flower's own loop (``Strategy.start``, or a strategy that wraps this one) calls
    ``configure_train`` and ``aggregate_train``. Tests and tools that keep files of their own call
    :meth:`open_run` and then :meth:`run`.
    """

    #: The method's name, in subclasses that stand for one method.
    method_name: ClassVar[str] = ""

    method: Method
    settings: Settings
    #: The settings that were given, by kebab-case key; a task or a preset may fill the rest.
    stated: dict[str, Any]

    def __init__(
        self, method: Method, settings: Settings, options: StrategyOptions | None = None
    ) -> None:
        stated = {kebab(name): value for name, value in vars(settings).items()}
        self._adopt(method, settings, options or StrategyOptions(), stated)

    def _configure(self, options: dict[str, Any], stated: dict[str, Any]) -> None:
        """Take in the arguments of a written-out constructor."""
        method = find_method(self.method_name)
        settings = method.settings_class.from_mapping(stated)
        self._adopt(method, settings, StrategyOptions.of(options), stated)

    def _adopt(
        self, method: Method, settings: Settings, options: StrategyOptions, stated: dict[str, Any]
    ) -> None:
        self.method, self.settings, self.options, self.stated = method, settings, options, stated
        self.callbacks: list[Callback] = list(options.callbacks)
        self._own_callbacks: list[Callback] = []
        self.task: Task | None = None
        self.store: Store | None = None
        self.stop: Callable[[RoundReport], bool] = lambda report: False
        self.stopper = Stopper(RunSettings())
        #: Why the strategy gave up before the method was finished; empty where it did not.
        self.stopped = ""
        self.reports: list[RoundReport] = []
        self.directory: RunDirectory | None = None
        #: The result of the run that ended; Flower's own loop returns a result of its own.
        self.result: TuningResult | None = None
        self._config: dict[str, Any] = {}
        self._history: RunHistory | None = None
        self._parameters: RunParameters | None = None
        self._server: MethodServer | None = None
        self._rounds: Rounds | None = None
        self._stored = -math.inf
        self._began = time.monotonic()
        self._prepared = False

    @classmethod
    def of(cls, method: str, *, seeks: Any = "own", **values: Any) -> FBOStrategy:
        """Make a strategy of any registered method by its name.

        ``values`` are options (``space``, ``num_agents``, ...) and settings of the method.
        """
        found = find_method(method, seeks)
        options = {k: v for k, v in values.items() if k in StrategyOptions.names()}
        rest = {k: v for k, v in values.items() if k not in options}
        settings = found.settings_class(**rest)
        made = found.strategy_class.__new__(found.strategy_class)
        made._adopt(found, settings, StrategyOptions.of(options), settings_to_store(settings))
        strategy: FBOStrategy = made
        return strategy

    @classmethod
    def for_spec(cls, spec: RunSpec, **options: Any) -> FBOStrategy:
        """Make the strategy of a run that is described by its settings."""
        made = spec.method.strategy_class.__new__(spec.method.strategy_class)
        run = spec.run
        chosen = StrategyOptions.of(
            {
                "space": spec.task.space,
                "num_agents": run.agents or None,
                "num_rounds": run.rounds,
                "timeout": run.timeout,
                "seed": run.seed,
                "round_quorum": run.round_quorum,
                "answer_within": run.answer_within,
                **options,
            }
        )
        made._adopt(spec.method, spec.settings, chosen, settings_to_store(spec.settings))
        made.task, made._config = spec.task, spec.to_mapping()
        strategy: FBOStrategy = made
        return strategy

    # -- one run -------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> TuningResult:
        """Run the method from beginning to end, or from where its run directory says it was.

        Parameters
        ----------
        grid
            Flower's grid.
        num_rounds
            Rounds after the initial points. A method that spends a budget of evaluations ends
            by itself; for it, ``num_rounds`` is the most rounds it may take.
        timeout
            Seconds that a round may take, and that nodes may take to connect.
        initial_arrays, train_config, evaluate_config, evaluate_fn
            Flower's arguments without a meaning here. They must be left out: agents tune
            hyperparameters, no model travels, and scores stay with the agents.

        Returns
        -------
        TuningResult
            The recommended setting, the privacy of the run, and where its files are.
        """
        self._refuse_without_meaning(
            initial_arrays=initial_arrays,
            train_config=train_config,
            evaluate_config=evaluate_config,
            evaluate_fn=evaluate_fn,
        )
        self._begin(grid, num_rounds, timeout)
        self.run(grid, None if self.server.counts_rounds else num_rounds)
        return self.finish()

    def _refuse_without_meaning(self, **given: Any) -> None:
        for name, value in given.items():
            if value is None or (not callable(value) and len(value) == 0):
                continue
            raise SettingsError(
                f"`{name}` must be left out of {type(self).__name__}.start: agents tune "
                "hyperparameters of their own models, so no model, config or metric travels"
            )

    def _begin(self, grid: Grid, num_rounds: int | None, timeout: float | None) -> None:
        """Settle what the run is, make or continue its directory, and open it."""
        o = self.options
        patience = o.timeout if timeout is None else timeout
        options = replace(o, timeout=patience)
        if options.space is None:
            raise SettingsError(
                f"{type(self).__name__} needs `space`, the search space: "
                'DPFTSDE(space={"C": Float(1e-3, 1e3, log=True)})'
            )
        counts = self.method.server_class.counts_rounds
        rounds = o.num_rounds if num_rounds is None or not counts else num_rounds
        root = options.run_dir or run_directory(str(grid.run.run_id))
        directory = RunDirectory(root)
        known = directory.read_json("config.json") if directory.holds_a_run else None
        agents = options.num_agents or (known or {}).get("agents") or count_nodes(grid, patience)
        config = {
            **(self._config or self._own_config()),
            "agents": agents,
            "rounds": rounds,
            "timeout": patience,
        }
        logger.info("%s: %s", "run directory" if known is None else "the run continues in", root)
        if known is None:
            directory.create(config, options.space)
        else:
            self._continue(directory, known, config)
        parameters = RunParameters(
            space=options.space,
            agents=agents,
            rounds=rounds,
            seed=options.seed,
            timeout=patience,
            quorum=options.round_quorum,
            ledger=directory.ledger,
            task=self.task,
        )
        self.directory = directory
        self.open_run(parameters, directory.store)
        directory.write_json("privacy.json", self.server.statement().to_dict())
        self._own_callbacks = [RoundTable(directory.rounds)]

    def _own_config(self) -> dict[str, Any]:
        """Return what is written down of a run that no task or run-config describes."""
        o = self.options
        return {
            "strategy": self.method.name,
            "seed": o.seed,
            "round-quorum": o.round_quorum,
            **({} if o.answer_within is None else {"answer-within": o.answer_within}),
            **settings_to_store(self.settings),
        }

    def _continue(
        self, directory: RunDirectory, known: Mapping[str, Any], config: dict[str, Any]
    ) -> None:
        """Check that a run with a directory is the same run, and keep a private one to its plan.

        A setting that this strategy was not given has the value that the directory holds: it
        may be one that was fixed when the run got more rounds.
        """
        kind = type(self.settings)
        before = kind.from_mapping({k: v for k, v in known.items() if k in kind.keys()})
        wanted = {**settings_to_store(before), **self.stated}
        fixed = {}
        if config["rounds"] > known["rounds"]:
            fixed = lengthened(before, known["rounds"], known["agents"])
        self.settings = kind.from_mapping({**wanted, **fixed})
        config |= settings_to_store(self.settings)
        differing = [k for k in {**known, **config} if known.get(k) != config.get(k)]
        check_changes([key for key in differing if key not in fixed], known, config)
        space = self.options.space
        assert space is not None
        if (directory.root / "space.json").exists():
            if Space.from_dict(directory.read_json("space.json")) != space:
                raise SettingsError(
                    f"`space` must stay what {directory.root / 'space.json'} holds: with another "
                    "space it would be another run; choose another `run_dir`"
                )
        directory.write_json("config.json", {**known, **config})

    def open_run(self, parameters: RunParameters, store: Store | None = None) -> Self:
        """Get ready for a run; with a store that holds a state, for the rest of that run."""
        self._parameters, self.store = parameters, store
        self._server = self.method.make_server(parameters, self.settings)
        setup = replace(
            self._server.setup(),
            run="" if self.directory is None else name_of_run(self.directory.root),
            seed=parameters.seed,
            answer_within=self.options.answer_within,
        )
        self._rounds = Rounds(
            self._server, setup, parameters, lambda *counts: self._notify("on_reply", *counts)
        )
        self.reports, self.stopped = [], ""
        self._began = time.monotonic()
        state = None if store is None else store.load()
        if state is not None:
            self.roster.load_state_dict(state["roster"])
            self._server.load_state_dict(state["server"])
        return self

    @property
    def server(self) -> MethodServer:
        """Return the method's server of this run."""
        if self._server is None:
            raise RuntimeError("the strategy has no run yet: call start(grid)")
        return self._server

    @property
    def rounds(self) -> Rounds:
        """Return the rounds of this run."""
        if self._rounds is None:
            raise RuntimeError("the strategy has no run yet: call start(grid)")
        return self._rounds

    @property
    def roster(self) -> Roster:
        """Return the run's agents and their nodes."""
        return self.rounds.roster

    @property
    def parameters(self) -> RunParameters:
        """Return the run's space, agents, rounds and seed."""
        if self._parameters is None:
            raise RuntimeError("the strategy has no run yet: call start(grid)")
        return self._parameters

    @property
    def history(self) -> RunHistory | None:
        """Return the agents' evaluations in a simulation; None in a deployment."""
        return self._history

    def watch(self, stopper: Stopper, history: RunHistory | None = None) -> None:
        """Set the rules that end the run early, and the journals that a simulation owns."""
        self._history, self.stopper, self.stop = history, stopper, stopper

    def run(self, grid: Grid, most_rounds: int | None = None) -> None:
        """Run all rounds that are left, until the server is finished or a rule ends the run."""
        self.summary()
        try:
            self.rounds.await_agents(grid)
            self._notify("on_start")
            self._run_rounds(grid, most_rounds)
            self._notify("on_end")
        finally:
            self.server.release_files()

    def _run_rounds(self, grid: Grid, most_rounds: int | None) -> None:
        closed = 0
        while not self.server.finished and not self.stopped:
            report = self._run_round(grid)
            if report is None:
                continue
            closed += 1
            if self.stop(report):
                logger.info("stopped after round %s", report.round)
                return
            if most_rounds is not None and closed >= most_rounds and not self.server.finished:
                self.stopped = f"num_rounds: {most_rounds} rounds were made"

    def finish(self) -> TuningResult:
        """Write the result of the run and close its files."""
        directory, p = self.directory, self.parameters
        if directory is None:
            raise RuntimeError("the run has no directory: only start and Flower's loop make one")
        histories = [] if self._history is None else self._history.refresh().evaluations
        self._checkpoint(now=True)
        result = conclude(
            Finished(
                task="" if self.task is None else self.task.name,
                metric="score" if self.task is None else self.task.metric,
                method=self.method.name,
                agents=p.agents,
                rounds=p.rounds,
                seed=p.seed,
                server=self.server,
                reports=self.reports,
                seconds=time.monotonic() - self._began,
                stopper=self.stopper,
                stopped=self.stopped,
                may_leave_rounds_out=self.options.answer_within is not None,
            ),
            directory,
            histories,
        )
        if result.findings.get("tree"):
            arity = int(getattr(self.settings, "arity", 2))
            (directory.root / "tree.svg").write_text(tree_svg(result.findings["tree"], arity))
        self.server.release_files()
        self.result = TuningResult(
            train_metrics_clientapp={r.round: _metrics(r) for r in self.reports},
            recommended=result.recommended,
            privacy=result.privacy,
            rounds=result.rounds,
            run_dir=directory.root,
            details=result,
        )
        return self.result

    def _run_round(self, grid: Grid) -> RoundReport | None:
        """Run a round and store what came of it; None where nobody replied."""
        report = self.rounds.run_one(grid)
        self.stopped = self.rounds.given_up
        return self._closed(report)

    def _closed(self, report: RoundReport | None) -> RoundReport | None:
        """Store the state after a round, and tell the callbacks."""
        if report is None:
            return None
        self.reports.append(report)
        self._checkpoint()
        if self._history is not None:
            self._history.refresh()
        self._notify("on_round", report)
        return report

    def _checkpoint(self, now: bool = False) -> None:
        """Store the state, unless the last time is so recent that it need not be yet."""
        if self.store is None:
            return
        recent = time.monotonic() - self._stored < self.server.checkpoint_seconds
        if recent and not now and not self.server.finished:
            return
        if self.directory is not None and self.server.release() is not None:
            self.directory.releases.add_features(self.rounds.setup.arrays)
        self.store.save(self.state_dict())
        self._stored = time.monotonic()

    def _notify(self, event: str, *details: Any) -> None:
        for callback in (*self._own_callbacks, *self.callbacks):
            getattr(callback, event)(self, *details)

    def state_dict(self) -> dict[str, Any]:
        """Return all that a continued run needs; see :meth:`open_run`."""
        return {"roster": self.roster.state_dict(), "server": self.server.state_dict()}

    # -- Flower's five methods -----------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a round of Flower's own loop.

        Before the first round the strategy opens its run, registers the agents and has them
        evaluate their initial points, all of which :meth:`start` does before its first round.
        """
        if self._server is None:
            self._begin(grid, None, None)
        if not self._prepared:
            self.summary()
            self.rounds.await_agents(grid)
            self._notify("on_start")
            self._prepared = True
            while self.server.exploring and not self.stopped:
                self._run_round(grid)
        if self.server.finished or self.stopped:
            return []
        self.rounds.register(grid)
        return self.rounds.messages()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Close a round of Flower's own loop; write the result after the last one.

        Replies are matched to agents by the nodes that they come from. Without any reply the
        round stays open: nothing is released or charged, and the next round asks again.
        """
        if self.server.finished or self.stopped:
            return None, None
        report = self._closed(self.rounds.close_with(replies))
        self.stopped = self.rounds.given_up
        if report is None:
            return None, None
        if (self.server.finished or self.stop(report)) and self.directory is not None:
            self._notify("on_end")
            self.finish()
        return None, _metrics(report)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no messages: scores stay with the agents."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return nothing: scores stay with the agents."""
        return None

    def summary(self) -> None:
        """Log the settings of the run, and what makes it less private than it looks."""
        p = self._parameters
        if p is not None:
            logger.info("%s: %s agents, %s rounds", self.method.name, p.agents, p.rounds)
        for key, value in self.settings.to_mapping().items():
            logger.info("  %s = %s", key, value)
        if self._server is None:
            return
        logger.info("privacy: %s", self._server.statement())
        for warning in (*self._server.statement().warnings, *self._server.warnings()):
            logger.warning("%s", warning)


def _metrics(report: RoundReport) -> MetricRecord:
    """Return what the server knows of a round, as Flower's results hold it."""
    numbers: dict[str, int | float] = {
        "asked": report.asked,
        "replied": report.replied,
        "lost": report.lost,
        "seconds": report.seconds,
    }
    if report.privacy is not None:
        numbers["epsilon"] = float(report.privacy.spent or 0.0)
    return MetricRecord(dict(numbers))
