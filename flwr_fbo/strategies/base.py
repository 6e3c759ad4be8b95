"""The strategy that all methods share: it opens a run, carries its rounds and writes its result."""

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

from flwr_fbo.core.settings import Settings, SettingsError, describe, kebab
from flwr_fbo.core.space import Space
from flwr_fbo.core.text import MOST_NAME, printable
from flwr_fbo.methods.method import Method, MethodServer, RunParameters
from flwr_fbo.methods.registry import find_method
from flwr_fbo.report.tree import tree_svg
from flwr_fbo.runs.callbacks import Callback, RoundReport
from flwr_fbo.runs.files import RunDirectoryError
from flwr_fbo.runs.files.arrangement import arrange
from flwr_fbo.runs.files.directory import RunDirectory
from flwr_fbo.runs.files.journal import journal_path
from flwr_fbo.runs.files.owner_secret import mended_secret, secret_path
from flwr_fbo.runs.files.rounds import RoundTable
from flwr_fbo.runs.files.statement import write_statement
from flwr_fbo.runs.history import RunHistory
from flwr_fbo.runs.locations import name_of_run, run_directory
from flwr_fbo.runs.reconcile import reconcile
from flwr_fbo.runs.result import FinishedRun, write_result
from flwr_fbo.runs.resume import check_changes, settings_for_more_rounds
from flwr_fbo.runs.sizes import check_sizes
from flwr_fbo.runs.spec import RunSettings, RunSpec, node_ids_of, settings_to_store
from flwr_fbo.runs.stopping import Stopper
from flwr_fbo.strategies.explicit import StrategyOptions
from flwr_fbo.strategies.local import local_agents
from flwr_fbo.strategies.registration import is_simulation
from flwr_fbo.strategies.result import TuningResult
from flwr_fbo.strategies.roster import Roster
from flwr_fbo.strategies.rounds import Rounds, check_size, count_nodes, mistakes_logged
from flwr_fbo.tasks import Task

logger = logging.getLogger("flwr.fbo")

#: Seconds that a message may take to travel and to start its process, beside the agent's wait.
MESSAGE_SECONDS = 15.0
#: The least time between two checkpoints, in multiples of the time that the last one took, where
#: not every round needs one.
LEAST_BETWEEN = 30.0


class Store(Protocol):
    """A place where the state of a run outlives the process."""

    def save(self, state: Mapping[str, Any]) -> None:
        """Store the state in place of the last one, whole or not at all."""

    def load(self) -> dict[str, Any] | None:
        """Return the last stored state; None before the first state."""


