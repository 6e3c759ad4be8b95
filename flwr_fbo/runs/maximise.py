"""One objective, no other parties: Fed-PNE with a single agent, and without Flower.

For an objective that is federated in itself, such as "train for three rounds with this learning
rate and look at the clients' accuracy": one pull is a short federated training, and what is
sought is one setting for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.core.evaluation import Evaluation, Evaluator, MemoryRecords, Records
from flwr_fbo.core.space import Space, Value
from flwr_fbo.methods.fed_pne.agent import FedPNEAgent
from flwr_fbo.methods.fed_pne.report import result
from flwr_fbo.methods.fed_pne.server import FedPNEServer
from flwr_fbo.methods.fed_pne.settings import FedPNESettings
from flwr_fbo.runs.files.journal import Journal


@dataclass(frozen=True)
class Maximum:
    """What :func:`maximise` found."""

    #: The recommended values: those of the node with the highest lower confidence bound.
    params: dict[str, Value]
    #: Their mean score.
    mean: float
    #: How often the function was called, and with what.
    evaluations: list[Evaluation]


def maximise(
    function: Callable[..., float],
    space: Space | Mapping[str, Any],
    budget: int = 30,
    *,
    journal: Path | str | None = None,
    seed: int = 0,
    **settings: Any,
) -> Maximum:
    """Maximise ``function(params)`` with at most ``budget`` calls.

    Scores should lie in [0, 1], or say ``reward_low`` and ``reward_high``; ``settings`` are those
    of :class:`~flwr_fbo.methods.fed_pne.FedPNESettings`. With a ``journal``, a file, calls that
    were made before the process died are not made again.
    """
    whole = space if isinstance(space, Space) else Space(space)
    records: Records = MemoryRecords() if journal is None else Journal(journal)

    def score(params: Mapping[str, Value], rng: np.random.Generator) -> float:
        return function(params)

    server = FedPNEServer(whole, 1, FedPNESettings(budget=budget, **settings), seed)
    evaluator = Evaluator(whole, score, records, seed=(seed, 0))
    agent = FedPNEAgent(server.setup(), evaluator, records, (seed, 1))
    while not server.finished:
        requests = server.requests([0])
        server.close({n: agent.answer(request) for n, request in requests.items()})
    recommended = result(server)["recommended"]
    if recommended is None:
        raise RuntimeError(
            f"nothing can be recommended: the function failed in {len(evaluator.history)} calls, "
            f"the last time with {evaluator.history[-1].failure!r}"
            if evaluator.history
            else "nothing can be recommended: no call was made"
        )
    return Maximum(recommended["params"], recommended["mean"], evaluator.history)
