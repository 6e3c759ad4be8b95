"""Tuning of one function in this process: Fed-PNE with a single agent, without Flower.

:func:`maximise` is for a function that is federated in itself. An example is "train for three
rounds with this learning rate, and return the mean accuracy of the clients": each call is a short
federated training, and one setting for all clients is sought.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.evaluation import Evaluation, Evaluator, MemoryRecords, Records
from flwr_fbo.core.parameters import Parameter
from flwr_fbo.core.protocol import Setup
from flwr_fbo.core.settings import SettingsError, unknown_keys
from flwr_fbo.core.space import Space, Value
from flwr_fbo.methods.fed_pne.agent import FedPNEAgent
from flwr_fbo.methods.fed_pne.report import summarise
from flwr_fbo.methods.fed_pne.server import FedPNEServer
from flwr_fbo.methods.fed_pne.settings import FedPNESettings
from flwr_fbo.runs.files.journal import Journal, exclusive
from flwr_fbo.runs.texts import params_text

#: Kind of the record that says which call of :func:`maximise` a journal belongs to.
_CALL = "maximise"


@dataclass(frozen=True, repr=False)
class Maximum:
    """The result of :func:`maximise`.

    Parameters
    ----------
    params
        The recommended values: those of the tree node with the highest lower confidence bound.
    mean
        The mean score of these values.
    evaluations
        All calls of the function, in the order made, with values, scores and failures.

    Examples
    --------
    >>> Maximum({"x": 0.7}, 0.95, [])
    x = 0.7: mean score 0.95 (after 0 evaluations)
    >>> Maximum({"x": 0.7}, 0.95, []).params["x"]
    0.7
    """

    params: dict[str, Value]
    mean: float
    evaluations: list[Evaluation]

    def __str__(self) -> str:
        """Return the answer in one line, without the evaluations."""
        failed = sum(e.failed for e in self.evaluations)
        without = f", {failed} of them failed" if failed else ""
        return (
            f"{params_text(self.params)}: mean score {self.mean:.4g} "
            f"(after {len(self.evaluations)} evaluations{without})"
        )

    __repr__ = __str__  # the evaluations would bury the answer


def maximise(
    function: Callable[[dict[str, Any]], float],
    space: Space | Mapping[str, Parameter],
    budget: int = 30,
    *,
    journal: Path | str | None = None,
    seed: int = 0,
    **settings: Any,
) -> Maximum:
    """Return the parameter values that maximise ``function(params)``, within a budget of calls.

    Parameters
    ----------
    function : callable
        Takes a dict of parameter values and returns a score; larger is better. A call that
        raises an error counts as the lowest score.
    space : Space or mapping
        The search space, or a mapping of names to parameters.
    budget : int
        The number of calls.
    journal : Path or str, optional
        A file that records every call. After a crash, the same call of :func:`maximise` with the
        same journal continues, and repeats no recorded call.
    seed : int
        The seed of the search. The same seed gives the same calls.
    **settings
        Settings of :class:`~flwr_fbo.methods.fed_pne.settings.FedPNESettings`. Scores outside
        [0, 1] need ``reward_low`` and ``reward_high``.

    Returns
    -------
    Maximum
        The recommended values, their mean score, and all calls.

    Raises
    ------
    SettingsError
        A setting is unknown or breaks its rule, the budget is too small for the search, or the
        journal is of another call.
    RuntimeError
        Every call of the function failed.

    Examples
    --------
    >>> from flwr_fbo import Float, maximise
    >>> found = maximise(lambda p: 1 - (p["x"] - 0.7) ** 2, {"x": Float(0.0, 1.0)}, budget=60)
    >>> abs(found.params["x"] - 0.7) < 0.1
    True
    >>> len(found.evaluations)
    60
    """
    own = {"function", "space", "budget", "journal", "seed"}
    unknown_keys(settings, own | {f.name for f in fields(FedPNESettings)}, "argument of maximise()")
    whole = space if isinstance(space, Space) else Space(space)
    # One agent answers in this process until the server has spent the budget.
    server = FedPNEServer(whole, 1, FedPNESettings(budget=budget, **settings), seed)
    setup = replace(server.setup(), seed=seed)
    if journal is None:
        return _maximise(function, server, setup, MemoryRecords(), seed)
    with exclusive(Path(journal)):  # two calls with one journal would make each evaluation twice
        records = Journal(journal)
        _check_journal(records, setup)
        return _maximise(function, server, setup, records, seed)


def _maximise(
    function: Callable[[dict[str, Any]], float],
    server: FedPNEServer,
    setup: Setup,
    records: Records,
    seed: int,
) -> Maximum:
    """Return the recommended values after all evaluations that the records do not hold yet."""

    def score(params: Mapping[str, Value], rng: np.random.Generator) -> float:
        return function(dict(params))

    evaluator = Evaluator(setup.space, score, records, seed=(seed, 0))
    agent = FedPNEAgent(setup, evaluator, records, (seed, 1))
    while not server.finished:
        requests = server.requests([0])
        server.close({n: agent.answer(request) for n, request in requests.items()})
    recommended, history = summarise(server)["recommended"], evaluator.history
    # A failed call counts as the lowest score, so a point is recommended even if all calls failed.
    if all(evaluation.failed for evaluation in history):
        raise RuntimeError(
            f"maximise() can recommend nothing: all {len(history)} calls of the function failed, "
            f"the last with {history[-1].failure!r}"
        )
    return Maximum(recommended["params"], recommended["mean"], history)


def _check_journal(records: Records, setup: Setup) -> None:
    """Raise SettingsError where the records are of a call with other arguments.

    Recorded calls are found by their number. Under other arguments the same number can mean
    another point of the space.
    """
    known = [record["digest"] for record in records.read(_CALL)]
    if not known and not records.read(Evaluator.KIND):
        records.append(_CALL, {"digest": setup.digest})
    elif known != [setup.digest]:
        raise SettingsError(
            "`journal` must be new, or of a call of maximise() with the same space, budget, seed "
            "and settings, but it is of another call"
        )
