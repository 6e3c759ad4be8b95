"""The client of FTS, DP-FTS-DE and the solitary baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flwr_fbo.clients.background import ProcessWorkshop, sent_path
from flwr_fbo.clients.evaluation_job import Errand, errand, identity_of
from flwr_fbo.clients.owner_limits import number
from flwr_fbo.clients.tuning_client import FBOClient
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Agent, Reply, Request, Setup
from flwr_fbo.methods.thompson.agent import KIND, ThompsonAgent
from flwr_fbo.methods.thompson.asynchronous import AsynchronousAgent
from flwr_fbo.methods.thompson.local_privacy import LocallyPrivateAgent
from flwr_fbo.methods.thompson.sampler import ThompsonSettings
from flwr_fbo.runs.journal import Journal, exclusive


class ThompsonClient(FBOClient):
    """A local Gaussian process agent behind Flower's NumPyClient."""

    kind = KIND

    def make_agent(
        self, setup: Setup, evaluator: Evaluator, records: Records, seed: tuple[int, ...]
    ) -> Agent:
        """See :class:`FBOClient`."""
        return self._private(ThompsonAgent(setup, evaluator, records, seed), setup, records)

    def _private(self, agent: Agent, setup: Setup, records: Records) -> Agent:
        """The agent, whose vectors are made private if server or owner want it."""
        asked = setup.values.get("local-epsilon")
        limits = [v for v in (asked, number(self._partition.config, "epsilon-limit")) if v]
        if not limits:
            return agent
        stricter = {**setup.values, "local-epsilon": float(min(limits))}
        settings = ThompsonSettings.from_mapping(stricter)
        owner = f"agent {self._partition.index}"
        return LocallyPrivateAgent(agent, settings, records, self.privacy_ledger, owner)

    def _answer_meanwhile(
        self, setup: Setup, request: Request, patience: float, limit: float | None
    ) -> Reply:
        """See :class:`FBOClient`. The journal is the worker's; what is sent has another one."""

        def now() -> ThompsonAgent:
            known = Journal(self._journal, reading=True)
            evaluator = Evaluator(setup.space, _elsewhere, known)
            return ThompsonAgent(setup, evaluator, known, (*identity_of(self._partition), 1))

        def prepare(work: Request) -> Errand:
            return errand(self._journal, setup, work, self._workplace.task, self._partition, limit)

        with exclusive(sent_path(self._journal)):
            sent = Journal(sent_path(self._journal))
            sent.reserve()
            workshop = ProcessWorkshop(self._journal, setup.digest, prepare)
            agent = AsynchronousAgent(now, workshop, patience)
            before = Journal(self._journal, reading=True)
            return self._private(agent, setup, _Both(before, sent)).answer(request)


def _elsewhere(params: Mapping[str, Any], rng: np.random.Generator) -> float:
    raise RuntimeError("an asynchronous agent evaluates in its worker only")


class _Both:
    """Records of before, and those that new ones are added to."""

    def __init__(self, before: Records, after: Records) -> None:
        self._before, self._after = before, after

    def append(self, kind: str, record: Mapping[str, Any]) -> None:
        """See :class:`Records`."""
        self._after.append(kind, record)

    def read(self, kind: str) -> list[dict[str, Any]]:
        """See :class:`Records`."""
        return [*self._before.read(kind), *self._after.read(kind)]