class FBOStrategy(Strategy):
    """A Flower strategy around the server of a method.

    Subclasses such as :class:`~flwr_fbo.DPFTSDE` write out the arguments of their method. For a
    method without a class of its own, use :meth:`of`.

    There are three ways to run a strategy. :meth:`start` runs the method from beginning to end and
    returns the result. Flower's own loop (``Strategy.start``, or a strategy that wraps this one)
    calls ``configure_train`` and ``aggregate_train``. Tests, and tools that keep files of their
    own, call :meth:`open_run` and then :meth:`run`.

    Parameters
    ----------
    method : Method
        The method.
    settings : Settings
        The settings of the method.
    options : StrategyOptions, optional
        What every strategy can be given beside the settings of its method.
    """

    #: The name of the method, in subclasses that stand for one method.
    method_name: ClassVar[str] = ""

    method: Method
    settings: Settings
    #: The settings that the caller gave, by kebab-case key. A task or a preset fills the others.
    stated: dict[str, Any]

    def __init__(
        self, method: Method, settings: Settings, options: StrategyOptions | None = None
    ) -> None:
        stated = {kebab(name): value for name, value in vars(settings).items()}
        self._initialise(method, settings, options or StrategyOptions(), stated)

    def _configure(self, options: dict[str, Any], stated: dict[str, Any]) -> None:
        """Initialise a subclass from the arguments of its constructor."""
        method = find_method(self.method_name)
        chosen = StrategyOptions.of(options)
        settings = method.settings_class.from_mapping(stated, method.presets_in(chosen.space))
        self._initialise(method, settings, chosen, stated)

    def _initialise(
        self, method: Method, settings: Settings, options: StrategyOptions, stated: dict[str, Any]
    ) -> None:
        """Initialise the strategy, for constructors and for class methods that make strategies."""
        self.method, self.settings, self.options, self.stated = method, settings, options, stated
        self.callbacks: list[Callback] = list(options.callbacks)
        self.task: Task | None = None
        self.store: Store | None = None
        self.stop: Callable[[RoundReport], bool] = lambda report: False
        self.stopper = Stopper(RunSettings())
        #: Why the run ended before the method was finished; empty in any other case.
        self.stopped = ""
        self.reports: list[RoundReport] = []
        self.directory: RunDirectory | None = None
        #: The directory of the run, where the caller holds its lock already.
        self.directory_given: RunDirectory | None = None
        #: What was found damaged in the files of a continued run, one sentence each.
        self.damages: list[str] = []
        #: The result of the last run. Flower's own loop returns another object.
        self.result: TuningResult | None = None
        self._config: dict[str, Any] = {}
        self._history: RunHistory | None = None
        self._parameters: RunParameters | None = None
        self._server: MethodServer | None = None
        self._rounds: Rounds | None = None
        self._table: RoundTable | None = None
        self._loaded: dict[str, Any] | None = None
        self._has_features = self._locked = False
        self._stated_charges = 0
        self._stored, self._seconds_to_store = -math.inf, 0.0
        self._began = time.monotonic()
        self._prepared = False

    @classmethod
    def of(cls, method: str, *, seeks: Any = "own", **values: Any) -> FBOStrategy:
        """Return a strategy for any registered method.

        Parameters
        ----------
        method : str
            The name of the method, such as ``"fts"``.
        seeks : str
            The optimum that the task seeks: ``"own"`` or ``"global"``.
        **values
            Options (``space``, ``num_agents``, ...) and settings of the method.
        """
        registered = find_method(method, seeks)
        options = {k: v for k, v in values.items() if k in StrategyOptions.names()}
        rest = {k: v for k, v in values.items() if k not in options}
        chosen = StrategyOptions.of(options)
        presets = registered.presets_in(chosen.space)
        presets = {key.replace("-", "_"): value for key, value in presets.items()}
        settings = registered.settings_class(**{**presets, **rest})
        # Made without __init__: the constructors of subclasses take arguments, not settings.
        strategy: FBOStrategy = registered.strategy_class.__new__(registered.strategy_class)
        strategy._initialise(registered, settings, chosen, settings_to_store(settings))
        return strategy

    @classmethod
    def for_spec(cls, spec: RunSpec, **options: Any) -> FBOStrategy:
        """Return the strategy for a run that its settings describe."""
        strategy: FBOStrategy = spec.method.strategy_class.__new__(spec.method.strategy_class)
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
                "node_ids": node_ids_of(run.node_ids),
                **options,
            }
        )
        strategy._initialise(spec.method, spec.settings, chosen, settings_to_store(spec.settings))
        strategy.task, strategy._config = spec.task, spec.to_mapping()
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
        """Run the method from beginning to end, or continue the run in its directory.

        Parameters
        ----------
        grid : flwr.serverapp.Grid
            Flower's grid.
        num_rounds : int, optional
            Rounds after the initial points. A method with a budget of evaluations ends when the
            budget is spent; for such a method, ``num_rounds`` is the largest number of rounds.
        timeout : float, optional
            Seconds that a round may take, and that nodes may take to connect.
        initial_arrays, train_config, evaluate_config, evaluate_fn : optional
            Flower's arguments without a meaning here, which must be left out. Agents tune
            hyperparameters: no model travels, and scores stay with the agents.

        Returns
        -------
        TuningResult
            The recommended setting, the privacy of the run, and where its files are.
        """
        self._check_unused(
            initial_arrays=initial_arrays,
            train_config=train_config,
            evaluate_config=evaluate_config,
            evaluate_fn=evaluate_fn,
        )
        self._begin(grid, num_rounds, timeout)
        try:
            self.run(grid, None if self.server.counts_rounds else num_rounds)
            return self.finish()
        finally:
            self._close()

    def _check_unused(self, **given: Any) -> None:
        """Raise SettingsError for an argument that has no meaning here and is not empty."""
        for name, value in given.items():
            if value is None or (not callable(value) and len(value) == 0):
                continue
            raise SettingsError(
                f"`{name}` must be left out of {type(self).__name__}.start: agents tune "
                "hyperparameters of their own models, so no model, config or metric is sent"
            )

    def _begin(self, grid: Grid, num_rounds: int | None, timeout: float | None) -> None:
        """Make the run's directory or continue the run in it, and open the run."""
        o = self.options
        if o.space is None:
            raise SettingsError(
                f"`space`, the search space, must be given to {type(self).__name__}, such as "
                'DPFTSDE(space={"C": Float(1e-3, 1e3, log=True)}), but is not'
            )
        timeout = o.timeout if timeout is None else timeout
        directory = self.directory_given or RunDirectory(
            o.run_dir or run_directory(str(grid.run.run_id))
        )
        directory.lock.__enter__()  # until `_close`, over all rounds of Flower's own loop too
        self.directory, self._locked = directory, True
        try:
            self._open_directory(directory, o.space, grid, num_rounds, timeout)
        except BaseException:
            self._close()
            raise

    def _open_directory(
        self,
        directory: RunDirectory,
        space: Space,
        grid: Grid,
        num_rounds: int | None,
        timeout: float,
    ) -> None:
        """Make or continue the run in a directory whose lock this process holds."""
        o = self.options
        known = directory.read_json("config.json") if directory.holds_a_run else None
        # A method with a budget plans no rounds: for it, num_rounds ends the loop in start.
        counts = self.method.server_class.counts_rounds
        rounds = o.num_rounds if num_rounds is None or not counts else num_rounds
        # A continued run keeps its number of agents, even if fewer nodes are connected now.
        planned = o.num_agents or (known or {}).get("agents") or len(o.node_ids)
        if planned and known is None and is_simulation(grid):  # before anything is stored
            with mistakes_logged():
                check_size(grid, planned, timeout)
        agents = planned or count_nodes(grid, timeout)
        parameters = RunParameters(
            space=space,
            agents=agents,
            rounds=rounds,
            seed=o.seed,
            timeout=timeout,
            quorum=o.round_quorum,
            ledger=directory.ledger,
            task=self.task,
        )
        self._store_config(directory, known, parameters)
        parameters = replace(parameters, run=directory.identity)
        self.open_run(parameters, directory.store)
        self._check_ledger(directory)
        if self._history is not None or local_agents(grid) is not None:
            self._arrange_journals(directory, grid)
        self._reconcile(directory)
        # Written before the first message, so that the guarantee is known whatever happens next.
        self._write_statement(directory)

    def _store_config(
        self, directory: RunDirectory, known: Mapping[str, Any] | None, p: RunParameters
    ) -> None:
        """Write the ``config.json`` of a new run, or update that of the run in the directory."""
        config = {
            **(self._config or self._own_config()),
            "agents": p.agents,
            "rounds": p.rounds,
            "timeout": p.timeout,
        }
        if known is None:
            logger.info("run directory: %s", directory.root)
            directory.create(config, p.space)
        else:
            logger.info("the run continues in %s", directory.root)
            self._continue(directory, known, config)

    def _seconds_of_a_round(self) -> float | None:
        """Return the fixed duration of every round; None where a round ends with its replies."""
        wait = self.options.answer_within
        # In a simulation one machine holds the data of all parties, so timing reveals nothing.
        if wait is None or self._history is not None or not self._must_wait_equally:
            return None
        return wait + MESSAGE_SECONDS

    @property
    def _must_wait_equally(self) -> bool:
        """Return whether all agents must wait equally long: in a run whose server adds the noise.

        Otherwise the time that one agent takes could decide what the others know next.
        """
        statement = self.server.statement()
        return statement.private and statement.trust in ("central", "secure-sum")

    def _check_ledger(self, directory: RunDirectory) -> None:
        """Raise an error if the run has more releases than its ledger has charged."""
        # The ledger is charged before a release is drawn, so there can never be more releases
        # than charges unless the ledger was lost.
        released = directory.releases.count()
        if self.server.statement().epsilon is None or not released:
            return
        if released > self.server.charges:
            raise RunDirectoryError(
                f"{directory.root} holds {released} releases, but its ledger has charged "
                f"{self.server.charges}: what was spent is unknown. Restore ledger.jsonl and "
                "ledger.jsonl.key from a backup"
            )

    def _reconcile(self, directory: RunDirectory) -> None:
        """Compare the files of a continued run with one another, before anything is done.

        What can be mended is mended, and said in the log and in the result; anything else raises
        an error that names the file.
        """
        planned = self.parameters.rounds if self.server.counts_rounds else None
        self._table, found = reconcile(directory, self.server, self._loaded, planned, self._history)
        if self.server.release() is not None:
            self._has_features = True
            if directory.releases.add_features(self.rounds.setup.arrays):
                found.append(f"{directory.releases.features_path} was damaged, and is made anew")
        if self._history is not None:
            found += self._mend_secrets(directory)
        for damage in found:
            logger.warning("damaged file: %s", damage)
        self.damages += [damage for damage in found if damage not in self.damages]

    def _arrange_journals(self, directory: RunDirectory, grid: Grid) -> None:
        """Move the records of a simulation's agents to the journals that its engine uses."""
        # A worker process, which an agent with `answer-within` has, writes a journal of its own.
        local = local_agents(grid)
        alone = local is None or not local.share_a_journal
        shared = not alone and self.options.answer_within is None
        for damage in arrange(directory.agents, directory.identity, shared=shared):
            logger.warning("damaged file: %s", damage)
            self.damages.append(damage)

    def _mend_secrets(self, directory: RunDirectory) -> list[str]:
        """Renew the lost secrets of a simulation's parties, and return what was renewed."""
        renewed, names = [], set(self.roster.names)
        for agent in range(self.parameters.agents):
            journal = journal_path(directory.agents, agent)
            path, placed = secret_path(journal), str(agent) in names
            if not (placed and self.roster.owned(agent)) and not path.exists():
                continue  # the agent never registered from outside this process
            if self.roster.renew_owner(str(agent), mended_secret(journal)) and placed:
                renewed.append(f"{path} was damaged or missing: party {agent} has a new secret")
        return renewed

    def _write_statement(self, directory: RunDirectory) -> None:
        """Write what the run guarantees, and how many charges this statement knows of."""
        self._stated_charges = self.server.charges
        write_statement(directory, self.server.statement(), self.server.charges)

    def _close(self) -> None:
        """Close the ledger, and end the lock of the directory."""
        if self._server is not None:
            self._server.close_files()
        if self.directory is not None and self._locked:
            self._locked = False
            self.directory.lock.__exit__()

    def _own_config(self) -> dict[str, Any]:
        """Return the content of ``config.json`` for a strategy that no task or run-config made."""
        o = self.options
        return {
            "strategy": self.method.name,
            "seed": o.seed,
            "round-quorum": o.round_quorum,
            **({} if o.answer_within is None else {"answer-within": o.answer_within}),
            **({"node-ids": ",".join(map(str, o.node_ids))} if o.node_ids else {}),
            **settings_to_store(self.settings),
        }

    def _continue(
        self, directory: RunDirectory, known: Mapping[str, Any], config: dict[str, Any]
    ) -> None:
        """Check that the run of a directory is the same run, and update its ``config.json``.

        A setting that the caller did not give keeps the value in the directory, which may be one
        that was fixed when the run got more rounds.
        """
        kind = type(self.settings)
        keys = kind.keys()  # config.json also holds the settings of the run and of the task
        before = kind.from_mapping({k: v for k, v in known.items() if k in keys})
        wanted = {**settings_to_store(before), **self.stated}
        # The noise of a private run was planned for its releases: more rounds release no more.
        fixed = {}
        if config["rounds"] > known["rounds"]:
            fixed = settings_for_more_rounds(before, known["rounds"], known["agents"])
        self.settings = kind.from_mapping({**wanted, **fixed})
        config |= settings_to_store(self.settings)
        differing = [k for k in {**known, **config} if known.get(k) != config.get(k)]
        check_changes([key for key in differing if key not in fixed], known, config)
        stored, content = directory.root / "space.json", directory.read_optional("space.json")
        space = None if content is None else Space.from_dict(content)
        if space is not None and space != self.options.space:
            raise SettingsError(
                f"`space` must stay what {stored} holds: with another space it would be another "
                "run; choose another `run_dir`"
            )
        directory.write_json("config.json", {**known, **config})

    def open_run(self, parameters: RunParameters, store: Store | None = None) -> Self:
        """Make the server of a run; a state in the store is loaded, so that the run continues."""
        p = parameters
        check_sizes(self.settings, p.agents, p.rounds, p.space.dimension)
        self._parameters, self.store = parameters, store
        self._server = self.method.make_server(parameters, self.settings)
        setup = replace(
            self._server.setup(),
            run="" if self.directory is None else name_of_run(self.directory.root),
            seed=parameters.seed,
            answer_within=self.options.answer_within,
            equal_waits=self._must_wait_equally,
            identity=parameters.run,
        )
        self._server.note_setup(setup)
        self._rounds = Rounds(
            self._server,
            setup,
            parameters,
            lambda *counts: self._notify("on_reply", *counts),
            self._seconds_of_a_round(),
            # In a simulation one machine holds the data of all parties: timing reveals nothing.
            holds=self._must_wait_equally and self._history is None,
            node_ids=self.options.node_ids,
            on_registration=lambda *counts: self._notify("on_registration", *counts),
        )
        self.reports, self.stopped, self.damages = [], "", []
        self._table, self._has_features = None, False
        self._began = time.monotonic()
        try:
            self._load(store)
        except BaseException:
            self._server.close_files()  # the next attempt must find the ledger unlocked
            raise
        return self

    def _load(self, store: Store | None) -> None:
        """Continue from the stored state, if there is one."""
        self._loaded = state = None if store is None else store.load()
        if state is None:
            return
        try:
            self.damages = [str(text) for text in state.get("damages", [])]
            self.roster.load_state_dict(state["roster"])
            self.server.load_state_dict(state["server"])
            if "absences" in state:  # checkpoints of older versions do not hold them
                self.rounds.absences.load_state_dict(state["absences"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunDirectoryError(
                f"the checkpoint does not hold the state of this run: {error!r}; restore it from "
                "a backup"
            ) from error

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

    def set_stopper(self, stopper: Stopper, history: RunHistory | None = None) -> None:
        """Set the rules that end the run early, and the evaluations of a simulation."""
        self._history, self.stopper, self.stop = history, stopper, stopper

    def run(self, grid: Grid, most_rounds: int | None = None) -> None:
        """Run the remaining rounds, until the method is finished or a rule ends the run."""
        self.summary()
        try:
            self.rounds.await_agents(grid)
            self._notify("on_start")
            self._run_rounds(grid, most_rounds)
            self._notify("on_end")
        finally:
            self.server.close_files()

    def _run_rounds(self, grid: Grid, most_rounds: int | None) -> None:
        """Run rounds, at most this number of them."""
        closed = 0
        while not self.server.finished and not self.stopped:
            report = self._run_round(grid)
            if report is None:  # nobody replied: the same round is asked again
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
            raise RuntimeError("the run has no directory: call start, or use Flower's own loop")
        histories = [] if self._history is None else self._history.refresh().evaluations
        self._checkpoint(now=True)
        finished = FinishedRun(
            task="" if self.task is None else printable(self.task.name, MOST_NAME),
            metric="score" if self.task is None else printable(self.task.metric, MOST_NAME),
            method=self.method.name,
            agents=p.agents,
            rounds=p.rounds,
            seed=p.seed,
            server=self.server,
            reports=self.reports,
            seconds=time.monotonic() - self._began,
            stopper=self.stopper,
            stopped=self.stopped,
            answered=self.rounds.absences.answered,
            missed=self.rounds.absences.missed,
            may_leave_rounds_out=self.options.answer_within is not None,
            table=self._table,
            damages=self.damages,
        )
        result = write_result(finished, directory, histories)
        # Fed-PNE's picture is drawn here, as a method may not import the report.
        if result.findings.get("tree"):
            arity = int(getattr(self.settings, "arity", 2))
            (directory.root / "tree.svg").write_text(tree_svg(result.findings["tree"], arity))
        self._close()
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
        """Run one round, and return its report; None where no agent replied."""
        report = self.rounds.run_one(grid)
        self.stopped = self.rounds.given_up
        return self._closed(report)

    def _closed(self, report: RoundReport | None) -> RoundReport | None:
        """Store the state after a closed round, call the callbacks, and return the report."""
        if report is None:
            return None
        self.reports.append(report)
        # The checkpoint names how far the journals and the table have come. Callbacks see the
        # round's evaluations too.
        if self._history is not None:
            self.rounds.update(self._history)
        if self._table is not None:
            self._table.append(report)
        self._checkpoint()
        self._notify("on_round", report)
        return report

    def _checkpoint(self, now: bool = False) -> None:
        """Store the state, unless the last checkpoint is recent enough."""
        if self.store is None:
            return
        # Servers whose agents can repeat all lost rounds allow some seconds between checkpoints,
        # and more of them where a checkpoint takes long, as it names every agent.
        least = self.server.checkpoint_seconds
        wait = max(least, LEAST_BETWEEN * self._seconds_to_store) if least else 0.0
        began = time.monotonic()
        if began - self._stored < wait and not now and not self.server.finished:
            return
        directory = self.directory
        # A newcomer needs the random features of the setup to read the releases.
        if directory is not None and self.server.release() is not None:
            if not self._has_features:
                directory.releases.add_features(self.rounds.setup.arrays)
            self._has_features = True
        if self._table is not None:
            self._table.sync()
        self.store.save(self.state_dict())
        self._stored = time.monotonic()
        self._seconds_to_store = self._stored - began
        if directory is not None and self.server.charges != self._stated_charges:
            self._write_statement(directory)

    def _notify(self, event: str, *details: Any) -> None:
        """Call one method of all callbacks."""
        for callback in self.callbacks:
            getattr(callback, event)(self, *details)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that :meth:`open_run` loads to continue the run."""
        state: dict[str, Any] = {
            "roster": self.roster.state_dict(),
            "server": self.server.state_dict(),
            "absences": self.rounds.absences.state_dict(),
            "damages": self.damages,
        }
        if self._table is not None:
            state |= {"rounds": self._table.state, "planned": self.parameters.rounds}
        if self._history is not None:
            state["journals"] = self._history.state
        return state

    # -- Flower's five methods -----------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a round of Flower's own loop.

        Before the first round the strategy opens its run, registers the agents, and runs the
        rounds in which agents evaluate their initial points.
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
        """Close a round of Flower's own loop, and write the result after the last round.

        Replies are matched to agents by the nodes that sent them. A round without any reply stays
        open: it releases and charges nothing, and the next round sends the same requests.
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
        """Return no messages, because scores stay with the agents."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return None, because scores stay with the agents."""
        return None

    def summary(self) -> None:
        """Log the settings that are no defaults, the privacy statement, and warnings about both."""
        p = self._parameters
        if p is not None:
            logger.info("%s: %s agents, %s rounds", self.method.name, p.agents, p.rounds)
        defaults = {d.key: d.default for d in describe(type(self.settings))}
        for key, value in self.settings.to_mapping().items():
            if value != defaults[key]:
                logger.info("  %s = %s", key, value)
        if self._server is None:
            return
        logger.info("privacy: %s", self._server.statement())
        for warning in (*self._server.statement().warnings, *self._server.warnings()):
            logger.warning("%s", warning)


def _metrics(report: RoundReport) -> MetricRecord:
    """Return the server's view of a round as the record that Flower's result holds."""
    numbers: dict[str, int | float] = {
        "asked": report.asked,
        "replied": report.replied,
        "lost": report.lost,
        "seconds": report.seconds,
    }
    if report.privacy is not None:
        numbers["epsilon"] = float(report.privacy.spent or 0.0)
    return MetricRecord(dict(numbers))
