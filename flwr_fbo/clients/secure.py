"""The legs of secure sums at a party: its vector from its journal, and its secrets in a file.

====================  ====================================================================
file                  content
====================  ====================================================================
``agent-0000.secure`` the secrets of the last sum, which legs were answered, and how many
                      masked vectors the agent has sent in this run. Only its owner can read
                      the file
``agent-0000.sums``   the lock of that file
====================  ====================================================================

A leg makes no evaluation, and reads the journal while a worker may write to it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flwr_fbo.clients.evaluation_job import seed_of
from flwr_fbo.core.arrays import Array
from flwr_fbo.core.evaluation import Evaluator, Records
from flwr_fbo.core.protocol import Reply, Request, Setup
from flwr_fbo.methods.owner import Owner
from flwr_fbo.methods.registry import method_of_agent
from flwr_fbo.methods.secure_sum import SecureAnswers
from flwr_fbo.privacy.secure.party import LEGS
from flwr_fbo.privacy.secure.terms import SecureSumError
from flwr_fbo.runs.files.journal import exclusive
from flwr_fbo.tasks import Partition

#: The numbers of answered legs after which the state must survive a power cut: the secrets of the
#: masks are deleted, or a list of survivors is confirmed.
DURABLE = {LEGS.index("masked") + 1, LEGS.index("confirm") + 1}


class SecretFile:
    """A state in a file that only its owner can read, replaced whole or not at all.

    The file has one line of JSON.

    Parameters
    ----------
    path
        The file.
    durable
        Whether the state must survive a power cut after a leg of :data:`DURABLE`. A simulation
        needs no such care: one machine holds what all parties and the server know.
    """

    def __init__(self, path: Path, durable: bool = True) -> None:
        self._path, self._durable = path, durable

    def load(self) -> dict[str, Any] | None:
        """Return the last stored state; None without a file."""
        try:
            # What follows the first line is left of a longer state that was written over.
            state: dict[str, Any] = json.loads(self._path.read_text().partition("\n")[0])
        except FileNotFoundError:
            return None
        except ValueError:
            raise SecureSumError(
                f"{self._path} must hold the state of secure sums, but is damaged: how many "
                "vectors this agent has sent is unknown; begin another run"
            ) from None
        return state

    def save(self, state: Mapping[str, Any]) -> None:
        """Store a state in place of the last one.

        After a leg of :data:`DURABLE` the state is on the disk when the call returns. After any
        other leg it outlives this process, but not a power cut: to answer such a leg again makes
        no mask again and confirms no other list.
        """
        content = json.dumps(state) + "\n"
        if not self._durable:
            self._write_over(content.encode())
            return
        temporary = self._path.with_name(self._path.name + ".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
            file.flush()
            if state["party"]["leg"] in DURABLE:
                os.fsync(file.fileno())
        temporary.replace(self._path)

    def _write_over(self, content: bytes) -> None:
        """Write over the last state by one call, which the end of this process does not cut."""
        # A new file for each state would take fifteen times as long.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, content)
            os.ftruncate(descriptor, len(content))
        finally:
            os.close(descriptor)


def answer_leg(
    setup: Setup,
    request: Request,
    partition: Partition,
    owner: Owner,
    journal: Path,
    read: Callable[[], Records],
    durable: bool = True,
) -> Reply:
    """Return an agent's reply to one leg of a secure sum.

    ``read`` returns the agent's records, and ``durable`` is as in :class:`SecretFile`.
    """
    journal.parent.mkdir(parents=True, exist_ok=True)

    def vector(masked: Request) -> Array:
        records = read()
        evaluator = Evaluator(setup.space, _evaluate_nothing, records)
        method = method_of_agent(setup.kind)
        return method.summand_of(setup, evaluator, records, (*seed_of(partition), 1), masked)

    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive(journal.with_suffix(".sums")))
        store = SecretFile(journal.with_suffix(".secure"), durable)
        return SecureAnswers(setup, vector, store, owner).answer(request)


def _evaluate_nothing(params: Mapping[str, Any], rng: np.random.Generator) -> float:
    """Raise RuntimeError: a leg of a secure sum makes no evaluation."""
    raise RuntimeError("a leg of a secure sum must make no evaluation")
